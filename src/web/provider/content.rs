//! Tavily and Exa, both `POST /search`: they filter hosts themselves, and send the text of pages on request.

use ::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::operators::{self, QueryLimits};
use super::{Api, Endpoint, Hit, PageTexts, ProviderProblem, ProviderQuery, parse, region};
use crate::date;

/// Most domains that Tavily includes; others are left out.
const TAVILY_INCLUDED: usize = 300;
/// Most domains that Tavily excludes; others are left out.
const TAVILY_EXCLUDED: usize = 150;
/// Most characters of each page that Exa is asked for.
const TEXT_CHARS: usize = 40_000;
/// Most characters of the highlights that Exa is asked for as the snippet of a page.
const HIGHLIGHT_CHARS: usize = 600;

pub(super) const TAVILY: Api = Api {
    public_url: Some("https://api.tavily.com"),
    path: &["search"],
    key_header: Some(("authorization", "Bearer ")),
    key_required: true,
    // Longer queries are refused.
    limits: QueryLimits {
        chars: 400,
        words: 400,
    },
};
pub(super) const EXA: Api = Api {
    public_url: Some("https://api.exa.ai"),
    path: &["search"],
    key_header: Some(("x-api-key", "")),
    key_required: true,
    // No limit is documented.
    limits: QueryLimits {
        chars: 2_000,
        words: 400,
    },
};

#[derive(Deserialize)]
struct Page {
    results: Vec<Item>,
}

/// A result of either API. No result has both names of a field.
#[derive(Deserialize)]
struct Item {
    url: Option<String>,
    title: Option<String>,
    content: Option<String>,
    highlights: Option<Vec<String>>,
    #[serde(alias = "publishedDate")]
    published_date: Option<String>,
    #[serde(alias = "raw_content")]
    text: Option<String>,
}

pub(super) fn tavily(
    endpoint: &Endpoint,
    query: &ProviderQuery<'_>,
    texts: PageTexts,
) -> reqwest::Request {
    let mut body = json!({
        "query": operators::within(query.query, TAVILY.limits),
        "max_results": query.max_results,
        "search_depth": "basic",
        "topic": "general",
    });
    if texts == PageTexts::Wanted {
        body["include_raw_content"] = json!("markdown");
    }
    if let Some(freshness) = query.freshness {
        body["time_range"] = json!(freshness.select(["day", "week", "month", "year"]));
    }
    let (included, excluded) = ("include_domains", "exclude_domains");
    add_domains(&mut body, included, &query.domains.allowed, TAVILY_INCLUDED);
    add_domains(&mut body, excluded, &query.domains.blocked, TAVILY_EXCLUDED);
    endpoint.post_json(&body)
}

pub(super) fn exa(
    endpoint: &Endpoint,
    query: &ProviderQuery<'_>,
    texts: PageTexts,
) -> reqwest::Request {
    let contents = match texts {
        PageTexts::Wanted => json!({"text": {"maxCharacters": TEXT_CHARS}}),
        PageTexts::Unwanted => json!({"highlights": {"maxCharacters": HIGHLIGHT_CHARS}}),
    };
    let mut body = json!({
        "query": operators::within(query.query, EXA.limits),
        "type": "auto",
        "numResults": query.max_results,
        "contents": contents,
    });
    let days = query.freshness.map(|age| age.select([1, 7, 31, 366]));
    if let Some(since) = days.and_then(date::days_ago) {
        body["startPublishedDate"] = json!(format!("{since}T00:00:00.000Z"));
    }
    if let Some(country) = region::country(query.location) {
        body["userLocation"] = json!(country);
    }
    add_domains(
        &mut body,
        "includeDomains",
        &query.domains.allowed,
        usize::MAX,
    );
    add_domains(
        &mut body,
        "excludeDomains",
        &query.domains.blocked,
        usize::MAX,
    );
    endpoint.post_json(&body)
}

fn add_domains(body: &mut Value, field: &str, domains: &[String], most: usize) {
    if !domains.is_empty() {
        body[field] = domains.iter().take(most).cloned().collect();
    }
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Hit>, ProviderProblem> {
    let page: Page = parse(body)?;
    Ok(page.results.into_iter().map(Item::hit).collect())
}

impl Item {
    fn hit(self) -> Hit {
        let highlights = self.highlights.unwrap_or_default().join(" … ");
        let snippet = match (self.content, &self.text) {
            (Some(content), _) => content,
            (None, Some(text)) if highlights.is_empty() => {
                text.chars().take(HIGHLIGHT_CHARS).collect()
            }
            (None, _) => highlights,
        };
        Hit {
            url: self.url.unwrap_or_default(),
            title: self.title.unwrap_or_default(),
            snippet,
            date: self
                .published_date
                .and_then(|text| date::find_or_age(&text)),
            text: self.text,
        }
    }
}

/// 432 is the limit of the plan, 433 the limit of paying per request.
pub(super) fn tavily_problem(status: StatusCode) -> Option<ProviderProblem> {
    matches!(status.as_u16(), 432 | 433).then_some(ProviderProblem::Quota)
}
