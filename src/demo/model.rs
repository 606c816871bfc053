//! The scripted model server of the demo: speaks the chat API as vLLM does, and says on every occasion that it is a
//! script.
//!
//! What it says is decided by the rules; this module owns the HTTP around them.

use std::convert::Infallible;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_stream::stream;
use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::rules::{self, Turn};
use crate::ids::{CallIdStyle, fresh_call_id};

/// The name of the model.
pub const MODEL: &str = "loopwright-demo";

/// Who the model belongs to, which says what it is.
const OWNER: &str = "loopwright demo (scripted, not a language model)";

/// `created` of the model; the day that the script was written.
const MODEL_CREATED: u64 = 1_795_132_800;

/// Time between two pieces of a streamed answer, so that a person sees it being written.
const PACE: Duration = Duration::from_millis(12);

/// Characters in one streamed piece of arguments.
const ARGUMENT_PIECE_CHARS: usize = 8;

/// Characters that count as one token; there is no tokenizer here.
const CHARS_PER_TOKEN: usize = 4;

/// An answer, before it is spelled as a stream or as one object.
#[derive(Debug)]
struct Spoken {
    id: String,
    created: u64,
    turn: Turn,
    call_ids: Vec<String>,
    usage: Value,
}

/// The server.
pub fn router() -> Router {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{id}", get(model))
        .route("/v1/chat/completions", post(chat))
}

async fn models() -> Json<Value> {
    Json(json!({"object": "list", "data": [model_json()]}))
}

async fn model(Path(id): Path<String>) -> Response {
    if id == MODEL {
        Json(model_json()).into_response()
    } else {
        unknown_model(&id)
    }
}

async fn chat(Json(request): Json<Value>) -> Response {
    match request["model"].as_str() {
        None | Some(MODEL) => {}
        Some(other) => return unknown_model(other),
    }
    if request["messages"].as_array().is_none_or(Vec::is_empty) {
        return error(
            StatusCode::BAD_REQUEST,
            "BadRequestError",
            "messages must be a list with at least one message",
        );
    }
    let spoken = Spoken::of(&request);
    if request["stream"] == true {
        spoken.stream(request["stream_options"]["include_usage"] == true)
    } else {
        Json(spoken.whole()).into_response()
    }
}

fn model_json() -> Value {
    json!({
        "id": MODEL,
        "object": "model",
        "created": MODEL_CREATED,
        "owned_by": OWNER,
        "root": MODEL,
        "parent": null,
        "max_model_len": 32_768,
    })
}

fn unknown_model(name: &str) -> Response {
    let message = format!("The model `{name}` does not exist; the demo has only `{MODEL}`.");
    error(StatusCode::NOT_FOUND, "NotFoundError", &message)
}

fn error(status: StatusCode, kind: &str, message: &str) -> Response {
    let error = json!({"message": message, "type": kind, "param": null, "code": status.as_u16()});
    (status, Json(json!({"error": error}))).into_response()
}

impl Spoken {
    fn of(request: &Value) -> Self {
        let turn = rules::decide(request);
        let said: usize = turn
            .calls
            .iter()
            .map(|(name, arguments)| name.len() + arguments.to_string().len())
            .sum();
        let read = request["messages"].to_string().len() + request["tools"].to_string().len();
        let prompt = read / CHARS_PER_TOKEN;
        let completion = (turn.text.len() + said) / CHARS_PER_TOKEN + 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            id: format!("chatcmpl-{}", uuid::Uuid::now_v7().simple()),
            // A clock before 1970 is no reason to fail.
            created: now.unwrap_or_default().as_secs(),
            call_ids: turn
                .calls
                .iter()
                .map(|_| fresh_call_id(CallIdStyle::Standard))
                .collect(),
            turn,
            usage: json!({
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            }),
        }
    }

    fn finish_reason(&self) -> &'static str {
        if self.turn.calls.is_empty() {
            "stop"
        } else {
            "tool_calls"
        }
    }

    fn whole(&self) -> Value {
        let calls = self.turn.calls.iter().zip(&self.call_ids);
        let calls: Vec<Value> = calls
            .map(|((name, arguments), id)| {
                let function = json!({"name": name, "arguments": arguments.to_string()});
                json!({"id": id, "type": "function", "function": function})
            })
            .collect();
        let mut body = self.envelope("chat.completion");
        body["choices"] = json!([{
            "index": 0,
            "message": {"role": "assistant", "content": self.turn.text, "tool_calls": calls},
            "logprobs": null,
            "finish_reason": self.finish_reason(),
            "stop_reason": null,
        }]);
        body["usage"] = self.usage.clone();
        body
    }

    fn stream(self, include_usage: bool) -> Response {
        let frames = self.frames(include_usage);
        let paced = stream!({
            for frame in frames {
                yield Ok::<Bytes, Infallible>(frame);
                tokio::time::sleep(PACE).await;
            }
        });
        let media = (CONTENT_TYPE, "text/event-stream; charset=utf-8");
        ([media], Body::from_stream(paced)).into_response()
    }

    fn frames(&self, include_usage: bool) -> Vec<Bytes> {
        let mut chunks = vec![self.delta(&json!({"role": "assistant", "content": ""}))];
        for word in self.turn.text.split_inclusive(' ') {
            chunks.push(self.delta(&json!({"content": word})));
        }
        for (index, ((name, arguments), id)) in
            self.turn.calls.iter().zip(&self.call_ids).enumerate()
        {
            let function = json!({"name": name, "arguments": ""});
            let head = json!({"index": index, "id": id, "type": "function", "function": function});
            chunks.push(self.delta(&json!({"tool_calls": [head]})));
            for piece in pieces(&arguments.to_string()) {
                let piece = json!({"index": index, "function": {"arguments": piece}});
                chunks.push(self.delta(&json!({"tool_calls": [piece]})));
            }
        }
        let mut last = self.delta(&json!({"content": ""}));
        last["choices"][0]["finish_reason"] = self.finish_reason().into();
        chunks.push(last);
        if include_usage {
            let mut counts = self.envelope("chat.completion.chunk");
            counts["choices"] = json!([]);
            counts["usage"] = self.usage.clone();
            chunks.push(counts);
        }
        let done = Bytes::from_static(b"data: [DONE]\n\n");
        chunks
            .iter()
            .map(|chunk| Bytes::from(format!("data: {chunk}\n\n")))
            .chain([done])
            .collect()
    }

    fn delta(&self, delta: &Value) -> Value {
        let mut chunk = self.envelope("chat.completion.chunk");
        chunk["choices"] =
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": null}]);
        chunk
    }

    fn envelope(&self, object: &str) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": MODEL})
    }
}

fn pieces(text: &str) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(ARGUMENT_PIECE_CHARS)
        .map(|piece| piece.iter().collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::demo::rules::LABEL;

    async fn send(request: Request<Body>) -> (StatusCode, String) {
        let response = router().oneshot(request).await.unwrap();
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
        assert!(
            choice["message"]["content"]
                .as_str()
                .unwrap()
                .ends_with(LABEL)
        );
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
