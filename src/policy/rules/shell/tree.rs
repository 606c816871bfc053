//! The walk over the tree of a line: checks it, and collects the commands.

use tree_sitter::{Node, Tree};

use super::{ShellLine, ShellWord, gaps, here, leaf, word};

/// Words that begin no command when they are not quoted.
const RESERVED: [&str; 23] = [
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "time", "until", "while", "((",
];
/// Further nodes that are known.
const OTHERS: [&str; 22] = [
    "command",
    "command_name",
    "declaration_command",
    "unset_command",
    "negated_command",
    "redirected_statement",
    "variable_assignment",
    "variable_assignments",
    "subscript",
    "file_redirect",
    "herestring_redirect",
    "concatenation",
    "brace_expression",
    "translated_string",
    "expansion",
    "simple_expansion",
    "arithmetic_expansion",
    "unary_expression",
    "postfix_expression",
    "ternary_expression",
    "parenthesized_expression",
    "number",
];

/// The commands of a line; `None` if Bash may read the line in another way than the tree.
pub(super) fn commands(source: &str, tree: &Tree) -> Option<ShellLine> {
    let root = tree.root_node();
    if root.has_error() || root.kind() != "program" {
        return None;
    }
    let mut walk = LineWalk {
        source,
        line: ShellLine::default(),
    };
    gaps::blank("program", source.get(..root.start_byte())?)?;
    gaps::blank("program", source.get(root.end_byte()..)?)?;
    let mut cursor = tree.walk();
    let mut open = vec![VisitedNode {
        node: root,
        test: false,
    }];
    while let Some(visit) = open.pop() {
        let children: Vec<Node<'_>> = visit.node.children(&mut cursor).collect();
        if children.is_empty() {
            // An empty line has a root without children.
            if visit.node.kind() != "program" {
                walk.leaf(visit.node)?;
            }
            continue;
        }
        gaps::check(source, visit.node, &children)?;
        let test = walk.node(visit, &children)?;
        open.extend(children.into_iter().map(|node| VisitedNode { node, test }));
    }
    Some(walk.line)
}

/// A node that is to be visited.
#[derive(Clone, Copy)]
struct VisitedNode<'t> {
    node: Node<'t>,
    /// Whether it is an expression within `[` and `]`, where operators of the shell end the command.
    test: bool,
}

struct LineWalk<'s> {
    source: &'s str,
    line: ShellLine,
}

impl<'s> LineWalk<'s> {
    fn text(&self, node: Node<'_>) -> Option<&'s str> {
        self.source.get(node.byte_range())
    }

    fn leaf(&self, node: Node<'_>) -> Option<()> {
        let text = self.text(node)?;
        let before = self.source.get(..node.start_byte())?;
        let sound = leaf::is_sound(node.kind(), node.is_named(), text)
            && match node.kind() {
                // In the middle of a word it begins no comment.
                "comment" => before.is_empty() || before.ends_with([' ', '\t', '\n', ';']),
                "heredoc_content" => here::is_plain(text),
                _ => true,
            };
        sound.then_some(())
    }

    /// Checks a node and collects its command. Returns whether its children are within `[` and `]`.
    fn node(&mut self, visit: VisitedNode<'_>, children: &[Node<'_>]) -> Option<bool> {
        let node = visit.node;
        let kind = node.kind();
        if !gaps::may_break(kind) && !OTHERS.contains(&kind) {
            return None;
        }
        let first = children.first()?.kind();
        gaps::reserved_words(self.source, kind, children)?;
        match kind {
            "command" => self.command(children)?,
            "declaration_command" | "unset_command" => self.declaration(children)?,
            "test_command" => return self.test(node, children),
            "unary_expression"
            | "binary_expression"
            | "parenthesized_expression"
            | "ternary_expression"
            | "postfix_expression"
                if visit.test =>
            {
                in_brackets(children)?;
                return Some(true);
            }
            "redirected_statement" if visit.test => return None,
            "file_redirect" => self.redirect(children)?,
            "heredoc_redirect" => self.here_document(children)?,
            "variable_assignment" => self.assignment(children)?,
            "for_statement" => {
                let name = children
                    .iter()
                    .find(|child| child.kind() == "variable_name")?;
                leaf::is_name(self.text(*name)?).then_some(())?;
            }
            "command_substitution" if first != "$(" => {
                // Within backquotes, one level of escapes goes before everything else.
                let backquoted = first.trim_start() == "`";
                (backquoted && !self.text(node)?.contains(['\\', '"', '#'])).then_some(())?;
            }
            // Arithmetic evaluates the values of variables, and these may hold substitutions.
            "subscript" | "arithmetic_expansion" | "c_style_for_statement" => {
                self.line.unsafe_to_allow = true;
            }
            "compound_statement" if first == "((" => self.line.unsafe_to_allow = true,
            "expansion" => {
                // Indirection, transformation and arithmetic.
                let evaluates = |child: &Node<'_>| matches!(child.kind(), "@" | "!" | ":");
                self.line.unsafe_to_allow |= children.iter().any(evaluates);
            }
            _ => {}
        }
        Some(false)
    }

