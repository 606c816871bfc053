//! Arithmetic on measured figures: differences to the direct connection, slopes and ratios.

use crate::{generator::Slice, tables::DIRECT};

/// Tool rounds of a loop.
pub(crate) const ROUNDS: usize = 5;

/// Requests with many tool rounds and with few, of one contender. The first round costs more than the others: it brings the
/// session into the store.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// Whose they are.
    pub(crate) name: &'static str,
    /// With many tool rounds.
    pub(crate) full: Option<Slice>,
    /// With few.
    pub(crate) few: Option<Slice>,
    /// How many more.
    pub(crate) between: usize,
}

impl Rounds {
    /// A figure per tool round, without what a request costs once.
    pub(crate) fn slope(&self, of: fn(Slice) -> f64) -> Option<f64> {
        Some((of(self.full?) - of(self.few?)) / self.between as f64)
    }

    /// Time per tool round beyond what the direct connection takes for the same calls.
    pub(crate) fn own(&self, direct: Option<&Self>) -> Option<f64> {
        self.own_of(direct, |it| it.median)
    }

    /// The same of another time than the median.
    pub(crate) fn own_of(&self, direct: Option<&Self>, of: fn(Slice) -> f64) -> Option<f64> {
        if self.name == DIRECT {
            return None;
        }
        Some(self.slope(of)? - direct?.slope(of)?)
    }

    /// CPU seconds per tool round.
    pub(crate) fn cpu(&self) -> Option<f64> {
        if self.name == DIRECT {
            None
        } else {
            self.slope(|it| it.cpu)
        }
    }
}

/// The figures of the contender with that name.
pub(crate) fn of(figures: &[(&str, Option<Slice>)], wanted: &str) -> Option<Slice> {
    figures.iter().find(|(name, _)| *name == wanted)?.1
}

/// Nothing for the direct connection, which has no process to look at.
pub(crate) fn proxied(name: &str, slice: Option<Slice>) -> Option<Slice> {
    slice.filter(|_| name != DIRECT)
}

/// What a contender takes beyond the direct connection.
pub(crate) fn added(
    name: &str,
    slice: Option<Slice>,
    direct: Option<Slice>,
    of: fn(Slice) -> f64,
) -> Option<f64> {
    Some(of(proxied(name, slice)?) - of(direct?))
}

/// One figure over another, where there are both.
pub(crate) fn ratio(figure: Option<f64>, base: Option<f64>) -> Option<f64> {
    let base = base.filter(|base| *base > 0.0)?;
    Some(figure? / base)
}

/// Seconds in microseconds.
pub(crate) fn micros(seconds: f64) -> f64 {
    seconds * 1e6
}
