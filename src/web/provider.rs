//! One search provider: what is asked of it, what its answers mean, what its refusals mean.
//!
//! Each API has a file of its own, which writes requests and reads answers and connects to nothing; [`exchange`] carries
//! them. Everything that comes out is cleaned and within the filter of hosts, whatever the provider made of it
//! ([`tidy`]). Knows nothing of the other providers.

mod brave;
mod date;
mod duckduckgo;
mod exa;
mod exchange;
#[cfg(test)]
pub(super) mod fake;
mod markup;
mod operators;
mod problem;
mod region;
mod searxng;
mod serper;
mod tavily;
#[cfg(test)]
mod tests;
mod tidy;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use url::Url;

use self::brave::Brave;
use self::date::Day;
use self::duckduckgo::DuckDuckGo;
use self::exa::Exa;
pub(super) use self::exchange::Exchange;
use self::operators::Limits;
pub(super) use self::problem::{Problem, ProviderError, SetupError};
use self::searxng::SearXng;
use self::serper::Serper;
use self::tavily::Tavily;
use super::settings::{ProviderKind, ProviderSettings};
use super::{DomainFilter, Freshness, Location};

/// Something that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hit {
    /// Where it is: `http` or `https`, with a host and without credentials.
    pub(super) url: String,
    /// Its title, or empty.
    pub(super) title: String,
    /// What the provider shows of it, or empty.
    pub(super) snippet: String,
    /// When it was published, `YYYY-MM-DD`.
    pub(super) date: Option<String>,
    /// The text of the page, where the provider sends it.
    pub(super) text: Option<String>,
}

/// What is looked up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lookup<'q> {
    /// The words.
    pub(super) query: &'q str,
    /// Most hits.
    pub(super) max_results: usize,
    /// How old they may be.
    pub(super) freshness: Option<Freshness>,
    /// On which hosts they may be.
    pub(super) domains: &'q DomainFilter,
    /// Where the user is.
    pub(super) location: Option<&'q Location>,
}

/// A configured provider.
#[derive(Debug)]
pub(super) enum Provider {
    /// A SearXNG of the operator's.
    SearXng(SearXng),
    /// Brave Search.
    Brave(Brave),
    /// Tavily.
    Tavily(Tavily),
    /// Exa.
    Exa(Exa),
    /// Serper.
    Serper(Serper),
    /// DuckDuckGo's HTML page.
    DuckDuckGo(DuckDuckGo),
}

/// Whether pages will be read: then their text is asked for, where the provider has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Texts {
    /// Ask for it.
    Wanted,
    /// Snippets will do.
    Unwanted,
}

/// Where requests go, and the header that pays for them.
#[derive(Debug)]
struct Endpoint {
    url: Url,
    key: Option<(HeaderName, HeaderValue)>,
}

impl Provider {
    /// Makes one from its settings; connects to nothing.
    ///
    /// # Errors
    /// When the key is missing, or the URL or the key cannot be used.
    pub(super) fn new(settings: &ProviderSettings, texts: Texts) -> Result<Self, SetupError> {
        Ok(match settings.kind {
            ProviderKind::SearXng => Self::SearXng(SearXng::new(settings)?),
            ProviderKind::Brave => Self::Brave(Brave::new(settings)?),
            ProviderKind::Tavily => Self::Tavily(Tavily::new(settings, texts)?),
            ProviderKind::Exa => Self::Exa(Exa::new(settings, texts)?),
            ProviderKind::Serper => Self::Serper(Serper::new(settings)?),
            ProviderKind::DuckDuckGo => Self::DuckDuckGo(DuckDuckGo::new(settings)?),
        })
    }

