//! One search provider: the requests that it gets and the meaning of its answers.
//!
//! The format of each API is a file of its own, which opens no connection; [`exchange`] sends the requests. All results
//! are cleaned and within the request's hosts, whatever the provider sent ([`tidy`]).

mod brave;
mod content;
mod duckduckgo;
mod exchange;
#[cfg(test)]
pub(super) mod fake;
mod markup;
mod operators;
mod region;
mod searxng;
mod serper;
#[cfg(test)]
mod tests;
mod tidy;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use url::Url;

pub(super) use self::exchange::{ProviderClient, ProviderError, ProviderProblem};
use self::operators::QueryLimits;
use super::settings::{ProviderKind, ProviderSettings};
use super::{DomainFilter, Freshness, Location, SetupError};
use net::{CaCertificates, reach};

/// What is searched for to try a provider out.
const TRIED_QUERY: &str = "loopwright";

/// One result of a search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hit {
    /// An `http` or `https` URL with a host and without credentials.
    pub(super) url: String,
    /// The title, or empty.
    pub(super) title: String,
    /// The provider's summary, or empty.
    pub(super) snippet: String,
    /// The date of publication, `YYYY-MM-DD`.
    pub(super) date: Option<String>,
    /// The text of the page, if the provider sends it.
    pub(super) text: Option<String>,
}

/// The answer of a provider to one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProviderAnswer {
    /// The results, best first; may be empty.
    pub(super) hits: Vec<Hit>,
    /// The provider's name.
    pub(super) provider: &'static str,
    /// Deviations from the request, for the model.
    pub(super) notices: Vec<String>,
}

/// One query for a provider.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProviderQuery<'q> {
    /// The words.
    pub(super) query: &'q str,
    /// Most results.
    pub(super) max_results: usize,
    /// The maximum age of results.
    pub(super) freshness: Option<Freshness>,
    /// The permitted hosts.
    pub(super) domains: &'q DomainFilter,
    /// The user's location.
    pub(super) location: Option<&'q Location>,
}

/// A configured provider.
#[derive(Debug)]
pub(super) struct Provider {
    kind: ProviderKind,
    api: &'static Api,
    endpoint: Endpoint,
    texts: PageTexts,
}

/// Whether the text of pages is requested from providers that can send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageTexts {
    /// Pages will be read.
    Wanted,
    /// Snippets suffice.
    Unwanted,
}

/// The fixed facts of an API.
#[derive(Debug)]
struct Api {
    /// The address that is used without a configured one.
    public_url: Option<&'static str>,
    path: &'static [&'static str],
    /// Name of the header with the API key, and what precedes the key in it.
    key_header: Option<(&'static str, &'static str)>,
    key_required: bool,
    limits: QueryLimits,
}

/// The URL of requests and the header with the API key.
#[derive(Debug)]
struct Endpoint {
    url: Url,
    key: Option<(HeaderName, HeaderValue)>,
}

impl Provider {
    /// Takes the settings; opens no connection.
    ///
    /// # Errors
    /// When the key is missing, or the URL or the key cannot be used.
    pub(super) fn new(settings: &ProviderSettings, texts: PageTexts) -> Result<Self, SetupError> {
        let api = match settings.kind {
            ProviderKind::SearXng => &searxng::API,
            ProviderKind::Brave => &brave::API,
            ProviderKind::Tavily => &content::TAVILY,
            ProviderKind::Exa => &content::EXA,
            ProviderKind::Serper => &serper::API,
            ProviderKind::DuckDuckGo => &duckduckgo::API,
        };
        Ok(Self {
            kind: settings.kind,
            api,
            endpoint: Endpoint::new(settings, api)?,
            texts,
        })
    }

