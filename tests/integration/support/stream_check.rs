//! Holds a stream against section 4 of the wire contract, event by event.

use serde_json::{Map, Value};

use super::collect::{ClientCall, Collected, Progress, TOOL_PROGRESS};
use super::events::Frame;

/// Words that a finish chunk may give as the reason.
const FINISH_REASONS: [&str; 4] = ["stop", "length", "tool_calls", "content_filter"];

/// Progress events, by `type`, with the keys that each must have.
const PROGRESS: [(&str, &[&str]); 5] = [
    (
        TOOL_PROGRESS,
        &["round", "tool_name", "tool_call_id", "phase", "data"],
    ),
    (
        "agentic_tool_approval_required",
        &[
            "approval_id",
            "session_id",
            "round",
            "tool_call_id",
            "tool",
            "arguments",
        ],
    ),
    ("agentic_tool_output", &["text", "stream"]),
    ("file_produced", &["file"]),
    ("agentic_notice", &["notice"]),
];

/// Words that a completed call may give as its status.
const STATUSES: [&str; 7] = [
    "ok",
    "error",
    "denied",
    "timeout",
    "cancelled",
    "suppressed",
    "interrupted",
];

/// Takes the events of a stream one by one.
#[derive(Debug, Default)]
pub(crate) struct StreamCheck {
    collected: Collected,
    created: Option<u64>,
    roles: usize,
    done: bool,
    /// Calls that have begun and not ended: round, id.
    running: Vec<(u64, String)>,
    /// The last round in which a call has ended.
    ended_round: Option<u64>,
    /// Whether events have numbers, as those of an event log do.
    numbered: bool,
    problems: Vec<String>,
}

impl StreamCheck {
    /// Expects a number on every event.
    pub(crate) fn numbered(&mut self) {
        self.numbered = true;
    }

    /// Takes one event.
    pub(crate) fn feed(&mut self, frame: &Frame) {
        self.collected.frames.push(frame.clone());
        self.collected
            .comments
            .extend(frame.comments.iter().cloned());
        for oddity in &frame.oddities {
            self.wrong(oddity.clone());
        }
        match (&frame.id, self.numbered) {
            (Some(id), false) => self.wrong(format!("the line `id: {id}`")),
            (None, true) => self.wrong("an event of a log without a number".to_owned()),
            (Some(_), true) | (None, false) => {}
        }
        if frame.data.contains('\r') || frame.data.is_empty() {
            self.wrong(format!("the data `{}`", frame.data.escape_debug()));
        }
        if self.done {
            self.wrong("something after [DONE]".to_owned());
        }
        if frame.data == "[DONE]" {
            self.done = true;
            if frame.event.is_some() {
                self.wrong("[DONE] has an event name".to_owned());
            }
            return;
        }
        if self.collected.error.is_some() {
            self.wrong("something other than [DONE] after an error".to_owned());
        }
        match serde_json::from_str::<Value>(&frame.data) {
            Ok(Value::Object(chunk)) if chunk.contains_key("error") => self.error(&chunk),
            Ok(chunk @ Value::Object(_)) => self.chunk(&chunk, frame.event.as_deref()),
            Ok(_) | Err(_) => self.wrong(format!("the data is no JSON object: {}", frame.data)),
        }
    }

    /// Takes what was left when the connection ended.
    pub(crate) fn rest(&mut self, bytes: &[u8], open: &Frame) {
        for oddity in &open.oddities {
            self.wrong(oddity.clone());
        }
        if !bytes.is_empty() || !open.data.is_empty() || open.event.is_some() {
            self.wrong("the stream ends in the middle of an event".to_owned());
        }
    }

    /// What came so far, for a person to read.
    pub(crate) fn transcript(&self) -> String {
        self.collected.transcript()
    }

    /// Takes the end of the stream.
    pub(crate) fn finish(mut self) -> (Collected, Vec<String>) {
        if !self.done {
            self.wrong("the stream has no [DONE]".to_owned());
        }
        let failed = self.collected.error.is_some();
        match (failed, self.collected.finish.is_some()) {
            (true, true) => self.wrong("both a finish chunk and an error".to_owned()),
            (false, false) => self.wrong("neither a finish chunk nor an error".to_owned()),
            (true, false) => {}
            (false, true) => self.finished_well(),
        }
        let named = self
            .collected
            .progress
            .iter()
            .filter(|one| one.event.is_some());
        let named = named.count();
        if named != 0 && named != self.collected.progress.len() {
            self.wrong("some progress events are named and some are not".to_owned());
        }
        (self.collected, self.problems)
    }

