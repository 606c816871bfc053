//! What code execution costs beside the interpreter itself, and the tables that it fills.
//!
//! Starts proxies of its own: an interpreter belongs to a session, and settings of the pool are part of what is measured.

use std::{
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    answers::{self, LAST_WORDS},
    figures::{ROUNDS, Rounds, added, micros, proxied, ratio},
    generator::{self, Slice, Timing, Work},
    interpreter::{self, Bare},
    measure::{Pace, middle},
    proxies::{Launcher, Proxy},
    report::Report,
    requests,
    script::Plan,
    tables::{self, DIRECT, LOOP, NO_SPARE, SPARE},
    wire::Peer,
};

/// Between two looks at the interpreters of a proxy.
const POLL: Duration = Duration::from_millis(5);

/// How long a spare may take to get ready, and an interpreter to end.
const POOL_LIMIT: Duration = Duration::from_secs(60);

/// Units that come before those that are timed.
const WARM_UNITS: usize = 3;

/// What is imported beforehand where that is measured.
const PRELOAD: [&str; 2] = ["numpy", "matplotlib.pyplot"];

/// What all figures of code share.
#[derive(Debug)]
pub(crate) struct CodeBench<'a> {
    /// How proxies are started, and where the scripted upstream is.
    pub(crate) launcher: &'a Launcher,
    /// The Python interpreter.
    pub(crate) python: &'a Path,
    /// How long is measured.
    pub(crate) pace: Pace,
    /// How often what cannot be repeated in one session is repeated.
    pub(crate) repeats: usize,
    /// Where the processes run, as the tables call it.
    pub(crate) placement: &'static str,
}

/// Times of requests in milliseconds.
#[derive(Debug, Default)]
struct Times(Vec<f64>);

/// The first request of sessions, and the one after.
#[derive(Debug, Default)]
struct Calls {
    first: Times,
    next: Times,
}

