//! How many tokens a text takes, roughly.
//!
//! The served model's tokenizer is not known here. Byte-pair vocabularies of the last years take about four characters of
//! running Latin text for a token and about one of Chinese, Japanese or Korean; digits and punctuation lie between. The
//! estimate errs on the high side.

/// About how many tokens a text takes.
pub(super) fn estimate(text: &str) -> usize {
    let quarters: usize = text.chars().map(quarters).sum();
    quarters.div_ceil(4)
}

/// Quarters of a token.
pub(super) fn quarters(character: char) -> usize {
    match character {
        'a'..='z' | 'A'..='Z' | ' ' => 1,
        '\u{0}'..='\u{10ff}' => 2,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latin_text_takes_a_quarter_and_chinese_a_whole_token_for_a_character() {
        assert_eq!(estimate(""), 0);
        assert_eq!(estimate("a"), 1);
        assert_eq!(estimate(&"word ".repeat(100)), 125);
        assert_eq!(estimate("你好"), 2);
    }
}
