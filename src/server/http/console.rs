//! The console: a static page and its files, which are inside of the binary. It uses the public API only.
//!
//! The page asks for an API key, so it is served without one. Clients that ask for no HTML get the addresses as text.

use std::borrow::Cow;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::json;

use super::AppState;
use super::error::{ApiError, codes};
use super::extract::Path;
use super::headers::{if_none_match_holds, origin};
use super::openapi::headers::HeaderKind;
use super::openapi::operation::Operation;
use super::routes::{ApiEndpoint, Group};
use agent::metrics::RouteLabel;

/// The path of the page.
const ROOT: &str = "/";
/// The beginning of the paths of its files.
const PREFIX: &str = "/ui/";
/// The page among the files.
const PAGE: &str = "index.html";
const HTML: &str = "text/html";

/// No request to another host, no script that is not a file of the console, and no other page around it.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
    connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'; require-trusted-types-for 'script'";
/// Abilities of a browser that the page does not use.
const PERMISSIONS: &str =
    "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()";

/// The routes of the console.
pub(super) fn group() -> Group {
    Group {
        tag: "Operations",
        label: RouteLabel::Operations,
        prefix: ROOT,
        is_probed: true,
        // Without the console the path has an answer for probes only.
        head_probes: &[ROOT],
        endpoints: vec![
            ApiEndpoint::get(ROOT, page, describe_page),
            ApiEndpoint::get("/ui/{*file}", file, describe_file),
        ],
        ..Group::default()
    }
}

/// The headers of every file.
const HEADERS: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-cache"),
    (CONTENT_SECURITY_POLICY, CONTENT_POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (HeaderName::from_static("permissions-policy"), PERMISSIONS),
];

/// The files of the folder, as they were when the binary was built.
#[derive(Debug, rust_embed::Embed)]
#[folder = "console"]
struct ConsoleFiles;

/// Whether a request is for the console, and thus needs no key.
pub(super) fn is_asked(state: &AppState, request: &Request) -> bool {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    state.settings.console && reads && (path.starts_with(PREFIX) || path == ROOT)
}

/// `GET /`: the page for clients that accept HTML, and one line of text for others.
async fn page(
    State(state): State<AppState>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let mut response = match accepts_html(&headers) {
        true => answer(&state, PAGE, &headers)?,
        false => text(&state, &headers, &uri),
    };
    response
        .headers_mut()
        .insert(VARY, HeaderValue::from_static("accept"));
    Ok(response)
}

fn describe_page(operation: Operation<'_>) -> Operation<'_> {
    describe_content(operation.named("getConsole", "The console, a web page"))
        .described(
            "Clients whose `accept` names `text/html` get the page. Others get one line of text with the addresses of the \
             console and of the API. No key is needed; the line has the version for requests with a key, or without keys for \
             all.",
        )
}

/// One line with the addresses, for people with curl. It names the version only to callers who see it at `/readyz`.
fn text(state: &AppState, headers: &HeaderMap, uri: &Uri) -> Response {
    let access = state.access.get();
    let version = match access.authenticator.authenticate(headers, uri) {
        Ok(_) => concat!(" ", env!("CARGO_PKG_VERSION")),
        Err(_) => "",
    };
    let origin = origin(headers);
    let console = match state.settings.console {
        true => format!("console: {origin}/; "),
        false => String::new(),
    };
    let line = format!("loopwright{version} is running; {console}API: {origin}/v1\n");
    let media = (CONTENT_TYPE, "text/plain; charset=utf-8");
    (HEADERS, [media], line).into_response()
}

/// `GET /ui/{file}`: a file of the page.
async fn file(
    State(state): State<AppState>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    answer(&state, &name, &headers)
}

fn describe_file(operation: Operation<'_>) -> Operation<'_> {
    describe_content(operation.named("getConsoleFile", "A file of the console"))
        .path("file", "The path of the file below `/ui/`.")
        .described("No key is needed.")
}

/// A file, or the status that says that the client has it. A name is compared with the names of the files, and opens
/// nothing.
fn answer(state: &AppState, name: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let found = state.settings.console.then(|| ConsoleFiles::get(name));
    let file = found.flatten().ok_or_else(ApiError::no_such_path)?;
    let etag = format!("\"{}\"", hexadecimal(&file.metadata.sha256_hash()));
    if if_none_match_holds(headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, HEADERS, [(ETAG, etag)]).into_response());
    }
    let media = file.metadata.mimetype();
    let charset = match media.starts_with("text/") {
        true => "; charset=utf-8",
        false => "",
    };
    let content = match file.data {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    };
    let own = [(CONTENT_TYPE, format!("{media}{charset}")), (ETAG, etag)];
    Ok((HEADERS, own, content).into_response())
}

/// Whether the client names HTML among what it accepts, as browsers do for a page.
fn accepts_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter();
    let mut ranges = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    ranges.any(|range| {
        let media = range.split(';').next().unwrap_or_default();
        media.trim().eq_ignore_ascii_case(HTML)
    })
}

fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the page and its files have in common.
fn describe_content(operation: Operation<'_>) -> Operation<'_> {
    let validator = [(
        "etag",
        HeaderKind::OptionalText,
        "Stands for the content of the page or file.",
    )];
    let sniffing = [("x-content-type-options", HeaderKind::Text, "`nosniff`.")];
    operation
        .header(
            "if-none-match",
            json!({"type": "string"}),
            "The `etag` of the content that the client has.",
        )
        .answers_as(200, "*/*", json!({}), "The content.")
        .answers_nothing(304, "The client has the content.")
        .with_headers(200, &validator)
        .with_headers(200, &sniffing)
        .with_headers(304, &validator)
        .with_headers(304, &sniffing)
        .fails(&[codes::NOT_FOUND])
}
