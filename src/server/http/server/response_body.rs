//! The body of a response; its end is the end of the request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::super::edge::{BodyEnd, RequestRecord};
use super::activity::RequestInProgress;
use quota::FairPermit;

/// The body of a response, which holds what belongs to the request.
#[derive(Debug)]
pub(super) struct ResponseBody {
    body: Body,
    _request: RequestInProgress,
    _permit: Option<Arc<FairPermit>>,
    record: Option<Arc<RequestRecord>>,
    /// Bytes that are still to come, if the head says how many the body has.
    left: Option<u64>,
}

impl ResponseBody {
    pub(super) fn new(
        body: Body,
        request: RequestInProgress,
        permit: Option<Arc<FairPermit>>,
        record: Option<Arc<RequestRecord>>,
        length: Option<u64>,
    ) -> Self {
        Self {
            body,
            _request: request,
            _permit: permit,
            record,
            left: length,
        }
    }

    fn ended(&self, end: BodyEnd) {
        if let Some(record) = &self.record {
            record.body_ended(end);
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // A body of a known length is not asked for its end.
        if self.left == Some(0) || http_body::Body::is_end_stream(&self.body) {
            self.ended(BodyEnd::Whole);
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
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Ready(None) => self.ended(BodyEnd::Whole),
            Poll::Ready(Some(Err(_))) => self.ended(BodyEnd::Failed),
            Poll::Ready(Some(Ok(part))) => {
                let bytes = part
                    .data_ref()
                    .map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
                self.left = self.left.map(|left| left.saturating_sub(bytes));
            }
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
