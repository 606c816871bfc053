//! Requests to an upstream: the URL, the body of a chat request, the body of a forwarded request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use url::Url;

use super::super::ModelCall;
use super::super::settings::Settings;
use crate::openai::raw::{RawObject, push_entry, push_string};

/// Texts of at least this length are shared instead of copied, in bytes.
const SHARE_FROM_BYTES: usize = 2048;

/// The names of the functions in a `tools` array.
pub(super) fn function_names(tools: &str) -> Arc<[String]> {
    let entries: Vec<RawObject<'_>> = serde_json::from_str(tools).unwrap_or_default();
    let name = |entry: &RawObject<'_>| {
        let function = RawObject::parse(entry.get_some("function")?.get()).ok()?;
        serde_json::from_str(function.get_some("name")?.get()).ok()
    };
    entries.iter().filter_map(name).collect()
}

/// Encodes the body of a chat request, with the quirks of the upstream. The messages are not copied.
pub(super) fn chat_body(call: &ModelCall, settings: &Settings) -> reqwest::Body {
    let quirks = &settings.quirks;
    let mut parts = Parts::default();
    parts.text("{\"model\":");
    push_string(&mut parts.current, settings.model_name(&call.model));
    parts.text(if quirks.streams {
        ",\"stream\":true"
    } else {
        ",\"stream\":false"
    });
    if quirks.streams && quirks.stream_options {
        parts.text(",\"stream_options\":");
        parts.text(&stream_options(call.stream_options.as_deref()));
    }
    if !call.fields.is_empty() {
        parts.text(",");
        parts.shared(&call.fields);
    }
    if let Some(tools) = &call.tools {
        parts.text(",\"tools\":");
        parts.shared(tools);
    }
    parts.text(",\"messages\":[");
    for segment in call.transcript.segments() {
        parts.bytes(segment.clone());
    }
    parts.text("]");
    if let Some(choice) = &call.tool_choice {
        parts.text(",\"tool_choice\":");
        parts.text(choice);
    }
    parts.text("}");
    reqwest::Body::wrap(parts.into_body())
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

/// A request body that is being assembled.
#[derive(Default)]
struct Parts {
    done: Vec<Bytes>,
    /// The part that is being written.
    current: String,
}

impl Parts {
    fn text(&mut self, text: &str) {
        self.current.push_str(text);
    }

    fn shared(&mut self, text: &Arc<str>) {
        if text.len() < SHARE_FROM_BYTES {
            self.text(text);
        } else {
            self.bytes(Bytes::from_owner(SharedText(text.clone())));
        }
    }

    fn bytes(&mut self, bytes: Bytes) {
        self.close();
        self.done.push(bytes);
    }

    fn close(&mut self) {
        if !self.current.is_empty() {
            self.done.push(std::mem::take(&mut self.current).into());
        }
    }

    fn into_body(mut self) -> JoinedBody {
        self.close();
        JoinedBody {
            left: self.done.iter().map(|part| part.len() as u64).sum(),
            parts: self.done.into_iter(),
        }
    }
}

struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A body of known length, sent part by part.
struct JoinedBody {
    parts: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl Body for JoinedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let part = self.parts.next();
        if let Some(part) = &part {
            self.left = self.left.saturating_sub(part.len() as u64);
        }
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.parts.as_slice().is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
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
