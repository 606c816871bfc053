//! A process with an agent: a scripted model, tools that count their calls, and a store that it shares or has taken over.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use http::HeaderMap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::dialects::chat::decode::decode;
use crate::dialects::fields::head::RequestHead;
use agent::admit::Admitted;
use agent::control::TurnControl;
use agent::driver::Run;
use agent::event::{AgentEvent, Outcome};
use agent::metrics::Metrics;
use agent::session::{self, Sessions, StoredSession};
use agent::settings::Settings;
use agent::stop::TurnEnd;
use agent::traces::Traces;
use agent::turn::{Caller, KeyDefaults, TurnRecord, TurnRequest};
use agent::{Agent, AgentParts, ToolServices};
use blobs::settings::BlobLocation;
use policy::hooks::Hooks;
use protocol::ids::{Owner, RequestId, RunId, SessionId};
use protocol::openai::ending::AnswerEnd;
use protocol::openai::event::{ModelEvent, ToolCallDelta};
use protocol::openai::tool::ToolDefinition;
use protocol::openai::usage::FinishReason;
use store::{SessionLimits, Store, StoreUrl};
use tools::gate::Gate;
use tools::source::{FixedTools, Health, Source, Sources};
use tools::{
    SharedTool, Tool, ToolError, ToolImage, ToolInvocation, ToolKind, ToolOutput, ToolPolicy,
    ToolSource,
};
use upstream::router::{Router, UpstreamEntry};
use upstream::settings::Quirks;
use upstream::{
    AnswerId, ForwardRequest, ForwardResponse, ModelCall, ModelStream, Upstream, UpstreamError,
};
use web::FileDownloads;
use web::settings::FileUrlSettings;

/// The calls that a model asks for: names and arguments.
type Asked = &'static [(&'static str, &'static str)];

/// Answers model calls in order, and keeps the messages that it was sent.
#[derive(Debug)]
pub(super) struct ScriptedModel {
    quirks: Quirks,
    answers: Mutex<VecDeque<Vec<ModelEvent>>>,
    sent: Mutex<Vec<Vec<Value>>>,
}

/// A tool that counts its calls. `charge` and `never` may change something, `never` does not end.
#[derive(Debug)]
struct CountingTool {
    definition: ToolDefinition,
    policy: ToolPolicy,
    calls: Arc<AtomicUsize>,
}

/// A process.
pub(super) struct Process {
    pub(super) agent: Agent,
    pub(super) model: Arc<ScriptedModel>,
    pub(super) sessions: Sessions,
    calls: Vec<(&'static str, Arc<AtomicUsize>)>,
    tasks: TaskTracker,
}

impl ScriptedModel {
    pub(super) fn asks(&self, calls: Asked) {
        let pieces = calls.iter().zip(0..).map(|((name, arguments), index)| {
            ModelEvent::ToolCall(ToolCallDelta {
                index: Some(index),
                id: Some(format!("upstream_{index}")),
                name: Some((*name).to_owned()),
                arguments: Some((*arguments).to_owned()),
                whole: true,
                ..ToolCallDelta::default()
            })
        });
        let end = ModelEvent::Finish(AnswerEnd::Reason(FinishReason::ToolCalls));
        self.answers.lock().push_back(pieces.chain([end]).collect());
    }

    pub(super) fn says(&self, text: &str) {
        let end = ModelEvent::Finish(AnswerEnd::Reason(FinishReason::Stop));
        let events = vec![ModelEvent::Text(text.to_owned()), end];
        self.answers.lock().push_back(events);
    }

    /// The messages of the last model call.
    pub(super) fn last_sent(&self) -> Vec<Value> {
        self.sent.lock().last().cloned().unwrap_or_default()
    }
}

impl Upstream for ScriptedModel {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn quirks(&self) -> &Quirks {
        &self.quirks
    }

    fn model_name<'a>(&'a self, model: &'a str) -> &'a str {
        model
    }

