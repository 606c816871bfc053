//! Merges the model lists of all upstreams.

use ::http::header::{ACCEPT_ENCODING, HeaderValue};
use ::http::{HeaderMap, Method};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::future::join_all;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::recognise::kind_of;
use super::router::{Router, RouterEntry};
use super::{ForwardBody, ForwardRequest, MODELS_PATH, SHORT_WAIT, UpstreamError};
use protocol::openai::raw::{RawObject, push_entry, quoted};

/// Largest list that is read, in bytes. With a larger one the models of this upstream are left out.
/// Tried by `look::a_list_without_an_end_is_not_read_for_ever`.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;

/// A model that clients can ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelEntry {
    /// The name that clients use.
    pub id: String,
    /// The whole entry as JSON text.
    pub json: Box<str>,
}

/// Requests the model lists of all upstreams concurrently and merges them.
///
/// If an id occurs twice, the first upstream's entry is used. Of each upstream, only models that it takes are listed,
/// mapped models under the client's name. An upstream that fails is left out and logged.
///
/// # Errors
/// The first upstream's error, if all of them fail.
pub async fn merged(
    router: &Router,
    headers: &HeaderMap,
) -> Result<Vec<ModelEntry>, UpstreamError> {
    let answers = join_all(router.entries().iter().map(|entry| list(entry, headers))).await;
    let mut models: Vec<ModelEntry> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut first_error = None;
    let mut any_answer = false;
    for (entry, answer) in router.entries().iter().zip(answers) {
        match answer {
            Ok(listed) => {
                any_answer = true;
                let offered = offered(entry, listed).into_iter();
                models.extend(offered.filter(|model| seen.insert(model.id.clone())));
            }
            Err(error) => {
                tracing::warn!(
                    upstream = entry.upstream.name(),
                    %error,
                    "could not list the models of an upstream"
                );
                first_error.get_or_insert(error);
            }
        }
    }
    match first_error {
        Some(error) if !any_answer => Err(error),
        _ => Ok(models),
    }
}

/// The models of one upstream, under the names that clients use.
fn offered(entry: &RouterEntry, listed: Vec<ModelEntry>) -> Vec<ModelEntry> {
    let renamed: Vec<ModelEntry> = entry
        .model_map
        .iter()
        .map(|(name, upstream_name)| {
            let model = listed.iter().find(|model| model.id == *upstream_name);
            ModelEntry {
                id: name.clone(),
                json: renamed_json(model, name),
            }
        })
        .collect();
    listed
        .into_iter()
        .filter(|model| entry.model_map.iter().all(|(name, _)| *name != model.id))
        .chain(renamed)
        .filter(|model| entry.takes(&model.id))
        .collect()
}

