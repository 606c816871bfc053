//! Encodes what a run reports in the form of its answer, and its errors with their status.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::error::{ApiError, ErrorParts, codes};
use crate::dialects::answer::{AnswerEncoder, AnswerForm};
use crate::dialects::end::Answer;
use agent::AgentError;
use agent::event::AgentEvent;
use agent::metrics::Metrics;
use agent::runs::{Encode, RunAnswer, RunReport};
use protocol::ids::RunId;

/// What the answer of a run is made with, besides what the request asked for.
#[derive(Debug)]
pub(super) struct AnswerContext {
    /// What is counted.
    pub(super) metrics: Metrics,
    /// When the request came.
    pub(super) began: Instant,
    /// The request carries an `idempotency-key`, so that it may be sent again whatever has run.
    pub(super) has_key: bool,
    /// The run waited for decisions, and goes on.
    pub(super) goes_on: bool,
}

/// Turns what a run reports into lines and the answer.
pub(super) fn encode(form: &AnswerForm, run: &RunId, context: AnswerContext) -> Encode {
    let mut encoder = form.encoder(run);
    let mut first_text_seen = false;
    Box::new(move |report, out| match report {
        RunReport::Event(event) => {
            if !first_text_seen
                && matches!(event, AgentEvent::Text(_) | AgentEvent::Reasoning { .. })
            {
                first_text_seen = true;
                context.metrics.first_token(context.began.elapsed());
            }
            let ends = matches!(event, AgentEvent::Finished(_));
            match encoder.encode(event, out) {
                Some(answer) => Some(answered(answer)),
                // Only a call outside of a turn ends so: its record never came.
                None => ends.then(|| failed(&encoder, codes::CALL_CANCELLED.error(), None)),
            }
        }
        RunReport::Failed(error) => {
            let waited = Some(error.waited);
            let do_not_retry = error.side_effects && !context.has_key;
            let error = match error.error {
                AgentError::NothingWaits if context.goes_on => ApiError::run_left(),
                AgentError::NothingWaits => ApiError::nothing_waits(encoder.input_field()),
                error => ApiError::of_turn(error, |position| encoder.file_path(position)),
            };
            Some(fail(&mut encoder, error, do_not_retry, waited, out))
        }
        RunReport::Panicked { side_effects } => {
            let do_not_retry = side_effects && !context.has_key;
            let error = codes::INTERNAL.error();
            Some(fail(&mut encoder, error, do_not_retry, None, out))
        }
    })
}

/// Ends the lines with an error, and returns it as the answer.
fn fail(
    encoder: &mut AnswerEncoder,
    error: ApiError,
    do_not_retry: bool,
    waited: Option<Duration>,
    out: &mut BytesMut,
) -> RunAnswer {
    let error = match do_not_retry {
        true => error.after_side_effects(),
        false => error,
    };
    match encoder.fail(&error.failure(), out) {
        Some(answer) => RunAnswer {
            waited: Some(waited.unwrap_or_default()),
            cause: error.into_parts().cause,
            ..answered(answer)
        },
        None => failed(encoder, error, waited),
    }
}

fn answered(answer: Answer) -> RunAnswer {
    let json = HeaderValue::from_static("application/json");
    RunAnswer {
        status: StatusCode::OK,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, json)]),
        body: answer.body,
        kept: answer.kept,
        waited: Some(answer.waited),
        cause: None,
    }
}

/// The answer of a run that failed.
fn failed(encoder: &AnswerEncoder, error: ApiError, waited: Option<Duration>) -> RunAnswer {
    let own = encoder.dialect();
    let own = own.and_then(|dialect| dialect.error_body(&error.failure()));
    let ErrorParts {
        status,
        headers,
        body,
        cause,
    } = error.into_parts();
    RunAnswer {
        status,
        headers,
        body: own.map_or_else(|| body.into(), Into::into),
        kept: false,
        waited,
        cause,
    }
}
