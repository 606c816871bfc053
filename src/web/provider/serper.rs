//! Serper, `POST /search`: Google's results.

use ::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::operators::{self, QueryLimits};
use super::{Api, Endpoint, Hit, ProviderProblem, ProviderQuery, parse, region};
use crate::date;

pub(super) const API: Api = Api {
    public_url: Some("https://google.serper.dev"),
    path: &["search"],
    key_header: Some(("x-api-key", "")),
    key_required: true,
    // Google ignores further words.
    limits: QueryLimits {
        chars: 2_000,
        words: 32,
    },
};

#[derive(Deserialize)]
struct Page {
    /// Every answer has it; anything else is malformed.
    #[serde(rename = "searchParameters")]
    _parameters: serde_json::Map<String, Value>,
    #[serde(default)]
    organic: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    link: Option<String>,
    title: Option<String>,
    snippet: Option<String>,
    date: Option<String>,
}

#[derive(Deserialize)]
struct Refusal {
    message: String,
}

pub(super) fn request(endpoint: &Endpoint, query: &ProviderQuery<'_>) -> reqwest::Request {
    let mut body = json!({
        "q": operators::with_sites(query.query, query.domains, API.limits),
        "num": query.max_results,
    });
    if let Some(country) = region::country(query.location) {
        body["gl"] = json!(country.to_ascii_lowercase());
    }
    if let Some(freshness) = query.freshness {
        body["tbs"] = json!(freshness.select(["qdr:d", "qdr:w", "qdr:m", "qdr:y"]));
    }
    endpoint.post_json(&body)
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Hit>, ProviderProblem> {
    let page: Page = parse(body)?;
    let hit = |item: Item| Hit {
        url: item.link.unwrap_or_default(),
        title: item.title.unwrap_or_default(),
        snippet: item.snippet.unwrap_or_default(),
        date: item.date.and_then(|text| date::find_or_age(&text)),
        text: None,
    };
    Ok(page.organic.into_iter().map(hit).collect())
}

/// An account without credits is 400 with a message.
pub(super) fn problem(status: StatusCode, body: &[u8]) -> Option<ProviderProblem> {
    let refusal: Refusal = serde_json::from_slice(body).ok()?;
    let out_of_credits = status == StatusCode::BAD_REQUEST
        && refusal
            .message
            .to_ascii_lowercase()
            .contains("not enough credits");
    out_of_credits.then_some(ProviderProblem::Quota)
}
