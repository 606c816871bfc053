//! Answers of the other dialect: a completion as a response, and a response as a completion. Both are of the same run.

use serde_json::{Map, Value, json};

use super::items::BETWEEN_ROUNDS;
use super::whole;
use crate::dialects::responses::decode::ResponseOptions;
use protocol::ids::RunId;
use protocol::openai::raw::{RawObject, push_entry};

/// The mark of a response among stored answers.
const RESPONSE: &str = "\"response\"";

/// An answer as a response; `None` if it is neither that nor a completion.
pub(crate) fn as_response(run: &RunId, answer: &str) -> Option<String> {
    if is_response(answer) {
        return Some(answer.to_owned());
    }
    let completion: Value = serde_json::from_str(answer).ok()?;
    let model = completion["model"].as_str().unwrap_or_default();
    let options = ResponseOptions::plain(model).ok()?;
    let choice = &completion["choices"][0];
    let (status, reason) = match choice["finish_reason"].as_str() {
        Some("length") => ("incomplete", Some("max_output_tokens")),
        Some("content_filter") => ("incomplete", Some("content_filter")),
        _ if completion["agent"]["stop_reason"] == "cancelled" => ("cancelled", None),
        _ => ("completed", None),
    };
    let created = completion["created"].as_i64().unwrap_or_default();
    let details = reason.map(|reason| json!({"reason": reason}));
    let completed = (status == "completed").then_some(created);
    let mut members = String::from("{");
    push_entry(&mut members, "completed_at", &json!(completed).to_string());
    push_entry(
        &mut members,
        "incomplete_details",
        &json!(details).to_string(),
    );
    push_entry(&mut members, "error", "null");
    push_entry(
        &mut members,
        "usage",
        &usage_of_response(&completion["usage"]).to_string(),
    );
    for key in ["agent", "session_id"] {
        if let Some(value) = completion.get(key) {
            push_entry(&mut members, key, &value.to_string());
        }
    }
    members.replace_range(..1, ",");
    let items = items_of(run, &completion);
    Some(whole(
        run,
        created,
        status,
        &options,
        &members,
        &items.join(","),
    ))
}

/// An answer as a completion; `None` if it is neither that nor a response.
pub(crate) fn as_completion(run: &RunId, answer: &str) -> Option<String> {
    if !is_response(answer) {
        return Some(answer.to_owned());
    }
    let response: Value = serde_json::from_str(answer).ok()?;
    let items = response["output"].as_array()?;
    let texts = items.iter().filter(|item| item["type"] == "message");
    let text_of = |item: &Value| {
        let text = item["content"][0]["text"].as_str().unwrap_or_default();
        text.strip_suffix(BETWEEN_ROUNDS).unwrap_or(text).to_owned()
    };
    let texts: Vec<String> = texts.map(text_of).filter(|text| !text.is_empty()).collect();
    let calls: Vec<Value> = items.iter().filter_map(client_call).collect();
    let finish = match response["incomplete_details"]["reason"].as_str() {
        Some("max_output_tokens") => "length",
        Some("content_filter") => "content_filter",
        _ if !calls.is_empty() => "tool_calls",
        _ => "stop",
    };
    let content = match texts.is_empty() && !calls.is_empty() {
        true => Value::Null,
        false => texts.join(BETWEEN_ROUNDS).into(),
    };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    let mut completion = json!({
        "id": run.completion_id(), "object": "chat.completion", "created": response["created_at"],
        "model": response["model"],
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}],
    });
    if let Some(usage) = response["usage"].as_object() {
        completion["usage"] = usage_of_completion(usage);
    }
    for key in ["session_id", "agent"] {
        if let Some(value) = response.get(key) {
            completion[key] = value.clone();
        }
    }
    Some(completion.to_string())
}

/// Whether an answer is a response.
fn is_response(answer: &str) -> bool {
    let object = RawObject::parse(answer).ok();
    let kind = object.and_then(|object| object.get("object"));
    kind.is_some_and(|kind| kind.get() == RESPONSE)
}

/// The items of a completion, as JSON texts.
fn items_of(run: &RunId, completion: &Value) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let message = &completion["choices"][0]["message"];
    let mut items: Vec<Value> = Vec::new();
    for call in list(&completion["agentic_tool_calls"]) {
        let id = run.item_id("mcp", items.len());
        let mut item = json!({
            "type": "mcp_call", "id": id, "status": "completed", "server_label": super::calls::LABEL,
            "name": call["name"], "arguments": call["arguments"],
        });
        match call["status"] == "ok" {
            true => item["output"] = call["result_content"].clone(),
            false => {
                item["status"] = "failed".into();
                let content = json!([{"type": "text", "text": call["result_content"]}]);
                item["error"] = json!({"type": "mcp_tool_execution_error", "content": content});
            }
        }
        items.push(item);
    }
    let client_calls = list(&message["tool_calls"]);
    if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
        let (phase, end) = match client_calls.is_empty() {
            true => ("final_answer", ""),
            false => ("commentary", BETWEEN_ROUNDS),
        };
        let text = format!("{text}{end}");
        items.push(json!({
            "type": "message", "id": run.item_id("msg", items.len()), "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}], "phase": phase,
        }));
    }
    for call in client_calls {
        items.push(json!({
            "type": "function_call", "id": run.item_id("fc", items.len()), "status": "completed",
            "call_id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"],
        }));
    }
    items.iter().map(Value::to_string).collect()
}

/// The entry of `tool_calls` for an item, if it is a call of the client.
fn client_call(item: &Value) -> Option<Value> {
    let call = match item["type"].as_str()? {
        "function_call" => json!({
            "id": item["call_id"], "type": "function",
            "function": {"name": item["name"], "arguments": item["arguments"]},
        }),
        "custom_tool_call" => json!({
            "id": item["call_id"], "type": "custom", "custom": {"name": item["name"], "input": item["input"]},
        }),
        _ => return None,
    };
    Some(call)
}

fn usage_of_response(usage: &Value) -> Value {
    if usage.is_null() {
        return Value::Null;
    }
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    json!({
        "input_tokens": number("/prompt_tokens"),
        "input_tokens_details": {"cached_tokens": number("/prompt_tokens_details/cached_tokens"), "cache_write_tokens": 0},
        "output_tokens": number("/completion_tokens"),
        "output_tokens_details": {"reasoning_tokens": number("/completion_tokens_details/reasoning_tokens")},
        "total_tokens": number("/total_tokens"),
    })
}

fn usage_of_completion(usage: &Map<String, Value>) -> Value {
    json!({
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_the_same_in_both_dialects() {
        let run = RunId::fresh();
        let completion = json!({
            "id": run.completion_id(), "object": "chat.completion", "created": 7, "model": "m",
            "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": {
                "role": "assistant", "content": "Hm.", "refusal": null,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            "session_id": "s", "agent": {"stop_reason": "client_tools"},
        });
        let response = as_response(&run, &completion.to_string()).unwrap();
        let read: Value = serde_json::from_str(&response).unwrap();
        assert_eq!(read["id"], run.response_id());
        assert_eq!(read["output"][0]["content"][0]["text"], "Hm.\n\n");
        assert_eq!(read["output"][1]["call_id"], "c");
        assert_eq!(as_response(&run, &response).as_deref(), Some(&*response));
        let back: Value = serde_json::from_str(&as_completion(&run, &response).unwrap()).unwrap();
        assert_eq!(back, completion);
        assert_eq!(as_completion(&run, "[]"), Some("[]".to_owned()));
    }
}
