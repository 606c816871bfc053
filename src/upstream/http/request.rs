//! Requests to an upstream: the URL, the body of a chat request, the body of a forwarded request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use tokio::time::Instant;
use url::Url;

use super::super::ModelCall;
use super::super::settings::Quirks;
use blobs::segments::SegmentedWriter;
use net::RequestBody;
use protocol::openai::raw::{RawObject, push_entry, quoted};

/// Encodes the body of a chat request for the upstream's model, with the quirks of the upstream. The messages are not
/// copied. Texts replace images whose files were deleted meanwhile.
pub(super) async fn chat_body(call: &ModelCall, model: &str, quirks: &Quirks) -> RequestBody {
    let mut body = SegmentedWriter::default();
    body.text("{\"model\":");
    body.text(&quoted(model));
    let streams = quirks.streams && call.streams;
    body.text(if streams {
        ",\"stream\":true"
    } else {
        ",\"stream\":false"
    });
    if streams && quirks.stream_options && call.sends_stream_options {
        body.text(",\"stream_options\":");
        body.text(&stream_options(call.stream_options.as_deref()));
    }
    if !call.fields.is_empty() {
        body.text(",");
        body.shared(&call.fields);
    }
    if let Some(most) = call.max_output_tokens {
        let field = quirks.max_tokens_field.as_str();
        body.text(&format!(",\"{field}\":{most}"));
    }
    if let Some(tools) = &call.tools {
        body.text(",\"tools\":");
        body.shared(tools);
    }
    body.text(",\"messages\":[");
    body.push_segmented(call.transcript.text().clone().without_lost().await);
    body.text("]");
    if let Some(choice) = &call.tool_choice {
        body.text(",\"tool_choice\":");
        body.text(choice);
    }
    body.text("}");
    RequestBody::wrap(body.finish().into_body())
}

/// The client's stream options with `include_usage` set. The token counts of a turn need the usage of every call.
fn stream_options(asked: Option<&str>) -> String {
    let mut options = String::from("{\"include_usage\":true");
    if let Some(mut asked) = asked.and_then(|json| RawObject::parse(json).ok()) {
        asked.retain(|key| key != "include_usage");
        asked
            .iter()
            .for_each(|(key, value)| push_entry(&mut options, key, value.get()));
    }
    options.push('}');
    options
}

/// Appends a path and query to the base URL. Returns `None` if the result would be outside of the base URL.
pub(super) fn join_url(base: &Url, path_and_query: &str) -> Option<Url> {
    let base_path = base.path().trim_end_matches('/');
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let mut url = base.clone();
    url.set_path(&format!("{base_path}/{}", path.trim_start_matches('/')));
    // `set_path` has resolved dot segments, percent-encoded ones included.
    let inside = url.path().strip_prefix(base_path)?.starts_with('/');
    match (base.query(), query) {
        (Some(own), Some(given)) => url.set_query(Some(&format!("{own}&{given}"))),
        (None, Some(given)) => url.set_query(Some(given)),
        (_, None) => {}
    }
    inside.then_some(url)
}

/// Progress of a client's streamed body.
#[derive(Debug)]
pub(super) struct Upload {
    begun: Instant,
    progress_ms: AtomicU64,
    broke_off: AtomicBool,
}

impl Upload {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            progress_ms: AtomicU64::new(0),
            broke_off: AtomicBool::new(false),
        }
    }

    /// When the last chunk arrived from the client.
    pub(super) fn last_progress(&self) -> Instant {
        self.begun + Duration::from_millis(self.progress_ms.load(Ordering::Relaxed))
    }

    /// Whether the client's body ended with an error.
    pub(super) fn broke_off(&self) -> bool {
        self.broke_off.load(Ordering::Relaxed)
    }

    /// The same body, with its progress recorded here.
    pub(super) fn watch(
        self: Arc<Self>,
        stream: BoxStream<'static, std::io::Result<Bytes>>,
    ) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
        stream.inspect(move |piece| {
            let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.progress_ms.store(elapsed, Ordering::Relaxed);
            if piece.is_err() {
                self.broke_off.store(true, Ordering::Relaxed);
            }
        })
    }
}
