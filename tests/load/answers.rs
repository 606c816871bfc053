//! The bytes that the scripted model and the webhook answer with.
//!
//! Everything is framed once at the start, so that answering costs the harness one write.

use serde_json::{Value, json};

/// The text that every streamed token holds; generators look for it to tell the first token.
pub(crate) const TOKEN: &str = "tok ";

/// The text that ends a scripted conversation.
pub(crate) const LAST_WORDS: &str = "All lookups are done.";

/// Rounds that the scripted model can ask for.
pub(crate) const MAX_ROUNDS: usize = 100;

const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
     cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";

const USAGE: &str = r#"{"prompt_tokens":120,"completion_tokens":24,"total_tokens":144}"#;

/// All answers, ready to be written.
#[derive(Debug)]
pub(crate) struct Answers {
    /// A plain completion of about 500 bytes.
    pub(crate) plain: Vec<u8>,
    /// What the webhook says.
    pub(crate) tool: Vec<u8>,
    /// The list of models.
    pub(crate) models: Vec<u8>,
    /// For a path that the script does not know.
    pub(crate) missing: Vec<u8>,
    /// An error of the server.
    pub(crate) error: Vec<u8>,
    /// An answer to one request too many.
    pub(crate) busy: Vec<u8>,
    /// A stream whose events are no JSON.
    pub(crate) garbage: Vec<u8>,
    /// Head of a stream and the chunk with the role.
    pub(crate) opening: Vec<u8>,
    /// One token, as a chunk of its own.
    pub(crate) token: Vec<u8>,
    rounds: Vec<[Vec<u8>; 3]>,
    cells: Vec<[Vec<u8>; 3]>,
    plots: Vec<[Vec<u8>; 3]>,
    last: [Vec<u8>; 3],
    closing: [Vec<u8>; 2],
}

/// In which form the caller wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One JSON object.
    Plain,
    /// A stream.
    Stream,
    /// A stream with a usage chunk.
    StreamWithUsage,
}

impl Form {
    /// Reads the form from a request, given a search in its text.
    pub(crate) fn of(has: impl Fn(&[u8]) -> bool) -> Self {
        if !has(b"\"stream\":true") {
            Self::Plain
        } else if has(b"\"include_usage\":true") {
            Self::StreamWithUsage
        } else {
            Self::Stream
        }
    }
}

