//! Turns that an earlier version has suspended: the request that began the run is stored in the place of its draft.

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::dialects::answer::AnswerForm;
use crate::dialects::fields::head::{PROGRESS_HEADER, RequestHead};
use crate::dialects::{chat, responses};
use agent::draft::{Decoded, TurnDraft};
use agent::turn::RunResumption;
use protocol::ids::{RunId, SessionId};
use protocol::openai::request::RequestError;

/// The path of responses. All other requests are of chat completions.
const RESPONSES: &str = "/v1/responses";
/// The header that names the span of the request which began the run.
const FIRST_SPAN: &str = "x-loopwright-first-span";
/// The header by which the official SDKs are recognised.
const STAINLESS: &str = "x-stainless-lang";

/// A request as it is stored: without its messages, which the session has.
#[derive(Debug, Deserialize)]
struct StoredRequest {
    path: String,
    headers: Vec<(String, String)>,
    body: Box<RawValue>,
}

impl StoredRequest {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(known, _)| known == name)?;
        Some(value)
    }

    fn head(&self, most: usize) -> RequestHead {
        let scheme = self.header("x-forwarded-proto").unwrap_or("http");
        let host = self.header(HOST.as_str());
        RequestHead {
            // A request without messages names a session.
            session: SessionId::parse("suspended").ok(),
            chat: None,
            progress: self.header(PROGRESS_HEADER).map(str::to_owned),
            official_sdk: self.header(STAINLESS).is_some(),
            user_agent: self
                .header(USER_AGENT.as_str())
                .unwrap_or_default()
                .to_owned(),
            origin: host.map_or_else(String::new, |host| format!("{scheme}://{host}")),
            max_messages: most,
        }
    }
}

/// The draft of a stored request, and how its run resumes; `None` if it cannot be read.
///
/// # Errors
/// When a field is invalid.
pub(super) fn decoded(
    run: &RunId,
    request: &str,
    most: usize,
) -> Result<Option<(TurnDraft, RunResumption)>, RequestError> {
    let Ok(request) = serde_json::from_str::<StoredRequest>(request) else {
        return Ok(None);
    };
    let head = request.head(most);
    let body = Bytes::copy_from_slice(request.body.get().as_bytes());
    let (decoded, form) = match &*request.path {
        RESPONSES => {
            let known = responses::decode::KnownHistory::default();
            let decoded = responses::decode::decode(&body, &head, &known)?;
            let form = AnswerForm::Responses(decoded.options.into());
            (decoded.decoded, form)
        }
        _ => {
            let decoded = chat::decode::decode(&body, &head)?;
            (decoded.decoded, AnswerForm::Chat(decoded.reply))
        }
    };
    let Decoded { draft, faults } = decoded;
    faults.first().map_or(Ok(()), Err)?;
    let Ok(reply) = to_raw_value(&form) else {
        return Ok(None);
    };
    let resumption = RunResumption {
        run: run.as_str().into(),
        reply,
        first_span: request.header(FIRST_SPAN).map(Into::into),
    };
    Ok(Some((draft, resumption)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, body: &str) -> Option<(TurnDraft, RunResumption)> {
        let headers = r#"[["user-agent","ai/5."],["host","h:1"],["x-stainless-lang","js"],["x-loopwright-first-span","00-a"]]"#;
        let stored = format!(r#"{{"path":"{path}","headers":{headers},"body":{body}}}"#);
        decoded(&RunId::fresh(), &stored, 10).unwrap()
    }

    #[test]
    fn a_stored_request_of_each_dialect_becomes_a_draft() {
        let body = r#"{"model":"m","enable_code_execution":true,"messages":[]}"#;
        let (draft, resumption) = read("/v1/chat/completions", body).unwrap();
        assert_eq!(draft.tools.code.enable, Some(true));
        assert!(resumption.reply.get().contains("official_sdk\":true"));
        assert_eq!(resumption.first_span.as_deref(), Some("00-a"));
        let body = r#"{"model":"m","instructions":"Be brief.","input":[]}"#;
        let (draft, resumption) = read(RESPONSES, body).unwrap();
        assert_eq!(draft.call.instructions.as_deref(), Some("Be brief."));
        assert!(resumption.reply.get().contains("http://h:1"));
    }

    #[test]
    fn what_is_no_request_is_none() {
        assert!(decoded(&RunId::fresh(), "{}", 10).unwrap().is_none());
    }
}
