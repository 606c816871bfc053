//! Refusals of the fields that the loop adds to a call by itself.

use http::StatusCode;

use super::super::machine::Offer;
use upstream::learned::LearnedQuirk;
use upstream::settings::{FinalCall, Quirks};
use upstream::{ModelCall, UpstreamError};

/// What an upstream with these quirks may have refused of the fields that the client has not sent.
pub(super) fn refused_addition(
    error: &UpstreamError,
    offer: Offer,
    call: &ModelCall,
    quirks: &Quirks,
) -> Option<LearnedQuirk> {
    let UpstreamError::Status { status, body, .. } = error else {
        return None;
    };
    if !matches!(
        *status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    ) {
        return None;
    }
    let names = |word: &str| {
        memchr::memmem::find_iter(body, word.as_bytes()).any(|at| {
            let before = at.checked_sub(1).and_then(|before| body.get(before));
            !before.is_some_and(u8::is_ascii_alphanumeric)
        })
    };
    let streams = quirks.streams && call.streams;
    let sends_options = quirks.stream_options && call.sends_stream_options;
    if streams && sends_options && names("stream_options") {
        return Some(LearnedQuirk::StreamOptions);
    }
    if streams && names("stream") {
        return Some(LearnedQuirk::Stream);
    }
    let withholds = matches!(offer, Offer::Withheld(_))
        && call.tools.is_some()
        && quirks.final_call == FinalCall::ToolChoiceNone;
    withholds.then_some(LearnedQuirk::WithheldTools)
}
