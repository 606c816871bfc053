//! Shortens a long result for the model.
//!
//! Keeps the head and the tail, as errors and totals tend to stand at the end.

use std::borrow::Cow;

/// Longest part kept from the end, in characters.
/// Tried by `cap::the_tail_of_a_large_result_is_bounded`.
const MAX_TAIL_CHARS: usize = 1024;
/// Share of the characters that the end gets at most: a tenth.
const TAIL_SHARE: usize = 10;

/// Cuts a text to at most `max_chars` characters (Unicode scalar values), including the note about the cut.
///
/// A text that fits is returned unchanged, so a second cut with the same bound changes nothing. If the bound is too
/// small for the note, only the beginning of the text stays.
pub fn cap_result(text: &str, max_chars: usize) -> Cow<'_, str> {
    // No character is shorter than a byte, so most texts need no counting.
    if text.len() <= max_chars {
        return Cow::Borrowed(text);
    }
    let total = text.chars().count();
    if total <= max_chars {
        return Cow::Borrowed(text);
    }
    let tail = MAX_TAIL_CHARS.min(max_chars / TAIL_SHARE);
    // The number of omitted characters is not known yet; it has no more digits than the total.
    let reserved = marker(total, total).chars().count();
    let Some(head) = max_chars.checked_sub(tail + reserved).filter(|&n| n > 0) else {
        return Cow::Borrowed(first_chars(text, max_chars));
    };
    let beginning = first_chars(text, head);
    let end = last_chars(text, tail);
    let marker = marker(total - head - tail, total);
    Cow::Owned([beginning, &marker, end].concat())
}

fn marker(omitted: usize, total: usize) -> String {
    format!(
        "\n\n[{omitted} of {total} characters left out here. To see them, narrow the call: \
         a smaller range, a stricter filter or fewer items.]\n\n"
    )
}

/// The first `count` characters, or the whole text where it has no more.
pub(super) fn first_chars(text: &str, count: usize) -> &str {
    match text.char_indices().nth(count) {
        Some((end, _)) => text.split_at(end).0,
        None => text,
    }
}

fn last_chars(text: &str, count: usize) -> &str {
    let Some(before) = count.checked_sub(1) else {
        return "";
    };
    match text.char_indices().rev().nth(before) {
        Some((start, _)) => text.split_at(start).1,
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_that_fits_is_not_copied() {
        for (text, max) in [("", 0), ("abc", 3), ("ééé", 3), ("abc", usize::MAX)] {
            assert!(matches!(cap_result(text, max), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn head_and_tail_stay_and_the_note_counts_what_is_gone() {
        let text: String = (0..1000)
            .map(|i| char::from(b'a' + (i % 26) as u8))
            .collect();
        let capped = cap_result(&text, 400);
        assert!((398..=400).contains(&capped.chars().count()));
        let (head, rest) = capped.split_once("\n\n[").unwrap();
        let (note, tail) = rest.split_once("]\n\n").unwrap();
        assert!(text.starts_with(head));
        assert!(text.ends_with(tail));
        assert_eq!(tail.len(), 40);
        let omitted = text.len() - head.len() - tail.len();
        assert!(
            note.starts_with(&format!("{omitted} of 1000 characters left out")),
            "{note}"
        );
        assert!(note.contains("narrow the call"), "{note}");
    }

    #[test]
    fn the_tail_of_a_large_result_is_bounded() {
        let capped = cap_result(&"x".repeat(200_000), 100_000).into_owned();
        assert_eq!(capped.split_once("]\n\n").unwrap().1.len(), MAX_TAIL_CHARS);
    }

    #[test]
    fn without_room_for_the_note_the_beginning_is_kept() {
        let text = "é".repeat(500);
        for max in 0..=100 {
            assert_eq!(cap_result(&text, max), "é".repeat(max));
        }
    }

    proptest! {
        #[test]
        fn the_result_fits_and_a_second_cut_changes_nothing(text in ".{0,600}", max in 0usize..700) {
            let once = cap_result(&text, max).into_owned();
            prop_assert!(once.chars().count() <= max);
            prop_assert_eq!(cap_result(&once, max), once.as_str());
            if text.chars().count() <= max {
                prop_assert_eq!(&once, &text);
            } else if once.contains("characters left out here") {
                let (head, rest) = once.split_once("\n\n[").unwrap();
                let tail = rest.rsplit_once("]\n\n").unwrap().1;
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
            } else {
                prop_assert!(text.starts_with(&once) && once.chars().count() == max);
            }
        }
    }
}
