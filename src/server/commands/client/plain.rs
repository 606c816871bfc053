//! Makes texts and JSON safe for a terminal: without control characters, invisible characters, and characters that turn
//! the direction of the text. Each of these is written as a JSON escape, so that a person sees it.

use std::fmt::Write;

/// A text in one line.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|one| push(&mut out, one));
    out
}

/// A JSON text over several lines, with a line end. Strings and numbers stay as they are written.
pub(crate) fn pretty(json: &str) -> String {
    let mut text = spaced(json, Some(0));
    text.push('\n');
    text
}

/// A JSON text in one line.
pub(crate) fn compact(json: &str) -> String {
    spaced(json, None)
}

/// JSON whose white space is written anew; `depth` is `None` for one line.
fn spaced(json: &str, mut depth: Option<usize>) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut is_escaped) = (false, false);
    // White space in strings is part of the value; line breaks and tabs are escaped there already.
    let mut chars = json.chars().peekable();
    while let Some(one) = chars.next() {
        if in_string {
            push(&mut out, one);
            in_string = is_escaped || one != '"';
            is_escaped = !is_escaped && one == '\\';
            continue;
        }
        match one {
            '{' | '[' => {
                out.push(one);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth = depth.map(|depth| depth + 1);
                        line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.map(|depth| depth.saturating_sub(1));
                line(&mut out, depth);
                out.push(one);
            }
            ',' => {
                out.push(one);
                line(&mut out, depth);
            }
            ':' if depth.is_some() => out.push_str(": "),
            one if one.is_ascii_whitespace() => {}
            one => {
                in_string = one == '"';
                push(&mut out, one);
            }
        }
    }
    out
}

fn line(out: &mut String, depth: Option<usize>) {
    if let Some(depth) = depth {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    }
}

fn push(out: &mut String, one: char) {
    if one.is_control() || is_unseen(one) {
        for unit in one.encode_utf16(&mut [0; 2]) {
            let _a_string_takes_all = write!(out, "\\u{unit:04x}");
        }
    } else {
        out.push(one);
    }
}

/// Whether a character cannot be seen, ends a line or turns the direction of a text.
fn is_unseen(one: char) -> bool {
    matches!(
        one,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// The beginning of a text that fits into this number of columns; a cut text ends with `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if self::columns(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let fits = |one: &char| {
        let width = width(*one);
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    let mut out: String = text.chars().take_while(fits).collect();
    if columns > 0 {
        out.push('…');
    }
    out
}

/// How many columns a text takes at most.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// The width of a character. All characters from the first one on that some terminals show in two columns count as two.
fn width(one: char) -> usize {
    match one {
        '…' | '\0'..'\u{1100}' => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn is_plain(text: &str) -> bool {
        let is_odd = |one: char| (one.is_control() && one != '\n') || is_unseen(one);
        !text.contains(is_odd)
    }

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        for (text, expected) in [
            ("get_weather", "get_weather"),
            ("Übersicht – 数据 👩", "Übersicht – 数据 👩"),
            ("\u{1b}[2J", "\\u001b[2J"),
            (
                "a\u{9b}31m\u{7f}\r\nb\t",
                "a\\u009b31m\\u007f\\u000d\\u000ab\\u0009",
            ),
            (
                "\u{202e}txt.exe\u{2066}\u{200b}",
                "\\u202etxt.exe\\u2066\\u200b",
            ),
            ("\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn json_is_spaced_and_nothing_else_changes() {
        let json = r#" {"a" : 1.00000000000000000001,"b":[ ],"c":{ },"d":[{"e{,:\"":"\\"},null], "a":-0e5}"#;
        let expected = "{\n  \"a\": 1.00000000000000000001,\n  \"b\": [],\n  \"c\": {},\n  \"d\": [\n    {\n      \
                        \"e{,:\\\"\": \"\\\\\"\n    },\n    null\n  ],\n  \"a\": -0e5\n}\n";
        assert_eq!(pretty(json), expected);
        let expected =
            r#"{"a":1.00000000000000000001,"b":[],"c":{},"d":[{"e{,:\"":"\\"},null],"a":-0e5}"#;
        assert_eq!(compact(json), expected);
    }

    #[test]
    fn texts_are_cut_to_columns() {
        for (text, columns, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("abc", 1, "…"),
            ("abc", 0, ""),
            ("数据数据", 5, "数据…"),
            ("数据数据", 4, "数…"),
        ] {
            assert_eq!(cut(text, columns), expected, "{text} {columns}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_acts_on_a_terminal_is_left(key in any::<String>(), text in any::<String>()) {
            prop_assert!(is_plain(&plain(&text)));
            prop_assert!(!plain(&text).contains('\n'));
            let value = json!({&key: [&text, {&text: 1}], "n": 5});
            for json in [value.to_string(), format!("{value:#}")] {
                let (long, short) = (pretty(&json), compact(&json));
                prop_assert!(is_plain(&long) && is_plain(&short));
                prop_assert!(!short.contains('\n'));
                prop_assert_eq!(&serde_json::from_str::<Value>(&long).unwrap(), &value);
                prop_assert_eq!(&serde_json::from_str::<Value>(&short).unwrap(), &value);
            }
            let width = columns(&text) / 2;
            prop_assert!(columns(&cut(&text, width)) <= width);
        }
    }
}