    fn finished_well(&mut self) {
        if self.roles != 1 {
            self.wrong(format!("{} chunks have a role", self.roles));
        }
        let waits = self.collected.agent()["stop_reason"] == "approval_required";
        if !self.running.is_empty() && !waits {
            self.wrong(format!("calls that never completed: {:?}", self.running));
        }
        let asks = self.collected.finish_reason() == "tool_calls";
        if asks == self.collected.tool_calls.is_empty() {
            self.wrong("the finish reason and the tool calls do not agree".to_owned());
        }
        for call in self.collected.tool_calls.clone() {
            let object = serde_json::from_str::<Map<String, Value>>(&call.arguments);
            if call.id.is_empty() || call.name.is_empty() || object.is_err() {
                self.wrong(format!("an unusable tool call: {call:?}"));
            }
        }
    }

    fn wrong(&mut self, mut text: String) {
        text.insert_str(0, &format!("event {}: ", self.collected.frames.len()));
        self.problems.push(text);
    }

    fn error(&mut self, chunk: &Map<String, Value>) {
        let error = chunk["error"].clone();
        let whole = ["message", "type", "param", "code"]
            .iter()
            .all(|field| error.get(field).is_some());
        if !whole || !error["message"].is_string() || chunk.len() != 1 {
            self.wrong("the error is not in OpenAI's envelope".to_owned());
        }
        self.collected.error = Some(error);
    }

    fn chunk(&mut self, chunk: &Value, event: Option<&str>) {
        self.envelope(chunk);
        for member in ["event", "selected_model_id"] {
            if chunk.get(member).is_some() {
                self.wrong(format!("front ends act on the member `{member}`"));
            }
        }
        if self.collected.frames.len() == 1 && chunk["choices"][0]["delta"]["role"] != "assistant" {
            self.wrong("the first chunk has no role".to_owned());
        }
        if chunk.get("type").is_some() {
            self.progress(chunk, event);
            return;
        }
        if let Some(event) = event {
            self.wrong(format!("a chunk named `{event}` that is no progress event"));
        }
        match chunk["choices"].as_array().map(Vec::as_slice) {
            Some([]) => self.usage(chunk),
            Some([choice]) => self.choice(chunk, choice),
            _ => self.wrong("`choices` is no list of at most one".to_owned()),
        }
    }

    fn envelope(&mut self, chunk: &Value) {
        if chunk["object"] != "chat.completion.chunk" {
            self.wrong("`object` is not chat.completion.chunk".to_owned());
        }
        let (id, model) = (chunk["id"].as_str(), chunk["model"].as_str());
        let (Some(id), Some(model), Some(created)) = (id, model, chunk["created"].as_u64()) else {
            self.wrong("`id`, `model` or `created` is missing".to_owned());
            return;
        };
        if self.created.is_none() {
            self.created = Some(created);
            id.clone_into(&mut self.collected.id);
            model.clone_into(&mut self.collected.model);
        }
        if self.collected.id != id || self.collected.model != model {
            self.wrong("`id` or `model` changed".to_owned());
        }
        if self.created != Some(created) {
            self.wrong("`created` changed".to_owned());
        }
    }

    fn usage(&mut self, chunk: &Value) {
        let usage = &chunk["usage"];
        let count = |field: &str| usage[field].as_u64();
        let sum = count("prompt_tokens")
            .zip(count("completion_tokens"))
            .map(|(prompt, completion)| prompt + completion);
        if sum.is_none() || sum != count("total_tokens") {
            self.wrong("the token counts do not add up".to_owned());
        }
        if self.collected.finish.is_none() || self.collected.usage.is_some() {
            self.wrong("a usage chunk in the wrong place".to_owned());
        }
        self.collected.usage = Some(usage.clone());
    }

    fn choice(&mut self, chunk: &Value, choice: &Value) {
        if self.collected.finish.is_some() {
            self.wrong("a choice after the finish chunk".to_owned());
        }
        if choice["index"] != 0 || !choice["delta"].is_object() {
            self.wrong("a choice without index 0 or without a delta".to_owned());
        }
        self.delta(&choice["delta"]);
        match &choice["finish_reason"] {
            Value::Null => {}
            Value::String(reason) if FINISH_REASONS.contains(&reason.as_str()) => {
                if !chunk["agent"]["stop_reason"].is_string() {
                    self.wrong("the finish chunk has no `agent`".to_owned());
                }
                self.collected.finish = Some(chunk.clone());
            }
            other => self.wrong(format!("the finish reason {other}")),
        }
    }

