//! The settings of web search and page reading.

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::file::{Search as RawSearch, SearchPages as RawPages, SearchProvider as RawProvider};
use super::input::{Found, Input, Place};
use super::value::Keeper;
use super::{ConfigError, Origin, parse, secrets};
use crate::upstream::settings::Settings as Upstream;
use crate::web::settings::{
    EmbeddingSettings, ExtractorSettings, FetchSettings, ProviderKind, ProviderSettings,
    SearchSettings, Settings,
};

const DEFAULT_PROVIDER: ProviderKind = ProviderKind::DuckDuckGo;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_RETRIES: u32 = 1;
const DEFAULT_RESULTS: usize = 10;
const MOST_RESULTS: usize = 20;
const DEFAULT_PAGES: usize = 6;
const DEFAULT_PAGES_TIMEOUT: Duration = Duration::from_secs(12);
const DEFAULT_CACHE_TTL: Duration = Duration::from_secs(15 * 60);
const DEFAULT_CACHE_BYTES: u64 = 64 * MIB;
const DEFAULT_PARSERS: usize = 2;
const DEFAULT_PARSER_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_PARSER_MEMORY: u64 = 512 * MIB;
/// The parsers themselves, their stack and one small page.
const LEAST_PARSER_MEMORY: u64 = 64 * MIB;
const DEFAULT_EMBEDDING_TIMEOUT: Duration = Duration::from_secs(5);

const DEFAULT_USER_AGENT: &str = concat!(
    "loopwright/",
    env!("CARGO_PKG_VERSION"),
    " (page reader; reads one page at a user's request)"
);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_secs(15);
const DEFAULT_PAGE_BYTES: usize = 8 * 1024 * 1024;
const DEFAULT_REDIRECTS: usize = 5;
const DEFAULT_PORTS: [u16; 2] = [80, 443];
const DEFAULT_PER_HOST: usize = 2;
const DEFAULT_HOST_INTERVAL: Duration = Duration::from_millis(100);

const MIB: u64 = 1024 * 1024;

/// The web as it is to be offered.
#[derive(Debug, Clone)]
pub struct WebConfig {
    /// How it is searched and read.
    pub web: Settings,
    /// The tools are offered to requests that do not ask, too.
    pub unasked: bool,
}

/// The settings, if search is switched on. They are checked even if it is not.
pub(super) fn settings(
    input: &Input<'_>,
    upstreams: &[Upstream],
    notices: &mut Vec<String>,
) -> Result<Option<WebConfig>, ConfigError> {
    let Input { flags, file, .. } = input;
    let enabled = input.pick(
        "enable-search",
        flags.enable_search.as_ref(),
        parse::boolean,
        file.enable_search.map(Ok),
    )?;
    let default = RawSearch::default();
    let raw = file.search.as_ref().unwrap_or(&default);
    let place = input.place.key("search");
    let unasked = enabled.is_some_and(|found| found.value);
    let offered = unasked || raw.on_request;
    let web = Settings {
        providers: providers(input, &place, raw, offered)?,
        search: search(&place, raw)?,
        fetch: fetch(&place.key("pages"), &raw.pages)?,
        extractor: extractor(&place, raw)?,
        embeddings: embeddings(&place, raw, upstreams)?,
    };
    if !offered {
        if file.search.is_some() {
            let table = place.origin();
            notices.push(format!(
                "{table} has no effect without --enable-search or 'on_request = true' in it"
            ));
        }
        return Ok(None);
    }
    Ok(Some(WebConfig { web, unasked }))
}

/// Those of the file, or the one of the flags.
fn providers(
    input: &Input<'_>,
    place: &Place,
    raw: &RawSearch,
    offered: bool,
) -> Result<Vec<ProviderSettings>, ConfigError> {
    let Input { flags, file, .. } = input;
    let kind = input.pick(
        "search-provider",
        flags.search_provider.as_ref(),
        provider,
        file.search_provider.as_deref().map(provider),
    )?;
    let url = input.pick(
        "search-url",
        flags.search_url.as_ref(),
        parse::tool_url,
        file.search_url.as_deref().map(parse::tool_url),
    )?;
    if raw.providers.is_empty() {
        return Ok(vec![short_form(input, kind, url, offered)?]);
    }
    if let Some(origin) = kind
        .map(|found| found.origin)
        .or_else(|| url.map(|found| found.origin))
    {
        let problem =
            "the providers are listed in [[search.providers]] already; take one of the two away";
        return Err(ConfigError::invalid(origin, problem));
    }
    let list = raw.providers.iter().enumerate();
    list.map(|(index, raw)| long_form(input, &place.key("providers").index(index), raw))
        .collect()
}