    /// The name in the configuration.
    pub(super) fn name(&self) -> &'static str {
        self.kind.as_str()
    }

    /// Searches.
    ///
    /// # Errors
    /// When the provider could not be reached or did not answer the query. An answer without results is no error.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub(super) async fn search(
        &self,
        client: &ProviderClient,
        query: &ProviderQuery<'_>,
    ) -> Result<Vec<Hit>, ProviderError> {
        let outcome = match client.run(self, &self.request(query)).await {
            Ok(body) => self.read(&body).and_then(|hits| tidy::tidy(hits, query)),
            Err(problem) => Err(problem),
        };
        outcome.map_err(|problem| ProviderError {
            provider: self.name(),
            problem,
        })
    }

    /// Tries the provider out. A search costs nothing at SearXNG only; to another one a connection is made.
    ///
    /// # Errors
    /// Why it cannot be used, for the operator.
    pub(super) async fn try_out(
        &self,
        client: &ProviderClient,
        certificates: &CaCertificates,
    ) -> Result<(), String> {
        if self.kind != ProviderKind::SearXng {
            return reach(&self.endpoint.url, certificates).await;
        }
        let query = ProviderQuery {
            query: TRIED_QUERY,
            max_results: 1,
            freshness: None,
            domains: &DomainFilter::default(),
            location: None,
        };
        let found = self.search(client, &query).await;
        found
            .map(drop)
            .map_err(|error| match error.problem.cause() {
                Some(cause) => format!("{} ({cause})", error.problem),
                None => error.problem.to_string(),
            })
    }

    /// How many characters of the query the provider reads, if the query is longer.
    pub(super) fn reads_only(&self, query: &str) -> Option<usize> {
        let limits = self.api.limits;
        (!limits.hold(query)).then_some(limits.chars)
    }

    fn request(&self, query: &ProviderQuery<'_>) -> reqwest::Request {
        let endpoint = &self.endpoint;
        match self.kind {
            ProviderKind::SearXng => searxng::request(endpoint, query),
            ProviderKind::Brave => brave::request(endpoint, query),
            ProviderKind::Tavily => content::tavily(endpoint, query, self.texts),
            ProviderKind::Exa => content::exa(endpoint, query, self.texts),
            ProviderKind::Serper => serper::request(endpoint, query),
            ProviderKind::DuckDuckGo => duckduckgo::request(endpoint, query),
        }
    }

    /// The results in a successful answer, not cleaned yet.
    fn read(&self, body: &[u8]) -> Result<Vec<Hit>, ProviderProblem> {
        match self.kind {
            ProviderKind::SearXng => searxng::read(body),
            ProviderKind::Brave => brave::read(body),
            ProviderKind::Tavily | ProviderKind::Exa => content::read(body),
            ProviderKind::Serper => serper::read(body),
            ProviderKind::DuckDuckGo => duckduckgo::read(body),
        }
    }

    /// The meaning of a status other than 200.
    fn problem(&self, status: StatusCode, body: &[u8]) -> ProviderProblem {
        let specific = match self.kind {
            ProviderKind::SearXng => searxng::problem(status),
            ProviderKind::Brave => brave::problem(status, body),
            ProviderKind::Tavily => content::tavily_problem(status),
            ProviderKind::Serper => serper::problem(status, body),
            ProviderKind::DuckDuckGo => duckduckgo::problem(status),
            ProviderKind::Exa => None,
        };
        specific.unwrap_or_else(|| ProviderProblem::of_status(status))
    }

    /// The delay in a header that only this provider has.
    fn reset(&self, headers: &HeaderMap) -> Option<std::time::Duration> {
        match self.kind {
            ProviderKind::Brave => brave::reset(headers),
            ProviderKind::SearXng
            | ProviderKind::Tavily
            | ProviderKind::Exa
            | ProviderKind::Serper
            | ProviderKind::DuckDuckGo => None,
        }
    }
}

impl Endpoint {
    fn new(settings: &ProviderSettings, api: &Api) -> Result<Self, SetupError> {
        let provider = settings.kind.as_str();
        let bad = || SetupError::ProviderUrl(provider);
        let mut url = match (&settings.url, api.public_url) {
            (Some(url), _) => url.clone(),
            (None, Some(public)) => Url::parse(public).map_err(|_| bad())?,
            (None, None) => return Err(SetupError::NoProviderUrl(provider)),
        };
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SetupError::ProviderCredentials(provider));
        }
        url.set_query(None);
        url.set_fragment(None);
        url.path_segments_mut()
            .map_err(|()| bad())?
            .pop_if_empty()
            .extend(api.path);
        let key = match (api.key_header, &settings.api_key) {
            (Some((name, prefix)), Some(key)) => {
                let value = secret_value(prefix, key).ok_or(SetupError::ProviderKey(provider))?;
                Some((HeaderName::from_static(name), value))
            }
            _ if api.key_required => return Err(SetupError::NoProviderKey(provider)),
            _ => None,
        };
        Ok(Self { url, key })
    }

    fn get(&self, parameters: &[(&str, &str)]) -> reqwest::Request {
        let mut url = self.url.clone();
        url.query_pairs_mut().extend_pairs(parameters);
        self.with_headers(reqwest::Request::new(Method::GET, url))
    }

    fn post_json(&self, body: &serde_json::Value) -> reqwest::Request {
        let json = HeaderValue::from_static("application/json");
        self.post(json, body.to_string())
    }

    fn post_form(&self, fields: &[(&str, &str)]) -> reqwest::Request {
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut body = url::form_urlencoded::Serializer::new(String::new());
        body.extend_pairs(fields);
        self.post(form, body.finish())
    }

    fn post(&self, content_type: HeaderValue, body: String) -> reqwest::Request {
        let mut request = reqwest::Request::new(Method::POST, self.url.clone());
        request
            .headers_mut()
            .insert(::http::header::CONTENT_TYPE, content_type);
        *request.body_mut() = Some(body.into());
        self.with_headers(request)
    }

    fn with_headers(&self, mut request: reqwest::Request) -> reqwest::Request {
        request.headers_mut().insert(
            ::http::header::ACCEPT,
            HeaderValue::from_static("application/json"),
        );
        if let Some((name, value)) = &self.key {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        request
    }
}

fn secret_value(prefix: &str, key: &SecretString) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("{prefix}{}", key.expose_secret())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ProviderProblem> {
    serde_json::from_slice(body)
        .map_err(|_| ProviderProblem::Malformed("it is not JSON of the documented shape"))
}
