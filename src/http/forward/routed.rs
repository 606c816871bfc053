//! The body of a forwarded request, of which as much is read as it takes to find its model.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use http::HeaderMap;
use http::header::TRANSFER_ENCODING;

use super::super::AppState;
use super::super::body::{self, ReservedMemory};
use super::super::error::ApiError;
use super::super::headers::declared_length;
use super::model::{BodyFormat, NamedModel};
use crate::ids::Owner;
use crate::upstream::{ForwardBody, Upstream};

/// How much of a form is read before it is forwarded, in bytes: the model has to be in it.
const FORM_START_BYTES: usize = 256 * 1024;

/// The body of a request to forward.
pub(super) struct RoutedBody {
    start: StartOfBody,
    /// What is still to come; absent if the whole body has arrived.
    rest: Option<RestOfBody>,
}

/// What has arrived of a body, and the model that it names.
#[derive(Debug, Default)]
pub(super) struct StartOfBody {
    bytes: Bytes,
    model: Option<NamedModel>,
}

/// The part of a body that is forwarded while it arrives.
struct RestOfBody {
    stream: BoxStream<'static, io::Result<Bytes>>,
    /// The length of the whole body, if the client sent it.
    length: Option<usize>,
    /// The memory of the start.
    memory: Option<ReservedMemory>,
}

impl RoutedBody {
    /// Reads a body of JSON whole, a form until its model must have arrived, and nothing of other bodies.
    pub(super) async fn read(
        state: &AppState,
        owner: &Owner,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Self, ApiError> {
        let length = declared_length(headers);
        let mut routed = Self {
            start: StartOfBody::default(),
            rest: None,
        };
        if length.unwrap_or(0) == 0 && !headers.contains_key(TRANSFER_ENCODING) {
            return Ok(routed);
        }
        let format = BodyFormat::of(headers);
        let (rest, memory) = match format {
            BodyFormat::Json => {
                let held = body::read(state, owner, body, headers).await?;
                routed.start.model = format.model(&held);
                routed.start.bytes = held.into_bytes();
                (None, None)
            }
            BodyFormat::Form(_) => {
                let start = body::read_start(state, owner, body, headers, FORM_START_BYTES);
                let start = start.await?;
                routed.start.model = format.model(&start.bytes);
                routed.start.bytes = start.bytes;
                (start.rest, Some(start.memory))
            }
            BodyFormat::Other => (Some(body), None),
        };
        routed.rest = rest.map(|rest| RestOfBody {
            stream: rest.into_data_stream().map_err(io::Error::other).boxed(),
            length,
            memory,
        });
        Ok(routed)
    }

    /// The name of the model.
    pub(super) fn model(&self) -> Option<&str> {
        self.start.model.as_ref().map(|model| model.name.as_str())
    }

    /// The body, if it has arrived whole and names a model.
    pub(super) fn held(&self) -> Option<&StartOfBody> {
        (self.rest.is_none() && self.start.model.is_some()).then_some(&self.start)
    }

    /// The body for an upstream.
    pub(super) fn for_upstream(self, upstream: &dyn Upstream) -> ForwardBody {
        let bytes = self.start.for_upstream(upstream);
        let Some(rest) = self.rest else {
            return ForwardBody::Full(bytes);
        };
        let length = rest.length.map(|length| {
            let length = length.saturating_sub(self.start.bytes.len());
            length.saturating_add(bytes.len()) as u64
        });
        let stream = if bytes.is_empty() {
            rest.stream
        } else {
            let memory = rest.memory;
            let start = stream::once(async move {
                drop(memory);
                Ok(bytes)
            });
            start.chain(rest.stream).boxed()
        };
        ForwardBody::Stream { stream, length }
    }
}

impl StartOfBody {
    /// The bytes, with the upstream's name of the model.
    pub(super) fn for_upstream(&self, upstream: &dyn Upstream) -> Bytes {
        match &self.model {
            Some(model) => model.renamed(&self.bytes, upstream.model_name(&model.name)),
            None => self.bytes.clone(),
        }
    }
}