fn short_form(
    input: &Input<'_>,
    kind: Option<Found<ProviderKind>>,
    url: Option<Found<Url>>,
    offered: bool,
) -> Result<ProviderSettings, ConfigError> {
    let origin = kind
        .as_ref()
        .map_or(Origin::Flag("search-provider"), |found| {
            found.origin.clone()
        });
    let kind = match (kind, &url) {
        (Some(found), _) => found.value,
        // Nobody else is found at an address of the operator's.
        (None, Some(_)) => ProviderKind::SearXng,
        (None, None) => DEFAULT_PROVIDER,
    };
    if kind == ProviderKind::SearXng && url.is_none() {
        let problem = "searxng needs the address of your instance; give it with --search-url";
        return Err(ConfigError::invalid(origin, problem));
    }
    let variable = key_variable(kind);
    let api_key = variable.and_then(|name| (input.env)(name));
    let api_key = api_key
        .map(|key| key.trim().to_owned())
        .filter(|key| !key.is_empty());
    if let (Some(variable), None, true) = (variable, &api_key, offered) {
        let problem = format!(
            "{} needs an API key; put it into the environment variable {variable}",
            kind.as_str()
        );
        return Err(ConfigError::invalid(origin, problem));
    }
    if let Some(problem) = api_key
        .as_ref()
        .and_then(|key| parse::header_value(key).err())
    {
        let origin = Origin::Variable(variable.unwrap_or_default().to_owned());
        return Err(ConfigError::invalid(origin, problem));
    }
    Ok(ProviderSettings {
        kind,
        url: url.map(|found| found.value),
        api_key: api_key.map(SecretString::from),
        requests_per_minute: pace(kind),
    })
}

fn long_form(
    input: &Input<'_>,
    place: &Place,
    raw: &RawProvider,
) -> Result<ProviderSettings, ConfigError> {
    let kind = place.key("name").check(provider(&raw.name))?;
    let keeper = Keeper {
        env: raw.api_key_env.clone(),
        file: raw.api_key_file.clone(),
    };
    let api_key = secrets::secret(input, place, "api_key", &keeper)?;
    if let Some(key) = &api_key {
        place.check(parse::header_value(key.expose_secret()))?;
    }
    if let (Some(variable), None) = (key_variable(kind), &api_key) {
        return Err(place.error(format!(
            "{} needs an API key; name the variable that holds it with api_key_env = \"{variable}\"",
            kind.as_str()
        )));
    }
    let url = match &raw.url {
        Some(url) => Some(place.key("url").check(parse::tool_url(url))?),
        None if kind == ProviderKind::SearXng => {
            return Err(place.error("searxng needs the address of your instance; give it as url"));
        }
        None => None,
    };
    Ok(ProviderSettings {
        kind,
        url,
        api_key,
        requests_per_minute: place
            .at_least("requests_per_minute", raw.requests_per_minute, 1)?
            .unwrap_or_else(|| pace(kind)),
    })
}

/// Where the short form's key is.
fn key_variable(kind: ProviderKind) -> Option<&'static str> {
    match kind {
        ProviderKind::Brave => Some("BRAVE_API_KEY"),
        ProviderKind::Tavily => Some("TAVILY_API_KEY"),
        ProviderKind::Exa => Some("EXA_API_KEY"),
        ProviderKind::Serper => Some("SERPER_API_KEY"),
        ProviderKind::SearXng | ProviderKind::DuckDuckGo => None,
    }
}

/// Requests per minute: what the smallest plans allow, and what a page without a key bears.
fn pace(kind: ProviderKind) -> u32 {
    match kind {
        ProviderKind::DuckDuckGo => 20,
        ProviderKind::Brave => 60,
        ProviderKind::Tavily | ProviderKind::SearXng => 100,
        ProviderKind::Exa | ProviderKind::Serper => 300,
    }
}

/// A provider by name.
pub(super) fn provider(text: &str) -> Result<ProviderKind, String> {
    let known = ProviderKind::ALL;
    let found = known.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|kind| kind.as_str()).collect();
        format!(
            "'{text}' is no search provider; write one of {}",
            names.join(", ")
        )
    })
}

fn search(place: &Place, raw: &RawSearch) -> Result<SearchSettings, ConfigError> {
    let max_results = place
        .at_least("max_results", raw.max_results, 1)?
        .unwrap_or(DEFAULT_RESULTS);
    if max_results > MOST_RESULTS {
        let problem = format!("{max_results} is too large; write {MOST_RESULTS} or less");
        return Err(place.key("max_results").error(problem));
    }
    Ok(SearchSettings {
        timeout: place
            .positive("timeout", raw.timeout)?
            .unwrap_or(DEFAULT_TIMEOUT),
        max_retries: place
            .at_least("max_retries", raw.max_retries, 0)?
            .unwrap_or(DEFAULT_RETRIES),
        max_results,
        max_pages: place
            .at_least("max_pages", raw.max_pages, 0)?
            .unwrap_or(DEFAULT_PAGES),
        pages_timeout: place
            .positive("pages_timeout", raw.pages_timeout)?
            .unwrap_or(DEFAULT_PAGES_TIMEOUT),
        cache_ttl: raw.cache_ttl.map_or(DEFAULT_CACHE_TTL, |time| time.0),
        cache_bytes: raw.cache_bytes.map_or(DEFAULT_CACHE_BYTES, u64::from),
    })
}

