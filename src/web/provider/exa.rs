//! Exa, `POST /search`.

use ::http::HeaderName;
use serde::Deserialize;
use serde_json::json;

use super::date::{self, Day};
use super::operators::{self, Limits};
use super::{Endpoint, Hit, Lookup, Problem, SetupError, Texts, parse, region};
use crate::web::Freshness;
use crate::web::settings::ProviderSettings;

const PUBLIC: &str = "https://api.exa.ai";
const KEY_HEADER: HeaderName = HeaderName::from_static("x-api-key");
/// Most results of one request.
const MAX_RESULTS: usize = 100;
/// Characters of each page that are asked for where pages are read.
const TEXT_CHARS: usize = 40_000;
/// Characters of each page's best parts that are asked for as its snippet.
const HIGHLIGHT_CHARS: usize = 600;
/// Characters of the text that stand in for highlights that did not come.
const SNIPPET_CHARS: usize = 400;
/// No limit is documented; this is more than anyone asks.
pub(super) const LIMITS: Limits = Limits {
    chars: 2_000,
    words: 400,
};

/// Exa.
#[derive(Debug)]
pub(in crate::web) struct Exa {
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
    #[serde(rename = "publishedDate")]
    published: Option<String>,
    text: Option<String>,
    highlights: Option<Vec<String>>,
}

impl Exa {
    pub(super) fn new(settings: &ProviderSettings, texts: Texts) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new(settings, Some(PUBLIC), &["search"])?;
        Ok(Self {
            endpoint: endpoint.with_key(settings, KEY_HEADER, "")?,
            texts,
        })
    }

    pub(super) fn request(&self, lookup: &Lookup<'_>, today: Day) -> reqwest::Request {
        let contents = match self.texts {
            Texts::Wanted => json!({"text": {"maxCharacters": TEXT_CHARS}}),
            Texts::Unwanted => json!({"highlights": {"maxCharacters": HIGHLIGHT_CHARS}}),
        };
        let mut body = json!({
            "query": operators::within(lookup.query, LIMITS),
            "type": "auto",
            "numResults": lookup.max_results.clamp(1, MAX_RESULTS),
            "contents": contents,
        });
        if let Some(freshness) = lookup.freshness {
            let days = match freshness {
                Freshness::Day => 1,
                Freshness::Week => 7,
                Freshness::Month => 31,
                Freshness::Year => 366,
            };
            body["startPublishedDate"] = json!(format!("{}T00:00:00.000Z", today.before(days)));
        }
        if let Some(country) = region::country(lookup.location) {
            body["userLocation"] = json!(country);
        }
        if !lookup.domains.allowed.is_empty() {
            body["includeDomains"] = json!(lookup.domains.allowed);
        }
        if !lookup.domains.blocked.is_empty() {
            body["excludeDomains"] = json!(lookup.domains.blocked);
        }
        self.endpoint.post_json(&body)
    }
}

pub(super) fn read(body: &[u8], today: Day) -> Result<Vec<Hit>, Problem> {
    let page: Page = parse(body)?;
    let hit = |item: Item| {
        let highlights = item.highlights.unwrap_or_default().join(" … ");
        let beginning = || -> String {
            let text = item.text.as_deref().unwrap_or_default();
            text.chars().take(SNIPPET_CHARS).collect()
        };
        Hit {
            url: item.url.unwrap_or_default(),
            title: item.title.unwrap_or_default(),
            snippet: if highlights.is_empty() {
                beginning()
            } else {
                highlights
            },
            date: item.published.and_then(|text| date::read(&text, today)),
            text: item.text,
        }
    };
    Ok(page.results.into_iter().map(hit).collect())
}