    fn command(&mut self, children: &[Node<'_>]) -> Option<()> {
        let mut words: Vec<(ShellWord, &'s str)> = Vec::new();
        for child in children {
            match child.kind() {
                "variable_assignment" if words.is_empty() => {}
                "file_redirect" | "herestring_redirect" => {}
                "subshell" => return None,
                "regex" | "process_substitution" => words.push((ShellWord::Unknown, "")),
                _ => {
                    let text = self.text(*child)?;
                    words.push((word::unquoted(text)?, text));
                }
            }
        }
        // Reserved words that the grammar lacks. They are reserved only at the beginning of a command, and `time` only
        // at the beginning of a pipeline.
        let mut from = 0;
        let first = children.first()?;
        let leading = first.kind() == "command_name";
        let before = self.source.get(..first.start_byte())?;
        let piped = ends_with_pipe(before.trim_end_matches([' ', '\t', '\n']));
        match words.first()?.1 {
            "time" if leading && !piped => {
                let option = |index: usize| matches!(words.get(index), Some((_, "-p" | "--")));
                from = 1;
                while option(from) {
                    from += 1;
                }
            }
            "coproc" if leading => from = 1,
            _ => {}
        }
        let words = words.split_off(from);
        let Some((_, name)) = words.first() else {
            return Some(());
        };
        let plain_time = *name == "time" && from == 0;
        if (RESERVED.contains(name) && !plain_time) || is_assignment(name) {
            return None;
        }
        self.push(words.into_iter().map(|(word, _)| word).collect());
        Some(())
    }

    fn declaration(&mut self, children: &[Node<'_>]) -> Option<()> {
        let mut words = Vec::new();
        for child in children {
            let text = self.text(*child)?;
            words.push(match child.kind() {
                "variable_assignment" => word::unquoted(text).unwrap_or(ShellWord::Unknown),
                _ => word::unquoted(text)?,
            });
        }
        self.push(words);
        Some(())
    }

    fn test(&mut self, node: Node<'_>, children: &[Node<'_>]) -> Option<bool> {
        let [first, .., last] = children else {
            return None;
        };
        let inner = self.source.get(first.end_byte()..last.start_byte())?;
        let blanks = [' ', '\t', '\n'];
        if !inner.starts_with(blanks) || !inner.ends_with(blanks) {
            return None;
        }
        if first.kind() == "[[" {
            // It compares numbers as arithmetic does.
            self.line.unsafe_to_allow = true;
            return Some(false);
        }
        if self.text(node)?.contains('\n') {
            return None;
        }
        in_brackets(children)?;
        self.push(vec![ShellWord::Literal("[".into()), ShellWord::Unknown]);
        Some(true)
    }

    fn redirect(&mut self, children: &[Node<'_>]) -> Option<()> {
        let operator = children.iter().position(|child| !child.is_named())?;
        let (descriptor, rest) = children.split_at_checked(operator)?;
        let (operator, targets) = rest.split_first()?;
        if let [descriptor] = descriptor
            && descriptor.end_byte() != operator.start_byte()
        {
            return None;
        }
        let operator = operator.kind();
        let target = match (operator, targets) {
            ("<&-" | ">&-", []) => return Some(()),
            // Further words would belong to a command.
            (_, [target]) => self.text(*target)?,
            _ => return None,
        };
        let digits = target.strip_suffix('-').unwrap_or(target);
        let duplicates = digits.chars().all(|character| character.is_ascii_digit());
        match operator {
            "<" | "<&" => {}
            ">&" if duplicates => {}
            ">" | ">>" | ">|" | "&>" | "&>>" | ">&" => self.line.unsafe_to_allow = true,
            _ => return None,
        }
        Some(())
    }

    fn here_document(&self, children: &[Node<'_>]) -> Option<()> {
        let known = |child: &Node<'_>| {
            !child.is_named()
                || matches!(
                    child.kind(),
                    "file_descriptor"
                        | "heredoc_start"
                        | "heredoc_body"
                        | "heredoc_end"
                        | "pipeline"
                        | "file_redirect"
                        | "command"
                        | "list"
                )
        };
        // Other nodes would be words of the command.
        let sound = children.iter().all(known) && here::is_sound(self.source, children)?;
        sound.then_some(())
    }

    fn assignment(&self, children: &[Node<'_>]) -> Option<()> {
        let name = children.first()?;
        let named = match name.kind() {
            "variable_name" => leaf::is_name(self.text(*name)?),
            "subscript" => is_assignment(&format!("{}=", self.text(*name)?)),
            // In arithmetic.
            "word" => true,
            _ => false,
        };
        named.then_some(())
    }

    fn push(&mut self, words: Vec<ShellWord>) {
        self.line.commands.push(words);
    }
}

fn ends_with_pipe(before: &str) -> bool {
    before.ends_with("|&") || (before.ends_with('|') && !before.ends_with("||"))
}

/// Operators of the shell end the command `[`.
fn in_brackets(children: &[Node<'_>]) -> Option<()> {
    let ends = |child: &Node<'_>| {
        !child.is_named() && child.kind().contains(['&', '|', ';', '<', '>', '(', ')'])
    };
    (!children.iter().any(ends)).then_some(())
}

/// Whether Bash may take a word before the command for an assignment.
fn is_assignment(text: &str) -> bool {
    let Some((left, _)) = text.split_once('=') else {
        return false;
    };
    let left = left.strip_suffix('+').unwrap_or(left);
    let name = left.split('[').next().unwrap_or_default();
    leaf::is_name(name)
}
