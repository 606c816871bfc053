//! Builds the parts of a server from their settings.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::expiry::Lifetimes;
use super::summary::StartSummary;
use super::{App, AppError, listeners, summary};
use crate::config::{Config, WebConfig};
use crate::http::{AppState, Services};
use agent::metrics::Metrics;
use agent::runs::Runs;
use agent::session::Sessions;
use agent::stop::TurnEnd;
use agent::traces::settings::Settings as TraceSettings;
use agent::traces::{LossCounter, Traces, TracesError};
use agent::{Agent, AgentParts, ToolServices};
use policy::hooks::approver::Approver;
use policy::hooks::settings::Settings as HookSettings;
use policy::hooks::webhook::ApprovalWebhook;
use policy::hooks::{HookMeter, Hooks};
use policy::redact::Redactor;
use sandbox::settings::Settings as SandboxSettings;
use sandbox::{Sandbox, SandboxError};
use store::{Store, StoreUrl};
use tools::configured::{self, ConfiguredToolsError};
use tools::gate::{DecisionCounter, Gate};
use tools::mcp::McpServers;
use tools::python::CodeExecution;
use tools::source::{Source, SourceList, Sources};
use tools::tool_search::ToolSearch;
use tools::web::WebAccess;
use upstream::router::Router;
use upstream::settings::PoolSettings;
use web::{FileDownloads, Web};

impl App {
    /// Builds every part and binds the listener.
    pub(super) async fn build_parts(config: Config) -> Result<Self, AppError> {
        let summary = StartSummary::of(&config);
        let settings = config.effective_values();
        let (listener, address) = listeners::listen(config.http.listen, "--listen").await?;
        let metrics_listener = listeners::for_metrics(config.http.metrics_listen).await?;
        let pool = PoolSettings {
            upstreams: config.upstreams,
            retry: config.retry,
        };
        let tasks = TaskTracker::new();
        let sandbox = start_sandbox(config.sandbox, &tasks).await?;
        let mut sources = configured::sources(&config.tools)?;
        let code = code_execution(sandbox.as_ref(), config.tools.code_by_default);
        let (web, access) = web_access(config.web.as_ref(), &tasks)?;
        sources.extend(built_in(code.clone(), access, config.mcp.search_above));
        let sources = Arc::new(Sources::new(sources).map_err(ConfiguredToolsError::from)?);
        let mcp = McpServers::start(config.mcp, sources.clone(), &tasks).await?;
        let metrics = metrics(&sources.snapshot(), &pool, code.as_ref());
        let traces = traces(config.traces.as_ref(), &metrics)?;
        let hooks = Hooks::new(&config.hooks, metrics.clone())?;
        let timeout = config.agent.approval_timeout;
        let asked = (&config.hooks, &hooks);
        let (gate, approval_webhook) = gate(timeout, config.redactor.as_ref(), asked, &metrics)?;
        let store = open_store(&config.session.store).await?;
        summary.log(code.as_ref(), &sources.snapshot());
        let (cluster, replica_listener) =
            listeners::for_replicas(config.cluster.as_ref(), &store).await?;
        let sessions = Sessions::open(store.clone(), &config.session).await?;
        let router = Arc::new(Router::from_settings(&pool)?);
        let agent = Agent::new(AgentParts {
            router: router.clone(),
            tools: Arc::new(ToolServices {
                sources: sources.clone(),
                gate,
                files: sessions.files.clone(),
                max_parallel_tools: config.tools.max_parallel_tools,
                max_result_chars: config.tools.max_result_chars,
                max_turn_bytes: config.agent.max_turn_bytes,
                redactor: config.redactor,
                metrics: metrics.clone(),
                traces: traces.clone(),
            }),
            hooks,
            unstored: Arc::default(),
            settings: config.agent,
            sessions: sessions.clone(),
            downloads: FileDownloads::new(&config.file_urls)?,
            metrics: metrics.clone(),
            tasks: tasks.clone(),
        });
        let services = Services {
            runs: Runs::new(agent.clone(), store.clone(), metrics.clone(), &config.runs),
            agent,
            router,
            sessions: sessions.clone(),
            sources,
            metrics,
            traces,
            cluster,
        };
        let shutdown_grace = config.http.shutdown_grace;
        let state = AppState::new(services, config.http);
        Ok(Self {
            listener,
            metrics_listener,
            replica_listener,
            address,
            state,
            tasks,
            sandbox,
            web,
            mcp,
            sessions,
            approval_webhook,
            lifetimes: Lifetimes::new(&config.session, &config.runs),
            shutdown_grace,
            settings,
        })
    }
}

