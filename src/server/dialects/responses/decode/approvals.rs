//! Items of the input that decide about calls.

use super::input::item::{InputItem, RESPONSE};
use agent::turn::ClientDecision;
use protocol::ids::ApprovalId;
use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, body_member};

/// The member that names what is decided.
pub(super) const REQUEST_ID: &str = "approval_request_id";

/// The decisions of an input. Those that an answer follows in it are of the past.
///
/// # Errors
/// When one has the wrong shape.
pub(super) fn decisions(items: &[InputItem<'_>]) -> Result<Vec<ClientDecision>, RequestError> {
    let answered = items.iter().rposition(InputItem::is_of_answer);
    let new = items.iter().skip(answered.map_or(0, |last| last + 1));
    let deciding = new.filter(|item| item.kind() == RESPONSE);
    deciding.map(decision).collect()
}

/// Refuses decisions in a request that nothing is stored of: only stored turns wait for one.
///
/// # Errors
/// When there is one.
pub(super) fn refuse_unstored(
    object: &RawObject<'_>,
    decisions: &[ClientDecision],
) -> Result<(), RequestError> {
    let stored = body_member::<bool>(object, "store", "true or false")?.unwrap_or(true);
    match decisions.first() {
        Some(decision) if !stored => {
            let problem = "decides about a call of a stored response, which the turn goes on with; leave out 'store' or send \"store\": true";
            Err(RequestError::invalid(&decision.param, problem))
        }
        Some(_) | None => Ok(()),
    }
}

fn decision(item: &InputItem<'_>) -> Result<ClientDecision, RequestError> {
    let id = item.need(REQUEST_ID)?;
    let approves = item.member("approve", "must be true or false")?;
    let approves = approves.ok_or_else(|| item.invalid_member("approve", "is missing"))?;
    Ok(ClientDecision {
        param: item.path(REQUEST_ID),
        id: ApprovalId::of_item(&id),
        approves,
        reason: item.member("reason", "must be a text")?,
    })
}
