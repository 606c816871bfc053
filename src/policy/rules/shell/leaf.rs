//! Checks of single tokens: whether Bash reads the text as the parser did.

use super::word::unquoted;

/// Whether a token without children has the form of its kind.
pub(super) fn is_sound(kind: &str, named: bool, text: &str) -> bool {
    if !named {
        // A token within double quotes may begin with the blanks before it.
        let token = text.trim_start_matches([' ', '\t', '\n']);
        return token == kind && kind != "``" && kind != "$`";
    }
    match kind {
        // An expansion would be a node of its own.
        "word" => !holds_expansion(text) && unquoted(text).is_some(),
        "number" => (text.chars())
            .all(|character| character.is_ascii_alphanumeric() || "-#@_".contains(character)),
        "variable_name" => {
            (text.chars()).all(|character| character.is_ascii_alphanumeric() || character == '_')
        }
        "special_variable_name" => text.chars().count() == 1,
        "file_descriptor" => text.chars().all(|character| character.is_ascii_digit()),
        "test_operator" => {
            text.starts_with('-')
                && (text.chars().skip(1)).all(|character| character.is_ascii_alphabetic())
        }
        "raw_string" => {
            text.len() >= 2
                && text.starts_with('\'')
                && text.ends_with('\'')
                && text.matches('\'').count() == 2
        }
        "ansi_c_string" => is_ansi_c_string(text),
        "string_content" => !holds_any(text, &['"', '`', '$']),
        "extglob_pattern" | "regex" => is_plain_pattern(text),
        // A backquote would end the substitution that the comment is in.
        "comment" => text.starts_with('#') && !text.contains(['`', '\n']),
        "heredoc_start" | "heredoc_body" | "heredoc_content" | "heredoc_end" => true,
        _ => false,
    }
}

/// Whether a variable of this name can be assigned.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && is_sound("variable_name", true, text)
}

/// Whether the text holds one of the characters without a backslash before it.
pub(super) fn holds_any(text: &str, wanted: &[char]) -> bool {
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\\' {
            let _escaped = characters.next();
        } else if wanted.contains(&character) {
            return true;
        }
    }
    false
}

fn holds_expansion(text: &str) -> bool {
    holds_any(text, &['$', '`', '\'', '"'])
}

/// Whether the first quote that is not escaped is the last character.
fn is_ansi_c_string(text: &str) -> bool {
    let Some(inner) = text
        .strip_prefix("$'")
        .and_then(|rest| rest.strip_suffix('\''))
    else {
        return false;
    };
    // A backslash at the end would escape the quote.
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        if character == '\'' || (character == '\\' && characters.next().is_none()) {
            return false;
        }
    }
    true
}

/// Whether a pattern ends where the parser says: without quotes, expansions and blanks, its parentheses in pairs.
fn is_plain_pattern(text: &str) -> bool {
    let mut open = 0_usize;
    for character in text.chars() {
        match character {
            '(' => open += 1,
            ')' if open == 0 => return false,
            ')' => open -= 1,
            '$' | '`' | '\'' | '"' | '\\' | ';' | '&' | '<' | '>' | '#' | '{' | '}' => {
                return false;
            }
            blank if blank.is_whitespace() => return false,
            _ => {}
        }
    }
    open == 0
}
