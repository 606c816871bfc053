//! loopwright is an OpenAI-compatible HTTP proxy that finishes the tool loop. A client talks to it as to any OpenAI
//! endpoint; it talks to any OpenAI-compatible model server, and when the model asks for a tool that the server owns
//! it runs the tool, feeds the result back and goes on until the model has an answer.
//!
//! # Life of a chat request
//!
//! `http::server` accepts the connection. `http::edge` gives the request an id and finds out who asks; what its route is says
//! `http::routes`. The route leads to `http::chat`, which reads the body. `chat::decode` makes an `agent::draft::TurnDraft` of
//! it, which is data alone. `agent::admit` adds the defaults, chooses tools and upstreams, and says what becomes of the draft:
//!
//! - **Pass-through.** No server-side tool and no extension is involved: `http::forward` sends the very bytes to an
//!   upstream and streams the very bytes back.
//! - **Turn.** `runs` starts a task that drives an `agent::driver::Run`. The response body reads the lines of that task. The
//!   run finds, locks and merges the conversation (`session::merge`), repairs it (`session::repair`) and asks
//!   `agent::machine` what to do: call the model (`upstream`, whose client decodes every server's dialect into
//!   `openai::event::ModelEvent`s), run a batch of tools (`tools::batch`), or end. Each finished round is written to the
//!   `store`. What happens comes out as a stream of `agent::event::AgentEvent`s, which the encoder of the request's dialect
//!   (`dialects::answer`) turns into chunks, into items, or into one answer.
//!
//! # Map: the members of the workspace, in reading order
//!
//! | member | owns |
//! |---|---|
//! | `protocol` | identifiers, the wire vocabulary of OpenAI, event streams, media types |
//! | `net` | outgoing HTTP, requests from one replica to another, polling of futures whose parts wake each other |
//! | `quota` | sharing what is scarce among owners |
//! | `blobs` | the bytes of files, in a directory or in object storage, and texts in parts over them |
//! | `policy` | permission rules, policy servers that are asked, secrets that are hidden |
//! | `sandbox` | code execution: the launcher, isolation, interpreters, working files; processes that only compute |
//! | `web` | search and pages: providers, the guarded client, the reader, ranking within a budget |
//! | `store` | what is kept: sessions, rows of files, leases, turns that wait for their client; SQLite, PostgreSQL |
//! | `upstream` | model servers: what each is, dialects, quirks, time-outs, retries, fail-over, the model list |
//! | `tools` | server-side tools: webhooks, code execution, argument repair, schemas, the gate, batches, result caps |
//! | `agent` | the loop, with conversations, running turns, metrics and traces |
//! | `server` | dialects, the HTTP edge, the console, settings, wiring, commands |
//!
//! A member is a folder below `src`, with its manifest and its `lib.rs`, whose documentation says what its modules own. This
//! file reads arguments and settings, starts logging, serves until a signal, and turns failures into exit statuses.
//!
//! # Invariants
//!
//! - **One loop.** `agent::driver` is the only loop over model calls; both forms of answer are encoders over its events.
//! - **Decisions do not await.** `agent::machine` and the rules that it asks, `agent::policy`, have no I/O, no clock and no
//!   randomness. Whether a single call runs is asked at one place, `tools::gate`, before the tool's clock starts.
//! - **A turn is a value.** Its state and its open batch can be stored with the session, which has the rest: another process
//!   goes on with it. A call of the model is one type in all its states: `agent::call`.
//! - **A turn belongs to the process.** Its task, which a tracker owns, keeps its own time whoever reads. The last reader
//!   that leaves aborts it unless it is to finish. An aborted turn stores what was done before it ends.
//! - **What can be left out of a build has a stand-in.** `tools/no_mcp.rs`, `http/no_mcp.rs`, `traces/no_otlp.rs` and
//!   `blobs/no_bucket.rs` stand for the modules of the features `mcp`, `otlp` and `s3`. Besides, only `config`, `demo` and `main`
//!   know of them.
//! - **A failed tool is news for the model.** Only `http::error` chooses a status.
//! - **Imports point one way.** Between members their manifests say so. For the modules of a member, and for axum, reqwest,
//!   child processes and the environment, `tests/integration/architecture.rs` holds the tables.

