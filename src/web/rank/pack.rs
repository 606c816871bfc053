//! Selects passages until the budget is used up.
//!
//! A heap holds the next best passage of each source, so the selection takes n·log n steps. Near duplicates are found by
//! comparison with the selected passages, whose number the budget bounds.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::passages::Passage;
use super::{Candidate, Chosen, order};
use crate::rank::tokens;
use crate::ranking::pairs;

/// Size of the lines about a source, besides its title, in tokens.
const SOURCE_TOKENS: usize = 40;
/// Size of a passage, besides its text, in tokens.
const PASSAGE_TOKENS: usize = 4;
/// Weight of each further passage of a source, relative to the one before.
const DECAY: f32 = 0.85;
/// Largest share of its word pairs that a passage may have in common with a selected one. With a larger one it is a
/// duplicate.
/// Tried by `rank::duplicates_are_quoted_once_and_several_sources_are_quoted`.
const MAX_SHARED: f32 = 0.7;
/// Least share of the best score. Passages below it are not selected.
const LEAST_SHARE: f32 = 0.08;
/// Share of the best score that the best passage of a source must reach, so that the source matches.
const MATCHING_SHARE: f32 = 0.3;
/// Largest part of the budget that one source may take before other matching sources: three fifths.
/// Tried by `rank::hostile::a_page_stuffed_with_the_words_of_the_query_does_not_push_out_others`.
const SOURCE_SHARE: (usize, usize) = (3, 5);
/// Most passages that do not fit. Then the selection ends.
const MAX_MISSES: usize = 24;
/// Most consecutive duplicates of a source, which is then skipped.
const MAX_DOUBLES: usize = 32;

/// The selection.
#[derive(Debug)]
pub(super) struct Packed {
    /// The selected passages by source.
    pub(super) chosen: Vec<Chosen>,
    /// The number of compared word pairs, a measure of the time.
    pub(super) compared: usize,
}

/// Selects greedily by score.
pub(super) fn pack(
    candidates: &[Candidate],
    passages: &[Passage<'_>],
    scores: &[f32],
    budget: usize,
) -> Packed {
    let mut packing = Packing::new(candidates, passages, budget);
    let ranked = order(scores);
    let score = |index: &usize| scores.get(*index).copied().unwrap_or_default();
    let best = ranked.first().map_or(0.0, score);
    if best > 0.0 {
        let mut sources = vec![Vec::new(); candidates.len()];
        for &index in ranked
            .iter()
            .take_while(|index| score(index) >= best * LEAST_SHARE)
        {
            if let Some(passage) = passages.get(index)
                && let Some(source) = sources.get_mut(passage.candidate)
            {
                source.push((index, score(&index)));
            }
        }
        let matching = sources.iter().filter_map(|source| source.first());
        let several = matching.filter(|(_, own)| *own >= best * MATCHING_SHARE);
        let cap = match several.count() {
            0 | 1 => budget,
            _ => budget * SOURCE_SHARE.0 / SOURCE_SHARE.1,
        };
        let left = packing.by_score(sources, cap);
        packing.misses = 0;
        packing.by_score(left, budget);
    } else {
        packing.in_turn();
    }
    packing.finish()
}

/// The outcome for a passage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selection {
    Taken,
    Double,
    NoRoom,
    OverCap,
}

/// The next passage of a source.
#[derive(Debug)]
struct Next {
    worth: f32,
    source: usize,
}

/// The state of a source.
#[derive(Debug, Clone, Default)]
struct Source {
    taken: i32,
    used: usize,
}

struct Packing<'p, 'd> {
    candidates: &'p [Candidate],
    passages: &'p [Passage<'d>],
    left: usize,
    misses: usize,
    compared: usize,
    /// Candidates in the order in which their first passage was selected.
    order: Vec<usize>,
    /// The selected passages with the hashes of their word pairs.
    chosen: Vec<(usize, Vec<u64>)>,
    sources: Vec<Source>,
}

