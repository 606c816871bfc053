//! Lines of code. Elements break lines as well as characters do, but Markdown is written from the characters alone.

use dom_query::{Document as Dom, NodeRef};

use super::apart;

/// Classes of line numbers, which are not part of the code.
const GUTTERS: [&str; 11] = [
    "lineno",
    "linenos",
    "line-number",
    "line-numbers",
    "line-numbers-rows",
    "gutter",
    "rouge-gutter",
    "blob-num",
    "ln",
    "lnt",
    "react-syntax-highlighter-line-number",
];
/// Classes of spans that are lines.
const LINES: [&str; 3] = ["token-line", "code-line", "view-line"];
/// How classes name the language.
const LANGUAGES: [&str; 4] = [
    "language-",
    "lang-",
    "highlight-source-",
    "mw-highlight-lang-",
];
/// What says that there is no language.
const UNNAMED: [&str; 3] = ["auto", "default", "none"];
/// Most elements between a block of code and its table; a table further above is not looked for.
const MAX_ABOVE: usize = 5;

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

/// Makes an element a block of code, and keeps its language.
pub(super) fn mark(block: &NodeRef<'_>) {
    block.rename("pre");
    if let Some(language) = language(block) {
        block.set_attr("data-lang", &language);
        // A heading of the block that says the same.
        let label = block.prev_element_sibling();
        if let Some(label) = label.filter(|label| label.text().trim() == language) {
            label.remove_from_parent();
        }
    }
}

/// Makes the lines of all blocks of code lines of their text.
pub(super) fn write_lines(dom: &Dom) {
    for block in dom.select("pre").nodes() {
        let mut code = Code::default();
        let mut to_do = vec![(*block, false)];
        while let Some((node, is_end)) = to_do.pop() {
            if node.has_name("br") {
                code.end_line();
                code.text.push('\n');
                continue;
            }
            let is_line = node.id != block.id && is_line(&node);
            code.is_line_due |= is_line;
            code.end_cell(&node);
            if is_end {
                continue;
            }
            if is_line {
                code.end_line();
            }
            if node.is_text() {
                code.push(&node);
            } else if node.id == block.id || !is_gutter(&node) {
                to_do.push((node, true));
                to_do.extend(node.children_it(true).map(|child| (child, false)));
            }
        }
        if code.text.trim().is_empty() && block.text().is_empty() {
            block.remove_from_parent();
        } else {
            block.set_text(code.text);
        }
    }
}

/// The text of a block of code.
#[derive(Default)]
struct Code {
    text: String,
    /// Whether what follows stands on a line of its own.
    is_line_due: bool,
}

impl Code {
    fn push(&mut self, text: &NodeRef<'_>) {
        let is_in_table = text.parent().is_some_and(|parent| is_table_part(&parent));
        let text = text.text();
        // Whitespace between the parts of a table is not text.
        if text.is_empty() || is_in_table && text.trim().is_empty() {
            return;
        }
        if text.starts_with(['\n', '\r']) {
            self.is_line_due = false;
        }
        self.end_line();
        self.text.push_str(&text);
    }

    fn end_line(&mut self) {
        let is_due = std::mem::take(&mut self.is_line_due);
        if is_due && !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// Separates the cells of a line.
    fn end_cell(&mut self, cell: &NodeRef<'_>) {
        if !self.text.ends_with(char::is_alphanumeric) || self.is_line_due {
            return;
        }
        if cell.has_name("td") {
            self.text.push(apart::GAP);
        } else if cell.parent().is_some_and(|row| apart::lays_out(&row)) {
            self.text.push(apart::DIGIT_GAP);
        }
    }
}

fn is_table_part(node: &NodeRef<'_>) -> bool {
    ["table", "thead", "tbody", "tr"]
        .iter()
        .any(|name| node.has_name(name))
}

/// Whether an element holds line numbers.
pub(super) fn is_gutter(node: &NodeRef<'_>) -> bool {
    let class = node.class().unwrap_or_default();
    let is_marked = class.split_whitespace().any(|word| GUTTERS.contains(&word))
        || node
            .attr("style")
            .is_some_and(|style| style.contains("user-select:none"));
    let is_number = |c: char| c.is_ascii_digit() || c.is_whitespace();
    is_marked && node.text().chars().all(is_number)
}

fn is_line(node: &NodeRef<'_>) -> bool {
    let class = node.class().unwrap_or_default();
    apart::is_box(node)
        || node.has_name("tr")
        || class.split_whitespace().any(|word| LINES.contains(&word))
}

fn language(block: &NodeRef<'_>) -> Option<String> {
    let inner = block
        .children_it(false)
        .find(|child| child.has_name("code"));
    let outer = block.parent();
    let above = outer.and_then(|outer| outer.parent());
    // A table whose other column are line numbers.
    let mut all_above = block.ancestors_it(Some(MAX_ABOVE));
    let table = all_above.find(|above| above.has_name("table"));
    let around = table.and_then(|table| table.parent());
    let nodes = [inner, Some(*block), outer, above, around];
    nodes.into_iter().flatten().find_map(|node| {
        let class = node.class().unwrap_or_default();
        let named = class
            .split_whitespace()
            .find_map(|word| LANGUAGES.iter().find_map(|start| word.strip_prefix(start)));
        // Sphinx marks its blocks so.
        let words = class.split_whitespace();
        let sphinx = class.contains("notranslate").then_some(words);
        let named = named.or_else(|| sphinx?.find_map(|word| word.strip_prefix("highlight-")));
        let named = named.map(str::to_owned).or_else(|| {
            let attribute = node
                .attr("data-lang")
                .or_else(|| node.attr("data-language"));
            attribute.map(|name| name.to_string())
        });
        named.filter(|name| {
            (1..=30).contains(&name.len())
                && !UNNAMED.contains(&name.as_str())
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"+-#_.".contains(&b))
        })
    })
}
