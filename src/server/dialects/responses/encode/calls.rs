//! The items of server-side calls: calls of hosted tools.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::BytesMut;
use serde::Deserialize;
use serde_json::{Value, json};

use super::events::EventWriter;
use super::items::ItemPlace;
use crate::dialects::responses::decode::ResponseOptions;
use agent::event::{Calling, CodeDetail, ToolCallRecord, ToolDetail, ToolKind, ToolStatus};
use protocol::ids::RunId;
use protocol::openai::raw::quoted;

/// The label of server-side tools that belong to no MCP server.
pub(in crate::dialects::responses) const LABEL: &str = "loopwright";

/// The server-side calls of a response.
#[derive(Debug)]
pub(super) struct ShownCalls {
    run: RunId,
    options: Arc<ResponseOptions>,
    /// The calls that run and are shown, by their id.
    open: HashMap<String, OpenCall>,
}

#[derive(Debug)]
struct OpenCall {
    place: ItemPlace,
    kind: ToolKind,
    /// The server and the name of the tool there.
    server: String,
    name: String,
    arguments: String,
}

/// The arguments of web tools and of code.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct KnownArguments {
    query: Option<String>,
    url: Option<String>,
    code: Option<String>,
}

impl ShownCalls {
    pub(super) fn new(run: &RunId, options: Arc<ResponseOptions>) -> Self {
        Self {
            run: run.clone(),
            options,
            open: HashMap::new(),
        }
    }

    /// The servers that the request declares, with their tools.
    pub(super) fn list_servers(
        &self,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        for server in &self.options.listed {
            let place = ItemPlace::next("mcpl", &self.run, items);
            let mut item = json!({
                "type": "mcp_list_tools", "id": place.id, "server_label": server.label, "tools": [],
            });
            place.added(&item.to_string(), events, out);
            let members = place.members();
            events.write("response.mcp_list_tools.in_progress", &members, out);
            item["tools"].clone_from(&server.tools);
            let end = match &server.problem {
                None => "response.mcp_list_tools.completed",
                Some(problem) => {
                    item["error"] = problem.as_str().into();
                    "response.mcp_list_tools.failed"
                }
            };
            events.write(end, &members, out);
            place.done(item.to_string(), items, events, out);
        }
    }

    /// The container of the turn's files.
    pub(super) fn container(&self) -> String {
        self.run.container_id()
    }

    /// A server-side call starts.
    pub(super) fn start(
        &mut self,
        calling: Calling,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        let server = calling
            .on_server
            .as_ref()
            .map(|remote| remote.server.as_str());
        if !self.options.shows(calling.kind, server) {
            return;
        }
        let prefix = match calling.kind {
            ToolKind::WebSearch => "ws",
            ToolKind::CodeExecution => "ci",
            ToolKind::Custom => "mcp",
        };
        let (server, name) = match calling.on_server {
            Some(remote) => (remote.server, remote.name),
            None => (LABEL.to_owned(), calling.name),
        };
        let call = OpenCall {
            place: ItemPlace::next(prefix, &self.run, items),
            kind: calling.kind,
            server,
            name,
            arguments: calling.arguments,
        };
        let place = call.place.members();
        match call.kind {
            ToolKind::WebSearch => {
                let item = self.web(&call, "in_progress", None);
                call.place.added(&item, events, out);
                let mut event = |kind: &str| events.write(kind, &place, out);
                event("response.web_search_call.in_progress");
                event("response.web_search_call.searching");
            }
            ToolKind::CodeExecution => {
                let code = quoted(&call.known().code.unwrap_or_default());
                let item = self.code(&call, "", "in_progress", None);
                call.place.added(&item, events, out);
                let mut event = |kind: &str, more: &str| {
                    events.write(kind, &format!("{place}{more}"), out);
                };
                event("response.code_interpreter_call.in_progress", "");
                event(
                    "response.code_interpreter_call_code.delta",
                    &format!(",\"delta\":{code}"),
                );
                event(
                    "response.code_interpreter_call_code.done",
                    &format!(",\"code\":{code}"),
                );
                event("response.code_interpreter_call.interpreting", "");
            }
            ToolKind::Custom => {
                let item = mcp(&call, "in_progress", "", None);
                call.place.added(&item, events, out);
                let arguments = quoted(&call.arguments);
                let mut event = |kind: &str, more: &str| {
                    events.write(kind, &format!("{place}{more}"), out);
                };
                event("response.mcp_call.in_progress", "");
                event(
                    "response.mcp_call_arguments.delta",
                    &format!(",\"delta\":{arguments}"),
                );
                event(
                    "response.mcp_call_arguments.done",
                    &format!(",\"arguments\":{arguments}"),
                );
            }
        }
        self.open.insert(calling.tool_call_id, call);
    }

    /// A server-side call has ended.
    pub(super) fn end(
        &mut self,
        record: &ToolCallRecord,
        items: &mut [Option<String>],
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        let Some(mut call) = self.open.remove(&record.tool_call_id) else {
            return;
        };
        call.arguments.clone_from(&record.arguments);
        let is_ok = record.status == ToolStatus::Ok;
        let status = match record.status {
            ToolStatus::Ok => "completed",
            ToolStatus::Cancelled | ToolStatus::Interrupted => "incomplete",
            _ => "failed",
        };
        let (kind, item) = match call.kind {
            ToolKind::WebSearch => (
                "response.web_search_call.completed",
                self.web(&call, status, Some(record)),
            ),
            ToolKind::CodeExecution => {
                let code = call.known().code.unwrap_or_default();
                (
                    "response.code_interpreter_call.completed",
                    self.code(&call, &code, status, Some(record)),
                )
            }
            ToolKind::Custom => (
                match is_ok {
                    true => "response.mcp_call.completed",
                    false => "response.mcp_call.failed",
                },
                mcp(&call, status, &call.arguments, Some(record)),
            ),
        };
        events.write(kind, &call.place.members(), out);
        call.place.done(item, items, events, out);
    }