impl<'p, 'd> Packing<'p, 'd> {
    fn new(candidates: &'p [Candidate], passages: &'p [Passage<'d>], budget: usize) -> Self {
        Self {
            candidates,
            passages,
            left: budget,
            misses: 0,
            compared: 0,
            order: Vec::new(),
            chosen: Vec::new(),
            sources: vec![Source::default(); candidates.len()],
        }
    }

    /// Selects by weighted score, up to a cap for each source. Returns the passages that only the cap excluded.
    fn by_score(&mut self, sources: Vec<Vec<(usize, f32)>>, cap: usize) -> Vec<Vec<(usize, f32)>> {
        let mut left = vec![Vec::new(); sources.len()];
        let mut doubles = vec![0; sources.len()];
        let mut waiting: Vec<_> = sources
            .into_iter()
            .map(|source| source.into_iter().peekable())
            .collect();
        let mut heap = BinaryHeap::new();
        heap.extend((0..waiting.len()).filter_map(|source| {
            let (_, score) = waiting.get_mut(source)?.peek()?;
            let worth = score * DECAY.powi(self.sources.get(source)?.taken);
            Some(Next { worth, source })
        }));
        while let Some(Next { source, .. }) = heap.pop() {
            let Some(passages) = waiting.get_mut(source) else {
                continue;
            };
            let Some((index, score)) = passages.next() else {
                continue;
            };
            let outcome = self.take(index, cap);
            if outcome == Selection::OverCap {
                if let Some(left) = left.get_mut(source) {
                    left.push((index, score));
                    left.extend(passages);
                }
                continue;
            }
            if let Some(doubles) = doubles.get_mut(source) {
                *doubles = match outcome {
                    Selection::Double => *doubles + 1,
                    _ => 0,
                };
                if *doubles > MAX_DOUBLES {
                    continue;
                }
            }
            if self.misses > MAX_MISSES {
                break;
            }
            let taken = self.sources.get(source).map_or(0, |source| source.taken);
            if let Some((_, score)) = passages.peek() {
                let worth = score * DECAY.powi(taken);
                heap.push(Next { worth, source });
            }
        }
        left
    }

    /// Selects the first passages of all texts in turn, for a query without matches.
    fn in_turn(&mut self) {
        let mut rounds: Vec<(usize, usize)> = Vec::new();
        let mut counts = vec![0_usize; self.candidates.len()];
        for (index, passage) in self.passages.iter().enumerate() {
            if let Some(count) = counts.get_mut(passage.candidate) {
                rounds.push((*count, index));
                *count += 1;
            }
        }
        rounds.sort_by_key(|(round, _)| *round);
        for (_, index) in rounds {
            self.take(index, usize::MAX);
            if self.misses > MAX_MISSES {
                break;
            }
        }
    }

    /// Selects a passage if it fits and is no duplicate.
    fn take(&mut self, index: usize, cap: usize) -> Selection {
        let Some(passage) = self.passages.get(index) else {
            return Selection::NoRoom;
        };
        let (Some(candidate), Some(source)) = (
            self.candidates.get(passage.candidate),
            self.sources.get_mut(passage.candidate),
        ) else {
            return Selection::NoRoom;
        };
        let first = source.taken == 0;
        let mut cost =
            tokens::estimate(passage.text) + tokens::estimate(&passage.headings) + PASSAGE_TOKENS;
        if first {
            cost += SOURCE_TOKENS + tokens::estimate(&candidate.title);
        }
        if cost > self.left {
            self.misses += 1;
            return Selection::NoRoom;
        }
        if !first && source.used + cost > cap {
            return Selection::OverCap;
        }
        let said = said(passage.text);
        for (_, known) in &self.chosen {
            self.compared += said.len() + known.len();
            if shares(&said, known) {
                return Selection::Double;
            }
        }
        self.left -= cost;
        source.used += cost;
        source.taken += 1;
        self.chosen.push((index, said));
        if first {
            self.order.push(passage.candidate);
        }
        Selection::Taken
    }

    fn finish(mut self) -> Packed {
        self.chosen.sort_unstable_by_key(|(index, _)| *index);
        let mut of_candidate: Vec<Vec<&Passage<'d>>> = vec![Vec::new(); self.candidates.len()];
        for (index, _) in &self.chosen {
            if let Some(passage) = self.passages.get(*index)
                && let Some(own) = of_candidate.get_mut(passage.candidate)
            {
                own.push(passage);
            }
        }
        let mut counts = vec![0_usize; self.candidates.len()];
        for passage in self.passages {
            if let Some(count) = counts.get_mut(passage.candidate) {
                *count += 1;
            }
        }
        let of = |&candidate: &usize| {
            let chosen = of_candidate.get(candidate)?;
            let whole = counts.get(candidate) == Some(&chosen.len());
            let text = self.candidates.get(candidate)?.markdown.as_str();
            Some(Chosen {
                candidate,
                passages: joined(chosen, text, whole),
                whole,
            })
        };
        Packed {
            chosen: self.order.iter().filter_map(of).collect(),
            compared: self.compared,
        }
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_worth = self.worth.total_cmp(&other.worth);
        // Of two with equal worth, the provider's first one wins.
        by_worth.then_with(|| other.source.cmp(&self.source))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

/// The texts of passages with their headings; adjacent passages are joined.
fn joined(chosen: &[&Passage<'_>], text: &str, whole: bool) -> Vec<String> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    for passage in chosen {
        let gap = |end: usize| text.get(end..passage.place.start);
        match joined.last_mut() {
            Some((end, known)) if gap(*end).is_some_and(|gap| gap.trim().is_empty()) => {
                known.push_str(gap(*end).unwrap_or_default());
                known.push_str(passage.text);
                *end = passage.place.end;
            }
            _ => {
                let above = match whole || passage.headings.is_empty() {
                    true => String::new(),
                    false => format!("({})\n", passage.headings),
                };
                joined.push((passage.place.end, format!("{above}{}", passage.text)));
            }
        }
    }
    joined.into_iter().map(|(_, text)| text).collect()
}

/// The sorted hashes of adjacent words, or of adjacent characters in scripts without spaces. Rows of a table share many
/// words, but few adjacent ones.
fn said(text: &str) -> Vec<u64> {
    let hash = |of: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        of(&mut hasher);
        hasher.finish()
    };
    let mut said = HashSet::new();
    let mut before = "";
    for word in text.split_whitespace() {
        said.insert(hash(&|hasher| (before, word).hash(hasher)));
        said.extend(pairs(word).map(|pair| hash(&|hasher| pair.hash(hasher))));
        before = word;
    }
    let mut said: Vec<u64> = said.into_iter().collect();
    said.sort_unstable();
    said
}

/// Whether two texts are near duplicates.
fn shares(one: &[u64], other: &[u64]) -> bool {
    let smaller = one.len().min(other.len());
    if smaller < 5 {
        return one == other;
    }
    let mut others = other.iter().peekable();
    let mut shared = 0;
    for hash in one {
        while others.next_if(|other| *other < hash).is_some() {}
        shared += usize::from(others.next_if_eq(&hash).is_some());
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a passage has a few hundred words"
    )]
    let share = shared as f32 / smaller as f32;
    share > MAX_SHARED
}
