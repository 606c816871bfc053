//! Which of an upstream's headers the client sees: the only file that decides it.

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Of an answer that passes through: all of them, but for who may read it across origins, which is the edge's to say.
pub(super) fn passed_on(mut headers: HeaderMap) -> HeaderMap {
    let cors: Vec<_> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in cors {
        headers.remove(name);
    }
    headers
}

/// Of an error that loopwright met in a request of its own: the answer is ours, and only its body is the upstream's.
pub(super) fn of_own_error(headers: &HeaderMap) -> HeaderMap {
    let mut kept = rate_limits(headers);
    for name in [CONTENT_TYPE, RETRY_AFTER] {
        if let Some(value) = headers.get(&name) {
            kept.insert(name, value.clone());
        }
    }
    kept
}

/// The upstream's rate limits are not ours: they get a name of their own.
pub(super) fn rate_limits(headers: &HeaderMap) -> HeaderMap {
    let renamed = |(name, value): (&HeaderName, &HeaderValue)| {
        let rest = name.as_str().strip_prefix("x-ratelimit-")?;
        let name = HeaderName::try_from(format!("x-upstream-ratelimit-{rest}")).ok()?;
        Some((name, value.clone()))
    };
    headers.iter().filter_map(renamed).collect()
}