async fn start_sandbox(
    settings: Option<SandboxSettings>,
    tasks: &TaskTracker,
) -> Result<Option<Sandbox>, SandboxError> {
    match settings {
        Some(settings) => Sandbox::start(settings, tasks).await.map(Some),
        None => Ok(None),
    }
}

fn code_execution(sandbox: Option<&Sandbox>, by_default: bool) -> Option<CodeExecution> {
    sandbox.map(|sandbox| CodeExecution::new(sandbox.clone(), by_default))
}

/// Search and pages, and how turns get them.
fn web_access(
    settings: Option<&WebConfig>,
    tasks: &TaskTracker,
) -> Result<(Option<Web>, Option<WebAccess>), AppError> {
    let Some(settings) = settings else {
        return Ok((None, None));
    };
    let web = Web::new(&settings.web, tasks)?;
    let access = WebAccess::new(web.clone(), settings.by_default);
    Ok((Some(web), Some(access)))
}

/// The gate that decides about calls, and the webhook that is notified of calls that wait.
fn gate(
    approval_timeout: Duration,
    redactor: Option<&Redactor>,
    (settings, hooks): (&HookSettings, &Hooks),
    metrics: &Metrics,
) -> Result<(Arc<Gate>, Option<ApprovalWebhook>), AppError> {
    let meter: Arc<dyn HookMeter> = Arc::new(metrics.clone());
    let certificates = &settings.certificates;
    let approver = settings.approver.as_ref();
    let approver = approver.map(|it| Approver::new(it, certificates, &meter));
    let webhook = settings.approval_webhook.as_ref();
    let webhook = webhook.map(|it| ApprovalWebhook::new(it, certificates, &meter));
    let metrics = metrics.clone();
    let counter = DecisionCounter::new(move |effect, level| metrics.call_decided(effect, level));
    let gate = Gate::new(approval_timeout, hooks.clone(), redactor.cloned());
    let gate = gate.counted(counter).asking(approver.transpose()?);
    Ok((Arc::new(gate), webhook.transpose()?))
}

/// The exporter of spans; lost spans are counted.
fn traces(settings: Option<&TraceSettings>, metrics: &Metrics) -> Result<Traces, TracesError> {
    let metrics = metrics.clone();
    Traces::start(
        settings,
        LossCounter::new(move |lost| metrics.spans_dropped(lost)),
    )
}

/// The sources of loopwright's own tools.
fn built_in(
    code: Option<CodeExecution>,
    web: Option<WebAccess>,
    search_above: Option<usize>,
) -> impl Iterator<Item = Source> {
    let code = code.map(Source::Python).into_iter();
    code.chain(web.map(Source::Web))
        .chain(search_above.map(ToolSearch::new).map(Source::ToolSearch))
}

/// Opens the session store. If an older version has made it, the log says that it was migrated.
async fn open_store(url: &StoreUrl) -> Result<Store, AppError> {
    let store = Store::open(url).await.map_err(|source| AppError::Store {
        location: summary::location(url),
        source,
    })?;
    if store.was_upgraded() {
        tracing::info!(
            "the session store was brought up to date; earlier versions of loopwright refuse it from now on"
        );
    }
    Ok(store)
}

/// The metrics, whose labels are the names of the tools and upstreams.
fn metrics(sources: &SourceList, pool: &PoolSettings, code: Option<&CodeExecution>) -> Metrics {
    let metrics = Metrics::new(
        sources
            .iter()
            .flat_map(Source::tools)
            .map(|tool| tool.definition().name.as_str()),
        pool.upstreams.iter().map(|upstream| upstream.name.as_str()),
        TurnEnd::all().map(TurnEnd::as_str),
    );
    if let Some(code) = code {
        metrics.code_isolation(code.report().level);
    }
    metrics
}
