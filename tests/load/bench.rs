//! The load test: what loopwright costs beside a direct connection and beside nginx as a plain reverse proxy.
//!
//! `cargo bench --bench load -- [--quick] [--only NAME] [--json]` prints every figure in one run, ends by itself and
//! stays on the loopback interface. The scripted upstream and the load generator run in this process, one thread each;
//! the proxies are its children. Everything is measured twice: with all processes placed by the scheduler, and with all
//! of them on one core, where the scheduler's choices are out of the figure.

#![expect(clippy::print_stdout, reason = "the report is the result")]
#![expect(clippy::print_stderr, reason = "progress goes beside the report")]

mod aims;
mod answers;
mod args;
mod code;
mod database;
mod earlier;
mod figures;
mod generator;
mod growth;
mod interpreter;
mod mcp;
mod measure;
mod memory;
mod neighbours;
mod process;
mod proxies;
mod report;
mod requests;
mod rounds;
mod scenarios;
mod script;
mod soak;
mod tables;
mod web;
mod wire;

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    args::{Args, Scenario},
    code::CodeBench,
    database::Databases,
    earlier::Earlier,
    mcp::McpBench,
    measure::Pace,
    neighbours::NeighbourBench,
    proxies::{Effect, Launcher, Proxy, Role, Store},
    report::Report,
    scenarios::{Bench, Fleet},
    script::Script,
    tables::{
        LOOP, LOOP_POSTGRES, LOOP_SQLITE, NGINX, PASS, STORED_FIRST, STORED_FIRST_POSTGRES,
        STORED_FIRST_SQLITE,
    },
    web::WebBench,
};

const FULL: Pace = Pace {
    slices: 3,
    length: Duration::from_millis(400),
};

const QUICK: Pace = Pace {
    slices: 1,
    length: Duration::from_millis(130),
};

/// Streams that are held open at once.
const OPEN_STREAMS: usize = 1000;

/// Runs at one time, and sessions that are stored, for the growth of costs.
const HELD_RUNS: usize = 5000;
const STORED_SESSIONS: usize = 10_000;
const STORED_SESSIONS_QUICK: usize = 1000;

/// Requests per second of the scenario with a fixed rate, and of the soak: about half of what two cores carry with everything on them.
const FIXED_RATE: u32 = 10_000;
const SOAK_RATE: u32 = 400;

/// Each proxy on a core of its own, apart from the generator and the upstream.
const APART: &str = "apart";
/// All on one core.
const ONE: &str = "one";

/// Files that this process needs beside two for each stream.
const SPARE_FILES: usize = 200;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(mcp::ECHO_SERVER) {
        return mcp::echo_main().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    // `cargo test --benches` runs benchmarks too, to see that they start; only `cargo bench` passes this flag.
    if !std::env::args().any(|argument| argument == "--bench") {
        println!("the load test runs with `cargo bench --bench load`");
        return ExitCode::SUCCESS;
    }
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting the runtime of the load generator")?;
    let report = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // Leaving early drops the proxies, which ends them.
        tokio::select! {
            report = Box::pin(measure_all(args)) => report,
            _ = terminate.recv() => bail!("terminated"),
            _ = interrupt.recv() => bail!("interrupted"),
        }
    })?;
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    ensure!(report.failures.is_empty(), "{}", report.failures.join("; "));
    Ok(())
}

