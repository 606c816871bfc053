//! SearXNG, `GET /search?format=json`.

use ::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::operators::{self, QueryLimits};
use super::{Api, Endpoint, Hit, ProviderProblem, ProviderQuery, parse, region, tidy};
use crate::{MAX_TITLE_CHARS, date};

/// A key, which SearXNG itself ignores, is for a proxy in front of it.
pub(super) const API: Api = Api {
    public_url: None,
    path: &["search"],
    key_header: Some(("authorization", "Bearer ")),
    key_required: false,
    // SearXNG has no limit; one of its engines ignores longer queries.
    limits: QueryLimits {
        chars: 499,
        words: 100,
    },
};

#[derive(Deserialize)]
struct Page {
    results: Vec<Item>,
    #[serde(default)]
    unresponsive_engines: Vec<Value>,
}

#[derive(Deserialize)]
struct Item {
    url: Option<String>,
    title: Option<String>,
    content: Option<String>,
    #[serde(rename = "publishedDate")]
    published: Option<String>,
}

pub(super) fn request(endpoint: &Endpoint, query: &ProviderQuery<'_>) -> reqwest::Request {
    let words = operators::without_bangs(query.query);
    let words = operators::with_sites(&words, query.domains, API.limits);
    let language = region::country(query.location).and_then(|code| region::searxng(&code));
    let mut parameters = vec![("q", words.as_str()), ("format", "json")];
    if let Some(language) = &language {
        parameters.push(("language", language));
    }
    if let Some(freshness) = query.freshness {
        let range = freshness.select(["day", "week", "month", "year"]);
        parameters.push(("time_range", range));
    }
    endpoint.get(&parameters)
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Hit>, ProviderProblem> {
    let page: Page = parse(body)?;
    if page.results.is_empty() && !page.unresponsive_engines.is_empty() {
        return Err(ProviderProblem::Engines(engines(
            &page.unresponsive_engines,
        )));
    }
    let hit = |item: Item| Hit {
        url: item.url.unwrap_or_default(),
        title: item.title.unwrap_or_default(),
        snippet: item.content.unwrap_or_default(),
        date: item.published.and_then(|text| date::find_or_age(&text)),
        text: None,
    };
    Ok(page.results.into_iter().map(hit).collect())
}

/// 403 means that the format is disabled.
pub(super) fn problem(status: StatusCode) -> Option<ProviderProblem> {
    (status == StatusCode::FORBIDDEN).then_some(ProviderProblem::FormatOff)
}

/// The engines as "name (reason)"; each is a pair of the two in the answer.
fn engines(engines: &[Value]) -> String {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = engines
        .iter()
        .map(|engine| match engine.as_array().map(Vec::as_slice) {
            Some([name, reason, ..]) => format!("{} ({})", word(name), word(reason)),
            Some([name]) => word(name),
            Some([]) | None => word(engine),
        });
    tidy::plain(&named.collect::<Vec<_>>().join(", "), MAX_TITLE_CHARS)
}
