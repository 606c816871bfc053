//! The scripted model server of the demo. It has the chat API of vLLM, and says in its answers and in the list of models
//! that it is a script.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::list;
use super::script::{RecordedCall, Script};
use protocol::ids::{CallIdStyle, fresh_call_id};

/// The name of the model.
const MODEL: &str = "loopwright-demo";
/// The owner of the model, which tells clients that it is a script.
const OWNER: &str = "loopwright demo (scripted, not a language model)";
/// Pause between two chunks of a streamed answer, so that the streaming is visible.
const PACE: Duration = Duration::from_millis(12);
/// Size of a token in `usage`, in characters; there is no tokenizer.
const CHARS_PER_TOKEN: usize = 4;

/// The server.
pub(super) fn router(script: Script) -> Router {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/chat/completions", post(chat))
        .fallback(async || no_such_path(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || no_such_path(StatusCode::METHOD_NOT_ALLOWED))
        .with_state(Arc::new(script))
}

fn no_such_path(status: StatusCode) -> Response {
    let message =
        "The scripted model of the demo has only POST /v1/chat/completions and GET /v1/models.";
    error(status, "NotFoundError", message)
}

/// An error in OpenAI's form.
fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let error = json!({"message": message, "type": kind, "param": null, "code": status.as_u16()});
    (status, Json(json!({"error": error}))).into_response()
}

async fn chat(State(script): State<Arc<Script>>, Json(request): Json<Value>) -> Response {
    let refused = match request["model"].as_str() {
        Some(name) if name != MODEL => {
            let message =
                format!("The model `{name}` does not exist; the demo has only `{MODEL}`.");
            Some((StatusCode::NOT_FOUND, "NotFoundError", message))
        }
        _ if list(&request["messages"]).is_empty() => {
            let message = "messages must be a list with at least one message".to_owned();
            Some((StatusCode::BAD_REQUEST, "BadRequestError", message))
        }
        _ => None,
    };
    if let Some((status, kind, message)) = refused {
        return error(status, kind, &message);
    }
    let completion = completion(&script, &request);
    if request["stream"] != true {
        return Json(completion).into_response();
    }
    let mut chunks = chunks(completion);
    if request["stream_options"]["include_usage"] != true {
        chunks.pop();
    }
    let events = chunks.into_iter().map(|chunk| format!("data: {chunk}\n\n"));
    let events = events.chain(["data: [DONE]\n\n".to_owned()]);
    let paced = stream::iter(events).then(async |event| {
        tokio::time::sleep(PACE).await;
        Ok::<Bytes, Infallible>(event.into())
    });
    let media = (CONTENT_TYPE, "text/event-stream; charset=utf-8");
    ([media], Body::from_stream(paced)).into_response()
}

async fn models() -> Json<Value> {
    let model = json!({"id": MODEL, "object": "model", "created": 0, "owned_by": OWNER});
    Json(json!({"object": "list", "data": [model]}))
}

/// The answer as one object.
fn completion(script: &Script, request: &Value) -> Value {
    let reply = script.reply(request);
    let call = |call: &RecordedCall| {
        let function = json!({"name": call.tool, "arguments": json!(call.arguments).to_string()});
        json!({"id": fresh_call_id(CallIdStyle::Standard), "type": "function", "function": function})
    };
    let calls: Vec<Value> = reply.calls.iter().map(call).collect();
    let finish_reason = if calls.is_empty() {
        "stop"
    } else {
        "tool_calls"
    };
    let message = json!({"role": "assistant", "content": reply.text, "tool_calls": calls});
    let prompt = (request["messages"].to_string().len() + request["tools"].to_string().len())
        / CHARS_PER_TOKEN;
    let written = message.to_string().len() / CHARS_PER_TOKEN;
    // A clock before 1970 is no reason to fail.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    json!({
        "id": format!("chatcmpl-{}", uuid::Uuid::now_v7().simple()),
        "object": "chat.completion",
        "created": now.as_secs(),
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written},
    })
}

