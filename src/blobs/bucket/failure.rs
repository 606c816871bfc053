//! Failures of object storage as I/O errors, without parts of the request that an answer might repeat.

use std::io;
use std::time::Duration;

use tokio::time::timeout;

/// Most characters of a text about a failure; the rest is cut.
const MAX_TEXT: usize = 300;

/// Waits for an answer of the storage, at most this time.
pub(super) async fn within<T>(
    limit: Duration,
    answer: impl Future<Output = object_store::Result<T>>,
) -> io::Result<T> {
    match timeout(limit, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(&error)),
        Err(_elapsed) => Err(late(limit)),
    }
}

/// The error for an answer that does not come.
pub(super) fn late(limit: Duration) -> io::Error {
    let text = format!("object storage did not answer within {} s", limit.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// The error for a failed request. The bodies of answers are left out: they repeat the access key and the signed text.
pub(super) fn failure(error: &object_store::Error) -> io::Error {
    let kind = match error {
        object_store::Error::NotFound { .. } => io::ErrorKind::NotFound,
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, text(&error.to_string()))
}

fn text(error: &str) -> String {
    let end = error.find(['<', '\n', '\r']).unwrap_or(error.len());
    let (head, _) = error.split_at(end);
    let head = head.trim_end_matches([':', ' ']);
    let shown = head
        .chars()
        .filter(|char| !char.is_control())
        .take(MAX_TEXT);
    format!("object storage: {}", shown.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_an_answer_is_left_out() {
        let error = object_store::Error::Generic {
            store: "S3",
            source: "status code: 403 Forbidden: <?xml?><Error><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>"
                .into(),
        };
        let shown = failure(&error).to_string();
        assert!(
            shown.contains("403 Forbidden") && !shown.contains("AKIA1"),
            "{shown}"
        );
    }
}
