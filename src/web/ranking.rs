//! The scores of texts for a query by BM25 (Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and
//! Beyond*, 2009), as the `bm25` crate computes it.

mod words;

use std::collections::HashSet;

use bm25::{Embedder, EmbedderBuilder, Scorer, Tokenizer};

use self::words::Vocabulary;
pub(crate) use self::words::pairs;

/// Most words of a query, as each is searched in each text; others are left out.
const MAX_QUERY_WORDS: usize = 96;
/// Separates tokens in a joined text.
const SEPARATOR: char = '\u{1f}';

/// Splits a text that was joined with [`SEPARATOR`].
#[derive(Debug)]
struct Joined;

impl Tokenizer for Joined {
    fn tokenize(&self, text: &str) -> Vec<String> {
        let words = text.split(SEPARATOR).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }
}

/// Texts that are compared with a query.
#[derive(Debug, Default)]
pub struct Corpus {
    vocabulary: Vocabulary,
    texts: Vec<String>,
}

impl Corpus {
    /// Adds texts in the language of `sample`.
    pub fn add<'t>(
        &mut self,
        sample: impl Iterator<Item = &'t str>,
        texts: impl Iterator<Item = String>,
    ) {
        let words = self.vocabulary.of(sample);
        let texts = texts.map(|text| words.of(&text).join(&SEPARATOR.to_string()));
        self.texts.extend(texts);
    }

    /// The score of each text, in the order of their addition; zero if it has no word of the query.
    ///
    /// The query is tokenised in the languages of all texts.
    pub fn score(&self, query: &str) -> Vec<f32> {
        let mut seen = HashSet::new();
        let mut asked = self.vocabulary.in_all(query);
        asked.retain(|word| seen.insert(word.clone()));
        asked.truncate(MAX_QUERY_WORDS);
        let corpus: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        let embedder: Embedder<u32, Joined> =
            EmbedderBuilder::with_tokenizer_and_fit_to_corpus(Joined, &corpus).build();
        let mut scorer = Scorer::<usize>::new();
        for (index, text) in corpus.iter().enumerate() {
            scorer.upsert(&index, embedder.embed(text));
        }
        let mut scores = vec![0.0; corpus.len()];
        for scored in scorer.matches(&embedder.embed(&asked.join(&SEPARATOR.to_string()))) {
            if let Some(score) = scores.get_mut(scored.id) {
                *score = scored.score;
            }
        }
        scores
    }
}

/// The indices of the scores, best first; equal ones keep their order.
pub fn order(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<(usize, f32)> = scores.iter().copied().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    order.into_iter().map(|(index, _)| index).collect()
}