    /// Ends the calls that have no result.
    pub(super) fn interrupt(
        &mut self,
        items: &mut [Option<String>],
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        let mut open: Vec<OpenCall> = self.open.drain().map(|(_, call)| call).collect();
        open.sort_by_key(|call| call.place.index);
        for call in open {
            let item = match call.kind {
                ToolKind::WebSearch => self.web(&call, "incomplete", None),
                ToolKind::CodeExecution => {
                    let code = call.known().code.unwrap_or_default();
                    self.code(&call, &code, "incomplete", None)
                }
                ToolKind::Custom => mcp(&call, "incomplete", &call.arguments, None),
            };
            call.place.done(item, items, events, out);
        }
    }

    /// Live output of a call, for clients that ask for it.
    #[expect(
        clippy::too_many_arguments,
        reason = "the items, the writer and the buffer are the encoder's"
    )]
    pub(super) fn output(
        &self,
        of: &Calling,
        text: &str,
        stream: &str,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        if let Some(call) = self.open.get(&of.tool_call_id) {
            let members = format!(
                "{},\"text\":{},\"stream\":{}",
                call.place.members(),
                quoted(text),
                quoted(stream)
            );
            events.write("loopwright.tool_output", &members, out);
        }
    }

    fn web(&self, call: &OpenCall, status: &str, record: Option<&ToolCallRecord>) -> String {
        let known = call.known();
        let mut action = match (known.url, known.query) {
            (Some(url), None) => json!({"type": "open_page", "url": url}),
            (_, query) => {
                let query = query.unwrap_or_default();
                json!({"type": "search", "query": query, "queries": [query]})
            }
        };
        let mut item = json!({"type": "web_search_call", "id": call.place.id, "status": status});
        if let Some(ToolDetail::Web(detail)) = record.and_then(|record| record.detail.as_deref()) {
            if self.options.web_sources && action["type"] == "search" {
                let sources = detail.results.iter();
                let sources = sources.map(|source| json!({"type": "url", "url": source.url}));
                action["sources"] = sources.collect();
            }
            if self.options.web_results {
                let results = detail.results.iter();
                let results =
                    results.map(|source| json!({"url": source.url, "title": source.title}));
                item["results"] = results.collect();
            }
        }
        item["action"] = action;
        item.to_string()
    }

    fn code(
        &self,
        call: &OpenCall,
        code: &str,
        status: &str,
        record: Option<&ToolCallRecord>,
    ) -> String {
        let outputs = match record {
            Some(record) if self.options.code_outputs => Value::Array(self.outputs(record)),
            _ => Value::Null,
        };
        let container = self.options.container.clone();
        let container = container.unwrap_or_else(|| self.container());
        json!({
            "type": "code_interpreter_call", "id": call.place.id, "status": status, "code": code,
            "container_id": container, "outputs": outputs,
        })
        .to_string()
    }

    fn outputs(&self, record: &ToolCallRecord) -> Vec<Value> {
        let logs = match record.detail.as_deref() {
            Some(ToolDetail::Code(detail)) => logs(detail),
            _ => record.content.clone(),
        };
        let mut outputs = Vec::new();
        if !logs.is_empty() {
            outputs.push(json!({"type": "logs", "logs": logs}));
        }
        // Stored images are among the files of the call, in the same order and before its other files.
        let images = record.images.iter().filter(|image| image.file.is_some());
        let ids = record.file_ids.iter().take(images.count());
        let url = |id: &String| format!("{}/v1/files/{id}/content", self.options.origin);
        outputs.extend(ids.map(|id| json!({"type": "image", "url": url(id)})));
        outputs
    }
}

impl OpenCall {
    fn known(&self) -> KnownArguments {
        serde_json::from_str(&self.arguments).unwrap_or_default()
    }
}

/// What the code has written, its value and its error.
fn logs(detail: &CodeDetail) -> String {
    let parts = [
        Some(&detail.stdout),
        Some(&detail.stderr),
        detail.result.as_ref(),
        detail.exception.as_ref(),
    ];
    let mut logs = String::new();
    for part in parts.into_iter().flatten().filter(|part| !part.is_empty()) {
        if !logs.is_empty() && !logs.ends_with('\n') {
            logs.push('\n');
        }
        logs.push_str(part);
    }
    logs
}

fn mcp(call: &OpenCall, status: &str, arguments: &str, record: Option<&ToolCallRecord>) -> String {
    let mut item = json!({
        "type": "mcp_call", "id": call.place.id, "status": status, "server_label": call.server, "name": call.name,
        "arguments": arguments,
    });
    match record {
        Some(record) if record.status == ToolStatus::Ok => {
            item["output"] = record.content.as_str().into();
        }
        Some(record) => {
            item["error"] = json!({
                "type": "mcp_tool_execution_error",
                "content": [{"type": "text", "text": record.content}],
            });
        }
        None => {}
    }
    item.to_string()
}
