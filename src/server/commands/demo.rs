//! `loopwright demo`: runs loopwright without a model server and without keys.
//!
//! Starts a scripted model and a sample tool server on loopback ports, a real loopwright in front of them, sends a few
//! requests through its HTTP API, prints the rounds of each answer, and then keeps serving. Web search finds sample pages
//! that the sample tool server serves, and an MCP server is this binary, started again. Code execution and page reading are
//! included if this host can isolate them; otherwise one line says why not.

mod corpus;
mod mcp;
mod model;
mod script;
mod tool;
mod tour;

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::LocalBoxFuture;
use http::{HeaderMap, Method};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use self::mcp::{MCP_SERVER, mcp_server_main};
use self::script::Script;
use self::tool::SampleTool;
use self::tour::{Tour, TourPlace};
use crate::app::{App, AppError};
use crate::config::cli::ServeFlags;
use crate::config::{Config, ConfigError, DemoConfig};
use policy::rules::{Effect, RuleEntry, RuleSet};
use tools::settings::{EndpointSettings, HttpToolSettings};

/// Longest call of the sample tool.
const TOOL_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer of the sample tool, in bytes.
const TOOL_ANSWER_BYTES: usize = 64 * 1024;

/// A demo that is bound and ready to run.
#[derive(Debug)]
pub struct Demo {
    app: App,
    model: (TcpListener, axum::Router),
    tool: (TcpListener, axum::Router),
    tour: Tour,
    place: TourPlace,
    /// The directory of the files that the tour saves. It is deleted with the demo.
    _downloads: TempDir,
    _work_directory: Option<WorkDirectory>,
}

/// The directory of the saved working files. Dropping it deletes the directory, so it must be dropped after the server has
/// ended.
#[derive(Debug)]
struct WorkDirectory(PathBuf);

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // Without a sandbox there is no directory, and this fails.
        let _missing = fs::remove_dir_all(&self.0);
    }
}

impl Demo {
    /// Binds all ports and builds the server.
    ///
    /// # Errors
    /// When a port cannot be bound, or the recorded data cannot be read.
    pub fn build(settings: &DemoConfig) -> LocalBoxFuture<'_, anyhow::Result<Self>> {
        // Boxed here, as a future is compiled where it is polled: once in this library, not in the binary.
        Box::pin(Self::build_parts(settings))
    }

    async fn build_parts(settings: &DemoConfig) -> anyhow::Result<Self> {
        let model = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let model = model.context("cannot start the scripted model")?;
        let tool = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let tool = tool.context("cannot start the sample tool")?;
        let upstream = Url::parse(&format!("http://{}/v1", model.local_addr()?))?;
        let tools_url = Url::parse(&format!("http://{}/", tool.local_addr()?))?;
        let (tools, script) = (tool::load()?, Script::load(tools_url.as_str())?);
        let config = |enable_code_execution: bool| {
            let flags = ServeFlags {
                listen: Some(settings.listen.to_string()),
                upstream: Some(upstream.to_string()),
                session_store: Some("memory:".to_owned()),
                enable_code_execution: Some(enable_code_execution.to_string()),
                enable_search: Some(true.to_string()),
                search_url: Some(tools_url.to_string()),
                ..ServeFlags::default()
            };
            let mut config = serve_config(&flags, settings)?;
            // What the console and chat front ends need to show everything.
            config.tools.code_by_default = true;
            config.agent.images = serde_json::from_str(r#""inline""#)?;
            config.agent.citations = serde_json::from_str(r#""links""#)?;
            if cfg!(feature = "mcp") {
                config.mcp.servers.push(mcp::settings());
            }
            config.agent.permissions.rules = Arc::new(RuleSet::compile(rules(&tools))?);
            config.tools.http_tools = tools.iter().map(|tool| sample(tool, &tools_url)).collect();
            Ok::<_, anyhow::Error>(config)
        };
        let with_code = config(true)?;
        let work_directory = with_code.sandbox.as_ref();
        let work_directory = work_directory.map(|code| WorkDirectory(code.work_dir.clone()));
        let mut missing = Vec::new();
        let app = match App::build(with_code).await {
            Err(AppError::Sandbox(error)) => {
                missing.push(format!("Without code execution: {}", one_line(error)));
                App::build(config(false)?).await?
            }
            built => built?,
        };
        let code = missing.is_empty();
        if let Err(error) = app.check_page_parser().await {
            missing.push(format!("Without page reading: {}", one_line(error)));
        }
        let down = app.down_mcp_servers().into_iter();
        missing.extend(down.map(|reason| format!("Without the MCP server: {reason}")));
        if !cfg!(feature = "mcp") {
            let built = "this program was built without the feature `mcp`";
            missing.push(format!("Without the MCP server: {built}"));
        }
        let downloads = tempfile::Builder::new()
            .prefix("loopwright-demo-")
            .tempdir()
            .context(
                "cannot make a directory for downloads; set TMPDIR to one that can be written",
            )?;
        let place = TourPlace {
            base: app.url(),
            console: app.console(),
            missing,
            code,
            downloads: downloads.path().to_owned(),
        };
        Ok(Self {
            app,
            model: (model, model::router(script)),
            tool: (tool, tool::router(tools).merge(corpus::router())),
            tour: Tour::load()?,
            place,
            _downloads: downloads,
            _work_directory: work_directory,
        })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.app.address()
    }

    /// Serves, shows the tour, and continues to serve until `shutdown` resolves.
    ///
    /// # Errors
    /// When serving or a request of the tour fails.
    pub fn run<'a>(
        self,
        out: &'a mut dyn Write,
        shutdown: LocalBoxFuture<'a, ()>,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>> {
        Box::pin(self.serve(out, shutdown))
    }

    async fn serve(
        self,
        out: &mut dyn Write,
        shutdown: LocalBoxFuture<'_, ()>,
    ) -> anyhow::Result<()> {
        let model = axum::serve(self.model.0, self.model.1).into_future();
        let tool = axum::serve(self.tool.0, self.tool.1).into_future();
        let stopping = CancellationToken::new();
        let mut app = pin!(self.app.run(async {
            tokio::select! {
                () = shutdown => stopping.cancel(),
                () = stopping.cancelled() => {}
            }
        }));
        let tour = async {
            match self.tour.show(&self.place, out).await {
                Err(error) if !stopping.is_cancelled() => Err(error),
                // The tour has ended, or the shutdown interrupted it; neither is a failure.
                Ok(()) | Err(_) => std::future::pending::<anyhow::Result<()>>().await,
            }
        };
        let failed = tokio::select! {
            ended = &mut app => return Ok(ended?),
            failed = tour => failed,
            ended = model => ended.context("the scripted model stopped"),
            ended = tool => ended.context("the sample tool stopped"),
        };
        // After a failure, too, the server is shut down, which ends all interpreters.
        stopping.cancel();
        app.await?;
        failed
    }
}

