//! A whole answer as a stream, for a client that asks again for an answer whose chunks were dropped.

use bytes::BytesMut;
use serde_json::value::RawValue;

use super::chunks::DONE;
use protocol::openai::raw::{RawObject, push_entry, quoted};

/// Members of a completion that its finish chunk has too.
const OF_FINISH: [&str; 2] = ["session_id", "agent"];

/// Writes a completion as a role chunk, a chunk with the text, one with the client's calls, a finish chunk and `[DONE]`.
pub(crate) fn replay(completion: &str, include_usage: bool, out: &mut BytesMut) {
    if let Ok(completion) = RawObject::parse(completion) {
        chunks(&completion, include_usage, out);
    }
    out.extend_from_slice(DONE);
}

fn chunks(completion: &RawObject<'_>, include_usage: bool, out: &mut BytesMut) {
    let mut head = String::from("{");
    for key in ["id", "created", "model"] {
        if let Some(value) = completion.get(key) {
            push_entry(&mut head, key, value.get());
        }
    }
    push_entry(&mut head, "object", "\"chat.completion.chunk\"");
    let mut chunk = |choices: &str, members: &str| {
        let line = format!("data: {head},\"choices\":[{choices}]{members}}}\n\n");
        out.extend_from_slice(line.as_bytes());
    };
    let choices = completion.get("choices");
    let choices: Vec<&RawValue> = choices
        .and_then(|list| serde_json::from_str(list.get()).ok())
        .unwrap_or_default();
    let choice = choices
        .first()
        .and_then(|choice| RawObject::parse(choice.get()).ok());
    let choice = choice.unwrap_or_default();
    let message = choice.get("message");
    let message = message.and_then(|message| RawObject::parse(message.get()).ok());
    let message = message.unwrap_or_default();
    let delta = |delta: &str| format!(r#"{{"index":0,"delta":{{{delta}}},"finish_reason":null}}"#);
    chunk(&delta(r#""role":"assistant","content":"""#), "");
    for (key, value) in message.iter() {
        let shown = !matches!(key, "role" | "tool_calls") && value.get() != "null";
        if shown {
            chunk(&delta(&format!("{}:{}", quoted(key), value.get())), "");
        }
    }
    if let Some(calls) = message.get_some("tool_calls") {
        let calls: Vec<&RawValue> = serde_json::from_str(calls.get()).unwrap_or_default();
        let calls = calls.iter().enumerate().map(|(index, call)| {
            let rest = call.get().trim_start_matches('{');
            format!("{{\"index\":{index},{rest}")
        });
        let calls: Vec<String> = calls.collect();
        chunk(&delta(&format!("\"tool_calls\":[{}]", calls.join(","))), "");
    }
    let mut members = String::new();
    for key in OF_FINISH {
        if let Some(value) = completion.get(key) {
            members.push_str(&format!(",{}:{}", quoted(key), value.get()));
        }
    }
    let reason = choice.get("finish_reason").map_or("null", RawValue::get);
    let finish = format!(r#"{{"index":0,"delta":{{}},"finish_reason":{reason}}}"#);
    chunk(&finish, &members);
    if let Some(usage) = completion.get_some("usage").filter(|_| include_usage) {
        chunk("", &format!(",\"usage\":{}", usage.get()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_becomes_chunks() {
        let completion = r#"{"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,
            "message":{"role":"assistant","content":"Hi","refusal":null,
            "tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},
            "finish_reason":"tool_calls"}],"usage":{"total_tokens":3},"session_id":"s","agent":{"rounds":0}}"#;
        let mut out = BytesMut::new();
        replay(&completion.replace('\n', ""), true, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
        let data = |line: &str| -> serde_json::Value {
            serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap()
        };
        assert_eq!(lines.len(), 6, "{text}");
        assert_eq!(data(lines[0])["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(data(lines[1])["choices"][0]["delta"]["content"], "Hi");
        let calls = &data(lines[2])["choices"][0]["delta"]["tool_calls"];
        assert_eq!(
            (&calls[0]["index"], &calls[0]["id"]),
            (&0.into(), &"a".into())
        );
        assert_eq!(data(lines[3])["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(data(lines[3])["session_id"], "s");
        assert_eq!(data(lines[4])["usage"]["total_tokens"], 3);
        assert!(
            lines
                .iter()
                .take(5)
                .all(|line| data(line)["id"] == "chatcmpl-1")
        );
        assert_eq!(lines[5], "data: [DONE]");
    }
}
