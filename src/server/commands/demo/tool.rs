//! The sample tool server: weather, tickets and their comments, with fixed answers.
//!
//! Tools and answers are data (`tools.json`). Does not depend on models or conversations.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A tool with its answers by the value of its one argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SampleTool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) parameters: Box<RawValue>,
    argument: String,
    /// Whether calls change something. A person is asked about them.
    #[serde(default)]
    pub(super) changes: bool,
    answers: BTreeMap<String, Value>,
}

/// Reads the tools.
pub(super) fn load() -> serde_json::Result<Arc<[SampleTool]>> {
    serde_json::from_str(include_str!("tools.json"))
}

/// The server: every `POST`, at whatever path, is a call.
pub(super) fn router(tools: Arc<[SampleTool]>) -> Router {
    let call = post(
        async |State(tools): State<Arc<[SampleTool]>>, Json(call): Json<Value>| {
            Json(match answer(&tools, &call) {
                Ok(content) => json!({"content": content}),
                Err(problem) => json!({"content": problem, "is_error": true}),
            })
        },
    );
    Router::new()
        .route("/", call.clone())
        .route("/{*path}", call)
        .with_state(tools)
}

/// Runs one call; a problem is a text for the model.
pub(super) fn answer<'a>(tools: &'a [SampleTool], call: &Value) -> Result<&'a Value, String> {
    let Some(tool) = tools.iter().find(|tool| call["name"] == tool.name) else {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        return Err(format!(
            "there is no tool {} here; the tools are {}",
            call["name"],
            names.join(", ")
        ));
    };
    let SampleTool {
        name,
        argument,
        answers,
        ..
    } = tool;
    let wanted = match &call["arguments"][argument] {
        Value::String(text) => text.trim().trim_start_matches('#').to_lowercase(),
        Value::Number(number) => number.to_string(),
        _ => return Err(format!("the argument `{argument}` is missing or no text")),
    };
    let known = answers
        .iter()
        .find(|(value, _)| value.to_lowercase() == wanted);
    known.map(|(_, answer)| answer).ok_or_else(|| {
        let known: Vec<&str> = answers.keys().map(String::as_str).collect();
        format!("{name} knows no `{wanted}`; it knows {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn call(path: &str, name: &str, arguments: Value) -> Value {
        let body = json!({"name": name, "arguments": arguments, "tool_call_id": "call_1"});
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = router(load().unwrap()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn every_tool_answers_with_its_data() {
        let weather = call("/", "get_weather", json!({"city": "lisbon"})).await;
        assert_eq!(
            weather,
            json!({"content": {"city": "Lisbon", "temperature_c": 24, "sky": "sunny", "wind_kmh": 18}})
        );
        for id in [json!("4711"), json!(4711), json!("#4711")] {
            let ticket = call("/run", "get_ticket", json!({"id": id})).await;
            assert_eq!(ticket["content"]["status"], "open");
        }
        let comments = call("/a/b", "list_comments", json!({"ticket_id": "4711"})).await;
        let comments = comments["content"]["comments"].to_string();
        assert!(comments.contains("Ben Okoro: "), "{comments}");
    }

    #[tokio::test]
    async fn what_it_cannot_do_is_an_error_with_a_text_to_act_on() {
        let cases = [
            (
                "get_weather",
                json!({"city": "Atlantis"}),
                "it knows Amsterdam, ",
            ),
            ("get_weather", json!({}), "`city`"),
            ("get_ticket", json!({"id": "9"}), "it knows 1001, 4711"),
            ("list_comments", json!({"ticket_id": null}), "`ticket_id`"),
            ("format_disk", json!({}), "the tools are get_weather"),
        ];
        for (name, arguments, expected) in cases {
            let answer = call("/", name, arguments).await;
            assert_eq!(answer["is_error"], true, "{answer}");
            let content = answer["content"].as_str().unwrap();
            assert!(content.contains(expected), "{content}");
        }
    }

    #[test]
    fn every_definition_is_a_schema_of_an_object_with_the_argument() {
        for tool in load().unwrap().iter() {
            let schema: Value = serde_json::from_str(tool.parameters.get()).unwrap();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert_eq!(schema["required"], json!([tool.argument]), "{}", tool.name);
            assert!(
                schema["properties"][&tool.argument].is_object(),
                "{}",
                tool.name
            );
        }
    }
}
