//! The load generator: closed-loop connections that repeat a unit of work for a bounded time, and requests at a fixed rate.
//!
//! Owns clocks and samples. It knows neither which proxy it talks to nor what the figures are compared with.

mod rate;

use std::{
    net::SocketAddr,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

pub(crate) use rate::{Rate, at_rate};

use crate::{
    answers::TOKEN,
    process::CpuTime,
    wire::{Length, Peer},
};

/// Beyond its own length, a slice may take this long to end the units in hand.
const SLICE_GRACE: Duration = Duration::from_secs(20);

/// No slice does more units than this, however fast the machine.
const MAX_UNITS: usize = 400_000;

/// Between two attempts of a flood whose requests are refused, and its longest time.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);
const FLOOD_LIMIT: Duration = Duration::from_secs(60);

/// Streams that are held open end within this time.
pub(crate) const HOLD_LIMIT: Duration = Duration::from_secs(120);

/// The end of a stream of chat completions.
const END: &[u8] = b"[DONE]";

/// Streams that are opened at the same time, well below a listen backlog.
const OPENING: usize = 50;

/// An answer's size may differ from the first one's by this many parts in a hundred, for ids and durations in it.
const SIZE_TOLERANCE: usize = 20;

/// An answer of this size warms a connection up by itself.
const LARGE_UNIT: usize = 20_000;

/// What one unit of work consists of.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    /// Sent one after the other on one connection, each when the one before is answered.
    pub(crate) requests: Arc<[Vec<u8>]>,
    /// What is timed.
    pub(crate) timing: Timing,
    /// What the last answer holds when all went well.
    pub(crate) expects: &'static str,
}

/// Which moment ends the measured time of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// The end of the last answer.
    Whole,
    /// The arrival of the first token.
    FirstToken,
}

impl Work {
    /// Units of a single request.
    pub(crate) fn single(request: Vec<u8>, timing: Timing, expects: &'static str) -> Self {
        Self {
            requests: Arc::from([request]),
            timing,
            expects,
        }
    }
}

/// What one slice of load has shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice {
    /// Units per second.
    pub(crate) rate: f64,
    /// CPU seconds of the proxy per unit.
    pub(crate) cpu: f64,
    /// Median time of a unit in seconds.
    pub(crate) median: f64,
    /// 99th percentile of the time of a unit in seconds.
    pub(crate) p99: f64,
    /// Least time of a unit in seconds.
    pub(crate) least: f64,
}

impl Slice {
    /// Sums up the times of units, in nanoseconds, and what they took together.
    pub(crate) fn of(mut samples: Vec<u64>, seconds: f64, cpu: f64) -> Self {
        samples.sort_unstable();
        let units = samples.len() as f64;
        Self {
            rate: units / seconds,
            cpu: cpu / units,
            median: quantile(&samples, 0.5),
            p99: quantile(&samples, 0.99),
            least: quantile(&samples, 0.0),
        }
    }
}

/// Drives `connections` connections for `length` and reads `cpu_time` before and after.
pub(crate) async fn slice(
    address: SocketAddr,
    work: &Work,
    (connections, length): (usize, Duration),
    cpu_time: impl Fn() -> CpuTime,
) -> Result<Slice> {
    let limit = length + SLICE_GRACE;
    let mut warming = JoinSet::new();
    for _ in 0..connections {
        warming.spawn(warm_up(address, work.clone()));
    }
    let peers = timeout(limit, gather(warming))
        .await
        .context("warming up took too long")??;

    let cpu_before = cpu_time();
    let started = Instant::now();
    let deadline = started + length;
    let share = MAX_UNITS / connections.max(1);
    let mut running = JoinSet::new();
    for (peer, bytes) in peers {
        running.spawn(repeat(peer, work.clone(), bytes, (deadline, share)));
    }
    let samples = timeout(limit, gather(running))
        .await
        .context("a unit of work took too long")??;
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_time().since(cpu_before);

    Ok(Slice::of(samples.concat(), seconds, cpu))
}

/// Does one unit of work.
pub(crate) async fn once(address: SocketAddr, work: &Work) -> Result<()> {
    let mut peer = Peer::connect(address).await?;
    timeout(SLICE_GRACE, unit(&mut peer, work, Check::Text))
        .await
        .context("one unit of work took too long")??;
    Ok(())
}

/// Opens streams and keeps reading them for as long as the returned tasks live. A task returns whether its stream came to
/// its proper end.
pub(crate) async fn open(
    address: SocketAddr,
    request: &Arc<[u8]>,
    count: usize,
) -> Result<JoinSet<bool>> {
    let mut held = JoinSet::new();
    let mut left = count;
    while left > 0 {
        let batch = left.min(OPENING);
        let mut opening = JoinSet::new();
        for _ in 0..batch {
            opening.spawn(open_one(address, Arc::clone(request)));
        }
        let peers = timeout(SLICE_GRACE, gather(opening))
            .await
            .context("opening streams took too long")??;
        for peer in peers {
            held.spawn(drain(peer));
        }
        left -= batch;
    }
    Ok(held)
}

