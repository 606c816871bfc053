//! Choosing passages until the budget is used up.

use std::collections::HashSet;

use super::passages::Passage;
use super::{Candidate, Chosen, order};
use crate::web::tokens;

/// What the lines about a source take, in tokens, besides its title.
const SOURCE_TOKENS: usize = 40;
/// What a passage takes besides its text.
const PASSAGE_TOKENS: usize = 4;
/// What each further passage of a source counts for, against the one before.
const DECAY: f32 = 0.85;
/// The part of its words that a passage may share with a chosen one.
const MAX_SHARED: f32 = 0.7;
/// A passage below this part of the best score is not worth its tokens.
const LEAST_SHARE: f32 = 0.08;
/// Passages that did not fit before packing ends.
const MAX_MISSES: usize = 24;

/// Chooses greedily by score.
pub(super) fn pack(
    candidates: &[Candidate],
    passages: &[Passage<'_>],
    scores: &[f32],
    budget: usize,
) -> Vec<Chosen> {
    let mut packing = Packing::new(candidates, passages, budget);
    let ranked = order(scores);
    let best = ranked.first().and_then(|&first| scores.get(first));
    let best = best.copied().unwrap_or_default();
    if best > 0.0 {
        let mut left: Vec<usize> = ranked
            .into_iter()
            .filter(|&index| {
                scores
                    .get(index)
                    .is_some_and(|score| *score >= best * LEAST_SHARE)
            })
            .collect();
        while let Some(at) = packing.best_of(&left, scores) {
            let index = left.remove(at);
            if !packing.take(index) && packing.misses > MAX_MISSES {
                break;
            }
        }
    } else {
        // No word of the query is anywhere: the beginnings of all texts in turn, as the provider ordered them.
        let mut rounds: Vec<(usize, usize)> = Vec::new();
        let mut counts = vec![0_usize; candidates.len()];
        for (index, passage) in passages.iter().enumerate() {
            if let Some(count) = counts.get_mut(passage.candidate) {
                rounds.push((*count, index));
                *count += 1;
            }
        }
        rounds.sort_by_key(|(round, _)| *round);
        for (_, index) in rounds {
            if !packing.take(index) && packing.misses > MAX_MISSES {
                break;
            }
        }
    }
    packing.finish()
}

struct Packing<'p, 'd> {
    candidates: &'p [Candidate],
    passages: &'p [Passage<'d>],
    left: usize,
    misses: usize,
    /// Candidates in the order in which their first passage was chosen.
    order: Vec<usize>,
    chosen: Vec<(usize, HashSet<&'d str>)>,
    of_candidate: Vec<i32>,
}

impl<'p, 'd> Packing<'p, 'd> {
    fn new(candidates: &'p [Candidate], passages: &'p [Passage<'d>], budget: usize) -> Self {
        Self {
            candidates,
            passages,
            left: budget,
            misses: 0,
            order: Vec::new(),
            chosen: Vec::new(),
            of_candidate: vec![0; candidates.len()],
        }
    }

    /// The place of the passage that counts for most now.
    fn best_of(&self, left: &[usize], scores: &[f32]) -> Option<usize> {
        let worth = |&index: &usize| {
            let candidate = self.passages.get(index)?.candidate;
            let before = self
                .of_candidate
                .get(candidate)
                .copied()
                .unwrap_or_default();
            Some(scores.get(index)? * DECAY.powi(before))
        };
        let mut best: Option<(usize, f32)> = None;
        for (at, index) in left.iter().enumerate() {
            let worth = worth(index).unwrap_or_default();
            if best.is_none_or(|(_, known)| worth > known) {
                best = Some((at, worth));
            }
        }
        best.map(|(at, _)| at)
    }

    /// Takes a passage if there is room and if it says something new.
    fn take(&mut self, index: usize) -> bool {
        let Some(passage) = self.passages.get(index) else {
            return false;
        };
        let Some(candidate) = self.candidates.get(passage.candidate) else {
            return false;
        };
        let first = !self.order.contains(&passage.candidate);
        let mut cost =
            tokens::estimate(passage.text) + tokens::estimate(&passage.headings) + PASSAGE_TOKENS;
        if first {
            cost += SOURCE_TOKENS + tokens::estimate(&candidate.title);
        }
        if cost > self.left {
            self.misses += 1;
            return false;
        }
        let words: HashSet<&str> = passage.text.split_whitespace().collect();
        if self.chosen.iter().any(|(_, known)| shares(&words, known)) {
            return true;
        }
        self.left -= cost;
        self.chosen.push((index, words));
        if let Some(count) = self.of_candidate.get_mut(passage.candidate) {
            *count += 1;
        }
        if first {
            self.order.push(passage.candidate);
        }
        true
    }

    fn finish(mut self) -> Vec<Chosen> {
        let passages = self.passages;
        let place = |index: &usize| {
            passages
                .get(*index)
                .map_or(0, |passage| passage.place.start)
        };
        self.chosen.sort_by_key(|(index, _)| place(index));
        let of = |candidate: usize| {
            let chosen: Vec<&Passage<'d>> = self
                .chosen
                .iter()
                .filter_map(|(index, _)| passages.get(*index))
                .filter(|passage| passage.candidate == candidate)
                .collect();
            let all = passages
                .iter()
                .filter(|passage| passage.candidate == candidate);
            let whole = all.count() == chosen.len();
            let text = self
                .candidates
                .get(candidate)
                .map_or("", |candidate| candidate.markdown.as_str());
            Chosen {
                candidate,
                passages: joined(&chosen, text, whole),
                whole,
            }
        };
        self.order.iter().map(|&candidate| of(candidate)).collect()
    }
}

/// The texts of passages, neighbours as one, each under the headings that stand above it.
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

/// Whether two texts are mostly the same words.
fn shares(words: &HashSet<&str>, known: &HashSet<&str>) -> bool {
    let smaller = words.len().min(known.len());
    if smaller < 5 {
        return words == known;
    }
    let shared = words.intersection(known).count();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a passage has a few hundred words"
    )]
    let share = shared as f32 / smaller as f32;
    share > MAX_SHARED
}
