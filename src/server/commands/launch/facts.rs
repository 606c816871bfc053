//! The facts that the server reports: its models, the window of the model, and whether it has what the agent needs.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::LaunchError;
use crate::commands::client::ServerClient;
use crate::commands::client::plain::plain;
use crate::config::LaunchConfig;
use crate::config::cli::CodingAgent;

/// Longest time of one question to the server, its answer included. After it the launch fails.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Names under which model servers give the window of a model, in tokens.
const WINDOW_NAMES: [&str; 5] = [
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "n_ctx",
];
/// The member of llama.cpp's models with more of them.
const MORE: &str = "meta";
/// Statuses of a path that a model server does not have.
const NO_SUCH_PATH: [StatusCode; 3] = [
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::NOT_IMPLEMENTED,
];

/// The facts about the server that an agent gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerFacts {
    pub(super) model: String,
    /// How many tokens it can see, if the server says so.
    pub(super) window: Option<u64>,
    /// Whether the server searches the web for it.
    pub(super) searches: bool,
}

#[derive(Debug, Deserialize)]
struct NamedList<T> {
    data: Vec<T>,
}

#[derive(Debug, Deserialize)]
struct ListedModel {
    id: String,
    #[serde(flatten)]
    members: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct NamedTool {
    name: String,
}

/// Requests all facts from the server.
pub(super) async fn ask(
    config: &LaunchConfig,
    client: &ServerClient<'_>,
) -> Result<ServerFacts, LaunchError> {
    let (status, body) = client
        .exchange(Method::GET, "/v1/models", Vec::new())
        .await?;
    if status != StatusCode::OK {
        return Err(client.refused(status, &body).into());
    }
    let models: NamedList<ListedModel> =
        serde_json::from_slice(&body).map_err(|_| client.foreign())?;
    let (model, window) = chosen(config.model.as_deref(), &models.data, client.server())?;
    if config.agent == CodingAgent::Claude {
        look_for_messages(client, &model).await?;
    }
    let searches = config.agent == CodingAgent::Codex && searches(client).await?;
    Ok(ServerFacts {
        model,
        window,
        searches,
    })
}

/// The model that was named, or the only one, and its window.
fn chosen(
    named: Option<&str>,
    models: &[ListedModel],
    server: &str,
) -> Result<(String, Option<u64>), LaunchError> {
    if let Some(named) = named {
        let listed = models.iter().find(|model| model.id == named);
        return Ok((named.to_owned(), listed.and_then(window)));
    }
    match models {
        [] => Err(LaunchError::NoModel(server.to_owned())),
        [only] => Ok((only.id.clone(), window(only))),
        several => {
            let names: Vec<String> = several.iter().map(|model| plain(&model.id)).collect();
            Err(LaunchError::SeveralModels {
                server: server.to_owned(),
                models: names.join(", "),
            })
        }
    }
}

fn window(model: &ListedModel) -> Option<u64> {
    let more = model.members.get(MORE).and_then(Value::as_object);
    let places = std::iter::once(&model.members).chain(more);
    let mut found =
        places.flat_map(|place| WINDOW_NAMES.iter().filter_map(|name| place.get(*name)));
    found.find_map(Value::as_u64).filter(|window| *window > 0)
}

/// Whether web search is among the tools that the server runs.
async fn searches(client: &ServerClient<'_>) -> Result<bool, LaunchError> {
    let (status, body) = client
        .exchange(Method::GET, "/v1/agent/tools", Vec::new())
        .await?;
    let tools: Option<NamedList<NamedTool>> = serde_json::from_slice(&body).ok();
    let tools = tools.filter(|_| status == StatusCode::OK);
    Ok(tools.is_some_and(|tools| tools.data.iter().any(|tool| tool.name == "web_search")))
}

/// Sends a message without any content: a server with the API refuses the body, and runs no model.
async fn look_for_messages(client: &ServerClient<'_>, model: &str) -> Result<(), LaunchError> {
    let body = json!({"model": model}).to_string().into_bytes();
    let (status, _) = client.exchange(Method::POST, "/v1/messages", body).await?;
    match NO_SUCH_PATH.contains(&status) {
        true => Err(LaunchError::NoMessages {
            server: client.server().to_owned(),
            status: status.as_u16(),
        }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(list: Value) -> Vec<ListedModel> {
        serde_json::from_value(list).unwrap()
    }

    #[test]
    fn the_window_is_found_under_the_names_of_the_field() {
        for (model, expected) in [
            (json!({"id": "m"}), None),
            (json!({"id": "m", "max_model_len": 4096}), Some(4096)),
            (json!({"id": "m", "context_length": 8192}), Some(8192)),
            (
                json!({"id": "m", "meta": {"n_ctx": 2048, "n_ctx_train": 9}}),
                Some(2048),
            ),
            (json!({"id": "m", "meta": {"n_ctx_train": 131072}}), None),
            (json!({"id": "m", "context_window": "many"}), None),
            (json!({"id": "m", "n_ctx": 0}), None),
        ] {
            let found = chosen(None, &models(json!([model])), "http://s").unwrap();
            assert_eq!(found, ("m".to_owned(), expected), "{model}");
        }
    }

    #[test]
    fn a_model_is_chosen_where_there_is_a_choice() {
        let two = || models(json!([{"id": "a", "n_ctx": 1}, {"id": "b", "n_ctx": 2}]));
        let refused = chosen(None, &two(), "http://s").unwrap_err().to_string();
        assert!(refused.contains("--model: a, b"), "{refused}");
        let refused = chosen(None, &[], "http://s").unwrap_err().to_string();
        assert!(refused.contains("no model"), "{refused}");
        let named = |name| chosen(Some(name), &two(), "http://s").unwrap();
        assert_eq!(named("b"), ("b".to_owned(), Some(2)));
        assert_eq!(named("c"), ("c".to_owned(), None));
    }
}
