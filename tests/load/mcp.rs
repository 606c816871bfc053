//! What a call of an MCP server's tool costs beside the same call made with the SDK alone.
//!
//! Runs the library in this process, as the loop does: through the batch, its gate and its time limits. Over standard input
//! and output the server is this benchmark, started again; over HTTP it is a thread of this process.

use std::{
    io::{BufRead, Write},
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::post};
use futures_util::StreamExt;
use policy::hooks::HookRecord;
use protocol::ids::{Owner, RequestId, RunId, WorkspaceId};
use rmcp::{
    RoleClient, ServiceExt,
    model::CallToolRequestParams,
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Map, Value, json};
use server::config::{Config, cli::ServeFlags};
use tokio::{process::Command, sync::oneshot};
use tokio_util::task::TaskTracker;
use tools::{
    CallContext, IncomingResults, SharedTool, ToolStatus,
    batch::{BatchCall, BatchEvent, BatchLimits, run},
    cited_sources::CitedSources,
    gate::{Gate, TurnPermissions},
    mcp::McpServers,
    python::EarlierCode,
    source::{Source, Sources},
};

use crate::{figures::ratio, report::Report, tables};

/// The first argument that makes the benchmark an MCP server.
pub(crate) const ECHO_SERVER: &str = "mcp-echo-server";

/// Calls before the measured ones.
const WARM_UP: usize = 20;
/// Bytes of the text that is echoed.
const SIZES: [usize; 2] = [100, 100_000];

/// What all figures of MCP share.
#[derive(Debug)]
pub(crate) struct McpBench<'a> {
    /// The loopwright binary, which guards the server's process.
    pub(crate) program: &'a Path,
    /// A directory for settings.
    pub(crate) directory: &'a Path,
    /// How many calls are measured.
    pub(crate) calls: usize,
    /// Where the processes run, as the table calls it.
    pub(crate) placement: &'static str,
}

/// How the echo server is reached.
#[derive(Debug, Clone)]
enum Reached {
    Stdio(String),
    Http(String),
}

/// Times of calls, in seconds, in rising order.
#[derive(Debug)]
struct Times(Vec<f64>);

/// The echo server over HTTP, in a thread of its own; dropping it ends the thread.
#[derive(Debug)]
struct HttpEcho {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl McpBench<'_> {
    /// Fills the table.
    pub(crate) async fn run(&self, report: &mut Report) {
        if let Err(error) = self.measure(report).await {
            report.remark(format!("MCP: {error:#}"));
        }
    }

    async fn measure(&self, report: &mut Report) -> Result<()> {
        let far = HttpEcho::start()?;
        let own = std::env::current_exe().context("finding this program")?;
        for (name, reached) in [
            ("stdio", Reached::Stdio(own.display().to_string())),
            ("HTTP", Reached::Http(format!("http://{}/mcp", far.address))),
        ] {
            for bytes in SIZES {
                let direct = self.direct(&reached, bytes).await?;
                let ours = self.ours(&reached, bytes).await?;
                let micros = |seconds: f64| Some(seconds * 1e6);
                let figures = [
                    micros(direct.median()),
                    micros(ours.median()),
                    micros(ours.median() - direct.median()),
                    ratio(Some(ours.median()), Some(direct.median())),
                    ratio(Some(ours.p99()), Some(direct.p99())),
                ];
                report.row(
                    &tables::MCP,
                    &[self.placement, name, &bytes.to_string()],
                    &figures,
                );
            }
        }
        Ok(())
    }

    /// With the SDK alone.
    async fn direct(&self, reached: &Reached, bytes: usize) -> Result<Times> {
        let arguments = arguments(bytes);
        let (mut child, client) = connect(reached).await?;
        let mut times = Vec::new();
        for number in 0..WARM_UP + self.calls {
            let params = CallToolRequestParams::new("echo").with_arguments(arguments.clone());
            let began = Instant::now();
            let result = client.call_tool(params).await?;
            let took = began.elapsed();
            ensure!(result.is_error != Some(true), "the echo failed");
            times.extend((number >= WARM_UP).then_some(took));
        }
        client.cancel().await?;
        if let Some(child) = &mut child {
            child.wait().await?;
        }
        Ok(Times::of(&times))
    }

