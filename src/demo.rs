//! `loopwright demo`: the product at work with no model server and no key.
//!
//! Starts a scripted model and a sample tool server on loopback ports, a real loopwright in front of them, sends a few
//! requests through its HTTP API, prints what happened round by round, and stays up for curl.

pub mod model;
mod rules;
pub mod tool;
mod tour;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use http::{HeaderMap, Method};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::app::App;
use crate::config::Config;
use crate::config::cli::ServeFlags;
use crate::session::settings::StoreUrl;
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
}

impl Demo {
    /// Binds everything.
    ///
    /// # Errors
    /// When a port cannot be bound.
    pub async fn build(listen: SocketAddr) -> anyhow::Result<Self> {
        let model = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("cannot start the scripted model")?;
        let tool = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("cannot start the sample tool")?;
        let flags = ServeFlags {
            listen: Some(listen),
            upstream: Some(Url::parse(&format!("http://{}/v1", model.local_addr()?))?),
            session_store: Some(StoreUrl::Memory),
            ..ServeFlags::default()
        };
        let mut config = Config::load(&flags, &|_| None)?;
        let url = Url::parse(&format!("http://{}/run", tool.local_addr()?))?;
        config.tools.http_tools = tool::definitions()
            .iter()
            .map(|tool| sample(tool, &url))
            .collect();
        let app = App::build(config).await?;
        Ok(Self {
            app,
            model: (model, model::router()),
            tool: (tool, tool::router()),
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
        let app = self.app.run(async {
            shutdown.await;
            stopping.cancel();
        });
        let tour = async {
            match tour::show(&base, out).await {
                Err(error) if !stopping.is_cancelled() => Err(error),
                // Shown, or cut short by a signal, which is no failure.
                Ok(()) | Err(_) => std::future::pending::<anyhow::Result<()>>().await,
            }
        };
        tokio::select! {
            ended = app => Ok(ended?),
            failed = tour => failed,
            ended = model => ended.context("the scripted model stopped"),
            ended = tool => ended.context("the sample tool stopped"),
        }
    }
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
