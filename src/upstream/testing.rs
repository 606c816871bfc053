//! An upstream without a socket, for unit tests.

use std::sync::Arc;

use ::http::{HeaderMap, StatusCode};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;

use super::settings::Quirks;
use super::{ForwardRequest, ForwardResponse, ModelCall, ModelStream, Upstream, UpstreamError};

/// Gives one response to every forwarded request; fails every model call.
#[derive(Debug)]
pub(crate) struct FakeUpstream {
    name: Arc<str>,
    quirks: Quirks,
    answer: (StatusCode, String),
}

impl FakeUpstream {
    pub(crate) fn new(name: &str, quirks: Quirks) -> Self {
        Self {
            name: name.into(),
            quirks,
            answer: (StatusCode::OK, String::new()),
        }
    }

    /// The same with another response to forwarded requests.
    pub(crate) fn answering(mut self, answer: (StatusCode, String)) -> Self {
        self.answer = answer;
        self
    }
}

impl Upstream for FakeUpstream {
    fn name(&self) -> &str {
        &self.name
    }

    fn quirks(&self) -> &Quirks {
        &self.quirks
    }

    fn model_name<'a>(&'a self, model: &'a str) -> &'a str {
        model
    }

    fn stream<'a>(
        &'a self,
        _call: &'a ModelCall,
    ) -> BoxFuture<'a, Result<ModelStream, UpstreamError>> {
        let upstream = self.name.clone();
        Box::pin(async move {
            Err(UpstreamError::Broken {
                upstream,
                reason: "a fake".into(),
            })
        })
    }

    fn forward(
        &self,
        _request: ForwardRequest,
    ) -> BoxFuture<'_, Result<ForwardResponse, UpstreamError>> {
        let (status, body) = self.answer.clone();
        Box::pin(async move {
            Ok(ForwardResponse {
                status,
                headers: HeaderMap::new(),
                body: futures_util::stream::iter([Ok(body.into())]).boxed(),
            })
        })
    }
}
