//! Errors of fetching pages.

use std::error::Error;

use reqwest::StatusCode;

/// Why a page was not fetched. The texts are for the model: they name the problem and a remedy, and no address that the
/// model has not seen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The URL exceeds the limit.
    #[error("the URL is longer than {limit} characters; use a shorter one")]
    TooLong {
        /// Most characters.
        limit: usize,
    },
    /// The URL has control characters.
    #[error("the URL contains a tab, a line break or another control character; write it without")]
    Characters,
    /// The text is not a URL.
    #[error(
        "this is not a complete URL ({problem}); write it whole, such as https://example.org/page"
    )]
    Unreadable {
        /// The parser's error.
        problem: String,
    },
    /// The scheme is not http or https.
    #[error(
        "only http and https URLs can be read, not '{scheme}:'; write the URL with https:// at its beginning"
    )]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The URL has a user name or password.
    #[error("the URL contains a user name or password before its host; write it without")]
    Credentials,
    /// The host cannot be on the public internet.
    #[error("the host '{host}' {problem}; only hosts of the public internet can be read")]
    Host {
        /// The host.
        host: String,
        /// The reason.
        problem: &'static str,
    },
    /// The port is not permitted.
    #[error("port {port} may not be connected to; use a URL without a port")]
    Port {
        /// The port.
        port: u16,
    },
    /// The operator forbids this host.
    #[error("pages of {host} may not be read here; use another source")]
    NotAllowed {
        /// The host.
        host: String,
    },
    /// The request forbids this host.
    #[error(
        "the request limits the web to certain domains, and {host} is not among them; use another source"
    )]
    Filtered {
        /// The host.
        host: String,
    },
    /// The host is not on the public internet.
    #[error(
        "{host} is not on the public internet, and nothing else can be read; use another source"
    )]
    Address {
        /// The host.
        host: String,
    },
    /// The name has no address.
    #[error("the host {host} cannot be found; check its spelling or use another source")]
    Unresolved {
        /// The host.
        host: String,
    },
    /// The target of a redirect cannot be read.
    #[error("the page redirects to {to}, which cannot be read: {reason}")]
    Redirected {
        /// The target.
        to: String,
        /// The reason.
        reason: Box<Self>,
    },
    /// Too many redirects.
    #[error("the page redirects more than {limit} times; use another source")]
    TooManyRedirects {
        /// Most redirects.
        limit: usize,
    },
    /// A redirect from an encrypted page to an unencrypted one of another host.
    #[error("it is not encrypted, while the page that redirects there is")]
    Downgrade,
    /// No connection.
    #[error("no connection to {host} could be made; use another source, or try again later")]
    Connect {
        /// The host.
        host: String,
    },
    /// The server has no valid certificate.
    #[error("{host} has no valid certificate, so it cannot be trusted; use another source")]
    Certificate {
        /// The host.
        host: String,
    },
    /// The response ended early or is not HTTP.
    #[error(
        "{host} sent an answer that cannot be read or that broke off; use another source, or try again later"
    )]
    Broken {
        /// The host.
        host: String,
    },
    /// The header fields exceed their limits.
    #[error("{host} sent too many or too long header fields; use another source")]
    Headers {
        /// The host.
        host: String,
    },
    /// The time for a page is over.
    #[error(
        "{host} did not send the page within {seconds} seconds; use another source, or try again later"
    )]
    Timeout {
        /// The host.
        host: String,
        /// The limit, rounded up.
        seconds: u64,
    },
    /// The page arrives too slowly.
    #[error("{host} sends the page too slowly; use another source")]
    Slow {
        /// The host.
        host: String,
    },
    /// The limit of concurrent requests to the host is reached.
    #[error(
        "too many pages of {host} are being read at the moment; use another source, or try again later"
    )]
    Busy {
        /// The host.
        host: String,
    },
    /// A status other than success.
    #[error("{host} answered {}: {}{}; {}", status.as_u16(), meaning(*status), when(*retry_after), remedy(*status))]
    Status {
        /// The host.
        host: String,
        /// The status.
        status: StatusCode,
        /// The delay in seconds that the server requests, if it is short.
        retry_after: Option<u64>,
    },
    /// The format is not text.
    #[error("{host} sent {what}, which cannot be read as text; use another source")]
    Type {
        /// The host.
        host: String,
        /// A description of the format.
        what: String,
    },
    /// The encoding was not requested.
    #[error("{host} sent the page compressed in a way that cannot be read; use another source")]
    Encoding {
        /// The host.
        host: String,
    },
    /// Too large, and useless without its end.
    #[error(
        "{host} sent {what} of more than {limit_bytes} bytes, which is too large to be read; use another source"
    )]
    TooLarge {
        /// The host.
        host: String,
        /// A description of the format.
        what: &'static str,
        /// Most bytes.
        limit_bytes: usize,
    },
    /// `robots.txt` forbids it.
    #[error("{host} asks programs not to read this page (robots.txt); use another source")]
    Robots {
        /// The host.
        host: String,
    },
    /// `robots.txt` cannot be fetched, which counts as a prohibition.
    #[error(
        "{host} does not say at the moment whether programs may read its pages (robots.txt cannot be read); use another \
         source, or try again later"
    )]
    RobotsUnreachable {
        /// The host.
        host: String,
    },
}

/// Why the guarded resolver refused a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ResolveError {
    /// The name has no address.
    #[error("the name has no address")]
    NotFound,
    /// At least one address is not on the public internet.
    #[error("the name has an address that may not be connected to")]
    Forbidden,
}

impl FetchError {
    /// The meaning of a request without a response.
    pub(super) fn no_response(host: &str, error: &reqwest::Error) -> Self {
        let host = host.to_owned();
        match causes(error).find_map(|cause| cause.downcast_ref::<ResolveError>()) {
            Some(ResolveError::NotFound) => return Self::Unresolved { host },
            Some(ResolveError::Forbidden) => return Self::Address { host },
            None => {}
        }
        if !error.is_connect() {
            return Self::Broken { host };
        }
        // TLS errors have no type of their own here.
        match causes(error).any(|cause| cause.to_string().contains("certificate")) {
            true => Self::Certificate { host },
            false => Self::Connect { host },
        }
    }
}

/// The errors below an error, outermost first.
fn causes<'e>(
    error: &'e reqwest::Error,
) -> impl Iterator<Item = &'e (dyn Error + 'static)> + use<'e> {
    let source: fn(&&'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> =
        |error| (*error).source();
    std::iter::successors(error.source(), source)
}

fn meaning(status: StatusCode) -> &'static str {
    match status.as_u16() {
        204 | 205 | 304 => "there is no content",
        300..=399 => "the page is elsewhere, but it is not said where",
        401 | 407 => "the page needs a login",
        402 => "the page must be paid for",
        403 => "the page may not be read by programs or without a login",
        404 => "there is no such page",
        408 => "the server waited too long",
        410 => "the page was removed",
        429 => "too many requests",
        451 => "the page is withheld for legal reasons",
        400..=499 => "the server does not accept the request",
        503 => "the server is overloaded or under maintenance",
        500..=599 => "the server failed",
        _ => "no page",
    }
}

fn when(retry_after: Option<u64>) -> String {
    retry_after.map_or_else(String::new, |seconds| {
        format!(" (it asks to wait {seconds} seconds)")
    })
}

fn remedy(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 | 410 => "check the URL or use another source",
        429 | 500..=599 => "use another source, or try again later",
        _ => "use another source",
    }
}
