//! Tavily, `POST /search`.

use ::http::StatusCode;
use ::http::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::json;

use super::date::{self, Day};
use super::operators::{self, Limits};
use super::{Endpoint, Hit, Lookup, Problem, SetupError, Texts, parse, region};
use crate::web::Freshness;
use crate::web::settings::ProviderSettings;

const PUBLIC: &str = "https://api.tavily.com";
/// Most results of one request.
const MAX_RESULTS: usize = 20;
/// Most domains that results may be limited to.
const MAX_INCLUDED: usize = 300;
/// Most domains that results may be kept off.
const MAX_EXCLUDED: usize = 150;
/// Longer queries are refused.
pub(super) const LIMITS: Limits = Limits {
    chars: 400,
    words: 400,
};

/// Tavily.
#[derive(Debug)]
pub(in crate::web) struct Tavily {
    endpoint: Endpoint,
    texts: Texts,
}

#[derive(Deserialize)]
struct Page {
    results: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    url: Option<String>,
    title: Option<String>,
    content: Option<String>,
    raw_content: Option<String>,
    published_date: Option<String>,
}

impl Tavily {
    pub(super) fn new(settings: &ProviderSettings, texts: Texts) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new(settings, Some(PUBLIC), &["search"])?;
        Ok(Self {
            endpoint: endpoint.with_key(settings, AUTHORIZATION, "Bearer ")?,
            texts,
        })
    }

    pub(super) fn request(&self, lookup: &Lookup<'_>) -> reqwest::Request {
        let mut body = json!({
            "query": operators::within(lookup.query, LIMITS),
            "max_results": lookup.max_results.clamp(1, MAX_RESULTS),
            "search_depth": "basic",
            "topic": "general",
        });
        if self.texts == Texts::Wanted {
            body["include_raw_content"] = json!("markdown");
        }
        if let Some(freshness) = lookup.freshness {
            body["time_range"] = json!(match freshness {
                Freshness::Day => "day",
                Freshness::Week => "week",
                Freshness::Month => "month",
                Freshness::Year => "year",
            });
        }
        if let Some(name) =
            region::country(lookup.location).and_then(|country| region::tavily(&country))
        {
            body["country"] = json!(name);
        }
        let first = |domains: &[String], most: usize| -> Vec<String> {
            domains.iter().take(most).cloned().collect()
        };
        if !lookup.domains.allowed.is_empty() {
            body["include_domains"] = json!(first(&lookup.domains.allowed, MAX_INCLUDED));
        }
        if !lookup.domains.blocked.is_empty() {
            body["exclude_domains"] = json!(first(&lookup.domains.blocked, MAX_EXCLUDED));
        }
        self.endpoint.post_json(&body)
    }
}

pub(super) fn read(body: &[u8], today: Day) -> Result<Vec<Hit>, Problem> {
    let page: Page = parse(body)?;
    let hit = |item: Item| Hit {
        url: item.url.unwrap_or_default(),
        title: item.title.unwrap_or_default(),
        snippet: item.content.unwrap_or_default(),
        date: item
            .published_date
            .and_then(|text| date::read(&text, today)),
        text: item.raw_content,
    };
    Ok(page.results.into_iter().map(hit).collect())
}

/// 432 is the limit of the plan, 433 the one of paying as one goes.
pub(super) fn problem(status: StatusCode) -> Option<Problem> {
    matches!(status.as_u16(), 432 | 433).then_some(Problem::Quota)
}
