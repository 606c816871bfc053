//! Requests at a fixed rate, whether or not those before them are answered.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    sync::{Mutex, mpsc},
    task::JoinSet,
    time::timeout,
};

use super::{Check, SLICE_GRACE, Slice, Work, gather, unit, warm_up};
use crate::{process::CpuTime, script::Script, wire::Peer};

/// Requests that are due and not sent yet; with more of them the rate is not carried.
const BACKLOG: usize = 4096;

/// A rate is carried if this much of it is.
const CARRIED: f64 = 0.98;

/// How much is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    /// Requests per second.
    pub(crate) per_second: u32,
    /// Connections that they are spread over.
    pub(crate) connections: usize,
    /// For how long.
    pub(crate) length: Duration,
}

/// Offers the rate; returns also the CPU seconds of the script per request.
pub(crate) async fn at_rate(
    address: SocketAddr,
    work: &Work,
    rate: Rate,
    script: &Script,
    cpu_time: impl Fn() -> CpuTime,
) -> Result<(Slice, f64)> {
    let mut warming = JoinSet::new();
    for _ in 0..rate.connections {
        warming.spawn(warm_up(address, work.clone()));
    }
    let peers = timeout(SLICE_GRACE, gather(warming))
        .await
        .context("warming up took too long")??;
    let (due, waiting) = mpsc::channel(BACKLOG);
    let waiting = Arc::new(Mutex::new(waiting));
    let mut running = JoinSet::new();
    for (peer, bytes) in peers {
        running.spawn(answer_when_due(
            peer,
            (work.clone(), bytes),
            Arc::clone(&waiting),
        ));
    }
    let (cpu_before, script_before) = (cpu_time(), script.cpu_seconds());
    let started = Instant::now();
    let mut ticker = Ticker::start(rate.per_second)?;
    while started.elapsed() < rate.length {
        for at in ticker.due().await? {
            due.try_send(at)
                .map_err(|_| anyhow!("{} requests per second are not carried", rate.per_second))?;
        }
    }
    drop(due);
    let samples = timeout(SLICE_GRACE, gather(running))
        .await
        .context("a request took too long")??
        .concat();
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_time().since(cpu_before);
    let script = (script.cpu_seconds() - script_before) / samples.len() as f64;
    let slice = Slice::of(samples, seconds, cpu);
    ensure!(
        slice.rate >= CARRIED * f64::from(rate.per_second),
        "of {} requests per second {:.0} are carried",
        rate.per_second,
        slice.rate
    );
    Ok((slice, script))
}

/// Sends one request for every moment that the connections share; its time counts from that moment.
async fn answer_when_due(
    mut peer: Peer,
    (work, bytes): (Work, usize),
    waiting: Arc<Mutex<mpsc::Receiver<Instant>>>,
) -> Result<Vec<u64>> {
    let mut samples = Vec::with_capacity(4096);
    loop {
        let next = waiting.lock().await.recv().await;
        let Some(due) = next else {
            return Ok(samples);
        };
        unit(&mut peer, &work, Check::Size(bytes)).await?;
        samples.push(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

/// A timer of the system: the runtime's own has a resolution of a millisecond.
#[derive(Debug)]
struct Ticker {
    /// What is read from it has the form of a pipe's contents.
    timer: Receiver,
    interval: Duration,
    next: Instant,
}

impl Ticker {
    fn start(per_second: u32) -> Result<Self> {
        let interval = Duration::from_secs(1) / per_second.max(1);
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)
            .context("creating a timer")?;
        let spec = Timespec {
            tv_sec: interval.as_secs().try_into()?,
            tv_nsec: interval.subsec_nanos().into(),
        };
        let each = Itimerspec {
            it_interval: spec,
            it_value: spec,
        };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &each).context("setting a timer")?;
        Ok(Self {
            timer: Receiver::from_owned_fd_unchecked(timer).context("watching a timer")?,
            interval,
            next: Instant::now() + interval,
        })
    }

    /// Waits for the next moment, and returns it with those that have passed meanwhile.
    async fn due(&mut self) -> Result<Vec<Instant>> {
        let mut count = [0; 8];
        let read = self.timer.read_exact(&mut count).await;
        read.context("reading a timer")?;
        let moments = (0..u64::from_ne_bytes(count)).map(|_| {
            let at = self.next;
            self.next += self.interval;
            at
        });
        Ok(moments.collect())
    }
}