    /// As the loop makes the call.
    async fn ours(&self, reached: &Reached, bytes: usize) -> Result<Times> {
        let tasks = TaskTracker::new();
        let sources = Arc::new(Sources::default());
        let mut settings = self.settings(reached)?.mcp;
        settings.guard = self.program.to_owned();
        let servers = McpServers::start(settings, sources.clone(), &tasks).await?;
        let snapshot = sources.snapshot();
        let tool = snapshot
            .iter()
            .flat_map(Source::tools)
            .next()
            .context("the server offers no tool")?;
        let (context, gate) = (context(), Arc::new(Gate::default()));
        let arguments = arguments(bytes);
        let mut times = Vec::new();
        for number in 0..WARM_UP + self.calls {
            let call = call(tool, arguments.clone());
            let limits = BatchLimits {
                max_parallel: 8,
                deadline: None,
            };
            let began = Instant::now();
            let mut events = run(vec![call], context.clone(), gate.clone(), limits).boxed();
            let mut status = None;
            while let Some(event) = events.next().await {
                if let BatchEvent::Done { result, .. } = event {
                    status = Some(result.status);
                }
            }
            let took = began.elapsed();
            ensure!(
                status == Some(ToolStatus::Ok),
                "the echo failed: {status:?}"
            );
            times.extend((number >= WARM_UP).then_some(took));
        }
        servers.close().await;
        Ok(Times::of(&times))
    }

    fn settings(&self, reached: &Reached) -> Result<Config> {
        let server = match reached {
            Reached::Stdio(program) => {
                format!("command = {program:?}\nargs = [{ECHO_SERVER:?}]\n")
            }
            Reached::Http(url) => format!("url = {url:?}\n"),
        };
        let file = self.directory.join("mcp.toml");
        let lines = format!("upstream = \"http://127.0.0.1:1/v1\"\n[mcp_servers.echo]\n{server}");
        std::fs::write(&file, lines).context("writing a configuration file")?;
        let flags = ServeFlags {
            config: Some(file),
            ..ServeFlags::default()
        };
        Ok(Config::load(&flags, &|_| None)?)
    }
}

impl Times {
    fn of(times: &[Duration]) -> Self {
        let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
        seconds.sort_unstable_by(f64::total_cmp);
        Self(seconds)
    }

    fn median(&self) -> f64 {
        self.at(self.0.len() / 2)
    }

    fn p99(&self) -> f64 {
        self.at(self.0.len() * 99 / 100)
    }

    fn at(&self, index: usize) -> f64 {
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }
}

async fn connect(
    reached: &Reached,
) -> Result<(
    Option<tokio::process::Child>,
    RunningService<RoleClient, ()>,
)> {
    match reached {
        Reached::Stdio(program) => {
            let mut child = Command::new(program)
                .arg(ECHO_SERVER)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .context("starting the echo server")?;
            let pipes = child.stdout.take().zip(child.stdin.take());
            let client = ().serve(pipes.context("the echo server has no pipes")?).await?;
            Ok((Some(child), client))
        }
        Reached::Http(url) => {
            let client = reqwest::Client::builder()
                .no_proxy()
                .tcp_nodelay(true)
                .tls_certs_only([])
                .build()?;
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
            let transport = StreamableHttpClientTransport::with_client(client, config);
            Ok((None, ().serve(transport).await?))
        }
    }
}

fn arguments(bytes: usize) -> Map<String, Value> {
    Map::from_iter([("text".to_owned(), "x".repeat(bytes).into())])
}

fn call(tool: &SharedTool, arguments: Map<String, Value>) -> BatchCall {
    BatchCall {
        index: 0,
        tool: tool.clone(),
        name: tool.definition().name.clone(),
        arguments,
        call_id: "call_1".to_owned(),
        hook_context: None,
        trace: None,
        asks_to_start: false,
        started: Arc::default(),
    }
}

fn context() -> Arc<CallContext> {
    Arc::new(CallContext {
        session_id: None,
        request_id: RequestId::fresh(),
        run_id: RunId::fresh(),
        round: 0,
        model: "load".to_owned(),
        user: None,
        trace: http::HeaderMap::new(),
        workspace: WorkspaceId::fresh(),
        files: Arc::default(),
        earlier_code: EarlierCode::None,
        owner: Owner::everybody(),
        sources: CitedSources::default(),
        permissions: TurnPermissions::default(),
        approvals: Arc::default(),
        hook_record: HookRecord::default(),
        incoming: IncomingResults::default(),
    })
}

/// The answer to a request; none to a notification.
fn answer(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let params = &message["params"];
    let result = match message["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{
            "name": "echo",
            "description": "Says it again.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        }]}),
        "tools/call" => {
            json!({"content": [{"type": "text", "text": params["arguments"]["text"]}]})
        }
        _ => json!({}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}

/// The echo server over standard input and output.
pub(crate) fn echo_main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        if let Some(answer) = answer(&serde_json::from_str(&line?)?) {
            writeln!(out, "{answer}")?;
            out.flush()?;
        }
    }
    Ok(())
}

impl HttpEcho {
    fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let reply = async |Json(message): Json<Value>| match answer(&message) {
            Some(answer) => Json(answer).into_response(),
            None => StatusCode::ACCEPTED.into_response(),
        };
        // Other methods are refused, as a server without a stream of its own does.
        let router = Router::new().route("/mcp", post(reply));
        let thread = std::thread::Builder::new()
            .name("echo".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                        return;
                    };
                    tokio::select! {
                        _ = axum::serve(listener, router) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for HttpEcho {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
