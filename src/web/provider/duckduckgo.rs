//! DuckDuckGo's page for browsers without scripts, `POST /html/`. It has no API and needs no key; nothing here pretends
//! to be a browser, and a block is told as what it is.

use ::http::header::{ACCEPT, REFERER};
use ::http::{HeaderValue, StatusCode};
use html5ever::Attribute;
use url::Url;

use super::markup::{self, Piece, attribute, has_class};
use super::operators::{self, Limits};
use super::{Endpoint, Hit, Lookup, Problem, SetupError, region};
use crate::web::Freshness;
use crate::web::settings::ProviderSettings;

const PUBLIC: &str = "https://html.duckduckgo.com";
/// All regions.
const ANYWHERE: &str = "wt-wt";
/// Queries of 500 characters and more are not accepted.
pub(super) const LIMITS: Limits = Limits {
    chars: 499,
    words: 100,
};

/// DuckDuckGo.
#[derive(Debug)]
pub(in crate::web) struct DuckDuckGo(Endpoint);

/// What has been seen of a page so far.
#[derive(Default)]
struct Seen {
    hits: Vec<Hit>,
    /// The result that is being read; none within an advertisement.
    current: Option<Hit>,
    /// The element whose text is being taken.
    within: Option<(Part, String)>,
    challenge: bool,
    /// The list of results, empty or not.
    list: bool,
}

/// What an element's text is of a result.
#[derive(Clone, Copy)]
enum Part {
    Title,
    Snippet,
}

impl DuckDuckGo {
    pub(super) fn new(settings: &ProviderSettings) -> Result<Self, SetupError> {
        Ok(Self(Endpoint::new(settings, Some(PUBLIC), &["html", ""])?))
    }

    pub(super) fn request(&self, lookup: &Lookup<'_>) -> reqwest::Request {
        let query = operators::without_bangs(lookup.query);
        let query = operators::with_sites(&query, lookup.domains, LIMITS);
        let region = region::country(lookup.location)
            .and_then(|country| region::duckduckgo(&country))
            .unwrap_or(ANYWHERE);
        let mut fields = vec![("q", query.as_str()), ("b", ""), ("kl", region)];
        if let Some(freshness) = lookup.freshness {
            let word = match freshness {
                Freshness::Day => "d",
                Freshness::Week => "w",
                Freshness::Month => "m",
                Freshness::Year => "y",
            };
            fields.push(("df", word));
        }
        let mut request = self.0.post_form(&fields);
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/html"));
        // The form is on the very page that it is sent to.
        if let Ok(page) = HeaderValue::try_from(self.0.url.as_str()) {
            headers.insert(REFERER, page);
        }
        request
    }
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Hit>, Problem> {
    let mut seen = Seen::default();
    markup::page(&String::from_utf8_lossy(body), |piece| match piece {
        Piece::Open { name, attributes } => seen.open(name, attributes),
        Piece::Text(text) => seen.text(text),
        Piece::Close(name) => seen.close(name),
    });
    seen.end_result();
    if seen.challenge {
        return Err(Problem::Blocked);
    }
    if seen.hits.is_empty() && !seen.list {
        return Err(Problem::Malformed("it is no page of search results"));
    }
    Ok(seen.hits)
}

/// Robots are answered with 202 and a captcha, or plainly refused.
pub(super) fn problem(status: StatusCode) -> Option<Problem> {
    matches!(status.as_u16(), 202 | 401 | 403 | 418 | 429).then_some(Problem::Blocked)
}

impl Seen {
    fn open(&mut self, name: &str, attributes: &[Attribute]) {
        let id = attribute(attributes, "id").unwrap_or_default();
        let classes = attribute(attributes, "class").unwrap_or_default();
        self.challenge |= id == "challenge-form" || classes.contains("anomaly-modal");
        self.list |= id == "links" || has_class(attributes, "no-results");
        if has_class(attributes, "result") {
            self.end_result();
            let web = has_class(attributes, "web-result");
            self.current = (web && !has_class(attributes, "result--ad")).then(Hit::default);
        }
        let Some(hit) = &mut self.current else {
            return;
        };
        if has_class(attributes, "result__a") {
            hit.url = target(attribute(attributes, "href").unwrap_or_default());
            self.within = Some((Part::Title, name.to_owned()));
        } else if has_class(attributes, "result__snippet") {
            self.within = Some((Part::Snippet, name.to_owned()));
        }
    }

    fn text(&mut self, text: &str) {
        let (Some(hit), Some((part, _))) = (&mut self.current, &self.within) else {
            return;
        };
        let field = match part {
            Part::Title => &mut hit.title,
            Part::Snippet => &mut hit.snippet,
        };
        // What is read here is cleaned once more, as text that may hold markup: it must not become any.
        for character in text.chars() {
            match character {
                '<' => field.push_str("&lt;"),
                '&' => field.push_str("&amp;"),
                _ => field.push(character),
            }
        }
    }

    fn close(&mut self, name: &str) {
        self.within.take_if(|(_, element)| element == name);
    }

    fn end_result(&mut self) {
        self.within = None;
        self.hits
            .extend(self.current.take().filter(|hit| !hit.url.is_empty()));
    }
}

/// Where a link leads: what stands in `uddg` of a redirect through DuckDuckGo; nothing for an advertisement.
fn target(href: &str) -> String {
    let absolute = if href.starts_with("//") {
        format!("https:{href}")
    } else {
        href.to_owned()
    };
    let Ok(url) = Url::parse(&absolute) else {
        return String::new();
    };
    let own = url
        .host_str()
        .is_some_and(|host| host == "duckduckgo.com" || host.ends_with(".duckduckgo.com"));
    match (own, url.path()) {
        (true, "/l/") => url
            .query_pairs()
            .find(|(name, _)| name == "uddg")
            .map(|(_, target)| target.into_owned())
            .filter(|target| !target.contains("//duckduckgo.com/y.js"))
            .unwrap_or_default(),
        (true, "/y.js") => String::new(),
        _ => absolute,
    }
}
