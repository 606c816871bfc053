//! Leaves the items that only tests compile out of a source text, and counts lines of code.

/// What stands before items that only tests compile, those of other members too.
pub(crate) const MARKS: [&str; 2] = [
    "#[cfg(test)]",
    "#[cfg(any(test, feature = \"test-helpers\"))]",
];

/// First words of what ends with `;`, braces or not.
const END_WITH_SEMICOLON: &[&str] = &["use", "const", "static", "type", "let"];
/// First words of what ends with `;` or a block. Anything else is a field, a variant or an arm, which ends with `,`.
const END_WITH_BLOCK: &[&str] = &[
    "mod",
    "fn",
    "impl",
    "struct",
    "enum",
    "union",
    "trait",
    "async",
    "unsafe",
    "extern",
    "macro_rules",
    "if",
    "for",
    "while",
    "loop",
    "match",
];

/// The code without each `#[cfg(test)]` and what it stands before.
pub(crate) fn without_tests(code: &str) -> String {
    let bytes = code.as_bytes();
    let mut kept = String::new();
    let (mut at, mut from) = (0, 0);
    while at < bytes.len() {
        let mark = MARKS
            .iter()
            .find(|mark| bytes[at..].starts_with(mark.as_bytes()));
        if let Some(mark) = mark {
            kept.push_str(&code[from..at]);
            at = end_of_item(code, at + mark.len());
            from = at;
        } else {
            at = next(bytes, at);
        }
    }
    kept.push_str(&code[from..]);
    kept
}

/// The code without comments, in the same lines.
pub(crate) fn without_comments(code: &str) -> String {
    let bytes = code.as_bytes();
    let mut kept = String::new();
    let (mut at, mut from) = (0, 0);
    while at < bytes.len() {
        let end = next(bytes, at);
        if let [b'/', b'/' | b'*', ..] = bytes[at..] {
            kept.push_str(&code[from..at]);
            kept.extend(code[at..end].chars().filter(|c| *c == '\n'));
            from = end;
        }
        at = end;
    }
    kept.push_str(&code[from..]);
    kept
}

/// How many lines have code: anything but white space and comments.
pub(crate) fn lines_of_code(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut lines, mut at, mut has_code) = (0, 0, false);
    while at < bytes.len() {
        let end = next(bytes, at);
        let is_comment = matches!(bytes[at..], [b'/', b'/' | b'*', ..]);
        for byte in &bytes[at..end] {
            has_code |= !is_comment && !byte.is_ascii_whitespace();
            if *byte == b'\n' {
                lines += usize::from(has_code);
                has_code = false;
            }
        }
        at = end;
    }
    lines + usize::from(has_code)
}

/// The end of the item, statement, field, variant or arm that starts at `at`, attributes of its own included.
fn end_of_item(code: &str, at: usize) -> usize {
    let bytes = code.as_bytes();
    let (first, mut at) = first_word(code, at);
    let only_semicolon = END_WITH_SEMICOLON.contains(&first);
    let item = only_semicolon || END_WITH_BLOCK.contains(&first);
    let (mut depth, mut angles, mut arm) = (0, 0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            // The end of what the field, variant or arm is in.
            b')' | b']' | b'}' if depth == 0 => return at,
            b')' | b']' => depth -= 1,
            b'}' => {
                depth -= 1;
                let rest = code[at + 1..].trim_start();
                // A pattern with braces goes on with `=` or `=>`.
                let goes_on = only_semicolon || rest.starts_with("else") || rest.starts_with('=');
                if depth == 0 && !goes_on {
                    if !item && rest.starts_with(',') {
                        return code.len() - rest.len() + 1;
                    }
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            b',' if depth == 0 && angles == 0 && !item => return at + 1,
            b'=' if depth == 0 && bytes.get(at + 1) == Some(&b'>') => arm = true,
            // Brackets of a type, as they are in a field; in an arm they may be comparisons.
            b'<' if depth == 0 && !arm => angles += 1,
            b'>' if angles > 0 && bytes[at - 1] != b'-' => angles -= 1,
            _ => {}
        }
        at = next(bytes, at);
    }
    at
}

/// The first word behind attributes and the visibility, and where it starts.
fn first_word(code: &str, mut at: usize) -> (&str, usize) {
    let bytes = code.as_bytes();
    loop {
        let rest = code[at..].trim_start();
        at = code.len() - rest.len();
        if rest.starts_with("#[") {
            at = end_of_group(bytes, at + 1);
            continue;
        }
        if rest.starts_with("//") {
            at = next(bytes, at);
            continue;
        }
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        if word != "pub" {
            return (word, at);
        }
        at += end;
        if bytes.get(at) == Some(&b'(') {
            at = end_of_group(bytes, at);
        }
    }
}

/// The end of the brackets that open at `at`.
fn end_of_group(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        at = next(bytes, at);
        if depth == 0 {
            break;
        }
    }
    at
}

