//! Estimates the number of tokens of a text.
//!
//! The tokenizer of the model is not known here. In current byte-pair vocabularies a token is about four characters of Latin
//! text or one character of Chinese, Japanese or Korean; digits and punctuation are between. The estimate is rather high.

/// The estimated number of tokens.
pub(super) fn estimate(text: &str) -> usize {
    let quarters: usize = text.chars().map(quarters).sum();
    quarters.div_ceil(4)
}

/// The estimated tokens of a character, in quarters.
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
