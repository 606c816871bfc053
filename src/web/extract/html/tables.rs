//! Prepares tables for Markdown: all rows get the same number of cells, and the first row becomes the heading. Tables that
//! contain tables are layout and become plain blocks.

use dom_query::{Document as Dom, NodeRef};

/// Most columns of a table; cells beyond are left out.
const MAX_COLUMNS: usize = 64;
/// Most rows that one cell spans.
const MAX_SPAN: usize = 1000;

/// Prepares all tables.
pub(super) fn normalize(dom: &Dom) {
    // In document order an outer table comes before its inner ones.
    for table in dom.select("table").nodes() {
        let is_layout = matches!(table.attr("role").as_deref(), Some("presentation" | "none"));
        if is_layout || table.descendants_it().any(|node| node.has_name("table")) {
            flatten(table);
        } else {
            square(table);
        }
    }
}

/// Turns the parts of a table into plain blocks.
fn flatten(table: &NodeRef<'_>) {
    let mut to_do = vec![*table];
    while let Some(node) = to_do.pop() {
        let part = [
            "table", "caption", "colgroup", "thead", "tbody", "tfoot", "tr", "td", "th",
        ];
        if part.iter().any(|name| node.has_name(name)) {
            let inner = node.element_children();
            to_do.extend(inner.into_iter().filter(|child| !child.has_name("table")));
            node.rename("div");
        }
    }
}

fn square(table: &NodeRef<'_>) {
    let rows: Vec<NodeRef<'_>> = table
        .descendants_it()
        .filter(|node| node.has_name("tr"))
        .collect();
    if rows.len() < 2 || rows.iter().all(|row| cells(row).len() < 2) {
        flatten(table);
        return;
    }
    let widths = spread(&rows);
    let width = widths.iter().copied().max().unwrap_or(0).min(MAX_COLUMNS);
    for (row, own) in rows.iter().zip(&widths) {
        (*own..width).for_each(|_| row.append_child(&row.tree.new_element("td")));
    }
    if let Some(first) = rows.first() {
        cells(first).iter().for_each(|cell| cell.rename("th"));
    }
    // The caption becomes a paragraph before the table.
    let captions = table.element_children();
    for caption in captions.iter().filter(|child| child.has_name("caption")) {
        caption.rename("p");
        table.insert_before(caption);
    }
}

/// Fills the positions that cells span: empty cells to the right, and copies of the text below. Returns the widths.
fn spread(rows: &[NodeRef<'_>]) -> Vec<usize> {
    // For each column, the number of spanned rows that remain, and the text.
    let mut spanned: Vec<(usize, String)> = Vec::new();
    let mut widths = Vec::new();
    for row in rows {
        let mut column = 0;
        for cell in cells(row) {
            column = fill(&mut spanned, column, |text| {
                let filler = row.tree.new_element("td");
                filler.set_text(format!("{text} "));
                cell.insert_before(&filler);
            });
            let (across, down) = (
                span(&cell, "colspan").min(MAX_COLUMNS),
                span(&cell, "rowspan"),
            );
            let text = if down > 1 {
                cell.formatted_text().trim().to_owned()
            } else {
                String::new()
            };
            for offset in 0..across {
                if offset > 0 {
                    cell.insert_after(&row.tree.new_element("td"));
                }
                let position = column + offset;
                if down > 1 && position < MAX_COLUMNS {
                    spanned.resize(spanned.len().max(position + 1), (0, String::new()));
                    if let Some(entry) = spanned.get_mut(position) {
                        *entry = (
                            down - 1,
                            if offset == 0 {
                                text.clone()
                            } else {
                                String::new()
                            },
                        );
                    }
                }
            }
            column += across;
        }
        column = fill(&mut spanned, column, |text| {
            let filler = row.tree.new_element("td");
            filler.set_text(format!("{text} "));
            row.append_child(&filler);
        });
        widths.push(column);
    }
    widths
}

/// Fills the spanned positions from a column on, and returns the first free one.
fn fill(spanned: &mut [(usize, String)], mut column: usize, mut add: impl FnMut(&str)) -> usize {
    while let Some((rows @ 1.., text)) = spanned.get_mut(column) {
        *rows -= 1;
        add(text);
        column += 1;
    }
    column
}

fn cells<'a>(row: &NodeRef<'a>) -> Vec<NodeRef<'a>> {
    let is_cell = |node: &NodeRef<'_>| node.has_name("td") || node.has_name("th");
    row.children_it(false).filter(is_cell).collect()
}

fn span(cell: &NodeRef<'_>, attribute: &str) -> usize {
    let span = cell
        .attr(attribute)
        .and_then(|span| span.trim().parse().ok());
    span.unwrap_or(1).clamp(1, MAX_SPAN)
}