impl CodeBench<'_> {
    /// Fills the tables: cells in a warm session, starts, first calls, plots.
    pub(crate) async fn run(&self, report: &mut Report) {
        if let Err(error) = self.cells(report).await {
            report.remark(format!("code, cells: {error:#}"));
        }
        if let Err(error) = self.starts(report).await {
            report.remark(format!("code, first calls: {error:#}"));
        }
        if !interpreter::has_module(self.python, "matplotlib") {
            report.remark(format!(
                "code, plots: {} has no matplotlib; LOOPWRIGHT_TEST_CODE_PYTHON may name one that has it",
                self.python.display()
            ));
        } else if let Err(error) = self.plots(report).await {
            report.remark(format!("code, plots: {error:#}"));
        }
    }

    /// Cells in a warm session.
    async fn cells(&self, report: &mut Report) -> Result<()> {
        let proxy = self.proxy("spares = 0").await?;
        let address = proxy.address;
        let works = [ROUNDS, 1].map(|rounds| {
            let request = requests::code(address, Plan::Cells(rounds), "load-cells");
            Work::single(request, Timing::Whole, LAST_WORDS)
        });
        for (work, rounds) in works.iter().zip([ROUNDS, 1]) {
            // A figure for cells that were not run would look splendid.
            let request = work.requests.first().context("there is no request")?;
            let answer = send(&mut Peer::connect(address).await?, request).await?;
            let ran = memmem::find_iter(&answer, br#""result:\n2""#).count();
            ensure!(
                ran == rounds,
                "a request for {rounds} cells brought {ran} results: {}",
                String::from_utf8_lossy(&answer)
            );
        }
        let (mut bare, _) = Bare::start(self.python, &[]).await?;
        let upstream = self.launcher.upstream;
        let mut peer = Peer::connect(upstream).await?;
        let models =
            [ROUNDS, 1].map(|rounds| requests::client_cells(upstream, Plan::Cells(rounds), rounds));
        let mut slices: [Vec<Slice>; 5] = Default::default();
        for _ in 0..self.pace.slices {
            let [full, one, alone, looped, looped_one] = &mut slices;
            let [model_full, model_one] = &models;
            full.push(self.direct(Some(&mut peer), &mut bare, model_full).await?);
            one.push(self.direct(Some(&mut peer), &mut bare, model_one).await?);
            alone.push(self.direct(None, &mut bare, model_full).await?);
            for (work, slices) in works.iter().zip([looped, looped_one]) {
                let load = (1, self.pace.length);
                slices.push(generator::slice(address, work, load, || proxy.cpu_time()).await?);
            }
        }
        let [full, one, alone, looped, looped_one] = slices.map(|slices| middle(&slices).ok());
        let row = |name, full, few| Rounds {
            name,
            full,
            few,
            between: ROUNDS - 1,
        };
        let direct = row(DIRECT, full, one);
        for rounds in [row(DIRECT, full, one), row(LOOP, looped, looped_one)] {
            let own_cell = alone.filter(|_| rounds.name == DIRECT);
            let figures = [
                rounds.full.map(|it| it.median).map(micros),
                rounds.full.map(|it| it.p99).map(micros),
                added(rounds.name, rounds.full, full, |it| it.p99).map(micros),
                rounds.slope(|it| it.median).map(micros),
                rounds.own(Some(&direct)).map(micros),
                rounds.own_of(Some(&direct), |it| it.least).map(micros),
                rounds.cpu().map(micros),
                own_cell.map(|it| it.median / ROUNDS as f64).map(micros),
                ratio(
                    proxied(rounds.name, rounds.full).map(|it| it.median),
                    full.map(|it| it.median),
                ),
            ];
            report.row(&tables::CELLS, &[self.placement, rounds.name], &figures);
        }
        Ok(())
    }

    /// Units of one model call before each cell and one at the end, or of the cells alone.
    async fn direct(
        &self,
        mut peer: Option<&mut Peer>,
        bare: &mut Bare,
        models: &[Vec<u8>],
    ) -> Result<Slice> {
        let mut samples = Vec::new();
        let mut began = Instant::now();
        let mut done = 0;
        while done <= WARM_UNITS || began.elapsed() < self.pace.length {
            if done == WARM_UNITS {
                began = Instant::now();
            }
            let started = Instant::now();
            for (cell, model) in models.iter().enumerate() {
                if let Some(peer) = peer.as_deref_mut() {
                    send(peer, model).await?;
                }
                if cell + 1 < models.len() {
                    let shown = bare.run(&answers::cell(cell)).await?;
                    ensure!(shown.values == 1, "a bare cell has no value");
                }
            }
            if done >= WARM_UNITS {
                samples.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX));
            }
            done += 1;
        }
        Ok(Slice::of(samples, began.elapsed().as_secs_f64(), 0.0))
    }

    /// Starts of interpreters, and first calls of sessions.
    async fn starts(&self, report: &mut Report) -> Result<()> {
        let without = self.proxy("spares = 0").await?;
        let with = self.proxy("spares = 1").await?;
        let upstream = self.launcher.upstream;
        let models = requests::client_cells(upstream, Plan::Cells(1), 1);
        let mut peer = Peer::connect(upstream).await?;
        let [mut empty, mut ready] = <[Times; 2]>::default();
        let [mut direct, mut unprepared, mut prepared] = <[Calls; 3]>::default();
        for number in 0..self.repeats {
            empty.add(interpreter::empty_run(self.python)?);
            let started = Instant::now();
            let (mut bare, took) = Bare::start(self.python, &[]).await?;
            ready.add(took);
            one_cell(&mut peer, &mut bare, &models).await?;
            direct.first.add(started.elapsed());
            let started = Instant::now();
            one_cell(&mut peer, &mut bare, &models).await?;
            direct.next.add(started.elapsed());
            drop(bare);
            for (proxy, spares, into) in [(&without, 0, &mut unprepared), (&with, 1, &mut prepared)]
            {
                let session = format!("load-{number}");
                session_calls(proxy, spares, (Plan::Cells(1), &session), into).await?;
            }
        }
        let isolated = unprepared.started();
        for (name, times) in [
            ("python3 -I -c pass", &empty),
            ("bare, to ready", &ready),
            ("isolated, to ready", &isolated),
        ] {
            let figures = [
                times.median(),
                times.least(),
                ratio(times.median(), empty.median()),
                ratio(times.median(), ready.median()),
            ];
            report.row(&tables::STARTS, &[self.placement, name], &figures);
        }
        for (name, times) in [
            (DIRECT, &direct),
            (NO_SPARE, &unprepared),
            (SPARE, &prepared),
        ] {
            let figures = [
                times.first.median(),
                times.first.least(),
                times.next.median(),
                (name != DIRECT)
                    .then(|| Some(times.first.median()? - direct.first.median()?))
                    .flatten(),
                ratio(times.first.median(), direct.first.median()),
            ];
            report.row(&tables::FIRST_CALLS, &[self.placement, name], &figures);
        }
        Ok(())
    }

    /// Plots, with and without preloading.
    async fn plots(&self, report: &mut Report) -> Result<()> {
        let upstream = self.launcher.upstream;
        let models = requests::client_cells(upstream, Plan::Plots(1), 1);
        let mut peer = Peer::connect(upstream).await?;
        let repeats = self.repeats.div_ceil(2);
        for (label, preload) in [("off", &[][..]), ("on", &PRELOAD[..])] {
            let proxy = self
                .proxy(&format!("spares = 1\npreload = {preload:?}"))
                .await?;
            let [mut direct, mut looped] = <[Calls; 2]>::default();
            for number in 0..repeats {
                let (mut bare, _) = Bare::start(self.python, preload).await?;
                for (plot, into) in [&mut direct.first, &mut direct.next]
                    .into_iter()
                    .enumerate()
                {
                    let started = Instant::now();
                    let [before, after] = models.as_slice() else {
                        bail!("a call is between two model calls");
                    };
                    send(&mut peer, before).await?;
                    let shown = bare.run(&answers::plot(plot)).await?;
                    ensure!(shown.images == 1, "a bare plot has no image");
                    send(&mut peer, after).await?;
                    into.add(started.elapsed());
                }
                drop(bare);
                let session = format!("load-{number}");
                session_calls(&proxy, 1, (Plan::Plots(1), &session), &mut looped).await?;
            }
            for (name, times) in [(DIRECT, &direct), (LOOP, &looped)] {
                let beyond = |of: fn(&Calls) -> &Times| {
                    let base = of(&direct).median()?;
                    (name != DIRECT).then_some(of(times).median()? - base)
                };
                let figures = [
                    times.first.median(),
                    times.first.least(),
                    times.next.median(),
                    times.next.least(),
                    beyond(|calls| &calls.first),
                    beyond(|calls| &calls.next),
                    ratio(times.next.median(), direct.next.median()),
                ];
                report.row(&tables::PLOTS, &[self.placement, label, name], &figures);
            }
        }
        Ok(())
    }

    async fn proxy(&self, sandbox: &str) -> Result<Proxy> {
        self.launcher
            .loopwright_with_code(self.python, sandbox)
            .await
    }
}

