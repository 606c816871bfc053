//! Live output of code on its way to the client, which never holds the code up.

use parking_lot::Mutex;

use crate::sandbox::{Live, OutputStream};
use crate::tools::cap::first_chars;
use crate::tools::{ProgressSender, ToolProgress};

/// Most output of one call that is shown live, in bytes; the result holds the beginning and the end of all of it.
const MAX_LIVE_BYTES: usize = 256 * 1024;
/// What is shown in place of the rest.
const REST: &str = "\n[more output is not shown live]\n";

/// Hands output on as far as the client takes it. What a slow client does not take at once is joined to what follows.
#[derive(Debug)]
pub(super) struct LiveOutput<'a> {
    progress: &'a ProgressSender,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the client has not taken yet; neighbours are of different streams.
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

    /// Hands on what waits, as far as the client takes it.
    pub(super) fn flush(&self) {
        self.pass_on(&mut self.state.lock());
    }

    fn pass_on(&self, state: &mut State) {
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

impl Live for LiveOutput<'_> {
    fn output(&self, stream: OutputStream, text: &str) {
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
            // Counted in characters, of which none is shorter than a byte: the bound holds about, and no one is cut.
            text = [first_chars(&text, room), REST].concat().into();
        }
        match state.waiting.last_mut() {
            Some(last) if last.stream == stream => last.text.push_str(&text),
            Some(_) | None => state.waiting.push(ToolProgress {
                text: text.into_owned(),
                stream,
            }),
        }
        self.pass_on(&mut state);
    }
}