    fn stream<'a>(
        &'a self,
        call: &'a ModelCall,
    ) -> BoxFuture<'a, Result<ModelStream, UpstreamError>> {
        Box::pin(async move {
            let body = call.transcript.text().clone().without_lost().await;
            let text = String::from_utf8(body.whole().await.unwrap().to_vec()).unwrap();
            let sent = serde_json::from_str(&format!("[{text}]")).unwrap();
            self.sent.lock().push(sent);
            let events = self.answers.lock().pop_front();
            let events = events.expect("the model was called once more than the script says");
            Ok(ModelStream {
                answer_id: AnswerId::default(),
                headers: HeaderMap::new(),
                events: stream::iter(events.into_iter().map(Ok)).boxed(),
            })
        })
    }

    fn forward(
        &self,
        _request: ForwardRequest,
    ) -> BoxFuture<'_, Result<ForwardResponse, UpstreamError>> {
        Box::pin(async {
            Err(UpstreamError::Broken {
                upstream: "scripted".into(),
                reason: "no request is forwarded".into(),
            })
        })
    }
}

impl Tool for CountingTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let mut output = ToolOutput {
                content: format!("{} {}", invocation.name, json!(invocation.arguments)),
                ..ToolOutput::default()
            };
            match &*invocation.name {
                "never" => std::future::pending().await,
                "picture" => output.images.push(ToolImage {
                    mime_type: "image/png".into(),
                    content: PNG.into(),
                }),
                _ => {}
            }
            Ok(output)
        })
    }
}

/// One red pixel.
const PNG: &[u8] = include_bytes!("pixel.png");

impl Process {
    /// A process that has opened a store.
    pub(super) async fn start(
        url: &StoreUrl,
        files: &Path,
        gate: Arc<Gate>,
        kind: ToolKind,
    ) -> Self {
        let calls: [(&str, Arc<AtomicUsize>); 4] =
            ["read", "picture", "charge", "never"].map(|name| (name, Arc::default()));
        let tools = calls.iter().map(|(name, calls)| tool(name, calls, kind));
        let model = Arc::new(ScriptedModel {
            quirks: Quirks {
                images: true,
                ..Quirks::default()
            },
            answers: Mutex::default(),
            sent: Mutex::default(),
        });
        let sessions = sessions(url, files).await;
        let ends = TurnEnd::all().map(TurnEnd::as_str);
        let tasks = TaskTracker::new();
        let parts = parts(
            model.clone(),
            tools.collect(),
            sessions.clone(),
            (gate, Metrics::new([], [], ends), tasks.clone()),
        );
        Self {
            agent: Agent::new(parts),
            model,
            sessions,
            calls: calls.into(),
            tasks,
        }
    }

    /// Starts the turn of a request.
    pub(super) async fn begin(&self, body: Value) -> (Run, TurnControl) {
        let request = self.request(body).await;
        let control = TurnControl::new(RunId::fresh());
        let run = Box::pin(self.agent.run(request, control.clone()));
        let run = run.await.unwrap();
        (run, control)
    }

    /// Runs a request to the end of its turn; returns the events and the last of them.
    pub(super) async fn run(&self, body: Value) -> (Vec<String>, Outcome) {
        let (mut run, _control) = self.begin(body).await;
        let mut events = Vec::new();
        while let Some(event) = run.next().await.unwrap() {
            match event {
                AgentEvent::Finished(outcome) => return (events, *outcome),
                event => events.extend(shown(&event)),
            }
        }
        panic!("the turn has no end: {events:?}");
    }

    async fn request(&self, mut body: Value) -> TurnRequest {
        let caller = Caller {
            request_id: RequestId::fresh(),
            owner: Owner::everybody(),
            key: KeyDefaults::default(),
            headers: Arc::default(),
            trace: HeaderMap::new(),
            is_resumed: false,
            record: TurnRecord::default(),
        };
        body["model"] = json!("m");
        let body = Bytes::from(body.to_string());
        let head = RequestHead {
            max_messages: 100,
            ..RequestHead::default()
        };
        let decoded = decode(&body, &head).unwrap().decoded;
        let Ok(Admitted::Turn(admitted)) = self.agent.admit(decoded, caller).await else {
            panic!("no turn: {body:?}")
        };
        admitted.turn
    }

