//! Serper, `POST /search`: Google's results.

use ::http::{HeaderName, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::date::{self, Day};
use super::operators::{self, Limits};
use super::{Endpoint, Hit, Lookup, Problem, SetupError, parse, region};
use crate::web::Freshness;
use crate::web::settings::ProviderSettings;

const PUBLIC: &str = "https://google.serper.dev";
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
/// Most results of one request.
const MAX_RESULTS: usize = 100;
/// What Google cuts queries at.
pub(super) const LIMITS: Limits = Limits {
    chars: 2_000,
    words: 32,
};

/// Serper.
#[derive(Debug)]
pub(in crate::web) struct Serper(Endpoint);

#[derive(Deserialize)]
struct Page {
    /// Tells an answer from anything else.
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

impl Serper {
    pub(super) fn new(settings: &ProviderSettings) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new(settings, Some(PUBLIC), &["search"])?;
        Ok(Self(endpoint.with_key(settings, KEY_HEADER, "")?))
    }

    pub(super) fn request(&self, lookup: &Lookup<'_>) -> reqwest::Request {
        let mut body = json!({
            "q": operators::with_sites(lookup.query, lookup.domains, LIMITS),
            "num": lookup.max_results.clamp(1, MAX_RESULTS),
        });
        if let Some(country) = region::country(lookup.location) {
            body["gl"] = json!(country.to_ascii_lowercase());
        }
        if let Some(freshness) = lookup.freshness {
            body["tbs"] = json!(match freshness {
                Freshness::Day => "qdr:d",
                Freshness::Week => "qdr:w",
                Freshness::Month => "qdr:m",
                Freshness::Year => "qdr:y",
            });
        }
        self.0.post_json(&body)
    }
}

pub(super) fn read(body: &[u8], today: Day) -> Result<Vec<Hit>, Problem> {
    let page: Page = parse(body)?;
    let hit = |item: Item| Hit {
        url: item.link.unwrap_or_default(),
        title: item.title.unwrap_or_default(),
        snippet: item.snippet.unwrap_or_default(),
        date: item.date.and_then(|text| date::read(&text, today)),
        text: None,
    };
    Ok(page.organic.into_iter().map(hit).collect())
}

/// An account without credits is 400 with a sentence.
pub(super) fn problem(status: StatusCode, body: &[u8]) -> Option<Problem> {
    let refusal: Refusal = serde_json::from_slice(body).ok()?;
    let out_of_credits = status == StatusCode::BAD_REQUEST
        && refusal
            .message
            .to_ascii_lowercase()
            .contains("not enough credits");
    out_of_credits.then_some(Problem::Quota)
}
