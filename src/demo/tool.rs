//! A sample tool server: weather, tickets and their comments, the same on every day.
//!
//! Answers calls as the dispatch URL's contract has it. Knows nothing of models or conversations.

use axum::Json;
use axum::Router;
use axum::routing::post;
use serde_json::{Value, json};

/// A tool of the sample server, as it is configured and offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTool {
    /// The name that the model calls.
    pub name: &'static str,
    /// What the model is told about it.
    pub description: &'static str,
    /// The JSON Schema of its arguments, as JSON text.
    pub parameters_json: &'static str,
}

/// A city and its weather.
pub(crate) struct City {
    /// The name.
    pub(crate) name: &'static str,
    temperature_c: i32,
    sky: &'static str,
    wind_kmh: u32,
}

struct Ticket {
    id: &'static str,
    title: &'static str,
    status: &'static str,
    customer: &'static str,
    comments: &'static [(&'static str, &'static str)],
}

/// The name of the weather tool.
pub(crate) const GET_WEATHER: &str = "get_weather";
/// The name of the ticket tool.
pub(crate) const GET_TICKET: &str = "get_ticket";
/// The name of the comment tool.
pub(crate) const LIST_COMMENTS: &str = "list_comments";

const TOOLS: [SampleTool; 3] = [
    SampleTool {
        name: GET_WEATHER,
        description: "The weather in a city right now.",
        parameters_json: r#"{"type":"object","properties":{"city":{"type":"string","description":"The name of the city, in English."}},"required":["city"],"additionalProperties":false}"#,
    },
    SampleTool {
        name: GET_TICKET,
        description: "A support ticket or order by its number: title, status and customer.",
        parameters_json: r#"{"type":"object","properties":{"id":{"type":"string","description":"The number, such as 4711."}},"required":["id"],"additionalProperties":false}"#,
    },
    SampleTool {
        name: LIST_COMMENTS,
        description: "The comments on a ticket, oldest first.",
        parameters_json: r#"{"type":"object","properties":{"ticket_id":{"type":"string","description":"The ticket's number."}},"required":["ticket_id"],"additionalProperties":false}"#,
    },
];

/// The cities that the weather tool knows.
pub(crate) const CITIES: [City; 10] = [
    city("Amsterdam", 14, "rain", 31),
    city("Berlin", 17, "cloudy", 14),
    city("Lisbon", 24, "sunny", 18),
    city("London", 15, "light rain", 22),
    city("Nairobi", 22, "sunny", 11),
    city("New York", 19, "windy", 38),
    city("Oslo", 9, "clear", 7),
    city("Paris", 18, "partly cloudy", 12),
    city("Sydney", 21, "showers", 27),
    city("Tokyo", 20, "clear", 9),
];

const TICKETS: [Ticket; 3] = [
    Ticket {
        id: "4711",
        title: "Parcel arrived without the charger",
        status: "open",
        customer: "Ada Fontaine",
        comments: &[
            (
                "Ada Fontaine",
                "The box was sealed, but the charger is missing.",
            ),
            ("Ben Okoro", "A new charger leaves the warehouse tomorrow."),
        ],
    },
    Ticket {
        id: "4712",
        title: "Invoice shows the old address",
        status: "waiting for customer",
        customer: "Chiyo Tanaka",
        comments: &[("Ben Okoro", "Please confirm the new address.")],
    },
    Ticket {
        id: "1001",
        title: "Cannot reset the password",
        status: "closed",
        customer: "Dara Novak",
        comments: &[],
    },
];

const fn city(name: &'static str, temperature_c: i32, sky: &'static str, wind_kmh: u32) -> City {
    City {
        name,
        temperature_c,
        sky,
        wind_kmh,
    }
}

/// The tools that the server runs.
pub const fn definitions() -> &'static [SampleTool] {
    &TOOLS
}

/// The server: every `POST`, at whatever path, is a call.
pub fn router() -> Router {
    Router::new()
        .route("/", post(run))
        .route("/{*path}", post(run))
}

