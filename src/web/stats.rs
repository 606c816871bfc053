//! Counts of searches and pages by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WebStats {
    /// Searches by provider.
    pub searches: Vec<(&'static str, Outcomes)>,
    /// Pages that were fetched and read.
    pub pages: Outcomes,
}

/// Counts of one kind of request by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Successes.
    pub ok: u64,
    /// Failures and refusals.
    pub error: u64,
}

/// Counts outcomes.
#[derive(Debug, Default)]
pub struct Tally {
    ok: AtomicU64,
    error: AtomicU64,
}

impl Tally {
    /// Counts an outcome.
    pub fn count<T, E>(&self, outcome: &Result<T, E>) {
        let counter = match outcome {
            Ok(_) => &self.ok,
            Err(_) => &self.error,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts.
    pub fn outcomes(&self) -> Outcomes {
        Outcomes {
            ok: self.ok.load(Ordering::Relaxed),
            error: self.error.load(Ordering::Relaxed),
        }
    }
}

/// Sums by provider, since a provider may be configured several times.
pub(super) fn by_provider(
    each: impl Iterator<Item = (&'static str, Outcomes)>,
) -> Vec<(&'static str, Outcomes)> {
    let mut sums: Vec<(&'static str, Outcomes)> = Vec::new();
    for (name, outcomes) in each {
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => {
                sum.ok += outcomes.ok;
                sum.error += outcomes.error;
            }
            None => sums.push((name, outcomes)),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_that_is_configured_twice_is_counted_as_one() {
        let tally = Tally::default();
        tally.count(&Ok::<(), ()>(()));
        tally.count(&Err::<(), ()>(()));
        tally.count(&Err::<(), ()>(()));
        let outcomes = tally.outcomes();
        assert_eq!(outcomes, Outcomes { ok: 1, error: 2 });
        let sums = by_provider([("a", outcomes), ("b", outcomes), ("a", outcomes)].into_iter());
        assert_eq!(sums, [("a", Outcomes { ok: 2, error: 4 }), ("b", outcomes)]);
    }
}
