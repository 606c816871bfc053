//! The API dialects in which a turn can be answered. Each has an encoder for streams and a collector for whole answers.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::error::{ApiError, ErrorParts};
use crate::agent::event::AgentEvent;
use crate::agent::inputs::FilePosition;
use crate::agent::unix_seconds;
use crate::chat::decode::ReplyOptions;
use crate::chat::encode::{
    self, AnswerHead, ChunkEncoder, ChunkOptions, CompletionCollector, ProgressDelivery,
};
use crate::chat::position::file_path;
use crate::ids::RunId;
use crate::metrics::Metrics;
use crate::runs::{Encode, RunAnswer, RunReport};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The dialect of an answer, with the options of its request.
#[derive(Debug)]
pub(super) enum Reply {
    /// As a chat completion.
    Chat {
        /// What the request asked for.
        options: ReplyOptions,
        /// Whether the client is an official SDK.
        official_sdk: bool,
    },
}

/// The encoder of a streamed answer.
#[derive(Debug)]
enum StreamEncoder {
    Chat(ChunkEncoder),
}

/// The collector of an answer in one piece.
#[derive(Debug)]
enum AnswerCollector {
    Chat(CompletionCollector),
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
}

impl Reply {
    /// Whether the answer is streamed.
    pub(super) fn is_streamed(&self) -> bool {
        match self {
            Self::Chat { options, .. } => options.stream,
        }
    }

    /// The id of the answer, as this dialect writes it.
    pub(super) fn id_of(&self, run: &RunId) -> String {
        match self {
            Self::Chat { .. } => run.completion_id(),
        }
    }

    /// Turns what a run reports into lines and the answer.
    pub(super) fn encode(&self, run: &RunId, context: AnswerContext) -> Encode {
        let (mut stream, collector) = self.encoders(run);
        let mut collector = Some(collector);
        let mut first_text_seen = false;
        Box::new(move |report, out| match report {
            RunReport::Event(event) => {
                if !first_text_seen
                    && matches!(event, AgentEvent::Text(_) | AgentEvent::Reasoning { .. })
                {
                    first_text_seen = true;
                    context.metrics.first_token(context.began.elapsed());
                }
                stream.encode(&event, out);
                let ends = matches!(event, AgentEvent::Finished(_));
                collector.as_mut()?.take(event);
                match ends {
                    true => Some(collector.take()?.finish()),
                    false => None,
                }
            }
            RunReport::Failed(error) => {
                let waited = error.waited;
                let side_effects = error.side_effects;
                let error = ApiError::of_turn(error.error, |position| stream.file_path(position));
                Some(failed(
                    &stream,
                    error,
                    side_effects && !context.has_key,
                    Some(waited),
                    out,
                ))
            }
            RunReport::Panicked { side_effects } => {
                let error = ApiError::internal();
                Some(failed(
                    &stream,
                    error,
                    side_effects && !context.has_key,
                    None,
                    out,
                ))
            }
        })
    }

    /// A whole answer as a stream.
    pub(super) fn stream_of(&self, body: &[u8]) -> Bytes {
        let mut out = BytesMut::new();
        let body = std::str::from_utf8(body).unwrap_or_default();
        match self {
            Self::Chat { options, .. } => encode::replay(body, options.include_usage, &mut out),
        }
        out.freeze()
    }

    fn encoders(&self, run: &RunId) -> (StreamEncoder, AnswerCollector) {
        match self {
            Self::Chat {
                options,
                official_sdk,
            } => {
                let head = AnswerHead {
                    id: run.completion_id(),
                    created: unix_seconds(),
                    model: options.model.clone(),
                };
                // Without a stream, the log is as a client reads it that asked for everything.
                let (delivery, include_usage) = match options.stream {
                    true => (
                        ProgressDelivery::choose(options.progress, *official_sdk),
                        options.include_usage,
                    ),
                    false => (ProgressDelivery::Named, true),
                };
                let chunks = ChunkOptions {
                    delivery,
                    images: options.images,
                    include_usage,
                };
                (
                    StreamEncoder::Chat(ChunkEncoder::new(head.clone(), chunks)),
                    AnswerCollector::Chat(CompletionCollector::new(head, options.images)),
                )
            }
        }
    }
}

/// Ends the lines with an error, and returns it as the answer.
fn failed(
    stream: &StreamEncoder,
    error: ApiError,
    do_not_retry: bool,
    waited: Option<Duration>,
    out: &mut BytesMut,
) -> RunAnswer {
    let error = match do_not_retry {
        true => error.after_side_effects(),
        false => error,
    };
    stream.fail(&error, out);
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
        waited,
        cause,
    }
}

impl StreamEncoder {
    /// The path of an input file in the request.
    fn file_path(&self, position: &FilePosition) -> String {
        match self {
            Self::Chat(_) => file_path(position),
        }
    }

    /// Encodes one event.
    fn encode(&mut self, event: &AgentEvent, out: &mut BytesMut) {
        match self {
            Self::Chat(encoder) => encoder.encode(event, out),
        }
    }

    /// Ends the stream with an error.
    fn fail(&self, error: &ApiError, out: &mut BytesMut) {
        match self {
            Self::Chat(_) => encode::fail(&error.envelope(), out),
        }
    }
}

impl AnswerCollector {
    /// Takes one event.
    fn take(&mut self, event: AgentEvent) {
        match self {
            Self::Chat(collector) => collector.take(event),
        }
    }

    /// The answer.
    fn finish(self) -> RunAnswer {
        let finished = match self {
            Self::Chat(collector) => collector.finish(),
        };
        let Some((body, waited)) = finished else {
            let ErrorParts {
                status,
                headers,
                body,
                cause,
            } = ApiError::internal().into_parts();
            return RunAnswer {
                status,
                headers,
                body: body.into(),
                waited: None,
                cause,
            };
        };
        RunAnswer {
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, JSON)]),
            body,
            waited: Some(waited),
            cause: None,
        }
    }
}
