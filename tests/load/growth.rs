//! How costs grow: with the rounds of a turn, the length of its history, the size of the store and the runs at one time.

use std::{path::Path, sync::Arc, time::Instant};

use anyhow::{Context, Result, ensure};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    answers::LAST_WORDS,
    figures::{micros, ratio},
    generator::{self, Timing, Work},
    measure::Pace,
    proxies::{Effect, Launcher, Proxy, Role, Store},
    report::Report,
    requests::{self, Dialect, Tools},
    rounds::Load,
    scenarios::Bench,
    script::Plan,
    tables::{DIRECT, HELD_RUNS, ROUND_GROWTH, STORE_GROWTH},
    wire::Peer,
};

/// Numbers of rounds, and lengths of history in messages of 1 KB: 1,000, 10,000 and 100,000 tokens.
const ROUND_COUNTS: [usize; 3] = [1, 10, 100];
const HISTORIES: [usize; 3] = [4, 40, 400];

/// Rounds at each length: so many that the difference to a single one stands out from what a long history costs once.
const HISTORY_ROUNDS: usize = 25;

/// Messages of 1 KB in each session of the store, and in the one whose turns are measured.
const STORED_MESSAGES: usize = 22;
const OWN_MESSAGES: usize = 20;

/// Connections that fill the store.
const FILLING: usize = 8;

/// Tokens of a held run, half a second apart.
const HELD_TOKENS: usize = 24;

impl Bench<'_> {
    /// A round at growing numbers of rounds and lengths of history.
    pub(crate) async fn growth(&self, report: &mut Report) {
        let rounds = ROUND_COUNTS.map(|many| Load {
            many,
            few: 0,
            history: 0,
        });
        let histories = HISTORIES.map(|history| Load {
            many: HISTORY_ROUNDS,
            few: 1,
            history,
        });
        for loads in [rounds, histories] {
            let mut shortest: Vec<(&str, [Option<f64>; 2])> = Vec::new();
            for load in loads {
                let rows = self.rounds(load, 1, report).await;
                for row in &rows {
                    let own = if row.name == DIRECT {
                        row.slope(|it| it.median)
                    } else {
                        row.own(rows.first())
                    };
                    let costs = [own, row.cpu()];
                    let known = shortest.iter().find(|(name, _)| *name == row.name);
                    let [first_own, first_cpu] = known.map_or(costs, |(_, costs)| *costs);
                    if known.is_none() {
                        shortest.push((row.name, costs));
                    }
                    let labels = [load.many.to_string(), (load.history * 256).to_string()];
                    let [rounds, tokens] = &labels;
                    report.row(
                        &ROUND_GROWTH,
                        &[self.placement, rounds, tokens, row.name],
                        &[
                            own.map(micros),
                            row.cpu().map(micros),
                            ratio(own, first_own),
                            ratio(row.cpu(), first_cpu),
                        ],
                    );
                }
            }
        }
    }
}

/// A turn of one round in an empty store and in one with so many sessions.
pub(crate) async fn store(launcher: &Launcher, pace: Pace, sessions: usize, report: &mut Report) {
    if let Err(error) = measure_store(launcher, pace, sessions, report).await {
        report.fail(format!("the growth of the store: {error:#}"));
    }
}

