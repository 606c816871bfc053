//! A long time with faults: nothing may grow.
//!
//! The scripted model and the webhook fail at random, and so do the clients: they reset connections, leave and read
//! slowly. The sequence is the same in every run, its timing is not.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, sleep_until, timeout},
};

use crate::{
    proxies::{Launcher, Proxy},
    report::Report,
    requests::{self, Dialect, Tools},
    script::{Plan, Script},
    tables::SOAK,
    wire::Peer,
};

/// Connections of the clients.
const CLIENTS: u32 = 64;
/// Rounds of a turn whose model fails at random.
const ROUNDS: usize = 3;
/// Tokens of a stream that is read slowly, and the pause after each piece of it.
const SLOW_TOKENS: usize = 300;
const SLOW_PAUSE: Duration = Duration::from_millis(3);
/// A client that is not answered for so long leaves.
const PATIENCE: Duration = Duration::from_secs(20);

const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// What a run leaves behind is gone after this time.
const SETTLE: Duration = Duration::from_secs(60);
const SETTLE_POLL: Duration = Duration::from_millis(500);

/// Event logs of ended runs, which are kept for minutes, may have so little that they do not grow for long.
const SETTINGS: &str = "max_total_event_bytes = \"4MiB\"\n";

/// From the second quarter to the last, memory may grow by this share and so many MiB; the rest by so many.
const MEMORY_SHARE: f64 = 1.10;
const MEMORY_MIB: f64 = 4.0;
const DESCRIPTORS: f64 = 48.0;
const THREADS: f64 = 4.0;
/// Idle connections to the model server, and whatever opens files once, after the end.
const IDLE_DESCRIPTORS: f64 = 96.0;

/// What is known of the proxy at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    mib: f64,
    descriptors: f64,
    threads: f64,
    runs: f64,
    streams: f64,
}

/// What became of requests.
#[derive(Debug, Default)]
struct Outcomes {
    answered: u64,
    failed: u64,
    left: u64,
}

/// Runs the load for that long.
pub(crate) async fn run(
    launcher: &Launcher,
    script: &Script,
    (minutes, per_second): (f64, u32),
    report: &mut Report,
) {
    script.set_faulty(true);
    if let Err(error) = measure(launcher, minutes, per_second, report).await {
        report.fail(format!("soak: {error:#}"));
    }
    script.set_faulty(false);
}

async fn measure(
    launcher: &Launcher,
    minutes: f64,
    per_second: u32,
    report: &mut Report,
) -> Result<()> {
    let store = format!("sqlite:{}", launcher.directory.join("soak.db").display());
    let proxy = launcher.loopwright_with(&store, SETTINGS).await?;
    let length = Duration::from_secs_f64(minutes * 60.0);
    let idle = sample(&proxy).await?;
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let pause = Duration::from_secs(1) * CLIENTS / per_second.max(1);
        clients.spawn(client(proxy.address, number, pause, began + length));
    }
    let mut samples = Vec::new();
    while began.elapsed() < length {
        sleep(SAMPLE_EVERY.min(length.saturating_sub(began.elapsed()))).await;
        samples.push(sample(&proxy).await?);
    }
    let mut all = Outcomes::default();
    while let Some(done) = clients.join_next().await {
        let done = done?;
        all.answered += done.answered;
        all.failed += done.failed;
        all.left += done.left;
    }
    let rate = (all.answered + all.failed + all.left) as f64 / began.elapsed().as_secs_f64();
    let ended = settled(&proxy).await?;
    report.remark(format!(
        "soak: {} requests answered, {} refused or broken off, {} left by their clients",
        all.answered, all.failed, all.left
    ));
    let quarters: Vec<Sample> = samples
        .chunks(samples.len().div_ceil(4).max(1))
        .map(middle)
        .collect();
    let names = ["first quarter", "second", "third", "last"];
    let rows = names.into_iter().zip(&quarters);
    for (name, it) in [("idle before", &idle)].into_iter().chain(rows) {
        row(report, name, it, (name != "idle before").then_some(rate));
    }
    row(report, "idle after", &ended, None);
    ensure!(
        all.answered > all.failed + all.left,
        "most requests are not answered"
    );
    let [_, second, .., last] = quarters.as_slice() else {
        return Ok(());
    };
    for (what, before, after, most) in [
        (
            "memory in MiB",
            second.mib,
            last.mib,
            second.mib * MEMORY_SHARE + MEMORY_MIB,
        ),
        (
            "descriptors",
            second.descriptors,
            last.descriptors,
            second.descriptors + DESCRIPTORS,
        ),
        (
            "threads",
            second.threads,
            last.threads,
            second.threads + THREADS,
        ),
        (
            "descriptors after the end",
            idle.descriptors,
            ended.descriptors,
            idle.descriptors + IDLE_DESCRIPTORS,
        ),
    ] {
        ensure!(after <= most, "{what} grew from {before:.0} to {after:.0}");
    }
    Ok(())
}

fn row(report: &mut Report, name: &str, it: &Sample, rate: Option<f64>) {
    let figures = [it.mib, it.descriptors, it.threads, it.runs, it.streams].map(Some);
    let figures: Vec<_> = std::iter::once(rate).chain(figures).collect();
    report.row(&SOAK, &[name], &figures);
}

/// Waits until no run and no stream is left.
async fn settled(proxy: &Proxy) -> Result<Sample> {
    let began = Instant::now();
    loop {
        let now = sample(proxy).await?;
        if now.runs + now.streams == 0.0 {
            return Ok(now);
        }
        ensure!(
            began.elapsed() < SETTLE,
            "{} runs and {} streams are left without a client",
            now.runs,
            now.streams
        );
        sleep(SETTLE_POLL).await;
    }
}

