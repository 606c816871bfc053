//! The forms in which a run can be answered: the API dialects for a turn, an entry for a call outside of one. Each has encoders of its events as lines of a stream and as one answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};

use super::completions::still_running;
use super::error::{ApiError, ErrorParts};
use crate::dialects::chat::decode::ReplyOptions;
use crate::dialects::chat::encode::{
    self, AnswerHead, CallCollector, ChunkEncoder, ChunkOptions, CompletionCollector,
    ProgressDelivery,
};
use crate::dialects::chat::position::file_path;
use crate::dialects::responses::decode::ResponseOptions;
use crate::dialects::responses::encode::{self as responses, ResponseEncoder, ResponseFailure};
use agent::AgentError;
use agent::event::AgentEvent;
use agent::inputs::FilePosition;
use agent::metrics::Metrics;
use agent::runs::{Encode, RunAnswer, RunReport, RunStatus};
use agent::unix_seconds;
use blobs::parted::PartedText;
use protocol::ids::RunId;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The dialect of an answer, with the options of its request.
///
/// It is stored with a suspended run, and read by other versions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// As a chat completion.
    Chat(ReplyOptions),
    Responses(Arc<ResponseOptions>),
    /// As the entry of a call outside of a turn.
    Call,
}

impl Default for Reply {
    fn default() -> Self {
        Self::Chat(ReplyOptions::default())
    }
}

/// The encoder of the lines and the answer of a run.
#[derive(Debug)]
enum AnswerEncoder {
    Chat {
        stream: ChunkEncoder,
        collector: Option<Box<CompletionCollector>>,
    },
    Responses {
        encoder: Box<ResponseEncoder>,
        options: Arc<ResponseOptions>,
        /// The head of a stream may have been sent.
        started: bool,
    },
    Call(CallCollector),
}

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

impl Reply {
    /// Whether the answer is streamed.
    pub(super) fn is_streamed(&self) -> bool {
        match self {
            Self::Chat(options) => options.stream,
            Self::Responses(options) => options.stream,
            Self::Call => false,
        }
    }

    /// The id of the answer, as this dialect writes it.
    pub(super) fn id_of(&self, run: &RunId) -> String {
        match self {
            Self::Chat(_) | Self::Call => run.completion_id(),
            Self::Responses(_) => run.response_id(),
        }
    }

    /// What the run is shown as while it runs, where the dialect has an object for that.
    pub(super) fn unfinished(&self, run: &RunId, status: &str) -> Option<Bytes> {
        match self {
            Self::Chat(_) | Self::Call => None,
            Self::Responses(options) => {
                let created = unix_seconds();
                let response = ResponseEncoder::unfinished(run, created, status, options);
                Some(response.into())
            }
        }
    }

    /// The answer to a request whose run goes on in the background.
    pub(super) fn accepted(&self, status: &RunStatus) -> Response {
        match self.unfinished(&status.id, "queued") {
            Some(response) => ([(CONTENT_TYPE, JSON)], response).into_response(),
            None => still_running(status, Vec::new(), None),
        }
    }

    /// Turns what a run reports into lines and the answer.
    pub(super) fn encode(&self, run: &RunId, context: AnswerContext) -> Encode {
        let mut encoder = self.encoder(run);
        let mut first_text_seen = false;
        Box::new(move |report, out| match report {
            RunReport::Event(event) => {
                if !first_text_seen
                    && matches!(event, AgentEvent::Text(_) | AgentEvent::Reasoning { .. })
                {
                    first_text_seen = true;
                    context.metrics.first_token(context.began.elapsed());
                }
                encoder.encode(event, out)
            }
            RunReport::Failed(error) => {
                let waited = Some(error.waited);
                let do_not_retry = error.side_effects && !context.has_key;
                let error = match error.error {
                    AgentError::NothingWaits if context.goes_on => ApiError::run_left(),
                    AgentError::NothingWaits => ApiError::nothing_waits(encoder.input_field()),
                    error => ApiError::of_turn(error, |position| encoder.file_path(position)),
                };
                Some(encoder.fail(error, do_not_retry, waited, out))
            }
            RunReport::Panicked { side_effects } => {
                let do_not_retry = side_effects && !context.has_key;
                Some(encoder.fail(ApiError::internal(), do_not_retry, None, out))
            }
        })
    }

    /// A whole answer as a stream.
    pub(super) fn stream_of(&self, body: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        let body = std::str::from_utf8(body).unwrap_or_default();
        match self {
            Self::Chat(options) => encode::replay(body, options.include_usage, &mut out),
            Self::Responses(_) => responses::replay(body, &mut out),
            // It has no stream.
            Self::Call => {}
        }
        out.freeze()
    }

