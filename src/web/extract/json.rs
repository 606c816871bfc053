//! Indents JSON.

use serde::de::IgnoredAny;

/// Longest JSON that is indented, in bytes; a longer one stays as it is.
const MAX_BYTES: usize = 256 * 1024;
/// Deepest JSON that is indented. Beyond it the text would be mostly indentation, and stays as it is.
/// Tried by `extract::json_is_indented_without_a_change_of_its_values`.
const MAX_DEPTH: usize = 32;

/// Indents JSON within the limits. Numbers, escapes and the order of members remain.
pub(super) fn indent(text: String) -> String {
    if text.len() > MAX_BYTES || serde_json::from_str::<IgnoredAny>(&text).is_err() {
        return text;
    }
    indented(&text).unwrap_or(text)
}

/// Indents valid JSON; none if it is too deep.
fn indented(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let mut characters = text.chars().filter(|c| !c.is_control()).peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => {
                out.push('"');
                let mut escaped = false;
                for character in characters.by_ref() {
                    out.push(character);
                    match character {
                        '"' if !escaped => break,
                        '\\' => escaped = !escaped,
                        _ => escaped = false,
                    }
                }
            }
            '{' | '[' => {
                out.push(character);
                while characters.next_if_eq(&' ').is_some() {}
                if let Some(closing) = characters.next_if(|&c| matches!(c, '}' | ']')) {
                    out.push(closing);
                    continue;
                }
                depth += 1;
                if depth > MAX_DEPTH {
                    return None;
                }
                new_line(&mut out, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            ' ' => {}
            _ => out.push(character),
        }
    }
    Some(out)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}
