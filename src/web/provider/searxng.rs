//! SearXNG, `GET /search?format=json`.

use ::http::StatusCode;
use ::http::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::Value;

use super::date::{self, Day};
use super::operators::{self, Limits};
use super::{Endpoint, Hit, Lookup, Problem, SetupError, parse, region, tidy};
use crate::web::Freshness;
use crate::web::settings::ProviderSettings;

/// SearXNG itself has no limit; one of its engines leaves longer queries out.
pub(super) const LIMITS: Limits = Limits {
    chars: 499,
    words: 100,
};
/// Most engines that an error names.
const MAX_ENGINES: usize = 8;
/// Most characters of an engine's name or of what went wrong with it.
const MAX_ENGINE_CHARS: usize = 60;

/// A SearXNG.
#[derive(Debug)]
pub(in crate::web) struct SearXng(Endpoint);

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

impl SearXng {
    /// A key, which SearXNG does not know, is for a server in front of it.
    pub(super) fn new(settings: &ProviderSettings) -> Result<Self, SetupError> {
        let endpoint = Endpoint::new(settings, None, &["search"])?;
        Ok(Self(if settings.api_key.is_some() {
            endpoint.with_key(settings, AUTHORIZATION, "Bearer ")?
        } else {
            endpoint
        }))
    }

    pub(super) fn request(&self, lookup: &Lookup<'_>) -> reqwest::Request {
        let query = operators::without_bangs(lookup.query);
        let query = operators::with_sites(&query, lookup.domains, LIMITS);
        let language = region::country(lookup.location).and_then(|code| region::searxng(&code));
        let mut parameters = vec![("q", query.as_str()), ("format", "json")];
        if let Some(language) = &language {
            parameters.push(("language", language));
        }
        if let Some(freshness) = lookup.freshness {
            let word = match freshness {
                Freshness::Day => "day",
                Freshness::Week => "week",
                Freshness::Month => "month",
                Freshness::Year => "year",
            };
            parameters.push(("time_range", word));
        }
        self.0.get(&parameters)
    }
}

pub(super) fn read(body: &[u8], today: Day) -> Result<Vec<Hit>, Problem> {
    let page: Page = parse(body)?;
    if page.results.is_empty() && !page.unresponsive_engines.is_empty() {
        return Err(Problem::Engines(engines(&page.unresponsive_engines)));
    }
    let hit = |item: Item| Hit {
        url: item.url.unwrap_or_default(),
        title: item.title.unwrap_or_default(),
        snippet: item.content.unwrap_or_default(),
        date: item.published.and_then(|text| date::read(&text, today)),
        text: None,
    };
    Ok(page.results.into_iter().map(hit).collect())
}

/// A format that is not switched on is 403.
pub(super) fn problem(status: StatusCode) -> Option<Problem> {
    (status == StatusCode::FORBIDDEN).then_some(Problem::FormatOff)
}

/// The engines as "name (what went wrong)"; each comes as a pair of the two.
fn engines(engines: &[Value]) -> String {
    let word = |value: &Value| tidy::plain(value.as_str().unwrap_or_default(), MAX_ENGINE_CHARS);
    let mut named: Vec<String> = engines
        .iter()
        .take(MAX_ENGINES)
        .map(|engine| match engine.as_array().map(Vec::as_slice) {
            Some([name, reason, ..]) => format!("{} ({})", word(name), word(reason)),
            Some([name]) => word(name),
            Some([]) | None => word(engine),
        })
        .collect();
    if engines.len() > MAX_ENGINES {
        named.push("others".to_owned());
    }
    named.join(", ")
}