async fn measure_all(args: &Args) -> Result<Report> {
    let files = process::ensure_files(2 * HELD_RUNS + SPARE_FILES);
    let earlier = args.against.as_deref().map(Earlier::read).transpose()?;
    let script = Script::start()?;
    let directory = tempfile::tempdir().context("creating a temporary directory")?;
    let mut launcher = Launcher {
        loopwright: args
            .loopwright
            .canonicalize()
            .with_context(|| format!("finding {}", args.loopwright.display()))?,
        arguments: args.proxy_arg.clone(),
        nginx: args.nginx.clone(),
        upstream: script.address,
        directory: directory.path().to_owned(),
        cpu: None,
        databases: Databases::default(),
    };
    let mut report = Report::default();
    report.earlier = earlier;
    describe(args, &launcher, &mut report);
    let allowed = process::allowed_cpus()?;
    for placement in placements(&allowed, &mut report) {
        if let Err(error) = process::pin_self(&placement.own)
            && placement.proxies.is_some()
        {
            report.remark(format!("cores, {}: {error:#}", placement.name));
            continue;
        }
        launcher.cpu.clone_from(&placement.proxies);
        measure_placement(args, &script, &launcher, placement.name, &mut report).await;
    }
    launcher.cpu = None;
    process::pin_self(&allowed).ok();
    let room = files.saturating_sub(SPARE_FILES) / 2;
    if args.wants(Scenario::Growth) {
        let (pace, sessions) = if args.quick {
            (QUICK, STORED_SESSIONS_QUICK)
        } else {
            (FULL, STORED_SESSIONS)
        };
        eprintln!("load: growth of the store");
        growth::store(&launcher, pace, sessions, &mut report).await;
        eprintln!("load: held runs");
        growth::held_runs(&launcher, HELD_RUNS.min(room), &mut report).await;
    }
    if args.wants(Scenario::Memory) {
        let streams = OPEN_STREAMS.min(room);
        if streams < OPEN_STREAMS {
            report.remark(format!(
                "{OPEN_STREAMS} open streams: only {files} open files are allowed (`ulimit -n`), so {streams} were opened"
            ));
        }
        eprintln!("load: memory of open streams");
        memory::open_streams(&launcher, streams, &mut report).await;
    }
    if args.wants(Scenario::Soak) {
        eprintln!("load: soak of {} minutes", args.minutes);
        let load = (args.minutes, args.rate.unwrap_or(SOAK_RATE));
        soak::run(&launcher, &script, load, &mut report).await;
    }
    aims::judge(&mut report);
    Ok(report)
}

/// Where the processes run.
#[derive(Debug)]
struct Placement {
    name: &'static str,
    /// The CPUs of this process.
    own: String,
    /// The CPU of the proxies, if they are bound to one.
    proxies: Option<String>,
}

fn placements(allowed: &str, report: &mut Report) -> Vec<Placement> {
    let cpus = process::cpu_numbers(allowed);
    let placement = |name, own: &str, proxies: Option<&String>| Placement {
        name,
        own: own.to_owned(),
        proxies: proxies.cloned(),
    };
    let mut all = vec![placement("any", allowed, None)];
    if let Some(first) = cpus.first() {
        all.push(placement(ONE, first, Some(first)));
    }
    match cpus.as_slice() {
        [first, second, ..] => all.push(placement(APART, first, Some(second))),
        _ => report.remark("a fixed rate: the proxy has no core of its own here".to_owned()),
    }
    all
}

async fn measure_placement(
    args: &Args,
    script: &Script,
    launcher: &Launcher,
    placement: &'static str,
    report: &mut Report,
) {
    let mut bench = Bench {
        script,
        fleet: Fleet::default(),
        pace: if args.quick { QUICK } else { FULL },
        placement,
    };
    let repeats = |full| if args.quick { 3 } else { full };
    let here = |scenario: &&Scenario| match scenario {
        Scenario::FixedRate => placement == APART,
        Scenario::Growth => placement == ONE,
        // Measured once, without a placement.
        Scenario::Memory | Scenario::Soak => false,
        _ => placement != APART,
    };
    let all = Scenario::value_variants().iter().filter(here);
    let all: Vec<Scenario> = all.copied().filter(|it| args.wants(*it)).collect();
    bench.fleet = fleet(args, &all, launcher, report).await;
    for scenario in all {
        eprintln!("load: {}, cores: {placement}", scenario.what());
        match scenario {
            Scenario::PassThrough => bench.pass_through(report).await,
            Scenario::FixedRate => {
                let rate = args.rate.unwrap_or(FIXED_RATE);
                bench.fixed_rate(rate, report).await;
            }
            Scenario::FirstToken => bench.first_token(report).await,
            Scenario::ShortStream => bench.short_stream(report).await,
            Scenario::Chunks => bench.chunks(report).await,
            Scenario::Loop => bench.tool_loop(report).await,
            Scenario::Code => {
                let bench = CodeBench {
                    launcher,
                    python: &args.code_python,
                    pace: bench.pace,
                    repeats: repeats(12),
                    placement,
                };
                bench.run(report).await;
            }
            Scenario::Web => {
                let bench = WebBench {
                    program: &launcher.loopwright,
                    repeats: repeats(9),
                    placement,
                };
                bench.run(report).await;
            }
            Scenario::Mcp => {
                let bench = McpBench {
                    program: &launcher.loopwright,
                    directory: &launcher.directory,
                    calls: if args.quick { 100 } else { 1000 },
                    placement,
                };
                bench.run(report).await;
            }
            Scenario::Neighbours => {
                let bench = NeighbourBench {
                    launcher,
                    pace: bench.pace,
                    placement,
                };
                bench.run(report).await;
            }
            Scenario::Growth => bench.growth(report).await,
            Scenario::Memory | Scenario::Soak => {}
        }
    }
}

