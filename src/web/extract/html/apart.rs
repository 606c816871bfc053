//! Separates texts that a browser shows apart. Markdown is written from few elements; the text of other elements would
//! join, and two numbers would become a third one.

use dom_query::NodeRef;

/// Becomes a space between digits and is dropped elsewhere: after a part of a formula. Of several marks in a row the
/// greatest counts.
pub(super) const DIGIT_GAP: char = '\u{fdd2}';
/// Becomes a space between letters or digits.
pub(super) const GAP: char = '\u{fdd3}';
/// Becomes a space, but not at the edge of a link or of code.
const SPACE: char = '\u{fdd4}';

/// Elements that are written as blocks.
const WRITTEN: [&str; 17] = [
    "article",
    "blockquote",
    "div",
    "dl",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "ul",
];
/// Others that begin and end a line.
const UNWRITTEN: [&str; 26] = [
    "html",
    "body",
    "address",
    "aside",
    "br",
    "caption",
    "center",
    "dd",
    "details",
    "dialog",
    "dir",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "header",
    "hgroup",
    "legend",
    "li",
    "main",
    "menu",
    "nav",
    "search",
    "summary",
];
/// Cells are separated by the table, and their content by the cell.
const CELLS: [&str; 2] = ["td", "th"];
/// Values of `display` of boxes of their own.
const BOXES: [&str; 8] = [
    "block",
    "flex",
    "grid",
    "flow-root",
    "list-item",
    "table",
    "table-cell",
    "table-row",
];

/// Puts spaces between an element and its neighbours where a browser begins a line or a box.
pub(super) fn separate(node: &NodeRef<'_>) {
    if is_box(node) {
        if !is_apart(node.prev_sibling(), node) {
            node.insert_before(&space(node));
        }
        if !is_apart(node.next_sibling(), node) {
            node.insert_after(&space(node));
        }
        if node.has_name("span") {
            node.rename("div");
        }
    }
    if lays_out(node) {
        for child in node.element_children() {
            child.insert_before(&space(node));
            child.insert_after(&space(node));
        }
    }
    if is_one_of(&CELLS, node) {
        // At the end of the cell, where the space does not count for the width of a column.
        node.append_child(&node.tree.new_text(" "));
    }
    // Of these elements only the text is written.
    if (node.has_name("code") || node.has_name("a")) && node.text().contains(char::is_alphanumeric)
    {
        let breaks = |node: &NodeRef<'_>| is_block(node) || is_one_of(&CELLS, node);
        for block in node.descendants_it().filter(breaks).collect::<Vec<_>>() {
            block.insert_before(&space(node));
            block.insert_after(&space(node));
        }
        if node.has_name("a") && node.element_children().iter().any(is_box) {
            node.insert_before(&space(node));
            node.insert_after(&space(node));
        }
    }
    if node.has_name("label") {
        node.insert_after(&node.tree.new_text(GAP.to_string()));
    }
    if node.has_name("ol") || node.has_name("ul") {
        wrap_strays(node);
    }
}

fn space<'a>(node: &NodeRef<'a>) -> NodeRef<'a> {
    node.tree.new_text(SPACE.to_string())
}

/// Whether nothing beside a box needs a space: blank text, the end of a line, the edge of a box.
fn is_apart(neighbour: Option<NodeRef<'_>>, node: &NodeRef<'_>) -> bool {
    match neighbour {
        Some(text) if text.is_text() => text.text().trim().is_empty(),
        // An empty block may be removed later.
        Some(other) => is_written(node) && is_block(&other),
        None => node
            .parent()
            .is_none_or(|parent| is_block(&parent) || is_one_of(&CELLS, &parent)),
    }
}

fn is_written(node: &NodeRef<'_>) -> bool {
    let is_list = |list: NodeRef<'_>| list.has_name("ul") || list.has_name("ol");
    is_one_of(&WRITTEN, node) || node.has_name("li") && node.parent().is_some_and(is_list)
}

fn is_block(node: &NodeRef<'_>) -> bool {
    is_one_of(&WRITTEN, node) || is_one_of(&UNWRITTEN, node)
}

fn is_one_of(names: &[&str], node: &NodeRef<'_>) -> bool {
    let name = node.qual_name_ref();
    name.is_some_and(|name| names.contains(&name.local.as_ref()))
}

/// Whether an element begins and ends a line, by its name or its style.
pub(super) fn is_box(node: &NodeRef<'_>) -> bool {
    is_block(node) || display(node).is_some_and(|value| BOXES.contains(&value.as_str()))
}

/// Whether the children of an element are boxes beside or below each other.
pub(super) fn lays_out(node: &NodeRef<'_>) -> bool {
    display(node).is_some_and(|value| value.ends_with("flex") || value.ends_with("grid"))
}

/// The display of an element by its own style, where a box that floats is a block.
fn display(node: &NodeRef<'_>) -> Option<String> {
    let style = node.attr("style")?.to_ascii_lowercase();
    let rules = style.split(';').filter_map(|rule| rule.split_once(':'));
    let mut display = None;
    for (property, value) in rules {
        let value = value.replace("!important", "");
        match (property.trim(), value.trim()) {
            ("display", value) => display = Some(value.to_owned()),
            ("float", "left" | "right") | ("position", "absolute" | "fixed")
                if display.is_none() =>
            {
                display = Some("block".to_owned());
            }
            _ => {}
        }
    }
    display
}

/// Text and inline elements between the items of a list become paragraphs. The number of an item would continue them.
fn wrap_strays(list: &NodeRef<'_>) {
    for child in list.children() {
        if !is_block(&child) && !child.text().trim().is_empty() {
            let paragraph = list.tree.new_element("div");
            child.insert_before(&paragraph);
            paragraph.append_child(&child);
            paragraph.append_child(&space(list));
        }
    }
}

/// Removes an element that has a place in its line.
pub(super) fn leave_gap(node: &NodeRef<'_>) {
    // An element that becomes empty must not hold the gap.
    let mut place = *node;
    while place.prev_sibling().is_none() && place.next_sibling().is_none() {
        match place.parent() {
            Some(parent) if !is_block(&parent) && !is_one_of(&CELLS, &parent) => place = parent,
            _ => break,
        }
    }
    let is_between = place.prev_sibling().is_some() && place.next_sibling().is_some();
    if is_between || place.parent().is_some_and(|parent| !is_block(&parent)) {
        place.insert_before(&node.tree.new_text(GAP.to_string()));
    }
    node.remove_from_parent();
}

/// Writes the gaps of a text.
pub(super) fn write_gaps(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    let mut gap = None;
    for next in text.chars() {
        if matches!(next, DIGIT_GAP..=SPACE) {
            gap = gap.max(Some(next));
            continue;
        }
        let starts = |c: char| c.is_whitespace() || matches!(c, '[' | '`' | '>');
        let ends = |c: char| c.is_whitespace() || matches!(c, ']' | '`' | '<');
        let last = written.chars().next_back();
        let fuses = last.is_some_and(|last| match gap {
            Some(DIGIT_GAP) => last.is_numeric() && next.is_numeric(),
            Some(GAP) => last.is_alphanumeric() && next.is_alphanumeric(),
            Some(_) => !starts(last) && !ends(next),
            None => false,
        });
        if fuses {
            written.push(' ');
        }
        // The space on one side is enough.
        if gap.take().is_none() || last != Some(' ') || next != ' ' {
            written.push(next);
        }
    }
    written
}
