//! The body of a response; its end is the end of the request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::activity::RequestInProgress;
use crate::fair::FairPermit;

/// The body of a response, which holds what belongs to the request.
#[derive(Debug)]
pub(super) struct ResponseBody {
    body: Body,
    _request: RequestInProgress,
    _permit: Option<Arc<FairPermit>>,
}

impl ResponseBody {
    pub(super) fn new(
        body: Body,
        request: RequestInProgress,
        permit: Option<Arc<FairPermit>>,
    ) -> Self {
        Self {
            body,
            _request: request,
            _permit: permit,
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
