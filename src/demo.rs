//! `loopwright demo`: the product at work with no model server and no key.
//!
//! Starts a scripted model and a sample tool server on loopback ports, a real loopwright in front of them, sends a few
//! requests through its HTTP API, prints what happened round by round, and stays up for curl. The web that it searches
//! is one of its own, behind the sample tool server's port. Code execution and the reading of pages are part of it where
//! this host can isolate them; where it cannot, one line says why.

mod corpus;
pub mod model;
mod rules;
pub mod tool;
mod tour;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use http::{HeaderMap, Method};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::app::{App, AppError};
use crate::config::cli::ServeFlags;
use crate::config::{Config, ConfigError, DemoConfig};
use crate::tools::settings::{EndpointSettings, HttpToolSettings};

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
    code: Code,
    pages: Pages,
    _work_directory: Option<WorkDirectory>,
}

/// Whether code can be run here.
#[derive(Debug)]
enum Code {
    Offered,
    /// It cannot, and this is why and what would help.
    Missing(String),
}

/// Whether pages can be read here; a search answers with summaries where not.
#[derive(Debug)]
enum Pages {
    Read,
    /// They cannot, and this is why.
    Unreadable(String),
}

/// Where working files of ended interpreters are kept; deleted when dropped, which must come after the server's end.
#[derive(Debug)]
struct WorkDirectory(PathBuf);

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // It is not there where no isolation was tried.
        let _nothing_is_left = fs::remove_dir_all(&self.0);
    }
}

impl Demo {
    /// Binds everything.
    ///
    /// # Errors
    /// When a port cannot be bound.
    pub async fn build(settings: &DemoConfig) -> anyhow::Result<Self> {
        let model = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("cannot start the scripted model")?;
        let tool = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("cannot start the sample tool")?;
        let upstream = Url::parse(&format!("http://{}/v1", model.local_addr()?))?;
        let tools = Url::parse(&format!("http://{}/", tool.local_addr()?))?;
        let config = |enable_code_execution: bool| {
            let flags = ServeFlags {
                listen: Some(settings.listen.to_string()),
                upstream: Some(upstream.to_string()),
                session_store: Some("memory:".to_owned()),
                enable_code_execution: Some(enable_code_execution.to_string()),
                enable_search: Some(true.to_string()),
                search_url: Some(tools.to_string()),
                ..ServeFlags::default()
            };
            serve_config(&flags, settings, &tools)
        };
        let with_code = config(true)?;
        let work_directory = with_code.sandbox.as_ref();
        let work_directory = work_directory.map(|code| WorkDirectory(code.work_dir.clone()));
        let (app, code) = match App::build(with_code).await {
            Ok(app) => (app, Code::Offered),
            Err(AppError::Sandbox(error)) => {
                let missing = Code::Missing(one_line(&error));
                (App::build(config(false)?).await?, missing)
            }
            Err(error) => return Err(error.into()),
        };
        let pages = match app.check_page_parser().await {
            Ok(()) => Pages::Read,
            Err(error) => Pages::Unreadable(one_line(&error)),
        };
        Ok(Self {
            app,
            model: (model, model::router()),
            tool: (tool, tool::router().merge(corpus::router())),
            code,
            pages,
            _work_directory: work_directory,
        })
    }

    /// The address that is listened on.
    pub fn address(&self) -> SocketAddr {
        self.app.address()
    }

    /// Serves, shows the tour, and goes on serving until `shutdown` resolves.
    ///
    /// # Errors
    /// When serving or a request of the tour fails.
    pub async fn run(
        self,
        out: &mut (impl Write + Send),
        shutdown: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let base = format!("http://{}", self.address());
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
            match tour::show(&base, &self.code, &self.pages, out).await {
                Err(error) if !stopping.is_cancelled() => Err(error),
                // Shown, or cut short by a signal, which is no failure.
                Ok(()) | Err(_) => std::future::pending::<anyhow::Result<()>>().await,
            }
        };
        let failed = tokio::select! {
            ended = &mut app => return Ok(ended?),
            failed = tour => failed,
            ended = model => ended.context("the scripted model stopped"),
            ended = tool => ended.context("the sample tool stopped"),
        };
        // What runs is ended in order even so, interpreters among it.
        stopping.cancel();
        app.await?;
        failed
    }
}

/// The settings of the server in the middle.
fn serve_config(
    flags: &ServeFlags,
    settings: &DemoConfig,
    tools: &Url,
) -> Result<Config, ConfigError> {
    let environment = |name: &str| match name {
        "PATH" => settings.search_path.clone(),
        "TMPDIR" => settings.temporary.clone(),
        _ => None,
    };
    let mut config = Config::load(flags, &environment)?;
    if let Some(web) = &mut config.web {
        let pages = &mut web.web.fetch;
        // The web of the demo is all that it may reach.
        pages.allow = vec![Ipv4Addr::LOCALHOST.to_string()];
        pages.private = pages.allow.clone();
        // Nobody else is kept waiting by its own pages.
        pages.host_interval = Duration::ZERO;
        pages.per_host = web.web.search.max_pages.max(1);
    }
    config.tools.http_tools = tool::definitions()
        .iter()
        .map(|tool| sample(tool, tools))
        .collect();
    Ok(config)
}

/// An error with its causes, without line ends.
fn one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text.replace('\n', " ")
}

fn sample(definition: &tool::SampleTool, url: &Url) -> HttpToolSettings {
    HttpToolSettings {
        name: definition.name.to_owned(),
        description: definition.description.to_owned(),
        parameters_json: definition.parameters_json.to_owned(),
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
        idempotent: true,
    }
}