/// The same as the chunks of a stream, the last of which holds the usage.
fn chunks(mut completion: Value) -> Vec<Value> {
    let (mut choice, usage) = (completion["choices"][0].take(), completion["usage"].take());
    completion["object"] = "chat.completion.chunk".into();
    let chunk = |choices: Value| {
        let mut chunk = completion.clone();
        chunk["choices"] = choices;
        chunk
    };
    let message = choice["message"].take();
    let words = message["content"].as_str().unwrap_or_default();
    let words = words
        .split_inclusive(' ')
        .map(|word| json!({"content": word}));
    let calls = list(&message["tool_calls"]).iter().enumerate();
    let calls = calls.map(|(index, call)| {
        let mut call = call.clone();
        call["index"] = index.into();
        json!({"tool_calls": [call]})
    });
    let role = json!({"role": "assistant", "content": ""});
    let deltas = std::iter::once(role).chain(words).chain(calls);
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let mut chunks: Vec<Value> = deltas.map(delta).collect();
    let reason = &choice["finish_reason"];
    let finish = json!([{"index": 0, "delta": {}, "finish_reason": reason}]);
    chunks.extend([chunk(finish), chunk(json!([]))]);
    if let Some(last) = chunks.last_mut() {
        last["usage"] = usage;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn send(request: Request<Body>) -> (StatusCode, String) {
        let response = router(Script::load("http://127.0.0.1:1/").unwrap())
            .oneshot(request)
            .await
            .unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn ask(body: Value) -> (StatusCode, String) {
        let request = Request::post("/v1/chat/completions")
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        send(request).await
    }

    fn weather_question() -> Value {
        json!({
            "model": MODEL,
            "messages": [{"role": "user", "content": "The weather in Lisbon and Oslo?"}],
            "tools": [{"type": "function", "function": {"name": "get_weather"}}],
        })
    }

    #[tokio::test]
    async fn the_models_say_what_they_are() {
        let request = Request::get("/v1/models").body(Body::empty()).unwrap();
        let (_, body) = send(request).await;
        let models: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(models["data"][0]["id"], MODEL);
        assert_eq!(models["data"][0]["owned_by"], OWNER);
        assert!(OWNER.contains("scripted"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_says_the_same_as_the_whole_answer() {
        let (_, whole) = ask(weather_question()).await;
        let whole: Value = serde_json::from_str(&whole).unwrap();
        let message = &whole["choices"][0]["message"];
        let mut body = weather_question();
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        let (status, stream) = ask(body).await;
        assert_eq!(status, StatusCode::OK);
        let mut text = String::new();
        let mut arguments = vec![String::new(); 2];
        let mut usage = Value::Null;
        let events: Vec<&str> = stream.split_terminator("\n\n").collect();
        let (done, chunks) = events.split_last().unwrap();
        assert_eq!(*done, "data: [DONE]");
        for event in chunks {
            let chunk: Value = serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap();
            usage = chunk["usage"].clone();
            let delta = &chunk["choices"][0]["delta"];
            text.push_str(delta["content"].as_str().unwrap_or_default());
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
                let piece = call["function"]["arguments"].as_str().unwrap();
                arguments[index].push_str(piece);
            }
        }
        assert_eq!(message["content"], text);
        assert_eq!(usage, whole["usage"]);
        for (index, arguments) in arguments.iter().enumerate() {
            let function = &message["tool_calls"][index]["function"];
            assert_eq!(function["arguments"], *arguments);
        }
        assert_eq!(arguments, [r#"{"city":"Lisbon"}"#, r#"{"city":"Oslo"}"#]);
    }

    #[tokio::test]
    async fn an_answer_without_tools_ends_with_the_label() {
        let body = json!({"messages": [{"role": "user", "content": "Hello"}]});
        let (_, body) = ask(body).await;
        let whole: Value = serde_json::from_str(&body).unwrap();
        let choice = &whole["choices"][0];
        assert_eq!(choice["finish_reason"], "stop");
        let text = choice["message"]["content"].as_str().unwrap();
        assert!(text.ends_with("(scripted demo model)"), "{text}");
    }

    #[tokio::test]
    async fn wrong_requests_get_an_error_in_the_envelope() {
        let mut other = weather_question();
        other["model"] = json!("gpt-4o");
        let cases = [
            (other, StatusCode::NOT_FOUND, "`gpt-4o` does not exist"),
            (json!({"messages": []}), StatusCode::BAD_REQUEST, "messages"),
        ];
        for (body, expected_status, expected) in cases {
            let (status, body) = ask(body).await;
            assert_eq!(status, expected_status);
            let body: Value = serde_json::from_str(&body).unwrap();
            let message = body["error"]["message"].as_str().unwrap();
            assert!(message.contains(expected), "{message}");
        }
    }
}
