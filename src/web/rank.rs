//! The best passages of several texts, packed into a budget of tokens.
//!
//! Texts are cut into passages ([`passages`]), which are ranked against the query by BM25 (Robertson and Zaragoza, *The
//! Probabilistic Relevance Framework: BM25 and Beyond*, 2009; the `bm25` crate), and where an upstream has embeddings,
//! also by those: the two orders are then joined by reciprocal ranks (Cormack, Clarke and Büttcher, SIGIR 2009). What is
//! chosen is varied: a second passage of a source counts for less than the first, and what says the same as a chosen
//! one is left out.

mod embed;
mod pack;
mod passages;
#[cfg(test)]
mod tests;
mod words;

use bm25::{Embedder, EmbedderBuilder, Scorer};

use self::embed::Embeddings;
use self::passages::Passage;
use self::words::Words;
use super::WebError;
use super::settings::EmbeddingSettings;

/// Most passages that are ranked; of more, the first of each text in turn.
const MAX_PASSAGES: usize = 4096;
/// Most passages that embeddings are asked for.
const MAX_EMBEDDED: usize = 48;
/// The constant of reciprocal rank fusion, as in the paper.
const FUSION: f32 = 60.0;

/// A text that may be quoted from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'d> {
    /// Its title, or empty.
    pub(super) title: &'d str,
    /// What the search provider says of it; quoted where there is no text.
    pub(super) snippet: Option<&'d str>,
    /// Its text.
    pub(super) markdown: &'d str,
}

/// What was chosen of one candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    /// Its place among the candidates.
    pub(super) candidate: usize,
    /// Passages in the order of the text; neighbours are joined.
    pub(super) passages: Vec<String>,
    /// Whether that is the whole text.
    pub(super) whole: bool,
}

/// Ranks and packs; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Ranker {
    embeddings: Option<Embeddings>,
}

impl Ranker {
    pub(super) fn new(embeddings: Option<EmbeddingSettings>) -> Result<Self, WebError> {
        Ok(Self {
            embeddings: embeddings.map(Embeddings::new).transpose()?,
        })
    }

    /// The passages that fit the queries best, of the best candidate first, within so many tokens.
    pub(super) async fn pack(
        &self,
        queries: &[String],
        candidates: &[Candidate<'_>],
        budget: usize,
    ) -> Vec<Chosen> {
        let query = queries.join(" ");
        let passages = cut(candidates);
        let mut scores = score(&query, &passages);
        if let Some(embeddings) = &self.embeddings {
            match embedded(embeddings, &query, &passages, &scores).await {
                Ok(fused) => scores = fused,
                Err(error) => {
                    tracing::warn!(%error, "passages could not be ranked with embeddings; words alone decide");
                }
            }
        }
        pack::pack(candidates, &passages, &scores, budget)
    }
}

/// The passages of all candidates, those of each text in their order.
fn cut<'d>(candidates: &[Candidate<'d>]) -> Vec<Passage<'d>> {
    let mut all: Vec<Vec<Passage<'d>>> = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| passages::of(index, candidate))
        .collect();
    let total: usize = all.iter().map(Vec::len).sum();
    if total > MAX_PASSAGES {
        let each = (MAX_PASSAGES / all.len().max(1)).max(1);
        all.iter_mut().for_each(|passages| passages.truncate(each));
    }
    all.into_iter().flatten().collect()
}

/// How well each passage fits; zero where no word of the query is in it.
fn score(query: &str, passages: &[Passage<'_>]) -> Vec<f32> {
    let texts: Vec<String> = passages.iter().map(Passage::searched).collect();
    let corpus: Vec<&str> = texts.iter().map(String::as_str).collect();
    let words = Words::of(&corpus);
    let embedder: Embedder<u32, Words> =
        EmbedderBuilder::with_tokenizer_and_fit_to_corpus(words, &corpus).build();
    let mut scorer = Scorer::<usize>::new();
    for (index, text) in corpus.iter().enumerate() {
        scorer.upsert(&index, embedder.embed(text));
    }
    let query = embedder.embed(query);
    let mut scores = vec![0.0; passages.len()];
    for scored in scorer.matches(&query) {
        if let Some(score) = scores.get_mut(scored.id) {
            *score = scored.score;
        }
    }
    scores
}

/// The scores with those of embeddings joined in.
async fn embedded(
    embeddings: &Embeddings,
    query: &str,
    passages: &[Passage<'_>],
    scores: &[f32],
) -> Result<Vec<f32>, embed::EmbedError> {
    let by_words = order(scores);
    let chosen: Vec<usize> = by_words.iter().copied().take(MAX_EMBEDDED).collect();
    let texts: Vec<String> = chosen
        .iter()
        .filter_map(|&index| passages.get(index))
        .map(Passage::searched)
        .collect();
    let likeness = embeddings.likeness(query, &texts).await?;
    let mut fused = vec![0.0; scores.len()];
    let mut add = |rank: usize, index: usize| {
        if let Some(score) = fused.get_mut(index) {
            #[expect(clippy::cast_precision_loss, reason = "ranks are below fifty")]
            let rank = rank as f32;
            *score += 1.0 / (FUSION + rank);
        }
    };
    chosen
        .iter()
        .enumerate()
        .for_each(|(rank, &index)| add(rank, index));
    for (rank, place) in order(&likeness).into_iter().enumerate() {
        if let Some(&index) = chosen.get(place) {
            add(rank, index);
        }
    }
    Ok(fused)
}

/// The places of the scores, best first; equal ones keep their order.
fn order(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<(usize, f32)> = scores.iter().copied().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    order.into_iter().map(|(index, _)| index).collect()
}
