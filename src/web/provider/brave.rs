//! Brave Search, `GET /res/v1/web/search`.

use std::time::Duration;

use ::http::{HeaderMap, StatusCode};
use serde::Deserialize;

use super::operators::{self, QueryLimits};
use super::{Api, Endpoint, Hit, ProviderProblem, ProviderQuery, parse, region};
use crate::date;

const RESET_HEADER: &str = "x-ratelimit-reset";
/// The countries that Brave knows (`country` of its web search parameters).
const COUNTRIES: &str = "AR AU AT BE BR CA CL DK FI FR DE HK IN ID IT JP KR MY MX NL NZ NO CN PL PT PH RU SA ZA ES SE CH TW TR GB US";

pub(super) const API: Api = Api {
    public_url: Some("https://api.search.brave.com"),
    path: &["res", "v1", "web", "search"],
    key_header: Some(("x-subscription-token", "")),
    key_required: true,
    limits: QueryLimits {
        chars: 400,
        words: 50,
    },
};

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "type")]
    kind: Kind,
    web: Option<Section>,
}

/// The only value of an answer; anything else is malformed.
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

pub(super) fn request(endpoint: &Endpoint, query: &ProviderQuery<'_>) -> reqwest::Request {
    let words = operators::with_sites(query.query, query.domains, API.limits);
    let count = query.max_results.to_string();
    let country = region::country(query.location);
    let mut parameters = vec![
        ("q", words.as_str()),
        ("count", &count),
        ("result_filter", "web"),
        ("text_decorations", "false"),
    ];
    if let Some(country) = &country {
        let is_known = COUNTRIES.split(' ').any(|known| known == country);
        // Without a country Brave searches for users in the United States.
        parameters.push(("country", if is_known { country } else { "ALL" }));
    }
    if let Some(freshness) = query.freshness {
        parameters.push(("freshness", freshness.select(["pd", "pw", "pm", "py"])));
    }
    endpoint.get(&parameters)
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Hit>, ProviderProblem> {
    let Page {
        kind: Kind::Search,
        web,
    } = parse(body)?;
    // An answer without results has no such section.
    let items = web.map(|section| section.results).unwrap_or_default();
    Ok(items.into_iter().map(Item::hit).collect())
}

impl Item {
    fn hit(self) -> Hit {
        let date = [self.page_age, self.age]
            .into_iter()
            .flatten()
            .find_map(|text| date::find_or_age(&text));
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

/// A wrong key is 422 with a code; an exhausted quota is 429 with its counters.
pub(super) fn problem(status: StatusCode, body: &[u8]) -> Option<ProviderProblem> {
    let refusal: Refusal = serde_json::from_slice(body).ok()?;
    match status.as_u16() {
        422 if refusal.error.code.as_deref() == Some("SUBSCRIPTION_TOKEN_INVALID") => {
            Some(ProviderProblem::KeyRefused)
        }
        429 => {
            let meta = refusal.error.meta?;
            (meta.quota_current? >= meta.quota_limit?).then_some(ProviderProblem::Quota)
        }
        _ => None,
    }
}

/// The seconds until the first limit, the one per second, is reset: `1, 1419704`.
pub(super) fn reset(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RESET_HEADER)?.to_str().ok()?;
    let first = value.split(',').next()?.trim();
    first.parse().ok().map(Duration::from_secs)
}
