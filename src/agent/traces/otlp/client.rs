//! The HTTP client of the exporter: the client that the rest of the program uses. The exporter runs on a thread without
//! a runtime, so each request is a task on the runtime of the server.

use std::error::Error;
use std::iter::successors;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use opentelemetry_http::{HttpClient as ExporterClient, HttpError};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::super::TracesError;
use super::super::settings::{Settings, SpanEncoding};
use super::ExportState;
use net::{CappedBody, ClientOptions, HttpClient, RequestBody};

/// Largest answer of a collector, in bytes, which says little. A larger one is an error.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The value of the `user-agent` header.
const USER_AGENT: &str = concat!("loopwright/", env!("CARGO_PKG_VERSION"));

/// Sends the requests of the exporter.
#[derive(Debug)]
pub(super) struct CollectorClient {
    client: HttpClient,
    runtime: Handle,
    limit: Duration,
    export: Arc<ExportState>,
}

impl CollectorClient {
    pub(super) fn new(settings: &Settings, export: Arc<ExportState>) -> Result<Self, TracesError> {
        Ok(Self {
            client: client(settings)?,
            runtime: Handle::try_current().map_err(|error| TracesError::Client(error.into()))?,
            limit: settings.timeout,
            export,
        })
    }
}

impl ExporterClient for CollectorClient {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let exchange = exchange(self.client.clone(), request, self.limit);
        let exchange = AbortOnDropHandle::new(self.runtime.spawn(exchange));
        Box::pin(async move {
            let answer = exchange.await?;
            *self.export.cause.lock() = answer.as_ref().err().map(|error| chain(&**error));
            answer
        })
    }
}

/// Sends no spans, to find out whether the collector takes them.
pub(in super::super) async fn check(settings: &Settings) -> Result<(), String> {
    let (media, body) = match settings.encoding {
        SpanEncoding::Protobuf => ("application/x-protobuf", ""),
        SpanEncoding::Json => ("application/json", "{}"),
    };
    let mut request = Request::post(settings.endpoint.as_str())
        .body(Bytes::from_static(body.as_bytes()))
        .map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    headers.extend(settings.headers.clone());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    let client = client(settings).map_err(|error| chain(&error))?;
    let answer = exchange(client, request, settings.timeout).await;
    let status = answer.map_err(|error| chain(&*error))?.status();
    match status.is_success() {
        true => Ok(()),
        false => Err(format!("it answered with status {}", status.as_u16())),
    }
}

fn client(settings: &Settings) -> Result<HttpClient, TracesError> {
    let options = ClientOptions {
        user_agent: Some(HeaderValue::from_static(USER_AGENT)),
        tls: settings.endpoint.scheme() == "https",
        certificates: settings.certificates.clone(),
        ..ClientOptions::default()
    };
    let client = options.build_http();
    client.map_err(|error| TracesError::Client(error.into()))
}

/// The texts of an error and of its causes. None has a URL or a header.
fn chain(error: &(dyn Error + 'static)) -> String {
    let texts = successors(Some(error), |&error| error.source()).map(ToString::to_string);
    texts.collect::<Vec<_>>().join(": ")
}

async fn exchange(
    client: HttpClient,
    request: Request<Bytes>,
    limit: Duration,
) -> Result<Response<Bytes>, HttpError> {
    let answer = async {
        let response = client.execute(request.map(RequestBody::from)).await?;
        let (head, body) = response.into_parts();
        let body = CappedBody::new(body, MAX_ANSWER_BYTES)?.whole().await?;
        Ok(Response::from_parts(head, body))
    };
    timeout(limit, answer).await?
}
