//! Text without what readers do not see and models do: control characters, and Unicode that is invisible or turns the
//! order of characters around.

/// Cleans a text, without runs of blank lines, and cuts it to a number of bytes at the end of a line, if need be.
pub(super) fn text(text: &str, most: usize) -> (String, bool) {
    let mut cleaned = String::with_capacity(text.len().min(most));
    let visible = visible(text);
    let mut blank = true;
    for line in visible.lines() {
        let line = line.trim_end();
        if line.is_empty() {
            if !blank {
                cleaned.push('\n');
            }
            blank = true;
            continue;
        }
        blank = false;
        if cleaned.len() + line.len() + 1 > most {
            let room = most.saturating_sub(cleaned.len() + 1);
            // A single endless line is cut within.
            if cleaned.is_empty() {
                cleaned.push_str(
                    line.get(..line.floor_char_boundary(room))
                        .unwrap_or_default(),
                );
            }
            return (cleaned.trim_end().to_owned(), true);
        }
        cleaned.push_str(line);
        cleaned.push('\n');
    }
    cleaned.truncate(cleaned.trim_end().len());
    (cleaned, false)
}

/// Cleans what is to be one line of so many characters at most.
pub(super) fn line(text: &str, most: usize) -> String {
    let visible = visible(text);
    let mut line = String::new();
    for word in visible.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.chars().count() <= most {
        return line;
    }
    let mut cut: String = line.chars().take(most.saturating_sub(1)).collect();
    cut.truncate(cut.trim_end().len());
    cut.push('…');
    cut
}

fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\r' => {
                if characters.peek() != Some(&'\n') {
                    visible.push('\n');
                }
            }
            '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}' => visible.push('\n'),
            '\u{a0}' | '\u{2007}' | '\u{202f}' => visible.push(' '),
            // These shape letters in scripts that join them.
            '\u{200c}' | '\u{200d}' => {
                let between = [visible.chars().next_back(), characters.peek().copied()];
                if between.into_iter().all(|other| other.is_some_and(joins)) {
                    visible.push(character);
                }
            }
            _ if is_invisible(character) => {}
            _ => visible.push(character),
        }
    }
    visible
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

/// Arabic and the scripts of India and around.
fn joins(character: char) -> bool {
    matches!(
        character,
        '\u{600}'..='\u{8ff}' | '\u{900}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{1a20}'..='\u{1aaf}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
    )
}