async fn run(Json(call): Json<Value>) -> Json<Value> {
    let name = call["name"].as_str().unwrap_or_default();
    Json(match answer(name, &call["arguments"]) {
        Ok(content) => json!({"content": content}),
        Err(problem) => json!({"content": problem, "is_error": true}),
    })
}

/// Runs one call; a problem is a text for the model.
fn answer(name: &str, arguments: &Value) -> Result<Value, String> {
    match name {
        GET_WEATHER => weather(&text(arguments, "city")?),
        GET_TICKET => ticket(&text(arguments, "id")?).map(ticket_json),
        LIST_COMMENTS => ticket(&text(arguments, "ticket_id")?).map(comments_json),
        other => Err(format!(
            "there is no tool `{other}` here; the tools are {}",
            TOOLS.map(|tool| tool.name).join(", ")
        )),
    }
}

/// An argument that is a text, or a number that stands for one.
fn text(arguments: &Value, key: &str) -> Result<String, String> {
    match &arguments[key] {
        Value::String(text) => Ok(text.trim().to_owned()),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(format!("the argument `{key}` is missing or no text")),
    }
}

fn weather(name: &str) -> Result<Value, String> {
    let known = CITIES
        .iter()
        .find(|city| city.name.eq_ignore_ascii_case(name));
    match known {
        Some(city) => Ok(json!({
            "city": city.name,
            "temperature_c": city.temperature_c,
            "sky": city.sky,
            "wind_kmh": city.wind_kmh,
        })),
        None => Err(format!(
            "no weather for `{name}`; known cities are {}",
            CITIES.map(|city| city.name).join(", ")
        )),
    }
}

fn ticket(id: &str) -> Result<&'static Ticket, String> {
    let id = id.trim_start_matches('#');
    TICKETS
        .iter()
        .find(|ticket| ticket.id == id)
        .ok_or_else(|| {
            format!(
                "there is no ticket `{id}`; there are {}",
                TICKETS.each_ref().map(|ticket| ticket.id).join(", ")
            )
        })
}

fn ticket_json(ticket: &Ticket) -> Value {
    json!({
        "id": ticket.id,
        "title": ticket.title,
        "status": ticket.status,
        "customer": ticket.customer,
        "comment_count": ticket.comments.len(),
    })
}

fn comments_json(ticket: &Ticket) -> Value {
    let comments: Vec<Value> = ticket
        .comments
        .iter()
        .map(|(author, text)| json!({"author": author, "text": text}))
        .collect();
    json!({"ticket_id": ticket.id, "comments": comments})
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
        let response = router().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn every_tool_answers_with_its_data() {
        let weather = call("/", GET_WEATHER, json!({"city": "lisbon"})).await;
        assert_eq!(
            weather,
            json!({"content": {"city": "Lisbon", "temperature_c": 24, "sky": "sunny", "wind_kmh": 18}})
        );
        for id in [json!("4711"), json!(4711), json!("#4711")] {
            let ticket = call("/run", GET_TICKET, json!({"id": id})).await;
            assert_eq!(ticket["content"]["status"], "open");
        }
        let comments = call("/a/b", LIST_COMMENTS, json!({"ticket_id": "4711"})).await;
        assert_eq!(comments["content"]["comments"][1]["author"], "Ben Okoro");
    }

    #[tokio::test]
    async fn what_it_cannot_do_is_an_error_with_a_text_to_act_on() {
        let cases = [
            (GET_WEATHER, json!({"city": "Atlantis"}), "known cities"),
            (GET_WEATHER, json!({}), "`city`"),
            (GET_TICKET, json!({"id": "9"}), "there are 4711"),
            (LIST_COMMENTS, json!({"ticket_id": null}), "`ticket_id`"),
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
    fn every_definition_is_a_schema_of_an_object() {
        for tool in definitions() {
            let schema: Value = serde_json::from_str(tool.parameters_json).unwrap();
            assert_eq!(schema["type"], "object", "{}", tool.name);
            let required = schema["required"][0].as_str().unwrap();
            assert!(schema["properties"][required].is_object(), "{}", tool.name);
        }
    }
}
