//! Decides which paths are forwarded, because forwarded requests carry the operator's key.
//!
//! Upstream servers and proxies disagree about dot segments, doubled slashes and encoded separators. A path that one of
//! them could read as another path is not forwarded, so that they see the path that is checked here.

use super::routes::RouteTable;

/// The prefix of all paths of the API.
const ROOT: &str = "/v1/";
/// The exception below a reserved path, for `DELETE /v1/models/{id}`.
const MODELS: &str = "/v1/models/";

/// What is done with a path that has no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathClass {
    /// The path is forwarded unchanged.
    Forward,
    /// The path belongs to loopwright's own API.
    Reserved,
    /// Servers could read the path in more than one way.
    Ambiguous,
}

/// Classifies a raw path, given without its query.
pub(super) fn classify(raw: &str, routes: &RouteTable) -> PathClass {
    let Some(decoded) = decoded(raw) else {
        return PathClass::Ambiguous;
    };
    // Compared in the raw form: an encoded spelling would bypass the routes for GET and HEAD.
    let models = raw.starts_with(MODELS);
    match !models && routes.is_reserved(&decoded) {
        true => PathClass::Reserved,
        false => PathClass::Forward,
    }
}

/// The path below `/v1/`, percent-decoded once; empty if it is ambiguous.
pub(super) fn below_root(raw: &str) -> String {
    let decoded = decoded(raw).unwrap_or_default();
    decoded.strip_prefix(ROOT).unwrap_or_default().to_owned()
}

/// The id of the model that a path is about.
pub(super) fn model(raw: &str) -> Option<String> {
    let decoded = decoded(raw)?;
    decoded.strip_prefix(MODELS).map(ToOwned::to_owned)
}

/// The path with each segment percent-decoded once; `None` if the path is ambiguous.
fn decoded(raw: &str) -> Option<String> {
    let mut path = String::with_capacity(raw.len());
    for segment in raw.strip_prefix('/')?.split('/') {
        let segment = decoded_segment(segment)?;
        // Servers that decode twice would see this.
        let twice = decoded_segment(&segment);
        if leads_elsewhere(&segment) || twice.is_some_and(|twice| leads_elsewhere(&twice)) {
            return None;
        }
        path.push('/');
        path.push_str(&segment);
    }
    Some(path)
}

/// Whether a server could read the segment as something else than one name. Some ignore what follows a semicolon.
fn leads_elsewhere(segment: &str) -> bool {
    let name = segment.split(';').next().unwrap_or_default();
    segment.contains(['/', '\\', '\0']) || matches!(name, "" | "." | "..")
}

fn decoded_segment(raw: &str) -> Option<String> {
    let mut bytes = raw.bytes();
    let mut decoded = Vec::with_capacity(raw.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [(PathClass, &[&str]); 3] = [
        (
            PathClass::Forward,
            &[
                "/v1/embeddings",
                "/v1/fine_tuning/jobs/ft%3Aabc/cancel",
                "/v1/models/ft%3Agpt:org::id",
                "/v1/models/org/name",
                "/v1/models/%E2%82%AC",
                "/v1/x%20y",
                "/v1/100%25",
                "/v1/a..b/...",
                "/v1/a;b=c/d",
                "/v1/100%2525",
                "/v1/%25zz",
                "/v1/filesystem",
                "/v1/sessions2",
                "/v1/chat",
                "/v1/chat/completions-batch",
                "/v1/x/files",
            ],
        ),
        (
            PathClass::Reserved,
            &[
                "/v1/files",
                "/v1/files/file-1/content/more",
                "/v1/%66iles",
                "/v1/fil%65s/x",
                "/v1/%73essions",
                "/v1/sessions/s/x/y",
                "/v1/agent/x",
                "/v1/permissions",
                "/v1/%63hat/completions",
                "/v1/chat/completion%73/abc",
                "/v1/chat/completions/a/b/c",
                "/v1/models",
                "/v1/%6dodels",
                "/v1/%6Dodels/x",
            ],
        ),
        (
            PathClass::Ambiguous,
            &[
                "",
                "*",
                "/",
                "/v1/",
                "/v1//files",
                "/v1/files/",
                "/v1/embeddings/",
                "/v1/chat/completions/",
                "/v1/x/../files",
                "/v1/./files",
                "/v1/%2e/files",
                "/v1/%2E%2e/files",
                "/v1/.%2e/admin",
                "/v1/..%2f..%2fadmin",
                "/v1/a%2Fb",
                "/v1/models/a%2fb",
                "/v1/models/../files",
                "/v1/models/",
                "/v1/a\\b",
                "/v1/a%5Cb",
                "/v1/a%5c..",
                "/v1/files%00",
                "/v1/%ff",
                "/v1/%c0%af",
                "/v1/100%",
                "/v1/%4",
                "/v1/%zz",
                "/v1/%+1",
                "/v1/..;/x",
                "/v1/.;a=b/x",
                "/v1/..%3bx/y",
                "/v1/;x/y",
                "/v1/%252e%252e/x",
                "/v1/a%252fb",
                "/v1/%2e%252e;x/y",
            ],
        ),
    ];

    #[test]
    fn only_unambiguous_paths_outside_the_own_api_are_forwarded() {
        let routes = RouteTable::new(&crate::http::groups());
        for (expected, paths) in TABLE {
            for path in paths {
                assert_eq!(classify(path, &routes), expected, "{path}");
            }
        }
    }
}
