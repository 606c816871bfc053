//! Brave Search, `GET /res/v1/web/search`.

use std::time::Duration;

use ::http::{HeaderMap, HeaderName, StatusCode};
use serde::Deserialize;

use super::date::{self, Day};
use super::operators::{self, Limits};
use super::{Endpoint, Hit, Lookup, Problem, SetupError, parse, region};
use crate::web::Freshness;
use crate::web::settings::ProviderSettings;

const PUBLIC: &str = "https://api.search.brave.com";
const KEY_HEADER: HeaderName = HeaderName::from_static("x-subscription-token");
const RESET_HEADER: &str = "x-ratelimit-reset";
/// Most results of one request.
const MAX_COUNT: usize = 20;
pub(super) const LIMITS: Limits = Limits {
    chars: 400,
    words: 50,
};

/// Brave Search.
#[derive(Debug)]
pub(in crate::web) struct Brave(Endpoint);

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "type")]
    kind: Kind,
    web: Option<Section>,
}

/// Its only value tells an answer from anything else.
#[derive(Deserialize)]
enum Kind {
    #[serde(rename = "search")]
    Search,
}

#[derive(Deserialize)]
struct Section {
    results: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    url: Option<String>,
    title: Option<String>,
    description: Option<String>,
    page_age: Option<String>,
    age: Option<String>,
    #[serde(default)]
    extra_snippets: Vec<String>,
}

#[derive(Deserialize)]
struct Refusal {
    error: RefusalDetail,
}

#[derive(Deserialize)]
struct RefusalDetail {
    code: Option<String>,
    meta: Option<RefusalMeta>,
}

#[derive(Deserialize)]
struct RefusalMeta {
    quota_limit: Option<u64>,
    quota_current: Option<u64>,
}

impl Brave {
    pub(super) fn new(settings: &ProviderSettings) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new(settings, Some(PUBLIC), &["res", "v1", "web", "search"])?;
        Ok(Self(endpoint.with_key(settings, KEY_HEADER, "")?))
    }

    pub(super) fn request(&self, lookup: &Lookup<'_>) -> reqwest::Request {
        let query = operators::with_sites(lookup.query, lookup.domains, LIMITS);
        let count = lookup.max_results.clamp(1, MAX_COUNT).to_string();
        let country = region::country(lookup.location);
        let mut parameters = vec![
            ("q", query.as_str()),
            ("count", &count),
            ("result_filter", "web"),
            ("text_decorations", "false"),
        ];
        if let Some(country) = &country {
            parameters.push(("country", region::brave(country)));
        }
        if let Some(freshness) = lookup.freshness {
            let word = match freshness {
                Freshness::Day => "pd",
                Freshness::Week => "pw",
                Freshness::Month => "pm",
                Freshness::Year => "py",
            };
            parameters.push(("freshness", word));
        }
        self.0.get(&parameters)
    }
}

pub(super) fn read(body: &[u8], today: Day) -> Result<Vec<Hit>, Problem> {
    let Page {
        kind: Kind::Search,
        web,
    } = parse(body)?;
    // An answer without results has no section of them.
    let items = web.map(|section| section.results).unwrap_or_default();
    Ok(items.into_iter().map(|item| item.hit(today)).collect())
}

impl Item {
    fn hit(self, today: Day) -> Hit {
        let date = [self.page_age, self.age]
            .into_iter()
            .flatten()
            .find_map(|text| date::read(&text, today));
        let mut snippet = self.description.unwrap_or_default();
        for extra in self.extra_snippets {
            snippet.push(' ');
            snippet.push_str(&extra);
        }
        Hit {
            url: self.url.unwrap_or_default(),
            title: self.title.unwrap_or_default(),
            snippet,
            date,
            text: None,
        }
    }
}

/// A wrong key is 422 with a code, a used-up quota is 429 with its counters.
pub(super) fn problem(status: StatusCode, body: &[u8]) -> Option<Problem> {
    let refusal: Refusal = serde_json::from_slice(body).ok()?;
    match status.as_u16() {
        422 if refusal.error.code.as_deref() == Some("SUBSCRIPTION_TOKEN_INVALID") => {
            Some(Problem::KeyRefused)
        }
        429 => {
            let meta = refusal.error.meta?;
            (meta.quota_current? >= meta.quota_limit?).then_some(Problem::Quota)
        }
        _ => None,
    }
}

/// The seconds until the first of its limits, the one per second, is over: `1, 1419704`.
pub(super) fn reset(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RESET_HEADER)?.to_str().ok()?;
    let first = value.split(',').next()?.trim();
    first.parse().ok().map(Duration::from_secs)
}