impl Times {
    fn add(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1e3);
    }

    fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    fn least(&self) -> Option<f64> {
        self.0.iter().copied().min_by(f64::total_cmp)
    }
}

impl Calls {
    /// What the first call took beyond the next one, session by session.
    fn started(&self) -> Times {
        let pairs = self.first.0.iter().zip(&self.next.0);
        Times(pairs.map(|(first, next)| first - next).collect())
    }
}

/// A model call, a cell and a model call.
async fn one_cell(peer: &mut Peer, bare: &mut Bare, models: &[Vec<u8>]) -> Result<()> {
    for (cell, model) in models.iter().enumerate() {
        send(peer, model).await?;
        if cell + 1 < models.len() {
            bare.run(&answers::cell(cell)).await?;
        }
    }
    Ok(())
}

/// Two calls of a fresh session, once the proxy has as many spares as it should; then the session is deleted.
async fn session_calls(
    proxy: &Proxy,
    spares: u64,
    (plan, session): (Plan, &str),
    into: &mut Calls,
) -> Result<()> {
    let address = proxy.address;
    let mut peer = Peer::connect(address).await?;
    at_rest(&mut peer, address, spares).await?;
    let request = requests::code(address, plan, session);
    for into in [&mut into.first, &mut into.next] {
        let started = Instant::now();
        let answer = send(&mut peer, &request).await?;
        into.add(started.elapsed());
        ensure!(
            memmem::find(&answer, br#""status":"ok""#).is_some(),
            "a cell went wrong: {}",
            String::from_utf8_lossy(&answer)
                .chars()
                .take(1000)
                .collect::<String>()
        );
    }
    let path = format!("/v1/sessions/{session}");
    send(&mut peer, &requests::bare(address, "DELETE", &path)).await?;
    Ok(())
}

/// Waits until the spares are ready and no other interpreter is there.
async fn at_rest(peer: &mut Peer, address: SocketAddr, spares: u64) -> Result<()> {
    let request = requests::bare(address, "GET", "/readyz");
    let deadline = Instant::now() + POOL_LIMIT;
    loop {
        let ready: Value = serde_json::from_slice(&send(peer, &request).await?)?;
        let code = &ready["code_execution"];
        if code["workers"] == spares && code["spares"] == spares {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the interpreters did not come to rest: {code}"
        );
        sleep(POLL).await;
    }
}

/// Sends a request and reads the answer.
async fn send(peer: &mut Peer, request: &[u8]) -> Result<Vec<u8>> {
    peer.send(request).await?;
    let length = peer.head().await?.context("the connection was closed")?;
    let status = peer.status();
    let body = peer.whole(length).await?.to_vec();
    ensure!(
        status == 200,
        "status {status}: {}",
        String::from_utf8_lossy(&body)
            .chars()
            .take(300)
            .collect::<String>()
    );
    Ok(body)
}