fn fetch(place: &Place, raw: &RawPages) -> Result<FetchSettings, ConfigError> {
    let globs = |key: &str, list: &[String]| {
        let patterns = list.iter().enumerate();
        patterns
            .map(|(index, text)| place.key(key).index(index).check(parse::glob(text)))
            .collect::<Result<Vec<String>, ConfigError>>()
    };
    let user_agent = raw.user_agent.as_deref().unwrap_or(DEFAULT_USER_AGENT);
    place
        .key("user_agent")
        .check(parse::header_value(user_agent))?;
    let ports = match &raw.ports {
        None => DEFAULT_PORTS.to_vec(),
        Some(ports) => {
            let port = |(index, port): (usize, &super::value::Whole)| {
                let number = u64::from(*port);
                let found = u16::try_from(number).ok().filter(|port| *port > 0);
                let place = place.key("ports").index(index);
                found.ok_or_else(|| place.error(format!("{number} is no port; write 1 to 65535")))
            };
            ports
                .iter()
                .enumerate()
                .map(port)
                .collect::<Result<_, _>>()?
        }
    };
    Ok(FetchSettings {
        user_agent: user_agent.to_owned(),
        connect_timeout: place
            .positive("connect_timeout", raw.connect_timeout)?
            .unwrap_or(DEFAULT_CONNECT_TIMEOUT),
        timeout: place
            .positive("timeout", raw.timeout)?
            .unwrap_or(DEFAULT_FETCH_TIMEOUT),
        max_bytes: place
            .at_least("max_bytes", raw.max_bytes, 1024)?
            .unwrap_or(DEFAULT_PAGE_BYTES),
        max_redirects: place
            .at_least("max_redirects", raw.max_redirects, 0)?
            .unwrap_or(DEFAULT_REDIRECTS),
        ports,
        allow: globs("allow", &raw.allow)?,
        block: globs("block", &raw.block)?,
        private: globs("private", &raw.private)?,
        robots: raw.robots.unwrap_or(true),
        per_host: place
            .at_least("per_host", raw.per_host, 1)?
            .unwrap_or(DEFAULT_PER_HOST),
        host_interval: raw
            .host_interval
            .map_or(DEFAULT_HOST_INTERVAL, |time| time.0),
    })
}

fn extractor(place: &Place, raw: &RawSearch) -> Result<ExtractorSettings, ConfigError> {
    Ok(ExtractorSettings {
        program: "/proc/self/exe".into(),
        processes: place
            .at_least("parsers", raw.parsers, 1)?
            .unwrap_or(DEFAULT_PARSERS),
        timeout: place
            .positive("parser_timeout", raw.parser_timeout)?
            .unwrap_or(DEFAULT_PARSER_TIMEOUT),
        memory: place
            .at_least("parser_memory", raw.parser_memory, LEAST_PARSER_MEMORY)?
            .unwrap_or(DEFAULT_PARSER_MEMORY),
    })
}

fn embeddings(
    place: &Place,
    raw: &RawSearch,
    upstreams: &[Upstream],
) -> Result<Option<EmbeddingSettings>, ConfigError> {
    let wanted = raw.embedding_upstream.as_deref();
    let Some(model) = &raw.embedding_model else {
        return match wanted {
            Some(_) => Err(place
                .key("embedding_upstream")
                .error("it needs 'embedding_model', the name of the model")),
            None => Ok(None),
        };
    };
    let found = match wanted {
        None => upstreams.first(),
        Some(name) => upstreams.iter().find(|upstream| upstream.name == name),
    };
    let Some(upstream) = found else {
        return Err(place
            .key("embedding_upstream")
            .error("there is no upstream of this name; write the 'name' of one of [[upstreams]]"));
    };
    let mut url = upstream.base_url.clone();
    let path = format!("{}/embeddings", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(Some(EmbeddingSettings {
        url,
        api_key: upstream.api_key.clone(),
        model: model.clone(),
        timeout: place
            .positive("embedding_timeout", raw.embedding_timeout)?
            .unwrap_or(DEFAULT_EMBEDDING_TIMEOUT),
    }))
}
