//! Encodes the reports of a run in the form of its answer, and its errors with their status.

use std::time::{Duration, Instant};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::error::{ApiError, ErrorParts, codes};
use crate::dialects::answer::AnswerForm;
use crate::dialects::end::{Answer, ErrorForm};
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
    let (mut encoder, error_form) = (form.encoder(run), form.error_form());
    let is_call = matches!(form, AnswerForm::Call);
    let mut first_text_seen = false;
    Box::new(move |report, out| {
        let (error, side_effects, waited) = match report {
            RunReport::Event(event) => {
                let is_text = matches!(event, AgentEvent::Text(_) | AgentEvent::Reasoning { .. });
                if is_text && !std::mem::replace(&mut first_text_seen, true) {
                    context.metrics.first_token(context.began.elapsed());
                }
                let ends = matches!(event, AgentEvent::Finished(_));
                return match encoder.encode(event, out) {
                    Some(answer) => Some(answered(answer)),
                    // The record of the call never came.
                    None if is_call && ends => {
                        Some(failed(codes::CALL_CANCELLED.error(), error_form, None))
                    }
                    None => None,
                };
            }
            RunReport::Failed(error) => {
                let (side_effects, waited) = (error.side_effects, Some(error.waited));
                let error = match error.error {
                    AgentError::NothingWaits if context.is_resumed => ApiError::run_left(),
                    AgentError::NothingWaits => ApiError::nothing_waits(encoder.input_field()),
                    error => ApiError::of_turn(error, |position| encoder.file_path(position)),
                };
                (error, side_effects, waited)
            }
            RunReport::Panicked { side_effects } => (codes::INTERNAL.error(), side_effects, None),
        };
        let error = match side_effects && !context.has_key {
            true => error.after_side_effects(),
            false => error,
        };
        Some(match encoder.fail(&error.failure(), out) {
            Some(answer) => RunAnswer {
                waited: Some(waited.unwrap_or_default()),
                cause: error.into_parts().cause,
                ..answered(answer)
            },
            None => failed(error, error_form, waited),
        })
    })
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

/// An error as the answer of a run.
pub(super) fn failed(
    error: ApiError,
    form: Option<ErrorForm>,
    waited: Option<Duration>,
) -> RunAnswer {
    let ErrorParts {
        status,
        headers,
        body,
        cause,
    } = error.into_parts_in(form);
    RunAnswer {
        status,
        headers,
        body: body.into(),
        kept: false,
        waited,
        cause,
    }
}
