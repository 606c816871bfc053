//! The error envelope, and the errors that model servers report.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::raw::{RawObject, push_entry, quoted};

/// Fields in which an error names its HTTP status.
const STATUS_FIELDS: [&str; 4] = ["code", "status", "status_code", "statusCode"];
/// Longest plain text that is a message, in bytes; a longer one is none.
const MAX_PLAIN: usize = 1024;
/// Deepest nesting of the error in its report. A deeper one is not found.
const MAX_DEPTH: usize = 6;

/// `{"error":{…}}`, the body of every error.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody<'a> {
    /// The error.
    pub error: ErrorDetail<'a>,
}

/// An error, in OpenAI's four fields.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ErrorDetail<'a> {
    /// The message for people: the field, the problem with its value and the remedy.
    pub message: &'a str,
    /// The class of error, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The invalid field of the request, if there is one.
    pub param: Option<&'a str>,
    /// The machine-readable reason, if there is one.
    pub code: Option<&'a str>,
}

/// An error as a model server reports it: an object below `error` as OpenAI has it, a list of these, a text, the same fields
/// at the top, or what web frameworks send.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedError<'a> {
    /// The message for people; never blank.
    pub message: Option<String>,
    /// The class of error.
    pub kind: Option<String>,
    /// The reason, as JSON text.
    pub code: Option<&'a str>,
    /// The HTTP status of an error that the report names as a number: in a stream there is no other.
    pub status: Option<u16>,
    /// The object that has the message.
    object: Option<&'a str>,
}

impl<'a> ReportedError<'a> {
    /// Reads the JSON text of a body, of a line of a stream, or of an `error` itself. A short plain text is the message; a page
    /// and other text report nothing.
    pub fn read(text: &'a str) -> Self {
        serde_json::from_str(text).map_or_else(|_| Self::of_text(text), |json| Self::of(json, 0))
    }

    fn of_text(text: &str) -> Self {
        let text = text.trim();
        let is_plain = !text.starts_with(['<', '{', '['])
            && text.len() <= MAX_PLAIN
            && !text.contains(|c: char| c.is_control() && !c.is_whitespace());
        Self {
            message: Some(text.to_owned()).filter(|text| is_plain && !text.is_empty()),
            ..Self::default()
        }
    }

    /// The error as the JSON text of an object with OpenAI's four fields, in one line: the server's own object, or one
    /// made from its message. `None` without a message.
    pub fn to_object(&self) -> Option<String> {
        let message = quoted(self.message.as_deref()?);
        let kind = quoted(self.kind.as_deref().unwrap_or("server_error"));
        let object = RawObject::parse(self.object.unwrap_or("{}")).unwrap_or_default();
        let mut json = object.to_json();
        json.pop();
        for (key, value) in [
            ("message", message.as_str()),
            ("type", &kind),
            ("param", "null"),
            ("code", self.code.unwrap_or("null")),
        ] {
            if object.get(key).is_none() {
                push_entry(&mut json, key, value);
            }
        }
        json.push('}');
        // A data line of a stream must not contain line breaks.
        Some(json.replace(['\n', '\r'], " "))
    }

    fn of(value: &'a RawValue, depth: usize) -> Self {
        let text = value.get();
        match text.as_bytes().first() {
            Some(b'"') => Self {
                message: text_of(value).filter(|text| !text.trim().is_empty()),
                ..Self::default()
            },
            Some(b'[') if depth < MAX_DEPTH => {
                let entries: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                let mut errors = entries.into_iter().map(|entry| Self::of(entry, depth + 1));
                errors
                    .find(|error| error.message.is_some() || error.status.is_some())
                    .unwrap_or_default()
            }
            Some(b'{') if depth < MAX_DEPTH => Self::of_object(text, depth),
            _ => Self::default(),
        }
    }

    fn of_object(json: &'a str, depth: usize) -> Self {
        let object = RawObject::parse(json).unwrap_or_default();
        let get = |key| object.get_some(key);
        // A text in `error` may be no more than the name of the status beside a message.
        let below = get("error").filter(|error| !error.get().starts_with('"'));
        let places = [
            below,
            get("errors"),
            get("message"),
            get("error"),
            get("detail"),
            get("msg"),
        ];
        let mut errors = places.into_iter().flatten();
        let mut error = errors
            .find_map(|place| Some(Self::of(place, depth + 1)).filter(|it| it.message.is_some()))
            .unwrap_or_default();
        let place = get("loc").and_then(path_of);
        if error.object.is_none() && get("message").is_some_and(|own| own.get().starts_with('"')) {
            error.object = error.message.is_some().then_some(json);
        }
        // The type of a validation error is no class of errors.
        let kind = get("type").filter(|_| place.is_none());
        error.kind = error.kind.or_else(|| kind.and_then(text_of));
        if let (Some(message), Some(place)) = (&mut error.message, place) {
            *message = format!("{place}: {message}");
        }
        error.code = error.code.or_else(|| get("code").map(RawValue::get));
        let mut statuses = STATUS_FIELDS.into_iter();
        error.status = error
            .status
            .or_else(|| Self::of(below?, depth + 1).status)
            .or_else(|| statuses.find_map(|key| status_of(get(key)?)));
        error
    }
}

