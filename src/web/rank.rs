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
mod score;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use self::embed::Embeddings;
use self::passages::Passage;
use super::settings::EmbeddingSettings;
use super::{WebError, tokens};

/// Most passages that are ranked; of more, as many of the first of each text as there is room for.
const MAX_PASSAGES: usize = 4096;
/// Most passages that embeddings are asked for.
const MAX_EMBEDDED: usize = 48;
/// The constant of reciprocal rank fusion, as in the paper.
const FUSION: f32 = 60.0;

/// A text that may be quoted from.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidate {
    /// Its title, or empty.
    pub(super) title: String,
    /// What the search provider says of it; quoted where there is no text.
    pub(super) snippet: String,
    /// Its text.
    pub(super) markdown: String,
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
        candidates: Vec<Candidate>,
        budget: usize,
    ) -> Vec<Chosen> {
        let query = queries.join(" ");
        let candidates = Arc::new(candidates);
        let (known, asked) = (candidates.clone(), query.clone());
        let embeds = self.embeddings.is_some();
        let ranked = compute(move || {
            let passages = cut(&known, budget);
            let scores = score::score(&asked, &passages);
            let most = if embeds { MAX_EMBEDDED } else { 0 };
            let best: Vec<usize> = order(&scores).into_iter().take(most).collect();
            let of = |&index: &usize| passages.get(index).map(Passage::searched);
            let texts: Vec<String> = best.iter().filter_map(of).collect();
            (scores, best, texts)
        });
        let (mut scores, best, texts) = ranked.await;
        if let Some(embeddings) = self.embeddings.as_ref().filter(|_| !texts.is_empty()) {
            match embeddings.likeness(&query, &texts).await {
                Ok(likeness) => scores = fused(scores.len(), &best, &likeness),
                Err(error) => tracing::warn!(
                    %error,
                    "passages could not be ranked with embeddings; words alone decide"
                ),
            }
        }
        compute(move || {
            let passages = cut(&candidates, budget);
            let packed = pack::pack(&candidates, &passages, &scores, budget);
            tracing::debug!(
                passages = passages.len(),
                compared = packed.compared,
                "passages were packed"
            );
            packed.chosen
        })
        .await
    }
}

/// Does what takes a while and no waiting where it holds nobody up.
async fn compute<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

/// The beginning of a text, up to so many tokens, and whether that is all of it.
pub(super) fn beginning(markdown: &str, budget: usize) -> (String, bool) {
    let candidate = Candidate {
        markdown: markdown.to_owned(),
        ..Candidate::default()
    };
    let mut used = 0;
    let mut end = 0;
    for passage in passages::of(0, &candidate, &passages::size(budget)) {
        used += tokens::estimate(passage.text);
        if used > budget {
            let text = markdown.get(..end).unwrap_or_default();
            return (text.to_owned(), false);
        }
        end = passage.place.end;
    }
    let text = markdown.get(..end).unwrap_or_default();
    (text.to_owned(), text.trim_end() == markdown.trim_end())
}

/// The passages of all candidates, those of each text in their order.
fn cut(candidates: &[Candidate], budget: usize) -> Vec<Passage<'_>> {
    let size = passages::size(budget);
    let mut all: Vec<Vec<Passage<'_>>> = candidates
        .iter()
        .enumerate()
        .map(|(index, candidate)| passages::of(index, candidate, &size))
        .collect();
    let most = fair(all.iter().map(Vec::len).collect(), MAX_PASSAGES);
    all.iter_mut().for_each(|passages| passages.truncate(most));
    all.into_iter().flatten().collect()
}

/// How many each may have, so that all have no more than the room: what the short ones leave is for the long ones.
fn fair(mut lengths: Vec<usize>, mut room: usize) -> usize {
    lengths.sort_unstable();
    let mut left = lengths.len();
    for length in lengths {
        if length * left > room {
            return room / left;
        }
        room -= length;
        left -= 1;
    }
    usize::MAX
}

/// The scores by which two orders of the best passages are joined.
fn fused(count: usize, by_words: &[usize], likeness: &[f32]) -> Vec<f32> {
    let mut fused = vec![0.0; count];
    let mut add = |rank: usize, index: usize| {
        if let Some(score) = fused.get_mut(index) {
            #[expect(clippy::cast_precision_loss, reason = "ranks are below fifty")]
            let rank = rank as f32;
            *score += 1.0 / (FUSION + rank);
        }
    };
    by_words
        .iter()
        .enumerate()
        .for_each(|(rank, &index)| add(rank, index));
    for (rank, place) in order(likeness).into_iter().enumerate() {
        if let Some(&index) = by_words.get(place) {
            add(rank, index);
        }
    }
    fused
}

/// The places of the scores, best first; equal ones keep their order.
fn order(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<(usize, f32)> = scores.iter().copied().enumerate().collect();
    order.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    order.into_iter().map(|(index, _)| index).collect()
}