/// Where the next character, literal or comment starts.
fn next(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let length = match rest {
        [b'/', b'/', ..] => position(rest, b"\n"),
        [b'/', b'*', ..] => 2 + position(&rest[2..], b"*/"),
        [b'"', ..] => text(rest),
        [b'r', b'"' | b'#', ..] if !continues_a_word(bytes, at) => raw_text(rest),
        [b'\'', b'\\', _, tail @ ..] => 3 + position(tail, b"'"),
        // A character, of up to four bytes; else a lifetime.
        [b'\'', first, tail @ ..] => match tail.iter().take(4).position(|&byte| byte == b'\'') {
            Some(0) => 3,
            Some(more) if !first.is_ascii() => 3 + more,
            _ => 1,
        },
        _ => 1,
    };
    (at + length).min(bytes.len())
}

/// Whether the byte before is part of the same word; the `b` of a byte string is not.
fn continues_a_word(bytes: &[u8], at: usize) -> bool {
    let word = |back: usize| {
        at.checked_sub(back)
            .is_some_and(|at| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_')
    };
    word(1) && (bytes[at - 1] != b'b' || word(2))
}

/// Bytes up to and with `end`.
fn position(bytes: &[u8], end: &[u8]) -> usize {
    bytes
        .windows(end.len())
        .position(|window| window == end)
        .map_or(bytes.len(), |at| at + end.len())
}

/// The length of a string literal.
fn text(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// The length of a raw string literal, or of its `r` if it is a raw identifier.
fn raw_text(bytes: &[u8]) -> usize {
    let hashes = bytes[1..].iter().take_while(|&&byte| byte == b'#').count();
    if bytes.get(1 + hashes) != Some(&b'"') {
        return 1;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let start = hashes + 2;
    start + position(&bytes[start..], &end)
}

#[test]
fn only_the_items_of_tests_are_left_out() {
    let code = r###"
#[cfg(test)]
mod left_out_1;
use kept_1;
#[cfg(test)]
pub(super) mod left_out_2 {
    const ODD: &[&str] = &["}", r#"" }"#, "\" }"]; // a brace }
    const CHARACTERS: [char; 4] = ['}', '\'', '"', 'é'];
    fn left_out_2<'a>(it: &'a str) -> &'a str { if it == "{" { "}" } else { it } } /* } */
}
fn kept_2() {}
#[cfg(test)]
use left_out_3::{a, b::{c, d}};
fn kept_3() {}
#[cfg(test)]
#[expect(dead_code, reason = "a } and a ;")]
pub(crate) async fn left_out_4<A, B>(it: [A; 2]) -> Result<A, B> { it }
const KEPT_4: &str = "#[cfg(test)]";
#[cfg(test)]
impl<A, B> Left<A, B> {
    fn left_out_5() {}
}
struct Kept5 {
    kept_6: u8,
    #[cfg(test)]
    left_out_6: Option<BTreeMap<u8, u8>>,
    kept_7: u8,
    #[cfg(test)]
    left_out_7: u8
}
impl Kept8 {
    #[cfg(test)]
    fn left_out_8(&self) -> u8 { 8 }

    fn kept_9(&self) {
        #[cfg(test)]
        if left_out_9 { return; } else { left_out_9() }
        #[cfg(test)]
        let left_out_10 = Left { out: 10 };
        match self {
            #[cfg(test)]
            Self::LeftOut11(it) if it > 1 => { left_out_11() }
            #[cfg(test)]
            Self::LeftOut12 { a, b } => left_out_12(a, b),
            Self::Kept10 => kept_11(),
        }
    }
}
#[cfg(test)]
mod tests {
    fn left_out_13() {}
}
fn kept_12() {}
"###;
    let kept = r##"
use kept_1;
fn kept_2() {}
fn kept_3() {}
const KEPT_4: &str = "#[cfg(test)]";
struct Kept5 {
    kept_6: u8,
    kept_7: u8,
}
impl Kept8 {
    fn kept_9(&self) {
        match self {
            Self::Kept10 => kept_11(),
        }
    }
}
fn kept_12() {}
"##;
    let words = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ")
    };
    assert_eq!(words(&without_tests(code)), words(kept));
}

#[test]
fn comments_and_blank_lines_are_no_code() {
    let code = r##"//! Not counted.

/* not
   counted */ fn counted_1() {} // counted with it
    /// Not counted.
const COUNTED_2: &str = "//
    // counted 3 \" // counted with it
";
    // Not counted: "
#[counted_5]
'/' /* counted 6
    not counted */
r#"// counted 7

// counted 8"#"##;
    assert_eq!(lines_of_code(code), 8);
    assert_eq!(lines_of_code(" // not counted\n\n"), 0);
}