    fn delta(&mut self, delta: &Value) {
        if delta.get("role").is_some() {
            self.roles += 1;
        }
        let text = delta["content"].as_str().unwrap_or_default();
        let reasoning = ["reasoning_content", "reasoning"]
            .iter()
            .find_map(|field| delta[*field].as_str())
            .unwrap_or_default();
        if !text.is_empty() && !reasoning.is_empty() {
            self.wrong("text and reasoning in one chunk".to_owned());
        }
        let speaks = !text.is_empty() || !reasoning.is_empty();
        // The sentence that tells of calls which wait for a person.
        let tells = text.contains("waits for a person's decision");
        if speaks && !tells && !self.running.is_empty() {
            self.wrong("the model speaks while calls are running".to_owned());
        }
        self.collected.text.push_str(text);
        self.collected.reasoning.push_str(reasoning);
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call);
        }
    }

    fn call(&mut self, call: &Value) {
        let known = self.collected.tool_calls.len();
        let Some(index) = call["index"]
            .as_u64()
            .and_then(|index| usize::try_from(index).ok())
        else {
            self.wrong("a tool call without an index".to_owned());
            return;
        };
        if index > known {
            self.wrong(format!("the tool call {index} comes before {known}"));
            return;
        }
        if index == known {
            if !call["id"].is_string() || call["type"] != "function" {
                self.wrong("a tool call begins without id or type".to_owned());
            }
            self.collected.tool_calls.push(ClientCall::default());
        }
        let target = &mut self.collected.tool_calls[index];
        let function = &call["function"];
        target.id.push_str(call["id"].as_str().unwrap_or_default());
        target
            .name
            .push_str(function["name"].as_str().unwrap_or_default());
        target
            .arguments
            .push_str(function["arguments"].as_str().unwrap_or_default());
    }

    fn progress(&mut self, chunk: &Value, event: Option<&str>) {
        let kind = chunk["type"].as_str().unwrap_or_default();
        if event.is_some_and(|event| event != kind) {
            self.wrong(format!("the event name is not the type `{kind}`"));
        }
        let plain = serde_json::json!([{"index": 0, "delta": {}, "finish_reason": null}]);
        if chunk["choices"] != plain {
            self.wrong("a progress event with something in its choice".to_owned());
        }
        if self.collected.finish.is_some() {
            self.wrong("a progress event after the finish chunk".to_owned());
        }
        match PROGRESS.iter().find(|(known, _)| *known == kind) {
            Some((_, keys)) => {
                for key in keys.iter().filter(|key| chunk.get(key).is_none()) {
                    self.wrong(format!("`{kind}` without `{key}`"));
                }
            }
            None => self.wrong(format!("the unknown progress event `{kind}`")),
        }
        if kind == TOOL_PROGRESS {
            self.tool_progress(chunk);
        }
        self.collected.progress.push(Progress {
            event: event.map(ToOwned::to_owned),
            chunk: chunk.clone(),
        });
    }

    fn tool_progress(&mut self, chunk: &Value) {
        let id = chunk["tool_call_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let round = chunk["round"].as_u64().unwrap_or_default();
        let data = &chunk["data"];
        let kind = data["tool_type"].as_str().unwrap_or_default();
        if !["custom", "web_search", "code_execution"].contains(&kind) {
            self.wrong(format!("the tool type `{kind}`"));
        }
        if kind == "custom" && !data["arguments"].is_object() {
            self.wrong("`data.arguments` is no object".to_owned());
        }
        let call = (round, id);
        let place = self.running.iter().position(|running| *running == call);
        match (chunk["phase"].as_str(), place) {
            (Some("calling"), None) => {
                if self.ended_round.is_some_and(|ended| round <= ended) {
                    self.wrong(format!(
                        "{call:?} begins after a call of its round has ended"
                    ));
                }
                self.running.push(call);
            }
            (Some("complete"), Some(place)) => {
                self.running.remove(place);
                self.ended_round = Some(round);
                let status = chunk["status"].as_str().unwrap_or_default();
                if !STATUSES.contains(&status) || !chunk["duration_ms"].is_u64() {
                    self.wrong(format!("the end of {call:?} has no status or duration"));
                }
                if kind == "custom" && data.get("content").is_none() {
                    self.wrong(format!("the end of {call:?} has no content"));
                }
            }
            (phase, _) => self.wrong(format!("{call:?} is {phase:?} out of turn")),
        }
    }
}