async fn measure_store(
    launcher: &Launcher,
    pace: Pace,
    sessions: usize,
    report: &mut Report,
) -> Result<()> {
    let role = Role::Loop(Store::Sqlite, Effect::Idempotent);
    let empty = launcher.loopwright(role).await?;
    let full = launcher.loopwright(role).await?;
    fill(&full, sessions).await?;
    let [idle, stored] = [&empty, &full].map(|proxy| disk_mib(&proxy.directory));
    for (what, session) in [
        ("of a new session", None),
        ("of a known session", Some("own")),
    ] {
        // Slices alternate, so that whatever else the machine is doing falls on both.
        let mut slices = [Vec::new(), Vec::new()];
        for _ in 0..pace.slices {
            for (proxy, slices) in [&empty, &full].into_iter().zip(&mut slices) {
                let address = proxy.address;
                let plan = Plan::Rounds(1);
                let request = match session {
                    None => requests::plain(address, plan, Tools::Lookup, 0),
                    Some(session) => requests::replayed(address, plan, OWN_MESSAGES, session),
                };
                let work = Work::single(request, Timing::Whole, LAST_WORDS);
                let load = (1, pace.length * 2);
                let slice = generator::slice(address, &work, load, || proxy.cpu_time());
                slices.push(slice.await?);
            }
        }
        let [before, after] = slices.map(|slices| crate::measure::middle(&slices));
        let (before, after) = (before?, after?);
        for (sessions, size, slice) in [(0, idle, before), (sessions, stored, after)] {
            report.row(
                &STORE_GROWTH,
                &[what, &sessions.to_string()],
                &[
                    Some(size),
                    Some(micros(slice.median)),
                    Some(micros(slice.cpu)),
                    ratio(Some(slice.median), Some(before.median)),
                    ratio(Some(slice.cpu), Some(before.cpu)),
                ],
            );
        }
    }
    Ok(())
}

/// Imports so many sessions.
async fn fill(proxy: &Proxy, sessions: usize) -> Result<()> {
    let address = proxy.address;
    let mut filling = JoinSet::new();
    for first in 0..FILLING {
        filling.spawn(async move {
            let mut peer = Peer::connect(address).await?;
            for number in (first..sessions).step_by(FILLING) {
                let session = format!("stored-{number}");
                let request = requests::import(address, &session, STORED_MESSAGES);
                peer.send(&request).await?;
                let length = peer.head().await?.context("the connection was closed")?;
                let status = peer.status();
                let answer = String::from_utf8_lossy(peer.whole(length).await?);
                ensure!(status == 201, "an import: {status} {answer}");
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = filling.join_next().await {
        done??;
    }
    Ok(())
}

fn disk_mib(directory: &Path) -> f64 {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let bytes: u64 = files
        .filter_map(|file| file.metadata().ok())
        .map(|it| it.len())
        .sum();
    bytes as f64 / f64::from(1 << 20)
}

/// So many runs at one time, each of which is to come to its end.
pub(crate) async fn held_runs(launcher: &Launcher, runs: usize, report: &mut Report) {
    if let Err(error) = measure_held(launcher, runs, report).await {
        report.fail(format!("{runs} held runs: {error:#}"));
    }
}

async fn measure_held(launcher: &Launcher, runs: usize, report: &mut Report) -> Result<()> {
    let role = Role::Loop(Store::Sqlite, Effect::Idempotent);
    let proxy = launcher.loopwright(role).await?;
    let idle = proxy.memory_kib()?;
    let asked = (Dialect::Chat, Tools::Lookup);
    let request = requests::stream(proxy.address, Plan::Open(HELD_TOKENS), asked);
    let request: Arc<[u8]> = request.into();
    let began = Instant::now();
    let mut held = generator::open(proxy.address, &request, runs).await?;
    let opened = began.elapsed().as_secs_f64();
    let open = proxy.memory_kib()?;
    let mut broken = 0.0;
    let all = async {
        while let Some(ended) = held.join_next().await {
            if !ended? {
                broken += 1.0;
            }
        }
        anyhow::Ok(())
    };
    timeout(generator::HOLD_LIMIT, all)
        .await
        .context("the runs do not end")??;
    ensure!(broken == 0.0, "{broken} of them ended early");
    report.row(
        &HELD_RUNS,
        &[&runs.to_string()],
        &[
            Some(opened),
            Some(began.elapsed().as_secs_f64()),
            Some(broken),
            Some((open - idle) / runs as f64),
        ],
    );
    Ok(())
}
