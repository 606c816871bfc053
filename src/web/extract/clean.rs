//! Cleans text: invisible characters, blank lines and length.

use crate::visible::visible;

/// Cleans a text, removes repeated blank lines outside of code, and cuts it at the end of a line to a number of bytes.
pub(super) fn text(text: &str, most: usize) -> (String, bool) {
    let mut cleaned = String::with_capacity(text.len().min(most));
    let visible = visible(text);
    let mut blank = true;
    // The length of the fence of the block of code.
    let mut fence = None;
    for line in visible.lines() {
        let line = line.trim_end();
        let start = line.trim_start();
        let ticks = start.len() - start.trim_start_matches('`').len();
        fence = match fence {
            None if ticks >= 3 => Some(ticks),
            Some(open) if ticks >= open && ticks == start.len() => None,
            fence => fence,
        };
        if line.is_empty() {
            if !blank || fence.is_some() {
                cleaned.push('\n');
            }
            blank = true;
            continue;
        }
        blank = false;
        if cleaned.len() + line.len() + 1 > most {
            let room = most.saturating_sub(cleaned.len() + 1);
            // A single line that is too long is cut inside.
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

/// Cleans a text to one line of a number of characters.
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