use std::ffi::c_long;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use agent::session::backup::BackupError;
use anyhow::Context;
use libmimalloc_sys::{mi_option_set_default, mi_option_t};
use sandbox::{SandboxError, launcher};
use server::app::{App, AppError, connect};
use server::commands::approvals;
use server::commands::copies;
use server::commands::demo;
use server::commands::health;
use server::commands::launch::{self, Launched};
use server::commands::manual;
use server::config::cli::{
    ApprovalsArguments, BackupArguments, CheckFlags, Cli, Command, CopyArguments, DemoFlags,
    HealthArguments, LaunchArguments, ServeFlags, StoreCommand,
};
use server::config::{
    ApprovalsConfig, BackupConfig, Config, ConfigError, CopyConfig, DemoConfig, HealthConfig,
    LaunchConfig, TEMPLATE,
};
use server::http::openapi;
use server::shutdown::{SignalRequest, Signals};
use server::telemetry::{self, Format, json_line};
use store::{CopyError, StoreError};
#[cfg(feature = "mcp")]
use tools::mcp;

/// Measured: fewer CPU seconds per request than the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Milliseconds after which the allocator returns freed memory to the system. With its own second, the buffers of a turn
/// with large results stay resident besides those that are in use.
const PURGE_DELAY_MS: c_long = 10;
/// `mi_option_purge_delay`, which the bindings do not name.
const PURGE_DELAY: mi_option_t = 15;

/// Number of the exit status of a configuration error.
const CONFIGURATION_ERROR: u8 = 2;

