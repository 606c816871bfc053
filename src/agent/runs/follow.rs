//! Later readers of a run, which read its event log.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use memchr::memmem;

use super::log::Tail;
use super::state::{Progress, RunState};
use store::RunAnswer;

/// The end of an event.
const EVENT_END: &[u8] = b"\n\n";
/// The beginning of a line that has a number.
const DATA: &[u8] = b"data: ";

/// A later reader of a run.
#[derive(Debug)]
pub struct Follow {
    state: Arc<RunState>,
    /// Lines that this reader has.
    after: u64,
    numbered: bool,
}

/// Why a run's lines cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FollowError {
    /// There is no such run in memory.
    #[error("there is no such run in memory")]
    NotFound,
    /// The lines were dropped.
    #[error("the lines are no longer kept")]
    Expired,
    /// The run has fewer lines.
    #[error("the run has only {lines} lines")]
    PastEnd {
        /// Lines so far.
        lines: u64,
    },
}

/// What a later reader is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// Whole events.
    Lines(Bytes),
    /// The reader is too slow: lines that it has not read were dropped.
    Lost,
    /// The run is over and all was read.
    End,
}

impl Follow {
    pub(super) fn new(state: Arc<RunState>, after: u64) -> Result<Self, FollowError> {
        {
            let progress = state.progress();
            let lines = progress.log.lines();
            if after > lines {
                return Err(FollowError::PastEnd { lines });
            }
            if matches!(progress.log.tail(after), Tail::Gone) {
                return Err(FollowError::Expired);
            }
        }
        state.enter();
        Ok(Self {
            state,
            after,
            numbered: false,
        })
    }

    /// A reader that only waits for the end.
    pub(super) fn from_now(state: Arc<RunState>) -> Self {
        state.enter();
        let after = state.progress().log.lines();
        Self {
            state,
            after,
            numbered: false,
        }
    }

    /// Waits for the end of the run and returns its answer.
    pub async fn answer(&self) -> Option<Arc<RunAnswer>> {
        let over = |progress: &Progress| progress.is_over().then(|| progress.answer());
        self.state.wait_for(over).await
    }

    /// Precedes each `data:` line with its number as `id:`.
    #[must_use]
    pub fn numbered(mut self) -> Self {
        self.numbered = true;
        self
    }

    /// Waits for the next lines.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Followed {
        let after = self.after;
        let probe = |progress: &Progress| match progress.log.tail(after) {
            Tail::Nothing => None,
            tail => Some(tail),
        };
        match self.state.wait_for(probe).await {
            Tail::Frames(frames, before) => {
                let mut out = BytesMut::new();
                let mut number = before;
                for frame in frames {
                    number = number_lines(&frame, number, after, self.numbered, &mut out);
                }
                self.after = number;
                Followed::Lines(out.freeze())
            }
            Tail::Gone | Tail::Nothing => Followed::Lost,
            Tail::End => Followed::End,
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.state.leave();
    }
}

/// Writes the events of a frame without the first `after` ones, and numbers them if `numbered` is set. `number` is the
/// number of the line before the frame; returns the number of its last line.
fn number_lines(
    frame: &[u8],
    mut number: u64,
    after: u64,
    numbered: bool,
    out: &mut BytesMut,
) -> u64 {
    let mut rest = frame;
    while !rest.is_empty() {
        let end = memmem::find(rest, EVENT_END).map_or(rest.len(), |at| at + EVENT_END.len());
        let (event, behind) = rest.split_at(end);
        rest = behind;
        let data = match event.starts_with(DATA) {
            true => Some(0),
            false => memmem::find(event, b"\ndata: ").map(|at| at + 1),
        };
        let Some(data) = data else { continue };
        number += 1;
        if number > after {
            let (name, line) = event.split_at(data);
            out.put_slice(name);
            if numbered {
                out.put_slice(format!("id: {number}\n").as_bytes());
            }
            out.put_slice(line);
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_data_line_has_its_number_and_earlier_ones_are_left_out() {
        let frame = b"data: {\"a\":\"data: \"}\n\nevent: x\ndata: {}\n\ndata: [DONE]\n\n";
        let mut out = BytesMut::new();
        assert_eq!(number_lines(frame, 4, 5, true, &mut out), 7);
        assert_eq!(
            out,
            &b"event: x\nid: 6\ndata: {}\n\nid: 7\ndata: [DONE]\n\n"[..]
        );
    }
}