/// Connections that repeat a unit for as long as the returned tasks live, and no longer than a slice may take. What is refused
/// is tried again.
pub(crate) fn flood(address: SocketAddr, work: &Work, connections: usize) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        let work = work.clone();
        let repeat = async move {
            for _ in 0..MAX_UNITS {
                let Ok(mut peer) = Peer::connect(address).await else {
                    sleep(REFUSED_PAUSE).await;
                    continue;
                };
                while unit(&mut peer, &work, Check::Text).await.is_ok() {}
                sleep(REFUSED_PAUSE).await;
            }
        };
        tasks.spawn(async move {
            let _ended = timeout(FLOOD_LIMIT, repeat).await;
        });
    }
    tasks
}

async fn gather<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut all = Vec::with_capacity(tasks.len());
    while let Some(done) = tasks.join_next().await {
        all.push(done.context("a connection's task has ended")??);
    }
    Ok(all)
}

async fn warm_up(address: SocketAddr, work: Work) -> Result<(Peer, usize)> {
    let mut peer = Peer::connect(address).await?;
    let (_, bytes) = unit(&mut peer, &work, Check::Text).await?;
    let more = if bytes > LARGE_UNIT { 0 } else { 2 };
    for _ in 0..more {
        unit(&mut peer, &work, Check::Size(bytes)).await?;
    }
    Ok((peer, bytes))
}

async fn repeat(
    mut peer: Peer,
    work: Work,
    bytes: usize,
    (deadline, share): (Instant, usize),
) -> Result<Vec<u64>> {
    let mut samples = Vec::with_capacity(4096);
    while samples.len() < share {
        let (elapsed, _) = unit(&mut peer, &work, Check::Size(bytes)).await?;
        samples.push(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX));
        if Instant::now() >= deadline {
            break;
        }
    }
    Ok(samples)
}

/// How an answer is checked. Reading its text costs time, so it is done once per connection.
#[derive(Debug, Clone, Copy)]
enum Check {
    Text,
    Size(usize),
}

async fn unit(peer: &mut Peer, work: &Work, check: Check) -> Result<(Duration, usize)> {
    let started = Instant::now();
    let mut first_token = None;
    let mut bytes = 0;
    let mut text = Vec::new();
    for request in work.requests.iter() {
        peer.send(request).await?;
        let length = peer.head().await?.context("the connection was closed")?;
        let status = peer.status();
        let collect = matches!(check, Check::Text) || status != 200;
        text.clear();
        let _ = peer
            .body(length, |piece| {
                bytes += piece.len();
                if work.timing == Timing::FirstToken
                    && first_token.is_none()
                    && memmem::find(piece, TOKEN.as_bytes()).is_some()
                {
                    first_token = Some(started.elapsed());
                }
                if collect {
                    text.extend_from_slice(piece);
                }
                ControlFlow::Continue(())
            })
            .await?;
        if status != 200 {
            bail!("status {status}: {}", excerpt(&text));
        }
    }
    let elapsed = match work.timing {
        Timing::Whole => started.elapsed(),
        Timing::FirstToken => first_token.context("no token came")?,
    };
    match check {
        Check::Text => ensure!(
            memmem::find(&text, work.expects.as_bytes()).is_some(),
            "not the expected answer: {}",
            excerpt(&text)
        ),
        Check::Size(expected) => ensure!(
            bytes.abs_diff(expected) * 100 <= expected * SIZE_TOLERANCE,
            "an answer of {bytes} bytes after one of {expected}"
        ),
    }
    Ok((elapsed, bytes))
}

async fn open_one(address: SocketAddr, request: Arc<[u8]>) -> Result<Peer> {
    let mut peer = Peer::connect(address).await?;
    peer.send(&request).await?;
    let length = peer.head().await?.context("the connection was closed")?;
    ensure!(peer.status() == 200, "status {}", peer.status());
    let flow = peer
        .body(length, |piece| {
            if memmem::find(piece, TOKEN.as_bytes()).is_some() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .await?;
    ensure!(flow.is_break(), "the stream ended before its first token");
    Ok(peer)
}

/// Takes whatever comes up to the end of the events. Framing no longer matters.
async fn drain(mut peer: Peer) -> bool {
    let mut last = Vec::new();
    let read = peer.body(Length::Fixed(usize::MAX), |piece| {
        last.extend_from_slice(piece);
        if memmem::find(&last, END).is_some() {
            return ControlFlow::Break(());
        }
        last.drain(..last.len().saturating_sub(END.len()));
        ControlFlow::Continue(())
    });
    read.await.is_ok_and(|flow| flow.is_break())
}

fn excerpt(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(300).collect()
}

fn quantile(sorted: &[u64], fraction: f64) -> f64 {
    let at = (sorted.len() as f64 * fraction) as usize;
    let nanos = sorted
        .get(at)
        .or_else(|| sorted.last())
        .copied()
        .unwrap_or(0);
    nanos as f64 / 1e9
}
