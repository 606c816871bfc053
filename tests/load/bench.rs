//! The load test: what loopwright costs beside a direct connection and beside nginx as a plain reverse proxy.
//!
//! `cargo bench --bench load -- [--quick] [--only NAME] [--json]` prints every figure in one run, ends by itself and
//! stays on the loopback interface. The scripted upstream and the load generator run in this process, one thread each;
//! the proxies are its children. Everything is measured twice: with all processes placed by the scheduler, and with all
//! of them on one core, where the scheduler's choices are out of the figure.

#![expect(clippy::print_stdout, reason = "the report is the result")]
#![expect(clippy::print_stderr, reason = "progress goes beside the report")]

mod answers;
mod code;
mod figures;
mod generator;
mod interpreter;
mod measure;
mod memory;
mod neighbours;
mod process;
mod proxies;
mod report;
mod requests;
mod scenarios;
mod script;
mod tables;
mod web;
mod wire;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    code::CodeBench,
    measure::Pace,
    neighbours::NeighbourBench,
    proxies::{Launcher, Proxy, Role},
    report::{Report, Table},
    scenarios::{Bench, Fleet},
    script::Script,
    tables::{LOOP, LOOP_SQLITE, NGINX, PASS, tables},
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

/// Files that this process needs beside two for each stream.
const SPARE_FILES: usize = 200;

/// Measures loopwright beside a direct connection and nginx.
#[derive(Debug, Parser)]
struct Args {
    /// Short slices: rough figures in well under a minute.
    #[arg(long)]
    quick: bool,
    /// Only these scenarios.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    only: Vec<Scenario>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Where the sessions of the loop are stored.
    #[arg(long, value_enum, env = "LOAD_STORE", default_value = "both")]
    store: Store,
    /// The loopwright binary, if not the one just built.
    #[arg(long, env = "LOAD_LOOPWRIGHT", value_name = "PATH", default_value = env!("CARGO_BIN_EXE_loopwright"))]
    loopwright: PathBuf,
    /// A further argument for `loopwright serve`; may be repeated.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    proxy_arg: Vec<String>,
    /// The nginx program.
    #[arg(long, env = "LOAD_NGINX", value_name = "PATH", default_value = "nginx")]
    nginx: PathBuf,
    /// The Python of code execution; plots are measured where it has matplotlib.
    #[arg(
        long,
        env = "LOOPWRIGHT_TEST_CODE_PYTHON",
        value_name = "PATH",
        default_value = "python3"
    )]
    code_python: PathBuf,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scenario {
    PassThrough,
    Loop,
    History,
    FirstToken,
    Chunks,
    Code,
    Web,
    Neighbours,
    Memory,
}

