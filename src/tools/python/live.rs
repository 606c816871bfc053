//! Forwards live output of code to the client without ever blocking the code.

use parking_lot::Mutex;

use crate::cap::first_chars;
use crate::{ProgressSender, ToolProgress};
use sandbox::OutputStream;

/// Most output of one call that is shown live, in bytes; the result contains the beginning and end of all output.
/// Tried by `python::live_output::live_output_is_bounded_and_says_so_once`.
const MAX_LIVE_BYTES: usize = 256 * 1024;
/// Shown in place of the rest.
const REST: &str = "\n[more output is not shown live]\n";

/// Forwards output as fast as the client takes it. Output that waits for a slow client is joined with the following
/// output.
#[derive(Debug)]
pub(super) struct LiveOutput<'a> {
    progress: &'a ProgressSender,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Output that the client has not taken yet; adjacent entries are of different streams.
    waiting: Vec<ToolProgress>,
    taken: usize,
}

impl<'a> LiveOutput<'a> {
    pub(super) fn new(progress: &'a ProgressSender) -> Self {
        Self {
            progress,
            state: Mutex::default(),
        }
    }

    /// Forwards the waiting output that the client takes now.
    pub(super) fn flush(&self) {
        self.forward(&mut self.state.lock());
    }

    /// Adds a piece of output and forwards the part that the client takes.
    pub(super) fn output(&self, stream: OutputStream, text: &str) {
        let stream = match stream {
            OutputStream::Stdout => "stdout",
            OutputStream::Stderr => "stderr",
        };
        let mut state = self.state.lock();
        let room = MAX_LIVE_BYTES.saturating_sub(state.taken);
        if text.is_empty() || room == 0 {
            return;
        }
        state.taken += text.len();
        let mut text = std::borrow::Cow::Borrowed(text);
        if text.len() >= room {
            // Counted in characters, so that none is cut; the limit is approximate.
            text = [first_chars(&text, room), REST].concat().into();
        }
        match state.waiting.last_mut() {
            Some(last) if last.stream == stream => last.text.push_str(&text),
            Some(_) | None => state.waiting.push(ToolProgress {
                text: text.into_owned(),
                stream,
            }),
        }
        self.forward(&mut state);
    }

    fn forward(&self, state: &mut State) {
        let mut waiting = std::mem::take(&mut state.waiting).into_iter();
        while let Some(progress) = waiting.next() {
            if let Err(refused) = self.progress.try_send(progress) {
                state.waiting.push(refused);
                state.waiting.extend(waiting);
                return;
            }
        }
    }
}
