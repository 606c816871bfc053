//! The tools of a caller, and their calls.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;

use http::HeaderMap;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    JsonObject, ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::result::{Collected, DirectCallEnd};
use crate::http::AppState;
use crate::http::error::{ApiError, codes};
use crate::http::permissions;
use crate::http::tool_call::{CallOrigin, prepared_run};
use agent::direct::CallRequestError;
use agent::event::ToolSource;
use agent::runs::InlineRunSlot;
use protocol::ids::{Owner, RequestId, RunId};
use quota::ReservedMemory;
use tools::SharedTool;
use tools::source::{Health, Source};

/// Size of the buffer of live output, in pieces. What comes while it is full is left out, as the result has it too.
const PROGRESS_BUFFER: usize = 16;
/// The oldest version of the protocol that is spoken.
const OLDEST_VERSION: ProtocolVersion = ProtocolVersion::V_2025_03_26;

/// The MCP server as one caller sees it.
#[derive(Clone)]
pub(super) struct CallerTools {
    pub(super) state: AppState,
    pub(super) owner: Owner,
    pub(super) request_id: RequestId,
    /// The headers of the request.
    pub(super) headers: HeaderMap,
    /// The client is a loopwright: it gets no tools of MCP servers, because one of them may be this server.
    pub(super) own_tools_only: bool,
    /// The memory of the request's body.
    pub(super) memory: Arc<ReservedMemory>,
}

impl CallerTools {
    /// Whether the caller may be offered a tool.
    fn offers(&self, tool: &SharedTool) -> bool {
        !(self.own_tools_only && tool.policy().source == ToolSource::Mcp)
    }

    /// The tools that can be called now, unless the rules deny every call.
    fn tools(&self) -> Vec<Tool> {
        let permissions = permissions::of_owner(&self.state, &self.owner);
        let sources = self.state.sources.snapshot_for(&self.owner);
        let ready = sources.iter().filter(|source| {
            source.health() == Health::Ready && !matches!(source, Source::ToolSearch(_))
        });
        let tools = ready.flat_map(Source::tools).filter(|tool| {
            let (name, classes) = (&tool.definition().name, tool.policy().classes());
            self.offers(tool) && permissions.denies_whatever(name, classes).is_none()
        });
        tools.map(listed).collect()
    }

    /// Whether the caller is not offered the tool of this name because of what it is.
    fn hides(&self, name: &str) -> bool {
        let tool = self
            .state
            .sources
            .snapshot_for(&self.owner)
            .tool_named(name);
        tool.is_some_and(|tool| !self.offers(&tool))
    }

    /// Makes a call. What is wrong with it is an error of the protocol only if no tool has this name.
    async fn call(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let origin = CallOrigin {
            owner: self.owner.clone(),
            request_id: self.request_id.clone(),
            headers: &self.headers,
        };
        let name = &*request.name;
        if self.hides(name) {
            return Err(unknown_tool(name));
        }
        let arguments = Value::Object(request.arguments.unwrap_or_default()).to_string();
        let call = match origin.request(&self.state, name, Some(arguments), None) {
            Ok(call) => call,
            Err(error) => return Ok(failed(&error)),
        };
        let call = match self.state.agent.admit_call(call) {
            Ok(call) => call,
            Err(CallRequestError::UnknownTool { .. }) => return Err(unknown_tool(name)),
            Err(CallRequestError::Arguments(problem)) => {
                return Ok(CallToolResult::error(vec![ContentBlock::text(problem)]));
            }
        };
        let (sender, mut live) = mpsc::channel(PROGRESS_BUFFER);
        let (collected, mut end) = Collected::new(sender);
        let memory = Box::new(self.memory.clone());
        let parts = (RunId::fresh(), collected.encode(), memory as Box<dyn Send>);
        let run = match prepared_run(&self.state, &self.owner, &call, None, parts) {
            Ok(run) => run,
            Err(error) => return Ok(failed(&error)),
        };
        let connection = InlineRunSlot::default();
        // Dropping the reader cancels the call.
        let _reader = run.launch(call.into(), &connection);
        // The run does not wait for a client that reads slowly.
        connection.hand_over();
        let mut progress = Progress::new(&context);
        progress.notify(None).await;
        let mut cancelled = pin!(context.ct.cancelled());
        let mut is_live = true;
        loop {
            tokio::select! {
                biased;
                () = &mut cancelled => return Ok(failed(&codes::CALL_CANCELLED.error())),
                // Before the end, after which there is no more of it.
                piece = live.recv(), if is_live => match piece {
                    Some(piece) => progress.notify(Some(piece)).await,
                    None => is_live = false,
                },
                end = &mut end => return Ok(match end {
                    Ok(DirectCallEnd::Answered(result)) => *result,
                    Ok(DirectCallEnd::Failed(error)) => failed(&error),
                    Err(_gone) => failed(&codes::INTERNAL.error()),
                }),
            }
        }
    }
}

impl ServerHandler for CallerTools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let version = env!("CARGO_PKG_VERSION");
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("loopwright", version))
            .with_instructions("The tools of a loopwright server. Each call is one request; nothing lasts between them, unless the header x-session-id names a stored session.")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let known = ProtocolVersion::KNOWN_VERSIONS.iter();
        let spoken = known.filter(|version| version.as_str() >= OLDEST_VERSION.as_str());
        spoken.cloned().collect()
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Box::pin(self.call(request, context)).await.map(Into::into)
    }
}

/// Reports live output to a client that has asked for it.
struct Progress<'a> {
    peer: &'a Peer<RoleServer>,
    token: Option<ProgressToken>,
    sent: u32,
}

impl<'a> Progress<'a> {
    fn new(context: &'a RequestContext<RoleServer>) -> Self {
        Self {
            peer: &context.peer,
            token: context.meta.get_progress_token(),
            sent: 0,
        }
    }

    /// Reports a piece, or that the call begins. From then on the answer is a stream, which is kept alive.
    async fn notify(&mut self, piece: Option<String>) {
        let Some(token) = &self.token else { return };
        let mut progress = ProgressNotificationParam::new(token.clone(), self.sent.into());
        progress.message = piece;
        self.sent += 1;
        if self.peer.notify_progress(progress).await.is_err() {
            // The client has left.
            self.token = None;
        }
    }
}

/// A tool as MCP lists it.
fn listed(tool: &SharedTool) -> Tool {
    let (definition, policy) = (tool.definition(), tool.policy());
    let parameters = definition.parameters.as_deref().unwrap_or("{}");
    let mut schema: JsonObject = serde_json::from_str(parameters).unwrap_or_default();
    schema.insert("type".to_owned(), json!("object"));
    let annotations = ToolAnnotations::new()
        .read_only(policy.read_only)
        .destructive(policy.destructive && !policy.read_only)
        .idempotent(policy.idempotent)
        .open_world(policy.open_world);
    Tool::new(definition.name.clone(), definition.description(), schema).annotate(annotations)
}

fn unknown_tool(name: &str) -> ErrorData {
    let name = protocol::ids::shown(name);
    let message = format!("there is no tool '{name}'; tools/list has the tools");
    ErrorData::invalid_params(message, None)
}

/// A call that could not be made, for the model of the client.
fn failed(error: &ApiError) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(error.message())])
}
