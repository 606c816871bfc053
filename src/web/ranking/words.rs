//! Tokenises texts for comparison: lower case, stemmed in the language of the text, without stop words.

use std::rc::Rc;

use bm25::{DefaultTokenizer, Language, LanguageMode, Tokenizer};

/// Most characters of a text that are used to detect its language.
const SAMPLE: usize = 2000;
/// Most characters of one passage that are used to detect the language.
const SAMPLE_OF_ONE: usize = 400;

/// The tokenisers of all languages so far.
#[derive(Debug, Default)]
pub(super) struct Vocabulary(Vec<(Language, Rc<Words>)>);

/// The tokeniser of one language. Scripts without spaces also yield pairs of characters.
#[derive(Debug)]
pub(super) struct Words(DefaultTokenizer);

impl Vocabulary {
    /// The tokeniser for the language of a text with these passages.
    pub(super) fn of<'t>(&mut self, passages: impl Iterator<Item = &'t str>) -> Rc<Words> {
        let mut sample = String::new();
        for passage in passages {
            sample.extend(passage.chars().take(SAMPLE_OF_ONE));
            sample.push('\n');
            if sample.len() > SAMPLE {
                break;
            }
        }
        let language = Language::try_from(whichlang::detect_language(&sample));
        let language = language.unwrap_or(Language::English);
        let known = self.0.iter().find(|(known, _)| *known == language);
        if let Some((_, words)) = known {
            return Rc::clone(words);
        }
        let words = Rc::new(Words::new(language.clone()));
        self.0.push((language, Rc::clone(&words)));
        words
    }

    /// The words of a text in each language, with duplicates.
    pub(super) fn in_all(&self, text: &str) -> Vec<String> {
        let languages = self.0.iter();
        languages.flat_map(|(_, words)| words.of(text)).collect()
    }
}

impl Words {
    fn new(language: Language) -> Self {
        let inner = DefaultTokenizer::builder()
            .language_mode(LanguageMode::Fixed(language))
            // Normalisation would transliterate other scripts, so that different words become equal.
            .normalization(false)
            .build();
        Self(inner)
    }

    pub(super) fn of(&self, text: &str) -> Vec<String> {
        let mut words = self.0.tokenize(text);
        words.extend(pairs(text).map(|pair| pair.iter().collect()));
        words
    }
}

/// Pairs of adjacent characters in scripts without spaces.
pub(crate) fn pairs(text: &str) -> impl Iterator<Item = [char; 2]> {
    let next = text.chars().skip(1);
    let neighbours = text.chars().zip(next).map(|(one, next)| [one, next]);
    neighbours.filter(|pair| pair.iter().all(|&one| is_unspaced(one)))
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

    const ENGLISH: &str = "The harbours of the northern islands were closed because of the storms.";
    const GERMAN: &str =
        "Die Häuser der Stadt wurden im vergangenen Jahrhundert nach dem Brand wieder aufgebaut.";

    fn words(text: &str) -> Rc<Words> {
        Vocabulary::default().of([text].into_iter())
    }

    #[test]
    fn forms_of_a_word_are_equal_and_stop_words_are_removed() {
        let english = words(ENGLISH);
        assert_eq!(english.of("the harbours"), english.of("Harbour"));
        let german = words(GERMAN);
        assert_eq!(german.of("Häuser"), german.of("die Häusern"));
    }

    #[test]
    fn a_query_is_tokenised_in_the_languages_of_all_texts() {
        let mut vocabulary = Vocabulary::default();
        let (english, german) = (
            vocabulary.of([ENGLISH].into_iter()),
            vocabulary.of([GERMAN].into_iter()),
        );
        let asked = vocabulary.in_all("harbours Häusern");
        assert!(asked.contains(&english.of("harbour")[0]), "{asked:?}");
        assert!(asked.contains(&german.of("Häuser")[0]), "{asked:?}");
    }

    #[test]
    fn text_without_spaces_is_compared_by_pairs() {
        let tokens = words("東京の天気は晴れです。明日は雨が降るでしょう。").of("東京の天気");
        assert!(tokens.contains(&"東京".to_owned()), "{tokens:?}");
        assert!(tokens.contains(&"天気".to_owned()), "{tokens:?}");
        assert!(!tokens.contains(&"京天".to_owned()), "{tokens:?}");
    }
}