    fn encoder(&self, run: &RunId) -> AnswerEncoder {
        match self {
            Self::Chat(options) => {
                let head = AnswerHead {
                    id: run.completion_id(),
                    created: unix_seconds(),
                    model: options.model.clone(),
                };
                // Without a stream, the log is as a client reads it that asked for everything.
                let (delivery, include_usage) = match options.stream {
                    true => (
                        ProgressDelivery::choose(options.progress, options.official_sdk),
                        options.include_usage,
                    ),
                    false => (ProgressDelivery::Named, true),
                };
                let chunks = ChunkOptions {
                    delivery,
                    images: options.images,
                    include_usage,
                };
                AnswerEncoder::Chat {
                    stream: ChunkEncoder::new(head.clone(), chunks),
                    collector: Some(Box::new(CompletionCollector::new(head, options.images))),
                }
            }
            Self::Responses(options) => AnswerEncoder::Responses {
                encoder: Box::new(ResponseEncoder::new(
                    run.clone(),
                    unix_seconds(),
                    options.clone(),
                )),
                options: options.clone(),
                started: false,
            },
            Self::Call => AnswerEncoder::Call(CallCollector::default()),
        }
    }
}

impl AnswerEncoder {
    /// Encodes one event. Returns the answer with the last one.
    fn encode(&mut self, event: AgentEvent, out: &mut BytesMut) -> Option<RunAnswer> {
        match self {
            Self::Chat { stream, collector } => {
                stream.encode(&event, out);
                let ends = matches!(event, AgentEvent::Finished(_));
                collector.as_mut()?.take(event);
                match ends {
                    true => Some(answer(collector.take()?.finish())),
                    false => None,
                }
            }
            Self::Responses {
                encoder,
                options,
                started,
            } => {
                *started |= matches!(event, AgentEvent::Started { .. });
                let waited = match &event {
                    AgentEvent::Finished(outcome) => outcome.waited,
                    _ => Duration::ZERO,
                };
                let body = encoder.encode(event, out)?;
                let mut answer = answer(Some((body.into(), waited)));
                answer.kept = options.store;
                Some(answer)
            }
            Self::Call(_) if matches!(event, AgentEvent::Finished(_)) => {
                Some(failed(ApiError::call_cancelled(), None))
            }
            Self::Call(collector) => collector.take(event).map(|body| answer(Some(body))),
        }
    }

    /// Ends the lines with an error, and returns it as the answer.
    fn fail(
        &mut self,
        error: ApiError,
        do_not_retry: bool,
        waited: Option<Duration>,
        out: &mut BytesMut,
    ) -> RunAnswer {
        let error = match do_not_retry {
            true => error.after_side_effects(),
            false => error,
        };
        match self {
            Self::Chat { .. } => encode::fail(&error.envelope(), out),
            Self::Call(_) => {}
            Self::Responses {
                encoder,
                options,
                started,
            } => {
                let failure = ResponseFailure::of_envelope(&error.envelope());
                let response = encoder.fail(&failure, out);
                // Nobody waits for the status any more. A run that the end of the process breaks off has no answer.
                let is_told = options.background || (options.stream && *started);
                let stops = error.status() == StatusCode::SERVICE_UNAVAILABLE;
                if is_told && !stops {
                    let mut answer = answer(Some((response.into(), waited.unwrap_or_default())));
                    answer.kept = options.store;
                    answer.cause = error.into_parts().cause;
                    return answer;
                }
            }
        }
        failed(error, waited)
    }

    /// The field of the request that has its messages.
    fn input_field(&self) -> &'static str {
        match self {
            Self::Chat { .. } => "messages",
            Self::Responses { .. } => "input",
            Self::Call(_) => "arguments",
        }
    }

    /// The path of an input file in the request.
    fn file_path(&self, position: &FilePosition) -> String {
        match self {
            Self::Chat { .. } => file_path(position),
            Self::Responses { options, .. } => options.file_path(position),
            Self::Call(_) => "session_id".to_owned(),
        }
    }
}

/// The answer with a body, and the time spent waiting for models and tools.
fn answer(finished: Option<(PartedText, Duration)>) -> RunAnswer {
    let Some((body, waited)) = finished else {
        return failed(ApiError::internal(), None);
    };
    RunAnswer {
        status: StatusCode::OK,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, JSON)]),
        body,
        kept: false,
        waited: Some(waited),
        cause: None,
    }
}

/// The answer of a run that failed.
fn failed(error: ApiError, waited: Option<Duration>) -> RunAnswer {
    let ErrorParts {
        status,
        headers,
        body,
        cause,
    } = error.into_parts();
    RunAnswer {
        status,
        headers,
        body: body.into(),
        kept: false,
        waited,
        cause,
    }
}
