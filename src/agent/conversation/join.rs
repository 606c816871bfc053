//! What a request adds to a stored conversation, and what a turn that ended early left open in it.

use super::super::parked::ParkedTurn;
use super::super::turn::TurnRequest;
use super::is_long;
use crate::openai::citation::CitedSource;
use crate::openai::message::Message;
use crate::polling::{LONG_BYTES, block_in_place_if};
use crate::session::{
    Change, SessionMode, StoredMessage, StoredSession, interrupted_results, merge,
};

/// Whether a request is one to go on with the turn that the session keeps: it has no message, or repeats the request of the
/// turn.
pub(super) fn adds_nothing(
    stored: &StoredSession,
    request: &TurnRequest,
    incoming: &[Message],
) -> bool {
    if incoming.is_empty() {
        return true;
    }
    let plan = block_in_place_if(is_long_join(stored, incoming), || {
        merge::plan(stored, incoming.to_vec(), request.options.session_mode)
    });
    plan.instructions.is_none() && plan.new.is_empty() && plan.keep == stored.messages.len()
}

/// Takes the turn that the session keeps.
pub(super) fn take_parked(stored: &mut StoredSession) -> Option<ParkedTurn> {
    let turn = stored.turn.take()?;
    let long = turn.len() > LONG_BYTES;
    block_in_place_if(long, || ParkedTurn::read(&turn, &stored.messages))
}

/// The results of the calls at the end of a session that have none. Those of a turn that the session kept are known.
pub(super) fn open_results(
    stored: &StoredSession,
    request: &TurnRequest,
    parked: Option<ParkedTurn>,
) -> Vec<StoredMessage> {
    let Some(ParkedTurn { mut batch, .. }) = parked else {
        return interrupted_results(stored, |name| request.tools.is_read_only(name));
    };
    batch.give_up();
    // The message that asks for the calls is stored.
    let messages = batch.into_results().messages.into_iter();
    messages.skip(1).collect()
}

pub(super) fn join(
    stored: &StoredSession,
    mode: SessionMode,
    incoming: Vec<Message>,
) -> (Change, Vec<Message>) {
    let (joined, history) = block_in_place_if(is_long_join(stored, &incoming), || {
        let joined = merge::plan(stored, incoming, mode);
        let history = merge::history(stored, &joined);
        (joined, history)
    });
    let change = Change {
        instructions: joined.instructions,
        keep: joined.keep,
        append: joined.new.into_iter().map(StoredMessage::visible).collect(),
        ..Change::default()
    };
    (change, history)
}

fn is_long_join(stored: &StoredSession, incoming: &[Message]) -> bool {
    let messages = stored.messages.len() + incoming.len();
    let stored = stored.messages.iter().map(|stored| &stored.message);
    let bytes = stored.chain(incoming).map(|message| message.json().len());
    is_long(messages, bytes.sum())
}

/// The sources of the stored tool results that the change keeps.
pub(super) fn sources(stored: &StoredSession, change: &Change) -> Vec<CitedSource> {
    let kept = stored.messages.iter().take(change.keep);
    kept.flat_map(|stored| stored.sources.iter().cloned())
        .collect()
}
