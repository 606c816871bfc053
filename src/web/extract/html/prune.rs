//! Removes what readers do not see: scripts, controls, hidden text, images except for their alternative text. Hidden text is
//! where attackers put instructions for models.

use dom_query::{Document as Dom, NodeRef};
use url::Url;

use super::hidden::{Hiding, hiding, is_formula, is_invisible};
use super::{MAX_DEPTH, apart, code, meaning};
use crate::MAX_URL_BYTES;

/// Elements that are dropped and take no place in their line.
const BOXLESS: [&str; 12] = [
    "script", "style", "noscript", "template", "source", "track", "map", "area", "datalist",
    "link", "base", "param",
];
/// Words of classes and ids that mark consent dialogs, editing controls and what is only printed.
const INTERRUPTIONS: [&str; 8] = [
    "consent",
    "cookie",
    "cookies",
    "cookiebar",
    "cookiebanner",
    "gdpr",
    "editsection",
    "printfooter",
];
/// Longest text of such an element, in characters; an element with a longer one is kept.
const MAX_INTERRUPTION: usize = 3000;

/// Removes invisible content and makes links absolute.
pub(super) fn prune(dom: &Dom, base: Option<&Url>) {
    let mut to_do: Vec<(NodeRef<'_>, usize, bool)> = vec![(dom.root(), 0, false)];
    while let Some((node, depth, mut is_code)) = to_do.pop() {
        if node.is_comment() {
            node.remove_from_parent();
            continue;
        }
        if node.is_element() {
            let is_gutter = code::is_gutter(&node);
            if is_gutter || is_invisible(&node) || is_interruption(&node) {
                if is_gutter || is_boxless(&node) {
                    node.remove_from_parent();
                } else {
                    apart::leave_gap(&node);
                }
                continue;
            }
            if depth >= MAX_DEPTH {
                flatten(&node);
                continue;
            }
            if !is_code {
                apart::separate(&node);
            }
            change(&node, base);
            is_code |= node.has_name("pre");
        }
        let children = node.children_it(false);
        to_do.extend(children.map(|child| (child, depth + 1, is_code)));
    }
    code::write_lines(dom);
}

/// Whether an invisible element takes no place in its line.
fn is_boxless(node: &NodeRef<'_>) -> bool {
    let name = node.node_name().unwrap_or_default();
    match hiding(node) {
        None => BOXLESS.contains(&name.as_ref()),
        Some(hiding) => hiding != Hiding::Accessibility,
    }
}

/// Whether an element is a consent dialog or an editing control.
pub(super) fn is_interruption(node: &NodeRef<'_>) -> bool {
    if matches!(node.attr("role").as_deref(), Some("dialog" | "alertdialog")) {
        return true;
    }
    let marks = [node.class(), node.id_attr()];
    let mut words = marks
        .iter()
        .flatten()
        .flat_map(|mark| mark.split(|c: char| !c.is_ascii_alphanumeric()));
    words.any(|word| INTERRUPTIONS.contains(&word.to_ascii_lowercase().as_str()))
        // Does not match the text of a page about consent, nor a body whose mark holds the given answer.
        && node.text().chars().count() < MAX_INTERRUPTION
        && !node.descendants_it().any(|below| below.has_name("h1") || below.has_name("main"))
}

/// Replaces the content of an element by its visible text.
fn flatten(node: &NodeRef<'_>) {
    let mut invisible = Vec::new();
    for below in node.descendants_it() {
        if below.is_comment() || (below.is_element() && is_invisible(&below)) {
            invisible.push(below);
        }
    }
    invisible.iter().for_each(NodeRef::remove_from_parent);
    let text = node.formatted_text();
    node.set_text(text);
}

fn change(node: &NodeRef<'_>, base: Option<&Url>) {
    match node.node_name().unwrap_or_default().as_ref() {
        "img" => replace_by(node, "alt"),
        "pre" => code::mark(node),
        "table" if code::is_line_table(node) => code::mark(node),
        "math" if node.has_attr("alttext") => replace_by(node, "alttext"),
        // Some servers put the whole page into one.
        "form" | "fieldset" | "dl" => node.rename("div"),
        // Markdown has no definition lists.
        "dt" | "dd" => node.rename("p"),
        "a" => link(node, base),
        // The headings of parts that open are often buttons.
        "button" => node.rename("span"),
        _ => meaning::write(node),
    }
}

/// Replaces an element by the text of an attribute.
fn replace_by(node: &NodeRef<'_>, attribute: &str) {
    let words = node.attr(attribute).unwrap_or_default();
    let words = words.trim();
    if words.is_empty() {
        apart::leave_gap(node);
    } else if is_formula(node) {
        let code = node.tree.new_element("code");
        code.set_text(words);
        node.replace_with(&code);
    } else {
        let text = node.tree.new_text(format!("{0}{words}{0}", apart::GAP));
        node.replace_with(&text);
    }
}

/// Makes a link absolute. A link to another scheme becomes plain text, and an anchor of a heading is removed.
fn link(node: &NodeRef<'_>, base: Option<&Url>) {
    let href = node.attr("href").unwrap_or_default();
    let href = href.trim();
    if href.starts_with('#') && !node.text().contains(char::is_alphanumeric) {
        node.remove_from_parent();
        return;
    }
    let target = if href.is_empty() || href.starts_with('#') {
        None
    } else {
        let url = base
            .map_or_else(|| Url::parse(href), |base| base.join(href))
            .ok();
        url.filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"))
            .map(String::from)
            .filter(|url| url.len() <= MAX_URL_BYTES)
    };
    node.retain_attrs(&["id", "class", "rel"]);
    match target {
        Some(target) => node.set_attr("href", &target),
        None => node.rename("span"),
    }
}