/// How long the threads of the runtime have to end. Then they are left.
const RUNTIME_LIMIT: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    // Before anything else: these processes must have one thread, and need no settings.
    match std::env::args_os().nth(1) {
        Some(first) if first == launcher::ARGUMENT => return launcher::main(),
        Some(first) if first == web::PAGE_PARSER => return web::page_parser_main(),
        #[cfg(feature = "mcp")]
        Some(first) if first == mcp::MCP_GUARD => return mcp::guard_main(),
        #[cfg(feature = "mcp")]
        Some(first) if first == mcp::MCP_EXEC => return mcp::exec_main(),
        Some(first) if first == demo::MCP_SERVER => return demo::mcp_server_main(),
        Some(_) | None => {}
    }
    return_memory_early();
    let command = Cli::from_process().into_command();
    let format = command.log_format(&environment);
    let result = match command {
        Command::Manual { subject } => return print_manual(subject.as_deref()),
        Command::Openapi => return print(&format!("{:#}\n", openapi::document())),
        Command::Health(arguments) => return ask_health(&arguments),
        Command::Launch(arguments) => match launch(&arguments) {
            Ok(status) => return status,
            Err(error) => Err(error),
        },
        Command::Serve(flags) => serve(&flags),
        Command::Demo(flags) => show(&flags),
        Command::CheckConfig(flags) => check(&flags),
        Command::Store(StoreCommand::Backup(arguments)) => back_up_store(&arguments),
        Command::Store(StoreCommand::Copy(arguments)) => copy_store(&arguments),
        Command::Approvals(arguments) => decide(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = match telemetry::format().unwrap_or(format) {
                Format::Text => format!("loopwright: {error:#}"),
                Format::Json => json_line("ERROR", &format!("{error:#}"), &[]),
            };
            let _stderr_may_be_closed = writeln!(std::io::stderr(), "{line}");
            if is_configuration_error(&error) {
                ExitCode::from(CONFIGURATION_ERROR)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Sets how soon the allocator returns freed memory to the system, unless the environment says so.
#[expect(
    unsafe_code,
    reason = "the allocator has no safe interface for its options"
)]
fn return_memory_early() {
    // SAFETY: the function only stores a number in the table of options, atomically.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}

/// Whether the settings are at fault. A Python interpreter that does not exist counts as a missing file, and the store of a
/// newer binary as a wrong setting.
fn is_configuration_error(error: &anyhow::Error) -> bool {
    if let Some(
        CopyError::Source(StoreError::NewerSchema { .. })
        | CopyError::Target(StoreError::NewerSchema { .. }),
    ) = error.downcast_ref()
    {
        return true;
    }
    if let Some(BackupError::Store(StoreError::NewerSchema { .. })) = error.downcast_ref() {
        return true;
    }
    match error.downcast_ref::<AppError>() {
        Some(
            AppError::Sandbox(SandboxError::NoPython(_))
            | AppError::Store {
                source: StoreError::NewerSchema { .. },
                ..
            },
        ) => true,
        Some(_) | None => error.is::<ConfigError>(),
    }
}

/// Reads the settings, and notes variables that look like some.
fn load(flags: &ServeFlags) -> Result<Config, ConfigError> {
    let mut config = Config::load(flags, &environment)?;
    config.note_unknown_variables(&variables());
    Ok(config)
}

fn serve(flags: &ServeFlags) -> anyhow::Result<()> {
    let config = load(flags)?;
    telemetry::init(&config.log)?;
    config
        .notices
        .iter()
        .for_each(|notice| tracing::warn!("{notice}"));
    let format = config.log.format;
    run_to_end(async {
        let mut signals = signals().context("cannot listen for signals")?;
        let app = tokio::select! {
            app = App::build(config) => app?,
            signal = signals.wait() => {
                tracing::info!(signal, "stopping before the server was ready");
                return Ok(());
            }
        };
        if let Err(error) = app.check_page_parser().await {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::warn!(%error, cause, "pages cannot be read; a search gives its provider's summaries only");
        }
        announce(format, app.address(), app.console().as_deref());
        let reloader = app.reloader();
        app.run(async {
            let signal = loop {
                match signals.next().await {
                    SignalRequest::Stop(signal) => break signal,
                    SignalRequest::Reload => reloader.reload(Config::load(flags, &environment)),
                }
            };
            tracing::info!(signal, "stopping");
        })
        .await?;
        Ok(())
    })
}

/// The signals of a server. One that was started in a terminal ends with it, as SIGHUP then says that the terminal is closed.
fn signals() -> std::io::Result<Signals> {
    let signals = Signals::listen()?;
    match std::io::stdin().is_terminal() {
        true => Ok(signals),
        false => signals.with_reload(),
    }
}

fn show(flags: &DemoFlags) -> anyhow::Result<()> {
    let config = DemoConfig::load(flags, &environment)?;
    telemetry::init(&config.log)?;
    let format = config.log.format;
    run_to_end(async {
        let mut signals = Signals::listen().context("cannot listen for signals")?;
        let demo = demo::Demo::build(&config).await?;
        announce(format, demo.address(), None);
        let mut out = std::io::stdout();
        let stop = async {
            let signal = signals.wait().await;
            tracing::info!(signal, "stopping");
        };
        demo.run(&mut out, Box::pin(stop)).await
    })
}

fn check(flags: &CheckFlags) -> anyhow::Result<()> {
    if flags.template {
        return Ok(std::io::stdout().write_all(TEMPLATE.as_bytes())?);
    }
    let config = load(&flags.serve)?;
    let text = match flags.all {
        true => config.summary(),
        false => config.set_values(),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    match flags.connect {
        true => run_to_end(try_connections(config)),
        false => Ok(()),
    }
}

/// Tries all that the settings name, and prints what came of it.
async fn try_connections(config: Config) -> anyhow::Result<()> {
    let tried = connect::try_all(config).await?;
    std::io::stdout().write_all(tried.text.as_bytes())?;
    match tried.down.is_empty() {
        true => Ok(()),
        false => anyhow::bail!("cannot be used as configured: {}", tried.down.join(", ")),
    }
}

/// Backs up a store, and prints what the backup has.
fn back_up_store(arguments: &BackupArguments) -> anyhow::Result<()> {
    let config = BackupConfig::load(arguments, &environment)?;
    run_to_end(async {
        Ok(std::io::stdout().write_all(copies::back_up(&config).await?.as_bytes())?)
    })
}

/// Copies a store, and prints what it has copied.
fn copy_store(arguments: &CopyArguments) -> anyhow::Result<()> {
    let config = CopyConfig::load(arguments, &environment)?;
    run_to_end(async { Ok(std::io::stdout().write_all(copies::copy(&config).await?.as_bytes())?) })
}

/// Shows what waits for a person on a running server, or decides.
fn decide(arguments: &ApprovalsArguments) -> anyhow::Result<()> {
    let config = ApprovalsConfig::load(arguments, &environment)?;
    run_to_end(async {
        let _printed = print(&approvals::run(&config).await?);
        Ok(())
    })
}

/// Asks a server how it is. Every failure is the status 1, as callers such as Docker know no other.
fn ask_health(arguments: &HealthArguments) -> ExitCode {
    let asked = HealthConfig::load(arguments, &environment).map_err(anyhow::Error::from);
    let asked = asked.and_then(|config| run_to_end(async { Ok(health::check(&config).await?) }));
    match asked {
        Ok(line) => print(&line),
        Err(error) => {
            let _stderr_may_be_closed = writeln!(std::io::stderr(), "loopwright: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a coding agent; returns its exit status.
fn launch(arguments: &LaunchArguments) -> anyhow::Result<ExitCode> {
    let names = variables().into_iter().map(|(name, _)| name).collect();
    let config = LaunchConfig::load(arguments, &environment, names)?;
    run_to_end(async {
        Ok(match launch::run(&config).await? {
            Launched::Shown(text) => print(&text),
            Launched::Ended(status) => ExitCode::from(status),
        })
    })
}

/// Prints a page of the manual, or the list of its subjects.
fn print_manual(subject: Option<&str>) -> ExitCode {
    match (subject, subject.and_then(manual::page)) {
        (Some(unknown), None) => {
            let list = manual::subjects();
            let text = format!("loopwright: the manual has no page '{unknown}'; {list}");
            let _stderr_may_be_closed = std::io::stderr().write_all(text.as_bytes());
            ExitCode::from(CONFIGURATION_ERROR)
        }
        (_, page) => print(&page.map_or_else(manual::subjects, |page| page.text.to_owned())),
    }
}

/// Prints a text to standard output.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    // A reader that has seen enough closes the pipe.
    let _stdout_may_be_closed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ExitCode::SUCCESS
}

/// Says that connections are accepted, and where the console is if it is served.
fn announce(format: Format, address: SocketAddr, console: Option<&str>) {
    let url = format!("http://{address}");
    let line = match format {
        Format::Text => {
            let console = console.map(|url| format!("\nconsole: {url}"));
            format!("loopwright ready on {url}{}", console.unwrap_or_default())
        }
        Format::Json => {
            let console = console.map(|url| ("console", url));
            let fields: Vec<_> = std::iter::once(("url", &*url)).chain(console).collect();
            json_line("INFO", "ready", &fields)
        }
    };
    let _stderr_may_be_closed = writeln!(std::io::stderr(), "{line}");
}

/// Runs a future on a new runtime. Threads that are stuck in a system call do not delay the return.
fn run_to_end<T>(whole: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(whole);
    runtime.shutdown_timeout(RUNTIME_LIMIT);
    result
}

/// All environment variables, by name and value.
fn variables() -> Vec<(String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// The one place where a variable is read.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the function that Config::load is given"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
