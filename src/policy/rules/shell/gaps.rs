//! Checks of the text between the tokens: where Bash needs blanks, and where it allows none.

use tree_sitter::Node;

use super::here;

/// Nodes that hold commands one after another.
const LISTS: [&str; 12] = [
    "program",
    "compound_statement",
    "subshell",
    "do_group",
    "if_statement",
    "elif_clause",
    "else_clause",
    "while_statement",
    "case_item",
    "case_statement",
    "command_substitution",
    "process_substitution",
];
/// Further nodes that hold reserved words.
const WORDED: [&str; 4] = [
    "negated_command",
    "for_statement",
    "c_style_for_statement",
    "function_definition",
];
/// Further nodes in which a line may end between two children.
const BROKEN: [&str; 11] = [
    "list",
    "pipeline",
    "array",
    "string",
    "for_statement",
    "c_style_for_statement",
    "function_definition",
    "heredoc_redirect",
    "heredoc_body",
    "test_command",
    "binary_expression",
];
/// Nodes between whose children there is nothing.
const JOINED: [&str; 6] = [
    "simple_expansion",
    "concatenation",
    "brace_expression",
    "translated_string",
    "subscript",
    "variable_assignment",
];

/// Whether a line may end between two children of this node.
pub(super) fn may_break(kind: &str) -> bool {
    LISTS.contains(&kind) || BROKEN.contains(&kind)
}

/// What lies between the children of a node.
pub(super) fn check(source: &str, node: Node<'_>, children: &[Node<'_>]) -> Option<()> {
    let kind = node.kind();
    let mut end = node.start_byte();
    let mut before: Option<Node<'_>> = None;
    for &child in children {
        let gap = source.get(end..child.start_byte())?;
        blank(kind, gap)?;
        // `${ a; }` is a command, and `$ a` a dollar sign and a word.
        let opened = before.is_some_and(|before| before.kind().ends_with("${"));
        if (JOINED.contains(&kind) || opened) && !gap.is_empty() {
            return None;
        }
        if let Some(before) = before {
            divided(kind, before, gap, child)?;
        }
        if child.kind() == ";;" && kind != "case_item" {
            return None;
        }
        if child.kind() == "comment" && !may_break(kind) {
            return None;
        }
        end = child.end_byte();
        before = Some(child);
    }
    blank(kind, source.get(end..node.end_byte())?)
}

/// Whether there is nothing but blanks in a node of this kind.
pub(super) fn blank(kind: &str, gap: &str) -> Option<()> {
    if kind == "heredoc_body" {
        return here::is_plain(gap).then_some(());
    }
    let joined = gap.replace("\\\n", "");
    let blanks = if may_break(kind) {
        [' ', '\t', '\n']
    } else {
        [' ', '\t', ' ']
    };
    // A line break within a word would split it into two words.
    let cut = joined.is_empty() && !gap.is_empty() && kind != "string";
    (!cut && joined.trim_matches(blanks).is_empty()).then_some(())
}

/// Reserved words are words: `{ls` and `fi2` are others.
pub(super) fn reserved_words(source: &str, kind: &str, children: &[Node<'_>]) -> Option<()> {
    if !(LISTS.contains(&kind) || WORDED.contains(&kind)) {
        return Some(());
    }
    let ends = |character: char| " \t\n;&|<>()`".contains(character);
    for child in children {
        let kind = child.kind();
        let word = !child.is_named()
            && (matches!(kind, "{" | "}" | "!") || kind.starts_with(char::is_alphabetic));
        let (before, after) = (
            source.get(..child.start_byte())?,
            source.get(child.end_byte()..)?,
        );
        let alone = (before.is_empty() || before.ends_with(ends))
            && (after.is_empty() || after.starts_with(ends));
        if word && !alone {
            return None;
        }
    }
    Some(())
}

/// Whether two children are as far apart as Bash needs them.
fn divided(kind: &str, left: Node<'_>, gap: &str, right: Node<'_>) -> Option<()> {
    let redirect = |node: Node<'_>| node.kind().ends_with("_redirect");
    let sound = match kind {
        "command" | "declaration_command" | "unset_command" | "for_statement" | "array" => {
            let parenthesis = |node: Node<'_>| matches!(node.kind(), "(" | ")" | ";");
            !gap.is_empty()
                || redirect(left)
                || redirect(right)
                || parenthesis(left)
                || parenthesis(right)
        }
        _ if LISTS.contains(&kind) => {
            // Clauses begin with a word of their own, after one that ends the commands before.
            let clause = matches!(
                right.kind(),
                "comment" | "elif_clause" | "else_clause" | "case_item"
            );
            !left.is_named() || !right.is_named() || clause || gap.contains('\n')
        }
        _ => true,
    };
    sound.then_some(())
}