impl Scenario {
    fn what(self) -> &'static str {
        match self {
            Self::PassThrough => "pass-through",
            Self::Loop => "loop",
            Self::History => "length of history",
            Self::FirstToken => "time to first token",
            Self::Chunks => "streamed chunks",
            Self::Code => "code",
            Self::Web => "web",
            Self::Neighbours => "neighbours",
            Self::Memory => "memory of open streams",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Store {
    Memory,
    Sqlite,
    Both,
}

fn main() -> ExitCode {
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
    Ok(())
}

async fn measure_all(args: &Args) -> Result<Report> {
    let files = process::ensure_files(2 * OPEN_STREAMS + SPARE_FILES);
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
    };
    let mut report = Report::default();
    describe(args, &launcher, &mut report);
    let mut all = tables();
    let all_cpus = process::allowed_cpus()?;
    let one_cpu = all_cpus.split(['-', ',']).next().unwrap_or("0").to_owned();
    let placements = [
        ("any", all_cpus.clone(), None),
        ("one", one_cpu.clone(), Some(one_cpu)),
    ];
    for (placement, cpus, cpu) in placements {
        if let Err(error) = process::pin_self(&cpus)
            && cpu.is_some()
        {
            report.remark(format!("everything on one core: {error:#}"));
            continue;
        }
        launcher.cpu = cpu;
        measure_placement(args, &script, &launcher, (placement, &mut all), &mut report).await;
    }
    launcher.cpu = None;
    process::pin_self(&all_cpus).ok();
    if let (true, Some(table)) = (wanted(args, Scenario::Memory), all.last_mut()) {
        let streams = OPEN_STREAMS.min(files.saturating_sub(SPARE_FILES) / 2);
        if streams < OPEN_STREAMS {
            report.remark(format!(
                "{OPEN_STREAMS} open streams: only {files} open files are allowed (`ulimit -n`), so {streams} were opened"
            ));
        }
        eprintln!("load: memory of open streams");
        memory::open_streams(&launcher, streams, table, &mut report).await;
    }
    report.tables = all;
    Ok(report)
}

async fn measure_placement(
    args: &Args,
    script: &Script,
    launcher: &Launcher,
    (placement, tables): (&'static str, &mut [Table]),
    report: &mut Report,
) {
    let bench = Bench {
        script,
        fleet: fleet(args, launcher, report).await,
        pace: if args.quick { QUICK } else { FULL },
        placement,
    };
    let [pass, tool_loop, history, first, chunks, code @ ..] = tables else {
        return;
    };
    let [cells, starts, calls, plots, web, neighbours, ..] = code else {
        return;
    };
    let repeats = |full| if args.quick { 3 } else { full };
    for scenario in Scenario::value_variants() {
        if !wanted(args, *scenario) || *scenario == Scenario::Memory {
            continue;
        }
        eprintln!("load: {}, cores: {placement}", scenario.what());
        match scenario {
            Scenario::PassThrough => bench.pass_through(pass, report).await,
            Scenario::FirstToken => bench.first_token(first, report).await,
            Scenario::Chunks => bench.chunks(chunks, report).await,
            Scenario::Loop => bench.tool_loop(tool_loop, report).await,
            Scenario::History => bench.history(history, report).await,
            Scenario::Code => {
                let bench = CodeBench {
                    launcher,
                    python: &args.code_python,
                    pace: bench.pace,
                    repeats: repeats(12),
                    placement,
                };
                bench.run([cells, starts, calls, plots], report).await;
            }
            Scenario::Web => {
                let bench = WebBench {
                    program: &launcher.loopwright,
                    repeats: repeats(9),
                    placement,
                };
                bench.run(web, report).await;
            }
            Scenario::Neighbours => {
                let bench = NeighbourBench {
                    launcher,
                    pace: bench.pace,
                    placement,
                };
                bench.run(neighbours, report).await;
            }
            // Measured once, without a placement.
            Scenario::Memory => {}
        }
    }
}

/// Starts the proxies that the wanted scenarios need. One that does not start is remarked upon and left out.
async fn fleet(args: &Args, launcher: &Launcher, report: &mut Report) -> Fleet {
    let any = |scenarios: &[Scenario]| scenarios.iter().any(|one| wanted(args, *one));
    let passing = any(&[
        Scenario::PassThrough,
        Scenario::FirstToken,
        Scenario::Chunks,
    ]);
    let streaming = any(&[Scenario::FirstToken, Scenario::Chunks]);
    let looping = any(&[Scenario::Loop, Scenario::History]);
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
    if streaming || (looping && args.store != Store::Sqlite) {
        fleet.memory = keep(LOOP, launcher.loopwright(Role::LoopInMemory).await);
    }
    if looping && args.store != Store::Memory {
        fleet.sqlite = keep(LOOP_SQLITE, launcher.loopwright(Role::LoopInSqlite).await);
    }
    fleet
}

fn wanted(args: &Args, scenario: Scenario) -> bool {
    args.only.is_empty() || args.only.contains(&scenario)
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
        format!(
            "nginx {}: one process, keep-alive to the upstream, proxy_buffering off, no access log",
            nginx.as_deref().unwrap_or("not installed")
        ),
        "cores: any = wherever the scheduler puts them, one = generator, upstream and proxy on the same core".to_owned(),
        "direct = the generator talks to the scripted upstream; ÷direct, ÷nginx = this row's figure over that one's".to_owned(),
    ];
}
