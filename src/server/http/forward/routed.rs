//! The body of a forwarded request. It is read only until its model is found.

use std::io;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use http::HeaderMap;
use http::header::TRANSFER_ENCODING;

use super::super::AppState;
use super::super::body::{self, ForwardableBody};
use super::super::error::ApiError;
use super::super::headers::declared_length;
use super::model::{BodyFormat, NamedModel};
use protocol::ids::Owner;
use quota::ReservedMemory;
use upstream::{ForwardBody, Upstream};

/// Most bytes of a form that are read before it is forwarded. In them the model has to be.
const FORM_START_BYTES: usize = 256 * 1024;

/// The body of a request to forward.
pub(super) struct RoutedBody {
    start: StartOfBody,
    /// What is still to come; absent if the whole body has arrived.
    rest: Option<RestOfBody>,
}

/// What has arrived of a body, and the model that it names.
#[derive(Debug, Default)]
pub(in super::super) struct StartOfBody {
    body: ForwardableBody,
    model: Option<NamedModel>,
}

/// What an upstream is sent of a body that has arrived.
#[derive(Debug)]
pub(super) struct BodyToSend {
    pub(super) bytes: Bytes,
    /// It is without the encoding that the headers name.
    pub(super) decoded: bool,
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
        let format = match body::is_readable(headers) {
            true => BodyFormat::of(headers),
            // It is for the upstream to read.
            false => BodyFormat::Other,
        };
        let (rest, memory) = match format {
            BodyFormat::Json => {
                let held = body::read_forwardable(state, owner, body, headers).await?;
                routed.start = StartOfBody::of_json(held.into_forwardable());
                (None, None)
            }
            BodyFormat::Form(_) => {
                let start = body::read_start(state, owner, body, headers, FORM_START_BYTES);
                let start = start.await?;
                routed.start.model = format.model(&start.bytes);
                routed.start.body.bytes = start.bytes;
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

    pub(super) fn for_upstream(self, upstream: &dyn Upstream) -> (ForwardBody, bool) {
        let BodyToSend { bytes, decoded } = self.start.for_upstream(upstream);
        let Some(rest) = self.rest else {
            return (ForwardBody::Full(bytes), decoded);
        };
        let length = rest.length.map(|length| {
            let length = length.saturating_sub(self.start.body.bytes.len());
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
        (ForwardBody::Stream { stream, length }, decoded)
    }
}

impl StartOfBody {
    /// A whole body of JSON.
    pub(in super::super) fn of_json(body: ForwardableBody) -> Self {
        Self {
            model: BodyFormat::Json.model(&body.bytes),
            body,
        }
    }

    /// The body as it came, or with the upstream's name of the model where that is another one.
    pub(super) fn for_upstream(&self, upstream: &dyn Upstream) -> BodyToSend {
        let renamed = self.model.as_ref().and_then(|model| {
            let name = upstream.model_name(&model.name);
            (name != model.name).then(|| model.renamed(&self.body.bytes, name))
        });
        let ForwardableBody { bytes, encoded } = &self.body;
        match (renamed, encoded) {
            (Some(renamed), _) => BodyToSend {
                bytes: renamed,
                decoded: encoded.is_some(),
            },
            (None, whole) => BodyToSend {
                bytes: whole.as_ref().unwrap_or(bytes).clone(),
                decoded: false,
            },
        }
    }
}
