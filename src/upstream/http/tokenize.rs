//! The number of tokens of a call, counted by vLLM's `/tokenize`.

use ::http::header::{ACCEPT, HeaderValue};
use ::http::{Method, Request, StatusCode, Uri};
use serde::Deserialize;
use tokio::time::timeout;
use url::Url;

use super::super::{BoxError, ModelCall, Upstream};
use super::HttpUpstream;
use super::response::read_capped;
use blobs::segments::SegmentedWriter;
use net::RequestBody;
use protocol::openai::raw::quoted;

/// Largest answer, in bytes, which lists the tokens besides their number. With a larger one tokens are estimated.
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// What is read of the answer.
#[derive(Debug, Deserialize)]
struct Tokenized {
    count: u64,
}

impl HttpUpstream {
    /// The tokens that a call sends. `None` if the server has no `/tokenize`, or it fails.
    pub(super) async fn tokenize(&self, call: &ModelCall) -> Option<u64> {
        if !self.quirks().tokenize {
            return None;
        }
        match self.tokenized(call).await {
            Ok(tokens) => Some(tokens),
            Err(error) => {
                tracing::warn!(upstream = %self.name, error, "the upstream counted no tokens");
                None
            }
        }
    }

    async fn tokenized(&self, call: &ModelCall) -> Result<u64, BoxError> {
        let mut request = Request::new(body(call, self.model_name(&call.model)).await);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::try_from(url(&self.settings.base_url).as_str())?;
        let mut headers = self.call_headers(call);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        *request.headers_mut() = headers;
        let wait = self.settings.first_byte_timeout;
        let response = timeout(wait, self.client.execute(request)).await??;
        if response.status() != StatusCode::OK {
            return Err(format!("the status is {}", response.status().as_u16()).into());
        }
        let idle = self.settings.idle_timeout;
        let (body, whole) = read_capped(response.into_body(), MAX_BODY_BYTES, idle).await;
        if !whole {
            return Err("the answer is too large, or broke off".into());
        }
        let tokenized: Tokenized = serde_json::from_slice(&body)?;
        Ok(tokenized.count)
    }
}

/// The endpoint. vLLM has it beside the `/v1` of its base URL.
fn url(base: &Url) -> Url {
    let path = base.path().trim_end_matches('/');
    let root = path.strip_suffix("/v1").unwrap_or(path);
    let mut url = base.clone();
    url.set_path(&format!("{root}/tokenize"));
    url
}

/// The body of a request. The messages are not copied.
async fn body(call: &ModelCall, model: &str) -> RequestBody {
    let mut body = SegmentedWriter::default();
    body.text("{\"model\":");
    body.text(&quoted(model));
    if let Some(tools) = &call.tools {
        body.text(",\"tools\":");
        body.shared(tools);
    }
    body.text(",\"messages\":[");
    body.push_segmented(call.transcript.text().clone().without_lost().await);
    body.text("]}");
    RequestBody::wrap(body.finish().into_body())
}
