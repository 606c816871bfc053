//! Lines of code. Elements break lines as well as characters do, but Markdown is written from the characters alone.

use dom_query::NodeRef;

/// Elements that are lines of their own.
const BLOCKS: [&str; 7] = ["div", "p", "li", "tr", "ol", "ul", "table"];
/// Classes of line numbers, which are not part of the code.
const GUTTERS: [&str; 6] = [
    "lineno",
    "linenos",
    "line-number",
    "line-numbers",
    "gutter",
    "blob-num",
];
/// Classes of spans that are lines.
const LINES: [&str; 3] = ["token-line", "code-line", "view-line"];
/// How classes name the language.
const LANGUAGES: [&str; 3] = ["language-", "lang-", "highlight-source-"];

/// Whether a table has a line of code in each row.
pub(super) fn is_line_table(table: &NodeRef<'_>) -> bool {
    if !table.has_name("table") {
        return false;
    }
    let mut rows = table
        .descendants_it()
        .filter(|node| node.has_name("tr"))
        .peekable();
    let is_line = |row: NodeRef<'_>| {
        let cells = row.element_children();
        cells.len() <= 3
            && cells.last().is_some_and(|cell| {
                let class = cell.class().unwrap_or_default();
                class.split_whitespace().any(|word| {
                    word.starts_with("blob-code") || matches!(word, "line-code" | "code-line")
                })
            })
    };
    rows.peek().is_some() && rows.all(is_line)
}

/// Makes the lines of a block of code lines of its text, and keeps its language.
pub(super) fn lines(block: &NodeRef<'_>) {
    block.rename("pre");
    if let Some(language) = language(block) {
        block.set_attr("data-lang", &language);
    }
    let below: Vec<NodeRef<'_>> = block.descendants_it().collect();
    // Whitespace between the parts of a table is not text.
    for part in below
        .iter()
        .chain([block])
        .filter(|node| is_table_part(node))
    {
        let blank: Vec<_> = part
            .children_it(false)
            .filter(|child| child.is_text() && child.text().trim().is_empty())
            .collect();
        blank.iter().for_each(NodeRef::remove_from_parent);
    }
    for node in below {
        if node.has_name("br") {
            node.replace_with(&node.tree.new_text("\n"));
        } else if node.is_element() && is_gutter(&node) {
            node.remove_from_parent();
        } else if node.is_element() && is_line(&node) {
            end_line(&node);
        }
    }
    // Its cells must not become a table.
    for node in block.descendants_it().collect::<Vec<_>>() {
        if is_table_part(&node) || node.has_name("td") || node.has_name("th") {
            node.rename("span");
        }
    }
}

fn is_table_part(node: &NodeRef<'_>) -> bool {
    ["table", "thead", "tbody", "tr"]
        .iter()
        .any(|name| node.has_name(name))
}

fn is_gutter(node: &NodeRef<'_>) -> bool {
    let class = node.class().unwrap_or_default();
    let text = node.text();
    class
        .split_whitespace()
        .any(|word| GUTTERS.contains(&word) || word == "line-numbers-rows")
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || c.is_whitespace())
}

fn is_line(node: &NodeRef<'_>) -> bool {
    let class = node.class().unwrap_or_default();
    BLOCKS.iter().any(|name| node.has_name(name))
        || class.split_whitespace().any(|word| LINES.contains(&word))
        || node.attr("style").is_some_and(|style| {
            let style = style.replace(' ', "");
            style.contains("display:block") || style.contains("display:flex")
        })
}

/// Ends a line where neither its text nor what follows does.
fn end_line(node: &NodeRef<'_>) {
    let has_end = node.descendants_it().any(|below| below.has_name("br"))
        || node.text().ends_with('\n')
        || node
            .next_sibling()
            .is_none_or(|next| next.is_text() && next.text().starts_with(['\n', '\r']));
    if !has_end {
        node.insert_after(&node.tree.new_text("\n"));
    }
    // A line that begins inside another one.
    let starts = node
        .prev_sibling()
        .is_some_and(|before| before.is_text() && !before.text().ends_with('\n'));
    if starts && !node.has_name("span") {
        node.insert_before(&node.tree.new_text("\n"));
    }
    // An empty block would not be written.
    if node.has_name("div") || node.has_name("p") {
        node.rename("span");
    }
}

fn language(block: &NodeRef<'_>) -> Option<String> {
    let inner = block
        .children_it(false)
        .find(|child| child.has_name("code"));
    let outer = block.parent();
    let above = outer.and_then(|outer| outer.parent());
    [inner, Some(*block), outer, above]
        .into_iter()
        .flatten()
        .find_map(|node| {
            let class = node.class().unwrap_or_default();
            let named = class
                .split_whitespace()
                .find_map(|word| LANGUAGES.iter().find_map(|start| word.strip_prefix(start)));
            let named = named.map(str::to_owned).or_else(|| {
                let attribute = node
                    .attr("data-lang")
                    .or_else(|| node.attr("data-language"));
                attribute.map(|name| name.to_string())
            });
            named.filter(|name| {
                (1..=30).contains(&name.len())
                    && name
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"+-#_.".contains(&b))
            })
        })
}
