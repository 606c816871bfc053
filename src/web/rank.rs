//! The best passages of several texts, packed into a budget of tokens.
//!
//! Texts are cut into passages ([`passages`]) and ranked against the query by BM25. If an upstream has embeddings, a second
//! ranking by them is joined by reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009). Further passages of one
//! source count for less than the first, and near duplicates are left out.

mod embed;
mod pack;
mod passages;
mod score;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;

use self::embed::Embeddings;
use self::passages::Passage;
use super::SetupError;
use super::settings::EmbeddingSettings;
use crate::ranking::order;

/// Most passages that are ranked. Of more, the first ones of each text are taken.
/// Tried by `rank::hostile::five_thousand_paragraphs_are_all_ranked`.
const MAX_PASSAGES: usize = 4096;
/// Most passages for which embeddings are requested; others are ranked by their words.
const MAX_EMBEDDED: usize = 48;
/// Weight of a rank in reciprocal rank fusion, from the paper.
const FUSION: f32 = 60.0;

/// A text that may be quoted from.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidate {
    /// The title, or empty.
    pub(super) title: String,
    /// The provider's summary, which is quoted if there is no text.
    pub(super) snippet: String,
    /// The text.
    pub(super) markdown: String,
}

/// The selected passages of one candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The index of the candidate.
    pub(super) candidate: usize,
    /// The passages in the order of the text; adjacent ones are joined.
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
    pub(super) fn new(embeddings: Option<EmbeddingSettings>) -> Result<Self, SetupError> {
        Ok(Self {
            embeddings: embeddings.map(Embeddings::new).transpose()?,
        })
    }

    /// The passages that match the queries best within a number of tokens, ordered by candidate, the best one first.
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
            match embeddings.similarity(&query, &texts).await {
                Ok(similarity) => scores = fused(scores.len(), &best, &similarity),
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

/// Runs a computation on the blocking pool.
async fn compute<T: Default + Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap_or_default()
}

/// The start of a text within a number of tokens, and whether that is the whole text.
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

/// The passages of all candidates, in the order of their texts.
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

/// The maximum for each so that the sum is within a limit. Short ones leave more for long ones.
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

/// The scores of the reciprocal rank fusion of two rankings.
fn fused(count: usize, by_words: &[usize], similarity: &[f32]) -> Vec<f32> {
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
    for (rank, place) in order(similarity).into_iter().enumerate() {
        if let Some(&index) = by_words.get(place) {
            add(rank, index);
        }
    }
    fused
}
