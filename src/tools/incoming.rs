//! Large results that arrive at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Largest result that is received without a reservation, in bytes.
pub(super) const SMALL_RESULT: usize = 64 * 1024;
/// Most bytes that are reserved at the same time. A call waits for them; a result above the bound is received alone.
/// Tried by `incoming::a_result_above_the_bound_is_received_alone`.
pub(super) const MOST_BYTES: usize = 32 * 1024 * 1024;

/// Bounds the bytes of large results that the calls of a batch receive at the same time. Clones share the bound.
#[derive(Debug, Clone)]
pub struct IncomingResults(Arc<Semaphore>);

impl IncomingResults {
    /// Reserves memory for a result of up to `bytes` bytes. Waits while other results of the batch are received; the time
    /// limit of the call bounds the wait. A result above the bound is received alone.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes.min(MOST_BYTES)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.0.clone().acquire_many_owned(bytes).await.ok()
    }
}

impl Default for IncomingResults {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_BYTES)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_result_above_the_bound_is_received_alone() {
        let incoming = IncomingResults::default();
        let first = incoming.reserve(usize::MAX).await;
        assert!(first.is_some());
        assert!(incoming.reserve(1).now_or_never().is_none());
        drop(first);
        let halves = [MOST_BYTES / 2; 2].map(|bytes| incoming.reserve(bytes).now_or_never());
        assert!(halves.iter().all(Option::is_some));
        assert!(incoming.reserve(1).now_or_never().is_none());
    }
}
