//! Files and functions stay short enough to be read.

use super::product::texts;

/// Most lines of a file, without the tests in it.
const FILE_LINES: usize = 400;
/// Most lines of a function, from its name to its last brace.
const FUNCTION_LINES: usize = 80;

/// The lines before the module of tests in a file.
fn measured(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let begins_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && is_module(pair[1]);
    let tests = lines.windows(2).position(begins_tests);
    lines[..tests.unwrap_or(lines.len())].to_vec()
}

/// Whether a line opens a module.
fn is_module(line: &str) -> bool {
    line.ends_with('{') && words(line).first() == Some(&"mod")
}

/// The words of a line behind its visibility.
fn words(line: &str) -> Vec<&str> {
    let words = line.split_whitespace();
    // A path of modules stands between brackets.
    let is_visibility = |word: &&str| word.starts_with("pub") || word.ends_with(')');
    words.skip_while(is_visibility).collect()
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let words = words(line);
    let mut words = words
        .iter()
        .skip_while(|word| ["const", "async", "unsafe"].contains(word));
    let is_function = words.next() == Some(&"fn");
    let name = words.next().filter(|_| is_function)?;
    name.split(['(', '<']).next()
}

/// The functions of a text, with the line and the number of lines of each.
fn functions<'a>(lines: &[&'a str]) -> Vec<(usize, &'a str, usize)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let head = lines[at..]
            .iter()
            .position(|line| line.ends_with(['{', ';', '}']));
        // A function of one line, or without a body.
        let Some(head) = head.filter(|head| lines[at + head].ends_with('{')) else {
            continue;
        };
        let end = format!("{}}}", " ".repeat(indent));
        let body = lines[at + head..].iter().position(|line| *line == end);
        found.extend(body.map(|body| (at + 1, name, head + body + 1)));
    }
    found
}

#[test]
fn no_file_is_longer_than_allowed() {
    let mut wrong = Vec::new();
    for (file, text) in texts() {
        let lines = measured(&text).len();
        if lines > FILE_LINES {
            wrong.push(format!("{file} has {lines} lines"));
        }
    }
    assert!(
        wrong.is_empty(),
        "more than {FILE_LINES} lines:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn no_function_is_longer_than_allowed() {
    let mut wrong = Vec::new();
    for (file, text) in texts() {
        for (line, name, lines) in functions(&measured(&text)) {
            if lines > FUNCTION_LINES {
                wrong.push(format!("{file}:{line}: {name} has {lines} lines"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "more than {FUNCTION_LINES} lines:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn lines_are_counted_up_to_the_tests() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nfn b() {}\n\n#[cfg(test)]\npub(crate) mod support {\n    use c;\n}\n";
    assert_eq!(measured(text).len(), 5);
    assert_eq!(measured("fn a() {}\n").len(), 1);
}

#[test]
fn functions_are_measured_with_those_in_them() {
    let text = "
impl A {
    pub(in crate::a) async fn outer<'a>(
        &self,
    ) -> B {
        const fn inner() {
            C
        }
        inner()
    }

    fn short() {}

    fn declared(&self) -> D;

    unsafe fn last() {
    }
}
";
    let lines: Vec<&str> = text.lines().collect();
    let expected = [(3, "outer", 8), (6, "inner", 3), (16, "last", 2)];
    assert_eq!(functions(&lines), expected);
}