/// Starts the proxies that the scenarios need. One that does not start is remarked upon and left out.
async fn fleet(
    args: &Args,
    scenarios: &[Scenario],
    launcher: &Launcher,
    report: &mut Report,
) -> Fleet {
    use Scenario::{Chunks, FirstToken, FixedRate, Growth, Loop, PassThrough, ShortStream};
    let any = |all: &[Scenario]| all.iter().any(|one| scenarios.contains(one));
    let passing = any(&[PassThrough, FixedRate, FirstToken, ShortStream, Chunks]);
    let mut keep = |name: &str, started: Result<Proxy>| {
        started
            .map_err(|error| report.remark(format!("{name}: {error:#}")))
            .ok()
    };
    let mut fleet = Fleet::default();
    if passing && launcher.nginx_version().is_some() {
        fleet.nginx = keep(NGINX, launcher.nginx().await);
    }
    if passing {
        fleet.pass = keep(PASS, launcher.loopwright(Role::PassThrough).await);
    }
    for (name, store, effect) in [
        (LOOP, Store::Memory, Effect::Idempotent),
        (LOOP_SQLITE, Store::Sqlite, Effect::Idempotent),
        (LOOP_POSTGRES, Store::Postgres, Effect::Idempotent),
        (STORED_FIRST, Store::Memory, Effect::Once),
        (STORED_FIRST_SQLITE, Store::Sqlite, Effect::Once),
        (STORED_FIRST_POSTGRES, Store::Postgres, Effect::Once),
    ] {
        let needed = match (store, effect) {
            (Store::Postgres, _) | (_, Effect::Once) => any(&[Loop]),
            _ => any(&[Loop, FirstToken, ShortStream, Chunks, Growth]),
        };
        if needed && args.store.is_none_or(|only| only == store) {
            let started = launcher.loopwright(Role::Loop(store, effect)).await;
            fleet.loops.extend(keep(name, started).map(|it| (name, it)));
        }
    }
    fleet
}

fn describe(args: &Args, launcher: &Launcher, report: &mut Report) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model
        .unwrap_or("unknown CPU")
        .trim_start_matches(['\t', ':', ' '])
        .to_owned();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = read("/proc/loadavg");
    let busy = busy.split(' ').next().unwrap_or("?").to_owned();
    let nginx = launcher.nginx_version();
    if nginx.is_none() {
        report.remark("nginx: it is not installed".to_owned());
    }
    report.context = vec![
        format!("loopwright load test{}", if args.quick { ", quick: rough figures" } else { "" }),
        format!("{cores} cores, {model}; load average before: {busy}"),
        format!("{}, profile: {}", args.loopwright.display(), profile(args)),
        format!(
            "nginx {}: one process, keep-alive to the upstream, proxy_buffering off, no access log",
            nginx.as_deref().unwrap_or("not installed")
        ),
        "cores: any = wherever the scheduler puts them, one = generator, upstream and proxy on the same core, apart = the proxy on another".to_owned(),
        "direct = the generator talks to the scripted upstream; ÷direct, ÷nginx = this row's figure over that one's".to_owned(),
    ];
}

/// The build profile of the measured binary, as far as it shows.
fn profile(args: &Args) -> String {
    let built_here = args.loopwright.as_os_str() == env!("CARGO_BIN_EXE_loopwright");
    if built_here && cfg!(debug_assertions) {
        "dev, which is not what is deployed".to_owned()
    } else if built_here {
        "bench, with the settings of release, which is deployed".to_owned()
    } else {
        let folder = args.loopwright.parent().and_then(|it| it.file_name());
        let folder = folder.unwrap_or_default().to_string_lossy();
        match folder.as_ref() {
            "release" => "release, which is deployed".to_owned(),
            "quick" | "debug" => format!("{folder}, by its folder; release is deployed"),
            _ => "unknown; release is deployed".to_owned(),
        }
    }
}
