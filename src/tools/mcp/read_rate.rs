//! Limits how fast a connection is read, so that a server that floods it takes only a small part of a processor.
//!
//! A connection has an allowance, which grows with the time and with each request, and from which all that is read is
//! taken. Without an allowance reading waits, and the server with it; nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// Weight of a message in the allowance, beside its bytes.
pub(super) const MESSAGE_BYTES: usize = 500;
/// How many bytes the allowance grows by within a millisecond; a server that sends more waits.
/// Tried by `read_rate::a_burst_is_read_at_once_and_a_flood_at_the_pace`.
const BYTES_PER_MILLISECOND: u64 = 1000;
/// Most answers of the largest size that the allowance suffices for; more is read at the pace.
/// Tried by `read_rate::a_burst_is_read_at_once_and_a_flood_at_the_pace`.
const MAX_ANSWERS: u32 = 4;
/// Most answers of the largest size that are awaited together and read at once; more are read at the pace.
/// Tried by `read_rate::an_answer_is_read_at_once_also_in_a_flood`.
const MAX_ASKED: u32 = 32;
/// How much of an allowance reading waits for once there is none, as the time in which it grows by this.
const STEP: Duration = Duration::from_millis(100);

/// The allowance of one connection. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct ReadRate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Arc<str>,
    allowance: Mutex<Allowance>,
    /// What a request adds: the largest answer.
    answer: Duration,
    /// The log has a line that reading waits.
    logged: AtomicBool,
}

/// Bytes count as the time in which the allowance grows by them.
#[derive(Debug)]
struct Allowance {
    /// When it will be at its largest again.
    full_at: Instant,
    /// What was asked for and has not come yet. It is read first.
    asked: Duration,
}

impl ReadRate {
    /// The pace of a connection to a server whose messages have at most this number of bytes.
    pub(super) fn new(server: &Arc<str>, max_message_bytes: usize) -> Self {
        Self::with(server.clone(), time(max_message_bytes))
    }

    /// The pace of another channel of the same server.
    pub(super) fn apart(&self) -> Self {
        Self::with(self.0.server.clone(), self.0.answer)
    }

    fn with(server: Arc<str>, answer: Duration) -> Self {
        Self(Arc::new(Inner {
            server,
            allowance: Mutex::new(Allowance {
                full_at: Instant::now(),
                asked: Duration::ZERO,
            }),
            answer,
            logged: AtomicBool::new(false),
        }))
    }

    /// The name of the server.
    pub(super) fn server(&self) -> &Arc<str> {
        &self.0.server
    }

    /// Waits until there is an allowance. Cancel safe.
    pub(super) async fn ready(&self) {
        let Some(wait) = self.wait() else {
            return;
        };
        if !self.0.logged.swap(true, Ordering::Relaxed) {
            let server = &*self.0.server;
            tracing::warn!(
                server,
                "the MCP server sends much that nobody asked for; it is read slowly"
            );
        }
        sleep(wait).await;
    }

    fn wait(&self) -> Option<Duration> {
        let largest = self.0.answer * MAX_ANSWERS;
        let allowance = self.0.allowance.lock();
        if !allowance.asked.is_zero() {
            return None;
        }
        let until_full = allowance.full_at.checked_duration_since(Instant::now());
        let missing = until_full?.checked_sub(largest)?;
        Some(missing + STEP)
    }

    /// Subtracts bytes that were read.
    pub(super) fn take(&self, bytes: usize) {
        let mut allowance = self.0.allowance.lock();
        let taken = time(bytes);
        let unasked = taken.saturating_sub(allowance.asked);
        allowance.asked = allowance.asked.saturating_sub(taken);
        allowance.full_at = allowance.full_at.max(Instant::now()) + unasked;
    }

    /// Adds the allowance for the answer to a request.
    pub(super) fn ask(&self) {
        let mut allowance = self.0.allowance.lock();
        let most = self.0.answer * MAX_ASKED;
        allowance.asked = (allowance.asked + self.0.answer).min(most);
    }
}

/// The time in which an allowance grows by this number of bytes.
fn time(bytes: usize) -> Duration {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    Duration::from_micros(bytes.saturating_mul(1000) / BYTES_PER_MILLISECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: usize = 1_000_000;

    /// Reads so many bytes in pieces; how long it takes.
    async fn read(rate: &ReadRate, pieces: usize, bytes: usize) -> Duration {
        let began = Instant::now();
        for _ in 0..pieces {
            rate.ready().await;
            rate.take(bytes);
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_read_at_once_and_a_flood_at_the_pace() {
        let rate = ReadRate::new(&"server".into(), LARGEST);
        assert_eq!(read(&rate, 40, LARGEST / 10).await, Duration::ZERO);
        let seconds = read(&rate, 300, LARGEST / 10).await.as_secs();
        assert!((29..31).contains(&seconds), "{seconds}");
        // The time brings all of the allowance back, and no more.
        sleep(Duration::from_secs(3600)).await;
        assert_eq!(read(&rate, 40, LARGEST / 10).await, Duration::ZERO);
        assert!(read(&rate, 10, LARGEST / 10).await > Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_read_at_once_also_in_a_flood() {
        let rate = ReadRate::new(&"server".into(), LARGEST);
        read(&rate, 100, LARGEST / 10).await;
        for _ in 0..100 {
            rate.ask();
            rate.ready().await;
            assert_eq!(read(&rate, 9, LARGEST / 10).await, Duration::ZERO);
        }
        // Answers that come together are read at once, and requests without answers are no endless hoard.
        for _ in 0..100 {
            rate.ask();
        }
        let asked = usize::try_from(MAX_ASKED).unwrap() * 10;
        assert_eq!(read(&rate, asked, LARGEST / 10).await, Duration::ZERO);
        assert!(read(&rate, 50, LARGEST / 10).await > Duration::ZERO);
    }
}