    /// How often a tool was called.
    pub(super) fn calls_of(&self, tool: &str) -> usize {
        let calls = self.calls.iter().find(|(name, _)| *name == tool);
        calls.unwrap().1.load(Ordering::SeqCst)
    }

    pub(super) async fn stored(&self, session: &str) -> StoredSession {
        let (owner, session) = (Owner::everybody(), SessionId::parse(session).unwrap());
        let loaded = self.sessions.store.load(&owner, &session);
        loaded.await.unwrap().unwrap()
    }

    /// Ends the process in order. The store is closed.
    pub(super) async fn end(self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.sessions.close().await;
    }
}

async fn sessions(url: &StoreUrl, files: &Path) -> Sessions {
    let settings = session::settings::Settings {
        store: url.clone(),
        ttl: None,
        nameless_ttl: None,
        wait: Duration::from_secs(10),
        max_messages: 1000,
        limits: SessionLimits::default(),
        files_dir: Some(BlobLocation::Directory(files.to_owned())),
        max_file_bytes: 1 << 20,
        max_total_file_bytes: 1 << 30,
    };
    let store = Store::open(url).await.unwrap();
    Sessions::open(store, &settings).await.unwrap()
}

fn parts(
    model: Arc<ScriptedModel>,
    tools: Vec<SharedTool>,
    sessions: Sessions,
    (gate, metrics, tasks): (Arc<Gate>, Metrics, TaskTracker),
) -> AgentParts {
    let entry = UpstreamEntry {
        upstream: model,
        models: Vec::new(),
        model_map: Vec::new(),
    };
    let fixed = FixedTools {
        tools: tools.into(),
        health: Health::Ready,
    };
    let settings = Settings::default();
    let tools = ToolServices {
        sources: Arc::new(Sources::new(vec![Source::Fixed(fixed)]).unwrap()),
        gate,
        files: sessions.files.clone(),
        max_parallel_tools: 8,
        max_result_chars: 10_000,
        max_turn_bytes: settings.max_turn_bytes,
        redactor: None,
        metrics: metrics.clone(),
        traces: Traces::default(),
    };
    let no_downloads = FileUrlSettings {
        hosts: Vec::new(),
        private: Vec::new(),
        ports: Vec::new(),
        timeout: Duration::from_secs(1),
        max_bytes: 1,
    };
    AgentParts {
        router: Arc::new(Router::new(vec![entry]).unwrap()),
        settings,
        sessions,
        downloads: FileDownloads::new(&no_downloads).unwrap(),
        tools: Arc::new(tools),
        hooks: Hooks::default(),
        unstored: Arc::default(),
        metrics,
        tasks,
    }
}

fn tool(name: &'static str, calls: &Arc<AtomicUsize>, kind: ToolKind) -> SharedTool {
    Arc::new(CountingTool {
        definition: ToolDefinition::function(name, "", r#"{"type":"object"}"#),
        policy: ToolPolicy {
            read_only: matches!(name, "read" | "picture"),
            kind,
            ..ToolPolicy::new(ToolSource::Http, Duration::from_secs(60))
        },
        calls: calls.clone(),
    })
}

/// An event in a few words; `None` for those that no test looks at.
fn shown(event: &AgentEvent) -> Option<String> {
    Some(match event {
        AgentEvent::Text(text) if text.contains("waits for a person") => return None,
        AgentEvent::Text(text) => format!("text {text}"),
        AgentEvent::Calling(call) => format!("calling {}", call.name),
        AgentEvent::Waiting { call, .. } => format!("waiting {}", call.of.name),
        AgentEvent::Complete(record) => {
            format!(
                "complete {} {} {}",
                record.name,
                record.status.as_str(),
                record.content
            )
        }
        AgentEvent::Notice(notice) => format!("notice {}", notice.kind),
        _ => return None,
    })
}
