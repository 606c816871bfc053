//! The headers that are the same for every request to a service that the operator has chosen.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};

/// Default headers and the configured ones, which replace them. The HTTP client sets the headers of the connection, and
/// compressed answers are not supported, so that there are none of these.
pub fn with_configured(mut headers: HeaderMap, configured: &HeaderMap) -> HeaderMap {
    for name in configured.keys() {
        headers.remove(name);
    }
    for (name, value) in configured {
        headers.append(name.clone(), value.clone());
    }
    for name in [
        CONTENT_LENGTH,
        TRANSFER_ENCODING,
        CONNECTION,
        EXPECT,
        ACCEPT_ENCODING,
    ] {
        headers.remove(name);
    }
    headers
}