impl Answers {
    /// Frames all answers.
    pub(crate) fn new() -> Self {
        let text = "The quick brown fox jumps over the lazy dog. ".repeat(4);
        Self {
            plain: answer(
                "200 OK",
                &completion(
                    &format!(r#"{{"role":"assistant","content":"{text}"}}"#),
                    "stop",
                ),
            ),
            tool: answer("200 OK", r#"{"content":"ok"}"#),
            models: answer(
                "200 OK",
                r#"{"object":"list","data":[{"id":"load","object":"model","created":1760000000,"owned_by":"load"}]}"#,
            ),
            missing: answer(
                "404 Not Found",
                r#"{"error":{"message":"no such path","type":"invalid_request_error","param":null,"code":null}}"#,
            ),
            error: answer(
                "500 Internal Server Error",
                r#"{"error":{"message":"on purpose","type":"server_error","param":null,"code":null}}"#,
            ),
            busy: b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n"
                .to_vec(),
            garbage: [
                STREAM_HEAD.as_bytes(),
                &event("{\"choices\":"),
                &closing("stop", false),
            ]
            .concat(),
            opening: [
                STREAM_HEAD.as_bytes(),
                &event(&delta(r#"{"role":"assistant","content":""}"#, None)),
            ]
            .concat(),
            token: event(&delta(&format!(r#"{{"content":"{TOKEN}"}}"#), None)),
            // The arguments differ from round to round: a repeated call is one that a proxy may refuse to run.
            rounds: rounds(|done| ("lookup", json!({"n": done}))),
            cells: rounds(|done| ("execute_python", json!({"code": cell(done)}))),
            plots: rounds(|done| ("execute_python", json!({"code": plot(done)}))),
            last: last(),
            closing: [closing("stop", false), closing("stop", true)],
        }
    }

    /// The answer that asks for the tool for the `done`-th time.
    pub(crate) fn round(&self, done: usize, form: Form) -> &[u8] {
        self.rounds
            .get(done)
            .map_or(&self.missing, |forms| pick(forms, form))
    }

    /// The answer that asks for a sum for the `done`-th time.
    pub(crate) fn cell(&self, done: usize, form: Form) -> &[u8] {
        self.cells
            .get(done)
            .map_or(&self.missing, |forms| pick(forms, form))
    }

    /// The answer that asks for a plot for the `done`-th time.
    pub(crate) fn plot(&self, done: usize, form: Form) -> &[u8] {
        self.plots
            .get(done)
            .map_or(&self.missing, |forms| pick(forms, form))
    }

    /// The answer after the last tool round.
    pub(crate) fn last(&self, form: Form) -> &[u8] {
        pick(&self.last, form)
    }

    /// What follows the last token of a stream.
    pub(crate) fn closing(&self, form: Form) -> &[u8] {
        let [bare, with_usage] = &self.closing;
        match form {
            Form::Plain | Form::Stream => bare,
            Form::StreamWithUsage => with_usage,
        }
    }
}

/// Frames a JSON answer.
fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn pick(forms: &[Vec<u8>; 3], form: Form) -> &[u8] {
    let [plain, stream, with_usage] = forms;
    match form {
        Form::Plain => plain,
        Form::Stream => stream,
        Form::StreamWithUsage => with_usage,
    }
}

/// The code of a cell that adds two numbers.
pub(crate) fn cell(done: usize) -> String {
    format!("1+1 # {done}")
}

/// The code of a cell that plots.
pub(crate) fn plot(done: usize) -> String {
    format!("import matplotlib.pyplot as plt\nplt.plot([1, 4, 2, 8])\nplt.title('Plot {done}');")
}

/// The answers that ask for a tool with these arguments, by the number of calls so far.
fn rounds(call: impl Fn(usize) -> (&'static str, Value)) -> Vec<[Vec<u8>; 3]> {
    (0..MAX_ROUNDS)
        .map(|done| {
            let (name, arguments) = call(done);
            round(done, name, &arguments)
        })
        .collect()
}

fn round(done: usize, name: &str, arguments: &Value) -> [Vec<u8>; 3] {
    let arguments = Value::String(arguments.to_string());
    let call = format!(
        r#""id":"call_{done}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}"#
    );
    let stream = |usage| {
        [
            STREAM_HEAD.as_bytes(),
            &event(&delta(r#"{"role":"assistant","content":null}"#, None)),
            &event(&delta(
                &format!(r#"{{"tool_calls":[{{"index":0,{call}}}]}}"#),
                None,
            )),
            &closing("tool_calls", usage),
        ]
        .concat()
    };
    let message = format!(r#"{{"role":"assistant","content":null,"tool_calls":[{{{call}}}]}}"#);
    [
        answer("200 OK", &completion(&message, "tool_calls")),
        stream(false),
        stream(true),
    ]
}

fn last() -> [Vec<u8>; 3] {
    let stream = |usage| {
        [
            STREAM_HEAD.as_bytes(),
            &event(&delta(r#"{"role":"assistant","content":""}"#, None)),
            &event(&delta(&format!(r#"{{"content":"{LAST_WORDS}"}}"#), None)),
            &closing("stop", usage),
        ]
        .concat()
    };
    let message = format!(r#"{{"role":"assistant","content":"{LAST_WORDS}"}}"#);
    [
        answer("200 OK", &completion(&message, "stop")),
        stream(false),
        stream(true),
    ]
}

fn closing(reason: &str, usage: bool) -> Vec<u8> {
    let mut bytes = event(&delta("{}", Some(reason)));
    if usage {
        bytes.extend(event(&format!(
            r#"{{"id":"chatcmpl-load","object":"chat.completion.chunk","created":1760000000,"model":"load","choices":[],"usage":{USAGE}}}"#
        )));
    }
    bytes.extend(event("[DONE]"));
    bytes.extend(b"0\r\n\r\n");
    bytes
}

fn completion(message: &str, reason: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-load","object":"chat.completion","created":1760000000,"model":"load","choices":[{{"index":0,"message":{message},"logprobs":null,"finish_reason":"{reason}"}}],"usage":{USAGE}}}"#
    )
}

fn delta(delta: &str, reason: Option<&str>) -> String {
    let reason = reason.map_or_else(|| "null".to_owned(), |reason| format!("\"{reason}\""));
    format!(
        r#"{{"id":"chatcmpl-load","object":"chat.completion.chunk","created":1760000000,"model":"load","choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{reason}}}]}}"#
    )
}

/// Frames one server-sent event as one chunk.
fn event(data: &str) -> Vec<u8> {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}
