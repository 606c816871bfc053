//! Words as they are compared: lower-cased, stemmed in the language of the texts, without stop words.

use bm25::{DefaultTokenizer, Language, LanguageMode, Tokenizer};

/// Characters of the texts that are looked at to tell their language.
const SAMPLE: usize = 4000;

/// Takes texts apart in one language; what is written without spaces also by pairs of characters.
#[derive(Debug)]
pub(super) struct Words(DefaultTokenizer);

impl Words {
    /// For texts like these.
    pub(super) fn of(texts: &[&str]) -> Self {
        let each = SAMPLE.div_ceil(texts.len().max(1)).max(200);
        let mut sample = String::new();
        for text in texts {
            sample.extend(text.chars().take(each));
            sample.push('\n');
            if sample.len() > SAMPLE {
                break;
            }
        }
        let language = Language::try_from(whichlang::detect_language(&sample));
        let language = language.unwrap_or(Language::English);
        let inner = DefaultTokenizer::builder()
            .language_mode(LanguageMode::Fixed(language))
            // It would turn every other script into Latin letters, and there different words into one.
            .normalization(false)
            .build();
        Self(inner)
    }
}

impl Tokenizer for Words {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let mut words = self.0.tokenize(text);
        let mut last: Option<char> = None;
        for character in text.chars() {
            if !is_unspaced(character) {
                last = None;
                continue;
            }
            if let Some(last) = last {
                words.push([last, character].iter().collect());
            }
            last = Some(character);
        }
        words
    }
}

/// Whether a script is written without spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese.
fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_are_one_and_stop_words_are_none() {
        let english =
            Words::of(&["The harbours of the northern islands were closed because of the storms."]);
        assert_eq!(
            english.tokenize("the harbours"),
            english.tokenize("Harbour")
        );
        let german = Words::of(&[
            "Die Häuser der Stadt wurden im vergangenen Jahrhundert nach dem Brand wieder aufgebaut.",
        ]);
        assert_eq!(german.tokenize("Häuser"), german.tokenize("die Häusern"));
    }

    #[test]
    fn text_without_spaces_is_compared_by_pairs() {
        let words = Words::of(&["東京の天気は晴れです。明日は雨が降るでしょう。"]);
        let tokens = words.tokenize("東京の天気");
        assert!(tokens.contains(&"東京".to_owned()), "{tokens:?}");
        assert!(tokens.contains(&"天気".to_owned()), "{tokens:?}");
    }
}
