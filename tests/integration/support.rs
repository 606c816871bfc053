//! What the tests stand on: the started binary, its client, and the servers that it talks to.
//!
//! Nothing here knows loopwright's code. The client holds streams against the wire contract, the scripted model
//! server holds requests against the protocol, and both say what was wrong in words.

pub(crate) mod app;
pub(crate) mod ask;
pub(crate) mod chat;
pub(crate) mod client;
mod closed;
pub(crate) mod collect;
pub(crate) mod described;
pub(crate) mod dispatch_contract;
pub(crate) mod events;
pub(crate) mod fault_proxy;
#[path = "../postgres/server.rs"]
pub(crate) mod postgres;
pub(crate) mod protocol;
pub(crate) mod recorded;
pub(crate) mod script;
pub(crate) mod server;
pub(crate) mod small_disk;
pub(crate) mod stalled;
pub(crate) mod storage;
pub(crate) mod stream_check;
pub(crate) mod upstream;
pub(crate) mod webhook;

use std::time::Duration;

/// Longest wait for anything that should happen at once, in a test run on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What happens at once takes less, also on a busy machine; what waits for a time-out in vain takes longer.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(20);

/// Longest wait for the last words of a process that has ended.
const DRAIN: Duration = Duration::from_secs(10);

/// Pause between two looks of [`eventually`].
const POLL: Duration = Duration::from_millis(10);

/// Waits for a future, and fails the test with `what` when it takes longer than [`PATIENCE`].
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: nothing within {PATIENCE:?}"),
    }
}

/// Looks again and again until `probe` has something; only for state that nothing announces.
pub(crate) async fn eventually<T, F>(what: &str, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    within(what, async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    })
    .await
}

/// A base URL on which nobody listens.
pub(crate) async fn unreachable_url() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/v1", listener.local_addr().unwrap())
}