async fn sample(proxy: &Proxy) -> Result<Sample> {
    let mut peer = Peer::connect(proxy.address).await?;
    peer.send(&requests::bare(proxy.address, "GET", "/metrics"))
        .await?;
    let length = peer.head().await?.context("the connection was closed")?;
    let page = String::from_utf8_lossy(peer.whole(length).await?).into_owned();
    let gauge = |name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok())
            .with_context(|| format!("there is no {name} among the metrics"))
    };
    let [descriptors, threads] = proxy.descriptors_and_threads();
    Ok(Sample {
        mib: proxy.memory_kib()? / 1024.0,
        descriptors,
        threads,
        runs: gauge("loopwright_runs ")?,
        streams: gauge("loopwright_open_streams ")?,
    })
}

/// The medians.
fn middle(samples: &[Sample]) -> Sample {
    let median = |of: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Sample {
        mib: median(|it| it.mib),
        descriptors: median(|it| it.descriptors),
        threads: median(|it| it.threads),
        runs: median(|it| it.runs),
        streams: median(|it| it.streams),
    }
}

/// One client after the other on one place, each of which does one thing.
async fn client(address: SocketAddr, number: u32, pause: Duration, deadline: Instant) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let mut chance = u64::from(number) + 1;
    let mut kept = None;
    let mut due = tokio::time::Instant::now() + pause * number / CLIENTS;
    while Instant::now() < deadline {
        sleep_until(due).await;
        due = (due + pause).max(tokio::time::Instant::now());
        chance = next(chance);
        let done = timeout(PATIENCE, act(address, chance >> 33, &mut kept)).await;
        match done {
            Ok(Ok(Done::Answered)) => outcomes.answered += 1,
            Ok(Ok(Done::Left)) => outcomes.left += 1,
            Ok(Ok(Done::Failed) | Err(_)) | Err(_) => {
                kept = None;
                outcomes.failed += 1;
            }
        }
    }
    outcomes
}

/// The next number of a linear congruential generator.
pub(crate) fn next(chance: u64) -> u64 {
    chance
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407)
}

enum Done {
    Answered,
    Failed,
    Left,
}

/// One request, and what its client does with the answer.
async fn act(address: SocketAddr, chance: u64, kept: &mut Option<Peer>) -> Result<Done> {
    let flaky = Plan::Flaky(ROUNDS);
    let chat = Dialect::Chat;
    let request = match chance % 8 {
        0 => requests::plain(address, flaky, Tools::None, 0),
        1 => requests::stream(address, flaky, (chat, Tools::None)),
        2 => requests::plain(address, flaky, Tools::Lookup, 0),
        3 => requests::stream(address, flaky, (Dialect::Responses, Tools::Lookup)),
        4 => requests::replayed(address, flaky, 4, &format!("soak-{}", chance / 8 % 500)),
        5 => requests::plain(address, flaky, Tools::Lookup, 40),
        _ => requests::stream(address, flaky, (chat, Tools::Lookup)),
    };
    match chance / 4096 % 16 {
        0 => leave(address, &request, Leaving::BeforeTheAnswer).await,
        1 => leave(address, &request, Leaving::WithinTheRequest).await,
        2 => leave(address, &request, Leaving::WithinTheAnswer).await,
        3 => {
            let asked = (chat, [Tools::None, Tools::Lookup][chance as usize / 8 % 2]);
            let request = requests::stream(address, Plan::Burst(SLOW_TOKENS), asked);
            read_slowly(address, &request).await
        }
        _ => {
            let mut peer = match kept.take() {
                Some(peer) => peer,
                None => Peer::connect(address).await?,
            };
            peer.send(&request).await?;
            let length = peer.head().await?.context("the connection was closed")?;
            let status = peer.status();
            peer.whole(length).await?;
            *kept = Some(peer);
            Ok(match status {
                200 => Done::Answered,
                _ => Done::Failed,
            })
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    BeforeTheAnswer,
    WithinTheRequest,
    WithinTheAnswer,
}

/// Resets the connection.
async fn leave(address: SocketAddr, request: &[u8], leaving: Leaving) -> Result<Done> {
    let mut stream = TcpStream::connect(address).await?;
    let most = match leaving {
        Leaving::WithinTheRequest => request.len() - 1,
        Leaving::BeforeTheAnswer | Leaving::WithinTheAnswer => request.len(),
    };
    stream
        .write_all(request.get(..most).unwrap_or_default())
        .await?;
    if leaving == Leaving::WithinTheAnswer {
        let _read = stream.read(&mut [0; 256]).await?;
    }
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    Ok(Done::Left)
}

async fn read_slowly(address: SocketAddr, request: &[u8]) -> Result<Done> {
    let mut stream = TcpStream::connect(address).await?;
    // So small that the proxy has to wait.
    SockRef::from(&stream).set_recv_buffer_size(4096)?;
    stream.write_all(request).await?;
    let mut piece = [0; 1024];
    let mut last = Vec::new();
    loop {
        let read = stream.read(&mut piece).await?;
        last.extend_from_slice(piece.get(..read).unwrap_or_default());
        if memchr::memmem::find(&last, b"[DONE]").is_some() {
            return Ok(Done::Answered);
        }
        if read == 0 {
            return Ok(Done::Failed);
        }
        last.drain(..last.len().saturating_sub(8));
        sleep(SLOW_PAUSE).await;
    }
}
