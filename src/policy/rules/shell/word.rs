//! Quote removal.

use std::iter::Peekable;
use std::str::Chars;

use super::ShellWord;

/// The word that the text means, without quotes; `None` if the text is not one word.
pub(super) fn unquoted(text: &str) -> Option<ShellWord> {
    let mut word = String::with_capacity(text.len());
    let mut known = true;
    let mut before = '=';
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // At the beginning of a word, and after `=` or `:` as in an assignment.
            '~' if matches!(before, '=' | ':') => known = false,
            '\'' => single_quoted(&mut characters, &mut word)?,
            '"' => known &= double_quoted(&mut characters, &mut word)?,
            '\\' => match characters.next()? {
                // The line continues.
                '\n' => {}
                escaped => word.push(escaped),
            },
            // What follows may hold anything, and the tree has been checked.
            '$' if plain_dollar(characters.peek()) => word.push('$'),
            '$' | '`' => return Some(ShellWord::Unknown),
            ' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')' => return None,
            '*' | '?' | '[' => known = false,
            '{' if text != "{" && text != "{}" => known = false,
            plain => word.push(plain),
        }
        before = character;
    }
    Some(if known {
        ShellWord::Literal(word)
    } else {
        ShellWord::Unknown
    })
}

fn single_quoted(characters: &mut Peekable<Chars<'_>>, word: &mut String) -> Option<()> {
    loop {
        match characters.next()? {
            '\'' => return Some(()),
            plain => word.push(plain),
        }
    }
}

/// Whether the text is known. It is read to its end only if it is.
fn double_quoted(characters: &mut Peekable<Chars<'_>>, word: &mut String) -> Option<bool> {
    loop {
        match characters.next()? {
            '"' => return Some(true),
            '\\' => match characters.next()? {
                '\n' => {}
                escaped @ ('$' | '`' | '"' | '\\') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            '$' if characters.peek() == Some(&'"') || plain_dollar(characters.peek()) => {
                word.push('$');
            }
            '$' | '`' => {
                // The rest is not needed.
                characters.by_ref().for_each(drop);
                return Some(false);
            }
            plain => word.push(plain),
        }
    }
}

/// Whether a dollar sign before this character is a plain character.
fn plain_dollar(next: Option<&char>) -> bool {
    next.is_none_or(|next| {
        matches!(
            next,
            ' ' | '\t' | '\n' | '/' | ',' | '.' | '%' | '=' | ':' | '|'
        )
    })
}
