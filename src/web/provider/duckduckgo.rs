//! DuckDuckGo's page for browsers without scripts, `POST /html/`. It has no API and needs no key. Requests do not
//! imitate a browser, and a captcha is reported as a block.

use ::http::header::{ACCEPT, REFERER};
use ::http::{HeaderValue, StatusCode};
use html5ever::Attribute;
use url::Url;

use super::markup::{self, Piece, attribute, has_class};
use super::operators::{self, QueryLimits};
use super::{Api, Endpoint, Hit, ProviderProblem, ProviderQuery, region};

/// The code of all regions.
const ANYWHERE: &str = "wt-wt";

pub(super) const API: Api = Api {
    public_url: Some("https://html.duckduckgo.com"),
    path: &["html", ""],
    key_header: None,
    key_required: false,
    // Queries of 500 characters and more are not accepted.
    limits: QueryLimits {
        chars: 499,
        words: 100,
    },
};

/// The results in the part of a page that was read.
#[derive(Default)]
struct PageState {
    hits: Vec<Hit>,
    /// The result that is being read; none inside an advertisement.
    current: Option<Hit>,
    /// The element whose text is being collected.
    within: Option<(Part, String)>,
    challenge: bool,
    /// Whether the page has a list of results, even an empty one.
    list: bool,
}

/// The part of a result that an element holds.
#[derive(Clone, Copy)]
enum Part {
    Title,
    Snippet,
}

pub(super) fn request(endpoint: &Endpoint, query: &ProviderQuery<'_>) -> reqwest::Request {
    let words = operators::without_bangs(query.query);
    let words = operators::with_sites(&words, query.domains, API.limits);
    let region = region::country(query.location)
        .and_then(|country| region::duckduckgo(&country))
        .unwrap_or(ANYWHERE);
    let mut fields = vec![("q", words.as_str()), ("b", ""), ("kl", region)];
    if let Some(freshness) = query.freshness {
        fields.push(("df", freshness.select(["d", "w", "m", "y"])));
    }
    let mut request = endpoint.post_form(&fields);
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("text/html"));
    // The page submits its form to itself.
    if let Ok(page) = HeaderValue::try_from(endpoint.url.as_str()) {
        headers.insert(REFERER, page);
    }
    request
}

pub(super) fn read(body: &[u8]) -> Result<Vec<Hit>, ProviderProblem> {
    let mut seen = PageState::default();
    markup::page(&String::from_utf8_lossy(body), |piece| match piece {
        Piece::Open { name, attributes } => seen.open(name, attributes),
        Piece::Text(text) => seen.text(text),
        Piece::Close(name) => seen.close(name),
    });
    seen.end_result();
    if seen.challenge {
        return Err(ProviderProblem::Blocked);
    }
    if seen.hits.is_empty() && !seen.list {
        return Err(ProviderProblem::Malformed(
            "it is not a page of search results",
        ));
    }
    Ok(seen.hits)
}

/// Automated clients get 202 with a captcha, or a refusal.
pub(super) fn problem(status: StatusCode) -> Option<ProviderProblem> {
    matches!(status.as_u16(), 202 | 401 | 403 | 418 | 429).then_some(ProviderProblem::Blocked)
}

impl PageState {
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
        // Results are cleaned as markup later; the decoded text must not turn into markup there.
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

/// The target of a link: the parameter `uddg` of a redirect through DuckDuckGo; empty for an advertisement.
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
