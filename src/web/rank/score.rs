//! The scores of passages for a query.

use super::passages::Passage;
use crate::ranking::Corpus;

/// The score of each passage; zero if it has no word of the query.
///
/// The passages of a text are compared in its language, since a search finds pages in several.
pub(super) fn score(query: &str, passages: &[Passage<'_>]) -> Vec<f32> {
    let mut corpus = Corpus::default();
    for of_one in passages.chunk_by(|one, next| one.candidate == next.candidate) {
        let sample = of_one.iter().map(|passage| passage.text);
        corpus.add(sample, of_one.iter().map(Passage::searched));
    }
    corpus.score(query)
}
