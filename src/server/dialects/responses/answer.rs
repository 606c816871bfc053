//! Encodes a turn as a response, and as the events of its stream.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::decode::ResponseOptions;
use super::encode::{ResponseEncoder, ResponseFailure};
use crate::dialects::end::{Answer, Failure};
use agent::event::AgentEvent;
use agent::inputs::FilePosition;
use agent::unix_seconds;
use protocol::ids::RunId;

/// The encoder of a turn.
#[derive(Debug)]
pub(crate) struct ResponseEncoding {
    encoder: ResponseEncoder,
    options: Arc<ResponseOptions>,
    /// The head of a stream may have been sent.
    started: bool,
}

impl ResponseEncoding {
    pub(crate) fn new(options: &Arc<ResponseOptions>, run: &RunId) -> Self {
        Self {
            encoder: ResponseEncoder::new(run.clone(), unix_seconds(), options.clone()),
            options: options.clone(),
            started: false,
        }
    }

    /// Encodes one event. Returns the answer with the last one.
    pub(crate) fn encode(&mut self, event: AgentEvent, out: &mut BytesMut) -> Option<Answer> {
        self.started |= matches!(event, AgentEvent::Started { .. });
        let waited = match &event {
            AgentEvent::Finished(outcome) => outcome.waited,
            _ => Duration::ZERO,
        };
        let response = self.encoder.encode(event, out)?;
        Some(self.answer(response, waited))
    }

    /// Ends the events with an error. The failed response is the answer if the client waits for no status any more. A
    /// run that ends with the process has no answer.
    pub(crate) fn fail(&mut self, failure: &Failure, out: &mut BytesMut) -> Option<Answer> {
        let error = ResponseFailure::of_envelope(&failure.envelope);
        let response = self.encoder.fail(&error, out);
        let is_told = self.options.background || (self.options.stream && self.started);
        let stops = failure.status == StatusCode::SERVICE_UNAVAILABLE;
        (is_told && !stops).then(|| self.answer(response, Duration::ZERO))
    }

    /// The path of an input file in the request.
    pub(crate) fn file_path(&self, position: &FilePosition) -> String {
        self.options.file_path(position)
    }

    fn answer(&self, response: String, waited: Duration) -> Answer {
        Answer {
            body: response.into(),
            waited,
            kept: self.options.store,
        }
    }
}

/// The response as it is now, while it is made.
pub(crate) fn unfinished(run: &RunId, status: &str, options: &ResponseOptions) -> Bytes {
    ResponseEncoder::unfinished(run, unix_seconds(), status, options).into()
}
