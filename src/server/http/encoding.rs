//! Encodes the reports of a run in the form of its answer, and its errors with their status.

use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::error::{ApiError, ErrorParts, codes};
use crate::dialects::answer::{AnswerForm, Dialect};
use crate::dialects::end::Answer;
use agent::AgentError;
use agent::event::AgentEvent;
use agent::metrics::Metrics;
use agent::runs::{Encode, RunAnswer, RunReport};
use protocol::ids::RunId;

/// The context in which the answer of a run is made, besides the options of the request.
#[derive(Debug)]
pub(super) struct AnswerContext {
    /// What is counted.
    pub(super) metrics: Metrics,
    /// When the request came.
    pub(super) began: Instant,
    /// The request carries an `idempotency-key`, so that it may be sent again whichever calls have run.
    pub(super) has_key: bool,
    /// The run was suspended and has resumed.
    pub(super) is_resumed: bool,
}

/// Turns the reports of a run into lines and the answer.
pub(super) fn encode(form: &AnswerForm, run: &RunId, context: AnswerContext) -> Encode {
    let (mut encoder, dialect) = (form.encoder(run), form.dialect());
    let is_call = matches!(form, AnswerForm::Call);
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
                // The record of the call never came.
                None if is_call && ends => {
                    Some(failed(codes::CALL_CANCELLED.error(), dialect, None))
                }
                None => None,
            }
        }
        RunReport::Failed(error) => {
            let waited = Some(error.waited);
            let do_not_retry = error.side_effects && !context.has_key;
            let error = match error.error {
                AgentError::NothingWaits if context.is_resumed => ApiError::run_left(),
                AgentError::NothingWaits => ApiError::nothing_waits(encoder.input_field()),
                error => ApiError::of_turn(error, |position| encoder.file_path(position)),
            };
            let error = retried(error, do_not_retry);
            let answer = encoder.fail(&error.failure(), out);
            Some(ended(answer, error, dialect, waited))
        }
        RunReport::Panicked { side_effects } => {
            let do_not_retry = side_effects && !context.has_key;
            let error = retried(codes::INTERNAL.error(), do_not_retry);
            let answer = encoder.fail(&error.failure(), out);
            Some(ended(answer, error, dialect, None))
        }
    })
}

fn retried(error: ApiError, do_not_retry: bool) -> ApiError {
    match do_not_retry {
        true => error.after_side_effects(),
        false => error,
    }
}

/// The answer of a run that failed: that of its dialect, if the dialect has one that tells of the error.
fn ended(
    answer: Option<Answer>,
    error: ApiError,
    dialect: Option<Dialect>,
    waited: Option<Duration>,
) -> RunAnswer {
    match answer {
        Some(answer) => RunAnswer {
            waited: Some(waited.unwrap_or_default()),
            cause: error.into_parts().cause,
            ..answered(answer)
        },
        None => failed(error, dialect, waited),
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

/// An error as the answer of a run, in the form of its dialect.
pub(super) fn failed(
    error: ApiError,
    dialect: Option<Dialect>,
    waited: Option<Duration>,
) -> RunAnswer {
    let ErrorParts {
        status,
        headers,
        body,
        cause,
    } = error.into_parts_in(dialect);
    RunAnswer {
        status,
        headers,
        body: body.into(),
        kept: false,
        waited,
        cause,
    }
}
