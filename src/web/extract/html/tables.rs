//! Tables, made such that Markdown can show them: every row with as many cells as the widest, the first as heading.
//! Tables that hold other tables are there for the layout and become plain blocks.

use dom_query::{Document as Dom, NodeRef};

/// Most columns that a row is widened to.
const MAX_COLUMNS: usize = 64;
/// Most rows that one cell reaches over.
const MAX_SPAN: usize = 1000;

/// Goes through all tables.
pub(super) fn normalize(dom: &Dom) {
    // In the order of the document a table comes before those within it.
    for table in dom.select("table").nodes() {
        let is_layout = matches!(table.attr("role").as_deref(), Some("presentation" | "none"));
        if is_layout || table.descendants_it().any(|node| node.has_name("table")) {
            unmake(table);
        } else {
            square(table);
        }
    }
}

/// Makes plain blocks of a table's own parts.
fn unmake(table: &NodeRef<'_>) {
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
        unmake(table);
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
    // A caption is a paragraph before the table.
    let captions = table.element_children();
    for caption in captions.iter().filter(|child| child.has_name("caption")) {
        caption.rename("p");
        table.insert_before(caption);
    }
}

/// Fills the places that cells reach over: beside the cell with nothing, below it with what it says. Returns the widths.
fn spread(rows: &[NodeRef<'_>]) -> Vec<usize> {
    // For each column, how many rows below are still taken, and by what.
    let mut taken: Vec<(usize, String)> = Vec::new();
    let mut widths = Vec::new();
    for row in rows {
        let mut column = 0;
        for cell in cells(row) {
            column = fill(&mut taken, column, |text| {
                let filler = row.tree.new_element("td");
                filler.set_text(text);
                cell.insert_before(&filler);
            });
            let (across, down) = (
                span(&cell, "colspan").min(MAX_COLUMNS),
                span(&cell, "rowspan"),
            );
            let text = if down > 1 {
                cell.text().trim().to_owned()
            } else {
                String::new()
            };
            for offset in 0..across {
                if offset > 0 {
                    cell.insert_after(&row.tree.new_element("td"));
                }
                let place = column + offset;
                if down > 1 && place < MAX_COLUMNS {
                    taken.resize(taken.len().max(place + 1), (0, String::new()));
                    if let Some(place) = taken.get_mut(place) {
                        *place = (
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
        column = fill(&mut taken, column, |text| {
            let filler = row.tree.new_element("td");
            filler.set_text(text);
            row.append_child(&filler);
        });
        widths.push(column);
    }
    widths
}

/// Fills the taken places from a column on; returns the first free one.
fn fill(taken: &mut [(usize, String)], mut column: usize, mut add: impl FnMut(&str)) -> usize {
    while let Some((rows @ 1.., text)) = taken.get_mut(column) {
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