fn text_of(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The path to an invalid field, as Python's frameworks write it.
fn path_of(value: &RawValue) -> Option<String> {
    let steps: Vec<serde_json::Value> = serde_json::from_str(value.get()).ok()?;
    let steps: Vec<String> = steps
        .iter()
        .map(|step| {
            step.as_str()
                .map_or_else(|| step.to_string(), str::to_owned)
        })
        .collect();
    Some(steps.join("."))
}

/// The status of an error, as a number or in a text.
fn status_of(value: &RawValue) -> Option<u16> {
    let number: f64 = value.get().trim_matches('"').trim().parse().ok()?;
    (400.0..600.0).contains(&number).then_some(number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_in_every_shape() {
        for (json, message, status) in [
            (
                r#"{"error":{"message":"m","type":"t","code":"c"}}"#,
                "m",
                None,
            ),
            (r#"{"message":"m","type":"t","code":"503"}"#, "m", Some(503)),
            (
                r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#,
                "m",
                Some(400),
            ),
            (
                r#"{"error":[{"message":"m"}],"status_code":500}"#,
                "m",
                Some(500),
            ),
            (r#"{"error":"m"}"#, "m", None),
            (
                r#"{"statusCode":401,"error":"Unauthorized","message":"m"}"#,
                "m",
                Some(401),
            ),
            (r#"{"error":true,"message":"m"}"#, "m", None),
            (
                r#"{"error":{"error":{"message":"m"},"code":429.0}}"#,
                "m",
                Some(429),
            ),
            (r#"{"detail":"m"}"#, "m", None),
            (r#"{"detail":{"error":"m","status":404}}"#, "m", Some(404)),
            (
                r#"{"detail":[{"loc":["body","messages",0],"msg":"m","type":"missing"}]}"#,
                "body.messages.0: m",
                None,
            ),
            (
                r#"{"object":"error","message":{"detail":[{"loc":["body","x"],"msg":"m"}]},"code":null}"#,
                "body.x: m",
                None,
            ),
            (
                r#"{"success":false,"errors":[{"code":7003,"message":"m"}]}"#,
                "m",
                None,
            ),
            (r#"{"errors":["m"]}"#, "m", None),
            (r#"{"message":"m","error":{"code":503}}"#, "m", Some(503)),
            (r#"{"code":500,"msg":"m"}"#, "m", Some(500)),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#,
                "m",
                None,
            ),
            (r#""m""#, "m", None),
            (" m: no route\n", "m: no route", None),
        ] {
            let error = ReportedError::read(json);
            assert_eq!(error.message.as_deref(), Some(message), "{json}");
            assert_eq!(error.status, status, "{json}");
        }
        for (json, status) in [
            ("", None),
            ("<html>", None),
            ("7", None),
            ("[]", None),
            (r#"{"message":{"role":"assistant"}}"#, None),
            (r#"{"error":{"code":"500","message":" "}}"#, Some(500)),
            (r#"[{"error":{"code":503}}]"#, Some(503)),
            (r#"{"code":"200"}"#, None),
            (&"[".repeat(100_000), None),
            (&format!("{}{}", "[".repeat(100), "]".repeat(100)), None),
        ] {
            let error = ReportedError::read(json);
            assert_eq!((error.message, error.status), (None, status), "{json}");
        }
    }

    #[test]
    fn the_servers_own_object_keeps_its_members_and_other_reports_become_one() {
        for (json, object) in [
            (
                r#"{"error":{"code":null,"message":"m","type":null,"param":"p","x":1.0},"type":"t"}"#,
                r#"{"code":null,"message":"m","type":null,"param":"p","x":1.0}"#,
            ),
            (
                r#"[{"error":{"code":7,"message":"m","status":"S"}}]"#,
                r#"{"code":7,"message":"m","status":"S","type":"server_error","param":null}"#,
            ),
            (
                "{\"error\":{\n\"message\":\"m\",\"x\":[1,\n2]},\"type\":\"t\"}",
                r#"{"message":"m","x":[1, 2],"type":"t","param":null,"code":null}"#,
            ),
            (
                r#"{"object":"error","message":"m","code":40}"#,
                r#"{"object":"error","message":"m","code":40,"type":"server_error","param":null}"#,
            ),
            (
                r#"{"error":"m","type":"t","code":"c"}"#,
                r#"{"message":"m","type":"t","param":null,"code":"c"}"#,
            ),
            (
                r#"{"message":{"detail":[{"loc":["a"],"msg":"m","type":"missing"}]},"type":"t"}"#,
                r#"{"message":"a: m","type":"t","param":null,"code":null}"#,
            ),
            (
                r#"{"detail":"m"}"#,
                r#"{"message":"m","type":"server_error","param":null,"code":null}"#,
            ),
        ] {
            assert_eq!(
                ReportedError::read(json).to_object().as_deref(),
                Some(object)
            );
        }
        assert_eq!(
            ReportedError::read(r#"{"error":{"code":1}}"#).to_object(),
            None
        );
    }
}
