//! Removes characters that readers do not see but models do: control characters, and Unicode that is invisible or changes
//! the order of characters. All text of the web passes through this.

/// The visible characters of a text. All kinds of line ends become `\n` and fixed spaces become spaces; tabs remain.
pub(super) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut before = None;
    while let Some(character) = characters.next() {
        let kept = match character {
            '\r' if characters.peek() == Some(&'\n') => None,
            '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}' => Some('\n'),
            '\u{a0}' | '\u{2007}' | '\u{202f}' => Some(' '),
            '\u{200c}' | '\u{200d}' => {
                shapes(character, before, characters.peek().copied()).then_some(character)
            }
            // One selector after a symbol requests its emoji form. Further selectors could encode a hidden text.
            '\u{fe0f}' => before.is_some_and(is_picture).then_some(character),
            _ if is_invisible(character) => None,
            _ => Some(character),
        };
        if let Some(kept) = kept {
            visible.push(kept);
            before = Some(kept);
        }
    }
    visible
}

/// Whether a joiner or non-joiner changes the shape of its neighbours; elsewhere it is invisible.
fn shapes(joiner: char, before: Option<char>, next: Option<char>) -> bool {
    let Some(before) = before else {
        return false;
    };
    if is_virama(before) || (joins(before) && next.is_some_and(joins)) {
        return true;
    }
    // Several emoji that are shown as one, such as a family or a flag.
    let pictured = before == '\u{fe0f}' || is_picture(before);
    joiner == '\u{200d}' && pictured && next.is_some_and(is_picture)
}

fn is_invisible(character: char) -> bool {
    if character.is_control() {
        return !matches!(character, '\n' | '\t');
    }
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e000}'..='\u{f8ff}' | '\u{e0000}'..='\u{e0fff}'
        | '\u{f0000}'..='\u{10ffff}'
    )
}

/// Arabic and the scripts of South and Southeast Asia.
fn joins(character: char) -> bool {
    matches!(
        character,
        '\u{600}'..='\u{8ff}' | '\u{900}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{1a20}'..='\u{1aaf}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
    )
}

/// The sign that removes the vowel of a consonant. A joiner after it shapes the consonant, even at the end of a word.
fn is_virama(character: char) -> bool {
    matches!(
        character,
        '\u{94d}'
            | '\u{9cd}'
            | '\u{a4d}'
            | '\u{acd}'
            | '\u{b4d}'
            | '\u{bcd}'
            | '\u{c4d}'
            | '\u{ccd}'
            | '\u{d4d}'
            | '\u{dca}'
    )
}

/// Emoji, their skin tones, and symbols that can be shown as such.
fn is_picture(character: char) -> bool {
    matches!(
        character,
        '\u{203c}' | '\u{2049}' | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}'
        | '\u{25a0}'..='\u{27bf}' | '\u{2900}'..='\u{297f}' | '\u{2b00}'..='\u{2bff}'
        | '\u{1f000}'..='\u{1faff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_removed() {
        for (text, expected) in [
            ("a\u{200b}b\u{ad}c\u{2060}d\u{feff}e", "abcde"),
            ("abc\u{202e}fed\u{202c}\u{2066}x\u{2069}\u{200f}", "abcfedx"),
            ("x\u{e0041}\u{e0042}\u{e007f}y", "xy"),
            ("x\u{e000}\u{f0001}\u{10fffd}y", "xy"),
            ("x\u{fe00}\u{fe0f}\u{e0100}y", "xy"),
            ("x\0\u{7}\u{1b}[31my\u{9b}z\u{7f}", "x[31myz"),
            ("\u{3164}\u{115f}\u{2800}\u{34f}", ""),
            ("a\u{a0}b\u{202f}c", "a b c"),
            ("a\r\nb\rc\u{2028}d\u{85}e\tf\n", "a\nb\nc\nd\ne\tf\n"),
        ] {
            assert_eq!(visible(text), expected, "{text:?}");
        }
    }

    #[test]
    fn joiners_remain_where_they_shape_visible_text() {
        for text in [
            "می\u{200c}خواهم",
            "नमस्ते क्\u{200d}ष क्\u{200c}ष",
            "ന്\u{200d} പാല്\u{200d}",
            "👩\u{200d}👩\u{200d}👧 🏳\u{fe0f}\u{200d}🌈 ❤\u{fe0f}\u{200d}🔥 👍🏽",
        ] {
            assert_eq!(visible(text), text);
        }
    }

    #[test]
    fn joiners_and_selectors_that_could_encode_a_text_are_removed() {
        for (text, expected) in [
            ("x\u{200c}y\u{200d}z", "xyz"),
            ("\u{200d}می\u{200c}", "می"),
            // One of several in a row remains.
            ("می\u{200c}\u{200d}\u{200c}\u{200c}خ", "می\u{200c}خ"),
            ("👩\u{200d}\u{200d}\u{200d}👧", "👩\u{200d}👧"),
            ("क्\u{200d}\u{200d}\u{200c}ष", "क्\u{200d}ष"),
            ("❤\u{fe0f}\u{fe0f}\u{fe00}\u{fe0f}x\u{fe0f}", "❤\u{fe0f}x"),
            ("👩\u{200c}👧 👩\u{200d}x", "👩👧 👩x"),
        ] {
            assert_eq!(visible(text), expected, "{text:?}");
        }
    }
}
