//! Elements whose meaning is in how they are shown. As bare text their values would fuse with their neighbours.

use dom_query::NodeRef;

use super::MAX_DEPTH;
use super::apart::{DIGIT_GAP, GAP, write_gaps};
use super::hidden::is_invisible;

/// Replaces the mark of struck text until Markdown is written, which would escape it.
const STRUCK: char = '\u{fdd0}';
/// Replaces the mark of an index.
const INDEX: char = '\u{fdd1}';
/// Raised letters that are part of a word or a mark.
const ORDINALS: [&str; 16] = [
    "st", "nd", "rd", "th", "er", "re", "e", "ème", "o", "a", "os", "as", "tm", "sm", "mc", "r",
];

/// Writes the meaning of an element as text.
pub(super) fn write(node: &NodeRef<'_>) {
    match node.node_name().unwrap_or_default().as_ref() {
        "sup" => raised(node),
        "sub" => lowered(node),
        "del" | "s" | "strike" => enclose(node, &STRUCK.to_string().repeat(2), None),
        "q" => enclose(node, "“", Some("”")),
        "rt" if has_parenthesis(node) => enclose(node, "", Some(&DIGIT_GAP.to_string())),
        "rt" => enclose(node, "（", Some("）")),
        "math" => {
            let tex = node.descendants_it().find(|below| {
                let encoding = below.attr("encoding");
                encoding.is_some_and(|encoding| encoding.ends_with("tex"))
            });
            let text = tex.map_or_else(|| formula(node, 0), |tex| tex.text().trim().to_owned());
            node.set_text(format!("{GAP}{text}{GAP}"));
            node.rename(if tex.is_some() { "code" } else { "span" });
        }
        // Beside an image its text would continue the alternative text.
        "figcaption" | "summary" => node.rename("p"),
        "ol" if node.has_attr("reversed") => count_down(node),
        _ => {}
    }
}

fn raised(node: &NodeRef<'_>) {
    let text = node.text();
    let text = text.trim();
    let is_mark = !text.chars().any(char::is_alphanumeric)
        || ORDINALS.contains(&text.to_lowercase().as_str())
        || text.starts_with('[');
    if text.is_empty() || is_mark {
        return;
    }
    let fraction = node.next_sibling().filter(|slash| {
        is_slash(slash) && slash.next_sibling().is_some_and(|sub| sub.has_name("sub"))
    });
    if let Some(slash) = fraction {
        slash.set_text("/");
        node.insert_before(&node.tree.new_text(" "));
        node.rename("span");
        if let Some(sub) = slash.next_sibling() {
            sub.rename("span");
        }
        return;
    }
    enclose_part(node, "^", text);
}

/// Whether a node is the line of a fraction.
fn is_slash(node: &NodeRef<'_>) -> bool {
    node.is_text() && matches!(node.text().trim(), "/" | "⁄")
}

fn lowered(node: &NodeRef<'_>) {
    let text = node.text();
    let before = node.prev_sibling().filter(is_slash);
    let above = before.and_then(|slash| slash.prev_sibling());
    let of_fraction = above.is_some_and(|above| above.has_name("sup"));
    if of_fraction {
        enclose(node, "", Some(&DIGIT_GAP.to_string()));
    } else if !text.trim().is_empty() {
        enclose_part(node, &INDEX.to_string(), text.trim());
    }
}

/// Puts a mark before a part of a formula, which gets parentheses if it is more than one value.
fn enclose_part(node: &NodeRef<'_>, mark: &str, text: &str) {
    if is_single(text) {
        enclose(node, mark, Some(&DIGIT_GAP.to_string()));
    } else {
        enclose(node, &format!("{mark}("), Some(")"));
    }
}

fn is_single(text: &str) -> bool {
    let value = text.trim_start_matches(['-', '+', '−', '–']);
    value.chars().all(|c| c.is_alphanumeric() || c == '.')
}

fn enclose(node: &NodeRef<'_>, before: &str, after: Option<&str>) {
    node.prepend_child(&node.tree.new_text(before));
    node.append_child(&node.tree.new_text(after.unwrap_or(before)));
}

/// Whether a parenthesis before a reading is part of the text.
fn has_parenthesis(reading: &NodeRef<'_>) -> bool {
    let before = reading.prev_sibling();
    before.is_some_and(|before| before.has_name("rp") && !before.text().trim().is_empty())
}

/// Writes the marks of a text for which others stood.
pub(super) fn settle(text: &str) -> String {
    write_gaps(text).replace(STRUCK, "~").replace(INDEX, "_")
}

/// The items get the numbers that are shown.
fn count_down(list: &NodeRef<'_>) {
    let items = list.element_children();
    let items: Vec<_> = items.iter().filter(|item| item.has_name("li")).collect();
    let start = list
        .attr("start")
        .and_then(|start| start.trim().parse().ok());
    let mut number = start.unwrap_or(items.len());
    for item in items {
        if let Some(value) = item.attr("value") {
            number = value.trim().parse().unwrap_or(number);
        }
        item.set_attr("value", &number.to_string());
        number = number.saturating_sub(1);
    }
}

/// A formula of `MathML` as one line.
fn formula(node: &NodeRef<'_>, depth: usize) -> String {
    if node.is_text() || depth > MAX_DEPTH {
        // Operators such as the invisible product.
        let is_blank = |c: char| c.is_whitespace() || matches!(c, '\u{2061}'..='\u{2064}');
        return node.text().trim_matches(is_blank).to_owned();
    }
    let parts: Vec<String> = node
        .children_it(false)
        .filter(|child| child.is_text() || child.is_element() && !is_invisible(child))
        .filter(|child| !child.has_name("mphantom") && !child.has_name("annotation"))
        .map(|child| formula(&child, depth + 1))
        .filter(|part| !part.is_empty())
        .collect();
    let name = node.node_name().unwrap_or_default();
    let part = |part: &str| {
        if is_single(part) {
            part.to_owned()
        } else {
            format!("({part})")
        }
    };
    match (name.as_ref(), parts.as_slice()) {
        ("mfrac", [above, below]) => format!("{}/{}", part(above), part(below)),
        ("msup" | "mover", [base, power]) => format!("{}^{}", part(base), part(power)),
        ("msub" | "munder", [base, index]) => format!("{}{INDEX}{}", part(base), part(index)),
        ("msubsup" | "munderover", [base, index, power]) => {
            format!("{}{INDEX}{}^{}", part(base), part(index), part(power))
        }
        ("mroot", [base, degree]) => format!("{}^(1/{})", part(base), part(degree)),
        ("msqrt", _) => format!("√{}", part(&row(&parts))),
        ("mtr" | "mtd", _) => format!("{} ", row(&parts)),
        _ => row(&parts),
    }
}

/// The parts of a row, numbers apart.
fn row(parts: &[String]) -> String {
    parts.join(&DIGIT_GAP.to_string())
}
