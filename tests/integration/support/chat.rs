//! What a model says, in the spelling of vLLM.

use bytes::Bytes;
use serde_json::{Value, json};

/// Characters in one streamed piece of arguments.
const ARGUMENT_PIECE: usize = 7;

/// `created` of the first reply; every later one counts on, so that a test notices when it leaks through.
const FIRST_CREATED: u64 = 1_790_000_000;

/// How a reply is to be spelled.
#[derive(Debug, Clone)]
pub(crate) struct Spelling {
    /// The how many-eth reply of the server this is, from 0.
    pub(crate) number: usize,
    /// The model that was asked for.
    pub(crate) model: String,
    /// As a stream, or whole.
    pub(crate) stream: bool,
    /// With a chunk of token counts at the end of the stream.
    pub(crate) include_usage: bool,
}

/// What a model says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chat {
    /// The reasoning text.
    pub(crate) reasoning: String,
    /// The visible text.
    pub(crate) text: String,
    /// The calls.
    pub(crate) calls: Vec<Call>,
    /// The finish reason, where it is not the one that follows.
    pub(crate) finish: Option<String>,
    /// Token counts: prompt, completion.
    pub(crate) usage: Option<(u64, u64)>,
}

/// A tool call of the model.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The id, where it matters.
    pub(crate) id: Option<String>,
    /// The name.
    pub(crate) name: String,
    /// The text of the arguments.
    pub(crate) arguments: String,
}

impl Chat {
    fn finish_reason(&self) -> &str {
        match (&self.finish, self.calls.is_empty()) {
            (Some(reason), _) => reason,
            (None, true) => "stop",
            (None, false) => "tool_calls",
        }
    }

    fn usage_json(&self) -> Value {
        let (prompt, completion) = self.usage.unwrap_or((10, 5));
        json!({
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion,
            "completion_tokens": completion,
            "prompt_tokens_details": null,
        })
    }

    fn call_id(&self, call: usize, reply: usize) -> String {
        match &self.calls[call].id {
            Some(id) => id.clone(),
            None => format!("chatcmpl-tool-{reply:016x}{call:016x}"),
        }
    }

    /// The answer as one object.
    pub(crate) fn completion(&self, spelling: &Spelling) -> Value {
        let calls: Vec<Value> = self
            .calls
            .iter()
            .enumerate()
            .map(|(position, call)| {
                json!({
                    "id": self.call_id(position, spelling.number),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                })
            })
            .collect();
        let mut message = json!({"role": "assistant", "content": self.text, "refusal": null});
        if self.text.is_empty() && !calls.is_empty() {
            message["content"] = Value::Null;
        }
        if !self.reasoning.is_empty() {
            message["reasoning_content"] = json!(self.reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let mut whole = envelope(spelling, "chat.completion");
        whole["choices"] = json!([{
            "index": 0,
            "message": message,
            "logprobs": null,
            "finish_reason": self.finish_reason(),
            "stop_reason": null,
        }]);
        whole["usage"] = self.usage_json();
        whole
    }

    /// The answer as an event stream, frame by frame.
    pub(crate) fn frames(&self, spelling: &Spelling) -> Vec<Bytes> {
        let mut deltas = vec![json!({"role": "assistant", "content": ""})];
        deltas.extend(words(&self.reasoning).map(|word| json!({"reasoning_content": word})));
        deltas.extend(words(&self.text).map(|word| json!({"content": word})));
        for (index, call) in self.calls.iter().enumerate() {
            let id = self.call_id(index, spelling.number);
            let function = json!({"name": call.name, "arguments": ""});
            let head = json!({"index": index, "id": id, "type": "function", "function": function});
            deltas.push(json!({"tool_calls": [head]}));
            deltas.extend(pieces(&call.arguments).map(
                |piece| json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
            ));
        }
        let mut chunks: Vec<Value> = deltas
            .into_iter()
            .map(|delta| json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}))
            .collect();
        chunks.push(json!({
            "index": 0,
            "delta": {"content": ""},
            "logprobs": null,
            "finish_reason": self.finish_reason(),
            "stop_reason": null,
        }));
        let mut frames: Vec<Bytes> = chunks
            .into_iter()
            .map(|choice| {
                let mut chunk = envelope(spelling, "chat.completion.chunk");
                chunk["choices"] = json!([choice]);
                frame(&chunk)
            })
            .collect();
        if spelling.include_usage {
            let mut chunk = envelope(spelling, "chat.completion.chunk");
            chunk["choices"] = json!([]);
            chunk["usage"] = self.usage_json();
            frames.push(frame(&chunk));
        }
        frames.push(Bytes::from_static(b"data: [DONE]\n\n"));
        frames
    }
}

/// One frame of an event stream.
pub(crate) fn frame(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}

fn envelope(spelling: &Spelling, object: &str) -> Value {
    json!({
        "id": format!("chatcmpl-{:032x}", 0xfeed_0000 + spelling.number),
        "object": object,
        "created": FIRST_CREATED + spelling.number as u64,
        "model": spelling.model,
        "system_fingerprint": "fp_scripted",
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(' ')
}

fn pieces(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = characters
        .chunks(ARGUMENT_PIECE)
        .map(|piece| piece.iter().collect())
        .collect();
    pieces.into_iter()
}
