//! The scores of passages for a query by BM25, as the `bm25` crate computes it.

use std::collections::HashSet;

use bm25::{Embedder, EmbedderBuilder, Scorer, Tokenizer};

use super::passages::Passage;
use super::words::Vocabulary;

/// Most words of a query. Each one is searched in each passage.
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

/// The score of each passage; zero if it has no word of the query.
///
/// The passages of a text are tokenised in its language, and the query in the languages of all texts, since a search finds
/// pages in several.
pub(super) fn score(query: &str, passages: &[Passage<'_>]) -> Vec<f32> {
    let mut vocabulary = Vocabulary::default();
    let mut texts = Vec::with_capacity(passages.len());
    for of_one in passages.chunk_by(|one, next| one.candidate == next.candidate) {
        let words = vocabulary.of(of_one.iter().map(|passage| passage.text));
        texts.extend(of_one.iter().map(|passage| {
            let words = words.of(&passage.searched());
            words.join(&SEPARATOR.to_string())
        }));
    }
    let mut seen = HashSet::new();
    let mut asked = vocabulary.in_all(query);
    asked.retain(|word| seen.insert(word.clone()));
    asked.truncate(MAX_QUERY_WORDS);
    let corpus: Vec<&str> = texts.iter().map(String::as_str).collect();
    let embedder: Embedder<u32, Joined> =
        EmbedderBuilder::with_tokenizer_and_fit_to_corpus(Joined, &corpus).build();
    let mut scorer = Scorer::<usize>::new();
    for (index, text) in corpus.iter().enumerate() {
        scorer.upsert(&index, embedder.embed(text));
    }
    let mut scores = vec![0.0; passages.len()];
    for scored in scorer.matches(&embedder.embed(&asked.join(&SEPARATOR.to_string()))) {
        if let Some(score) = scores.get_mut(scored.id) {
            *score = scored.score;
        }
    }
    scores
}
