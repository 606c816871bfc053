//! An answer in one line, and cases with the same answer on the same line.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use super::super::record::Golden;

/// Longest text of a refusal that is shown as it is, in characters.
const SHOWN: usize = 600;
/// The same of any other answer.
const SHOWN_OF_SUCCESS: usize = 200;

/// Headers that every answer has.
const USUAL: [&str; 2] = ["date", "content-length"];

/// Headers of which only the name is shown.
const NAMED: [&str; 9] = [
    "access-control-expose-headers",
    "content-security-policy",
    "etag",
    "last-modified",
    "openai-processing-ms",
    "permissions-policy",
    "x-completion-id",
    "x-loopwright-overhead-ms",
    "x-session-id",
];

/// An answer.
#[derive(Debug)]
pub(super) struct Outcome {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    breaks_off: bool,
}

/// Answers to cases, those of one answer together.
#[derive(Debug, Default)]
pub(super) struct Cases(Vec<(String, Vec<String>)>);

impl Cases {
    /// Adds a case.
    pub(super) fn add(&mut self, name: &str, outcome: Outcome) {
        let line = outcome.line();
        match self.0.iter_mut().find(|(known, _)| *known == line) {
            Some((_, names)) => names.push(name.to_owned()),
            None => self.0.push((line, vec![name.to_owned()])),
        }
    }

    /// Records the cases below a heading.
    pub(super) fn write(&self, golden: &mut Golden, heading: &str) {
        golden.heading(heading);
        for (line, names) in &self.0 {
            golden.line(&format!("{} -> {line}", names.join(", ")));
        }
    }
}

impl Outcome {
    /// An answer whose body has not come yet.
    pub(super) fn new(status: StatusCode, headers: HeaderMap) -> Self {
        Self {
            status,
            headers,
            body: Vec::new(),
            breaks_off: false,
        }
    }

    /// An answer as the bytes of a connection.
    pub(super) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        let mut outcome = Self::new(status.parse().unwrap(), headers.collect());
        outcome.push(body.as_bytes());
        outcome
    }

    /// Adds bytes of the body.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
    }

    /// The body has no end.
    pub(super) fn breaks_off(&mut self) {
        self.breaks_off = true;
    }

    /// The answer in one line.
    pub(super) fn line(&self) -> String {
        let mut line = self.status.as_u16().to_string();
        let body = self.shown_body();
        if !body.is_empty() {
            let _ = write!(line, " {body}");
        }
        if self.breaks_off {
            line.push_str(" (breaks off)");
        }
        line + &self.shown_headers()
    }

    /// The text of the body.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of a header.
    pub(super) fn header(&self, name: &str) -> String {
        self.headers[name].to_str().unwrap().to_owned()
    }

    fn shown_body(&self) -> String {
        let text = self.text();
        let value = serde_json::from_str(&text).ok();
        if let Some(words) = value.as_ref().and_then(|value| envelope(value, &text)) {
            return words;
        }
        let kind = self.headers.get("content-type");
        if kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
            return stream(&text);
        }
        match value {
            Some(Value::Object(members)) if self.status.is_success() => {
                let names: Vec<&str> = members.keys().map(String::as_str).collect();
                match members.get("error").filter(|error| !error.is_null()) {
                    Some(error) => format!("{{{}}} error={error}", names.join(",")),
                    None => format!("{{{}}}", names.join(",")),
                }
            }
            _ if self.status.is_success() && text.len() > SHOWN_OF_SUCCESS => "(long)".to_owned(),
            _ => shortened(&text),
        }
    }

    fn shown_headers(&self) -> String {
        let mut shown: Vec<String> = Vec::new();
        for (name, value) in &self.headers {
            let text = String::from_utf8_lossy(value.as_bytes());
            let name = name.as_str();
            let is_usual = USUAL.contains(&name)
                || (name == "content-type" && text == "application/json" && !self.body.is_empty())
                || (name == "x-request-id" && text.starts_with("req_"));
            if NAMED.contains(&name) {
                shown.push(name.to_owned());
            } else if !is_usual {
                shown.push(format!("{name}={text}"));
            }
        }
        let length = self.headers.get("content-length");
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if !self.body.is_empty() && length.is_some_and(|length: usize| length != self.body.len()) {
            shown.push("content-length=wrong".to_owned());
        }
        if !self.headers.contains_key("x-request-id") {
            shown.push("x-request-id=none".to_owned());
        }
        shown.sort_unstable();
        let shown: Vec<String> = shown.iter().map(|header| format!(" [{header}]")).collect();
        shown.concat()
    }
}

/// The words of an error, if the body is the envelope with the members in the usual order and nothing else.
fn envelope(value: &Value, text: &str) -> Option<String> {
    let error = value.get("error")?;
    let member = |name: &str| error.get(name).unwrap_or(&Value::Null);
    let (message, kind) = (member("message"), member("type"));
    let (param, code) = (member("param"), member("code"));
    let usual = format!(
        r#"{{"error":{{"message":{message},"type":{kind},"param":{param},"code":{code}}}}}"#
    );
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let words = || {
        format!(
            "{} {} param={} {message}",
            word(kind),
            word(code),
            word(param)
        )
    };
    (usual == text).then(words)
}

/// The kinds of the events of a stream, and all of its errors.
fn stream(text: &str) -> String {
    let mut shown: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let data = line.strip_prefix("data: ");
        let event = match data.map(serde_json::from_str::<Value>) {
            Some(Ok(event)) => described(&event, data.unwrap_or_default()),
            // The type is in the data of the event too.
            None if line.starts_with("event: response.") || line == "event: error" => continue,
            Some(Err(_)) | None => shortened(line),
        };
        if shown.last() != Some(&event) {
            shown.push(event);
        }
    }
    format!("<{}>", shown.join(" | "))
}

fn described(event: &Value, text: &str) -> String {
    if let Some(words) = envelope(event, text) {
        return words;
    }
    let failure = event.pointer("/response/error");
    match (event["type"].as_str(), event["object"].as_str()) {
        (Some("error"), _) => text.to_owned(),
        (Some(kind), _) => match failure.filter(|failure| !failure.is_null()) {
            Some(failure) => format!("{kind} error={failure}"),
            None => kind.to_owned(),
        },
        (None, Some(object)) if event["error"].is_null() => {
            match event.pointer("/choices/0/finish_reason") {
                Some(Value::String(reason)) => format!("{object} {reason}"),
                _ => object.to_owned(),
            }
        }
        _ => shortened(text),
    }
}

fn shortened(text: &str) -> String {
    let shown: String = text.chars().take(SHOWN).collect();
    let shown = shown.escape_debug().to_string().replace("\\\"", "\"");
    match text.chars().count() > SHOWN {
        true => shown + "...",
        false => shown,
    }
}
