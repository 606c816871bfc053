//! Says in the log whose key a model server has refused: the client sees only that a key was refused, and has one of its own.

use std::time::Duration;

use ::http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Upstream;

/// How often the log says of one upstream that it refuses a key: once in this time.
/// Tried by `refusal::it_is_said_once_a_minute`.
const INTERVAL: Duration = Duration::from_secs(60);

/// When it was last said of an upstream.
#[derive(Debug, Default)]
pub(super) struct KeyRefusals(Mutex<Option<Instant>>);

/// Whether a status says that a key was refused or is missing.
pub(super) fn refuses_key(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

impl KeyRefusals {
    /// Notes the status of an answer of this upstream.
    pub(super) fn note(&self, status: StatusCode, upstream: &dyn Upstream) {
        if refuses_key(status) && self.is_due() {
            tracing::warn!(
                status = status.as_u16(),
                "the model server refused the key of upstream {}; {}",
                upstream.name(),
                upstream.key_source().remedy()
            );
        }
    }

    fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= INTERVAL);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_said_once_a_minute() {
        let refusals = KeyRefusals::default();
        assert!(refusals.is_due() && !refusals.is_due());
        tokio::time::advance(INTERVAL - Duration::from_millis(1)).await;
        assert!(!refusals.is_due());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(refusals.is_due() && !refusals.is_due());
    }
}