/// The entry under another name; a minimal one if the upstream does not list the model.
fn renamed_json(model: Option<&ModelEntry>, name: &str) -> Box<str> {
    let mut json = format!(r#"{{"id":{}"#, quoted(name));
    match model.and_then(|model| RawObject::parse(&model.json).ok()) {
        Some(object) => {
            for (key, value) in object.iter().filter(|(key, _)| *key != "id") {
                push_entry(&mut json, key, value.get());
            }
        }
        None => json.push_str(r#","object":"model","created":0,"owned_by":"loopwright""#),
    }
    json.push('}');
    json.into()
}

/// Requests the list of one upstream. The upstream records what it is, if the answer shows that.
pub(super) async fn list(
    entry: &RouterEntry,
    headers: &HeaderMap,
) -> Result<Vec<ModelEntry>, UpstreamError> {
    timeout(SHORT_WAIT, fetch(entry, headers))
        .await
        .unwrap_or_else(|_| {
            Err(UpstreamError::Timeout {
                upstream: entry.upstream.name().into(),
                phase: "first byte",
                limit: SHORT_WAIT,
            })
        })
}

async fn fetch(entry: &RouterEntry, headers: &HeaderMap) -> Result<Vec<ModelEntry>, UpstreamError> {
    let malformed = |reason: &str| UpstreamError::Malformed {
        upstream: entry.upstream.name().into(),
        reason: reason.into(),
        retryable: true,
    };
    let mut headers = headers.clone();
    // Without it any encoding would be acceptable.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let request = ForwardRequest {
        method: Method::GET,
        path_and_query: MODELS_PATH.into(),
        headers,
        body: ForwardBody::Full(Bytes::new()),
    };
    let mut response = entry.upstream.forward(request).await?;
    let mut body = BytesMut::new();
    while let Some(chunk) = response.body.next().await {
        body.extend_from_slice(&chunk?);
        if body.len() > MAX_LIST_BYTES {
            return Err(malformed("the list of models is too large"));
        }
    }
    let upstream = &entry.upstream;
    if upstream.kind().is_none()
        && let Some(kind) = kind_of(&response.headers, &body)
    {
        upstream.recognise(kind);
    }
    if !response.status.is_success() {
        return Err(UpstreamError::Status {
            upstream: entry.upstream.name().into(),
            status: response.status,
            headers: Box::new(response.headers),
            body: body.freeze(),
        });
    }
    parse(&body).ok_or_else(|| malformed("the list of models has another form"))
}

/// Parses `{"data":[{"id":…},…]}`; entries without an id are left out. Ollama without models gives `null` for the list.
fn parse(body: &[u8]) -> Option<Vec<ModelEntry>> {
    let object = RawObject::parse(std::str::from_utf8(body).ok()?).ok()?;
    let data: Option<Vec<&RawValue>> = serde_json::from_str(object.get("data")?.get()).ok()?;
    let data = data.unwrap_or_default();
    let entry = |value: &&RawValue| {
        let object = RawObject::parse(value.get()).ok()?;
        Some(ModelEntry {
            id: serde_json::from_str(object.get("id")?.get()).ok()?,
            json: value.get().into(),
        })
    };
    Some(data.iter().filter_map(entry).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ::http::StatusCode;

    use super::super::router::UpstreamEntry;
    use super::super::settings::Quirks;
    use super::super::testing::FakeUpstream;
    use super::*;

    fn entry(
        name: &str,
        status: u16,
        body: &str,
        models: &[&str],
        map: &[(&str, &str)],
    ) -> UpstreamEntry {
        let answer = (StatusCode::from_u16(status).unwrap(), body.to_owned());
        UpstreamEntry {
            upstream: Arc::new(FakeUpstream::new(name, Quirks::default()).answering(answer)),
            models: models.iter().map(|&model| model.to_owned()).collect(),
            model_map: map
                .iter()
                .map(|&(name, own)| (name.to_owned(), own.to_owned()))
                .collect(),
        }
    }

    async fn merge(entries: Vec<UpstreamEntry>) -> Result<Vec<String>, UpstreamError> {
        let router = Router::new(entries).unwrap();
        let models = merged(&router, &HeaderMap::new()).await?;
        Ok(models
            .into_iter()
            .map(|model| {
                assert!(model.json.contains(&model.id));
                model.json.into()
            })
            .collect())
    }

    #[tokio::test]
    async fn the_first_server_wins_and_failures_are_left_out() {
        let listed = merge(vec![
            entry("a", 500, "{}", &[], &[]),
            entry(
                "b",
                200,
                r#"{"data":[{"id":"m","x":1.0},{"no":"id"}]}"#,
                &[],
                &[],
            ),
            entry("c", 200, "[]", &[], &[]),
            entry(
                "d",
                200,
                r#"{"data":[{"id":"m","x":2},{"id":"n"}]}"#,
                &[],
                &[],
            ),
        ])
        .await
        .unwrap();
        assert_eq!(listed, [r#"{"id":"m","x":1.0}"#, r#"{"id":"n"}"#]);
    }

    #[tokio::test]
    async fn only_what_reaches_the_server_is_listed() {
        let listed = merge(vec![entry(
            "a",
            200,
            r#"{"data":[{"owned_by":"x","id":"big"},{"id":"other"}]}"#,
            &["big", "fast*"],
            &[("fast", "big"), ("fast-2", "hidden"), ("slow", "big")],
        )])
        .await
        .unwrap();
        assert_eq!(
            listed,
            [
                r#"{"owned_by":"x","id":"big"}"#,
                r#"{"id":"fast","owned_by":"x"}"#,
                r#"{"id":"fast-2","object":"model","created":0,"owned_by":"loopwright"}"#,
            ]
        );
    }

    #[tokio::test]
    async fn the_first_failure_is_returned_when_all_fail() {
        let error = merge(vec![
            entry("a", 401, "no", &[], &[]),
            entry("b", 200, "junk", &[], &[]),
        ])
        .await
        .unwrap_err();
        assert!(
            matches!(error, UpstreamError::Status { status, .. } if status == StatusCode::UNAUTHORIZED)
        );
    }
}