/// The settings of the server between the client and the scripted model.
fn serve_config(flags: &ServeFlags, settings: &DemoConfig) -> Result<Config, ConfigError> {
    let environment = |name: &str| match name {
        "PATH" => settings.search_path.clone(),
        "TMPDIR" => settings.temporary.clone(),
        _ => None,
    };
    let mut config = Config::load(flags, &environment)?;
    if let Some(web) = &mut config.web {
        let pages = &mut web.web.fetch;
        // Only the sample pages can be fetched.
        pages.allow = vec![Ipv4Addr::LOCALHOST.to_string()];
        pages.private = pages.allow.clone();
        // The demo serves the pages itself, so requests need no intervals.
        pages.host_interval = Duration::ZERO;
        pages.per_host = web.web.search.max_pages.max(1);
    }
    Ok(config)
}

/// The rules of the demo: a person is asked about calls that change something.
fn rules(tools: &[SampleTool]) -> Vec<RuleEntry> {
    let asking = tools.iter().filter(|tool| tool.changes);
    let rule = |tool: &SampleTool| RuleEntry {
        reason: Some("it costs money".to_owned()),
        ..RuleEntry::of_tool(&tool.name, Effect::Ask)
    };
    asking.map(rule).collect()
}

fn sample(tool: &SampleTool, url: &Url) -> HttpToolSettings {
    HttpToolSettings {
        name: tool.name.clone(),
        description: tool.description.clone(),
        parameters_json: tool.parameters.get().to_owned(),
        endpoint: EndpointSettings {
            url: url.clone(),
            method: Method::POST,
            headers: HeaderMap::new(),
            secret: None,
            timeout: TOOL_TIMEOUT,
            max_answer_bytes: TOOL_ANSWER_BYTES,
            max_retries: 0,
        },
        sequential: false,
        idempotent: !tool.changes,
        read_only: !tool.changes,
        destructive: tool.changes,
        open_world: false,
        repeatable: false,
    }
}

/// An error with its causes, without line ends.
fn one_line(error: impl Into<anyhow::Error>) -> String {
    format!("{:#}", error.into()).replace('\n', " ")
}

/// The elements of a JSON list; none of anything else.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