    /// The word of the configuration.
    pub(super) fn name(&self) -> &'static str {
        self.kind().as_str()
    }

    /// Looks something up.
    ///
    /// # Errors
    /// When the provider could not be asked or did not give an answer; an answer without hits is none.
    ///
    /// # Cancel safety
    /// Dropping the future gives the request up.
    pub(super) async fn search(
        &self,
        exchange: &Exchange,
        lookup: &Lookup<'_>,
    ) -> Result<Vec<Hit>, ProviderError> {
        let today = Day::now();
        let request = self.request(lookup, today);
        let outcome = match exchange.run(self, &request).await {
            Ok(body) => self
                .read(&body, today)
                .and_then(|hits| tidy::tidy(hits, lookup)),
            Err(problem) => Err(problem),
        };
        outcome.map_err(|problem| ProviderError {
            provider: self.name(),
            problem,
        })
    }

    /// How many characters of the query it reads, if that is less than the whole.
    pub(super) fn reads_only(&self, query: &str) -> Option<usize> {
        let limits = self.limits();
        (!limits.hold(query)).then_some(limits.chars)
    }

    fn kind(&self) -> ProviderKind {
        match self {
            Self::SearXng(_) => ProviderKind::SearXng,
            Self::Brave(_) => ProviderKind::Brave,
            Self::Tavily(_) => ProviderKind::Tavily,
            Self::Exa(_) => ProviderKind::Exa,
            Self::Serper(_) => ProviderKind::Serper,
            Self::DuckDuckGo(_) => ProviderKind::DuckDuckGo,
        }
    }

    fn limits(&self) -> Limits {
        match self {
            Self::SearXng(_) => searxng::LIMITS,
            Self::Brave(_) => brave::LIMITS,
            Self::Tavily(_) => tavily::LIMITS,
            Self::Exa(_) => exa::LIMITS,
            Self::Serper(_) => serper::LIMITS,
            Self::DuckDuckGo(_) => duckduckgo::LIMITS,
        }
    }

    fn request(&self, lookup: &Lookup<'_>, today: Day) -> reqwest::Request {
        match self {
            Self::SearXng(api) => api.request(lookup),
            Self::Brave(api) => api.request(lookup),
            Self::Tavily(api) => api.request(lookup),
            Self::Exa(api) => api.request(lookup, today),
            Self::Serper(api) => api.request(lookup),
            Self::DuckDuckGo(api) => api.request(lookup),
        }
    }

    /// The hits of a successful answer, as they came.
    fn read(&self, body: &[u8], today: Day) -> Result<Vec<Hit>, Problem> {
        match self {
            Self::SearXng(_) => searxng::read(body, today),
            Self::Brave(_) => brave::read(body, today),
            Self::Tavily(_) => tavily::read(body, today),
            Self::Exa(_) => exa::read(body, today),
            Self::Serper(_) => serper::read(body, today),
            Self::DuckDuckGo(_) => duckduckgo::read(body),
        }
    }

    /// What an answer other than 200 means.
    fn problem(&self, status: StatusCode, body: &[u8]) -> Problem {
        let own = match self {
            Self::SearXng(_) => searxng::problem(status),
            Self::Brave(_) => brave::problem(status, body),
            Self::Tavily(_) => tavily::problem(status),
            Self::Serper(_) => serper::problem(status, body),
            Self::DuckDuckGo(_) => duckduckgo::problem(status),
            Self::Exa(_) => None,
        };
        own.unwrap_or_else(|| Problem::of_status(status))
    }

    /// The delay that an answer asks for in a header of the provider's own.
    fn reset(&self, headers: &HeaderMap) -> Option<std::time::Duration> {
        match self {
            Self::Brave(_) => brave::reset(headers),
            Self::SearXng(_)
            | Self::Tavily(_)
            | Self::Exa(_)
            | Self::Serper(_)
            | Self::DuckDuckGo(_) => None,
        }
    }
}

impl Endpoint {
    /// The API's path below the configured or the public URL.
    fn new(
        settings: &ProviderSettings,
        public: Option<&str>,
        path: &[&str],
    ) -> Result<Self, SetupError> {
        let provider = settings.kind.as_str();
        let bad = || SetupError::Url(provider);
        let mut url = match (&settings.url, public) {
            (Some(url), _) => url.clone(),
            (None, Some(public)) => Url::parse(public).map_err(|_| bad())?,
            (None, None) => return Err(SetupError::NoUrl(provider)),
        };
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SetupError::Credentials(provider));
        }
        url.set_query(None);
        url.set_fragment(None);
        url.path_segments_mut()
            .map_err(|()| bad())?
            .pop_if_empty()
            .extend(path);
        Ok(Self { url, key: None })
    }

    /// Sends the configured key in a header.
    fn with_key(
        mut self,
        settings: &ProviderSettings,
        name: HeaderName,
        scheme: &str,
    ) -> Result<Self, SetupError> {
        let provider = settings.kind.as_str();
        let key = settings
            .api_key
            .as_ref()
            .ok_or(SetupError::NoKey(provider))?;
        self.key = Some((
            name,
            secret_value(scheme, key).ok_or(SetupError::Key(provider))?,
        ));
        Ok(self)
    }

    fn get(&self, parameters: &[(&str, &str)]) -> reqwest::Request {
        let mut url = self.url.clone();
        url.query_pairs_mut().extend_pairs(parameters);
        self.keyed(reqwest::Request::new(Method::GET, url))
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
        self.keyed(request)
    }

    fn keyed(&self, mut request: reqwest::Request) -> reqwest::Request {
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

fn secret_value(scheme: &str, key: &SecretString) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("{scheme}{}", key.expose_secret())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|_| Problem::Malformed("it is no JSON of the documented shape"))
}
