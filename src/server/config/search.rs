//! The settings of web search and page reading.

use super::file::File;
use super::file::web::{ProviderSection, SearchSection};
use super::text::{ProviderName, VariableName};
use super::validation::Validation;
use super::value::Count;
use super::{ConfigError, Origin, names};
use upstream::settings::Settings as UpstreamSettings;
use web::settings::{
    EmbeddingSettings, ExtractorSettings, FileUrlSettings, ProviderKind, ProviderSettings,
    SearchSettings, Settings,
};

/// The hosts of files that requests name by their URLs.
pub(super) fn file_urls(file: &File) -> FileUrlSettings {
    let section = &file.file_urls;
    FileUrlSettings {
        hosts: section.hosts.clone().into(),
        private: section.private.clone().into(),
        ports: section.ports.clone().into(),
        timeout: section.timeout.into(),
        max_bytes: section.max_bytes.into(),
    }
}

/// Web search and page reading, and which requests are offered them.
#[derive(Debug, Clone)]
pub(crate) struct WebConfig {
    /// The settings of search and page reading.
    pub(crate) web: Settings,
    /// Whether requests are offered the tools without asking for them.
    pub(crate) by_default: bool,
}

/// The settings, if search is on. They are checked even if it is off.
pub(super) fn settings(
    file: &mut File,
    upstreams: &[UpstreamSettings],
    checks: &mut Validation<'_>,
) -> Result<Option<WebConfig>, ConfigError> {
    let section = file.search.take();
    let is_given = section.is_some();
    let mut section = section.unwrap_or_default();
    let by_default = file.enable_search;
    let offered = by_default || section.on_request;
    single_to_list(file, &mut section, offered, checks)?;
    let web = Settings {
        providers: providers(&mut section.providers, checks)?,
        search: SearchSettings {
            timeout: section.timeout.into(),
            max_retries: section.max_retries.into(),
            max_results: section.max_results.into(),
            max_pages: section.max_pages.into(),
            pages_timeout: section.pages_timeout.into(),
            cache_ttl: section.cache_ttl.into(),
            cache_bytes: section.cache_bytes.into(),
        },
        fetch: (&section.pages).into(),
        extractor: ExtractorSettings {
            program: "/proc/self/exe".into(),
            processes: section.parsers.into(),
            timeout: section.parser_timeout.into(),
            memory: section.parser_memory.into(),
        },
        embeddings: embeddings(&mut section, upstreams, checks)?,
        certificates: checks.certificates.clone(),
    };
    if !offered {
        if is_given {
            let table = checks.origins.of("search");
            checks.notices.push(format!(
                "{table} has no effect without --enable-search or 'on_request = true' in it"
            ));
        }
        return Ok(None);
    }
    section.on_request = true;
    file.search = Some(section);
    Ok(Some(WebConfig { web, by_default }))
}

/// Makes `search_provider` and `search_url` the one entry of `search.providers`, if the file lists none.
fn single_to_list(
    file: &mut File,
    section: &mut SearchSection,
    offered: bool,
    checks: &mut Validation<'_>,
) -> Result<(), ConfigError> {
    let (name, url) = (file.search_provider.take(), file.search_url.take());
    if !section.providers.is_empty() {
        let given = match (&name, &url) {
            (Some(_), _) => "search_provider",
            (None, Some(_)) => "search_url",
            (None, None) => return check_keys(&section.providers, checks),
        };
        let problem =
            "the providers are listed in [[search.providers]] already; remove one of the two";
        return Err(checks.error(given, problem));
    }
    let kind = match (name, &url) {
        (Some(name), _) => name.0,
        // The only provider whose address the operator has to give.
        (None, Some(_)) => ProviderKind::SearXng,
        (None, None) => ProviderKind::DuckDuckGo,
    };
    if kind == ProviderKind::SearXng && url.is_none() {
        let problem = "searxng needs the address of your instance; give it with --search-url";
        return Err(checks.error("search_provider", problem));
    }
    let has_key =
        |variable: &&str| (checks.env)(variable).is_some_and(|key| !key.trim().is_empty());
    let variable = key_variable(kind);
    let known = variable.filter(has_key);
    if let (Some(variable), None, true) = (variable, known, offered) {
        let problem = format!(
            "{} needs an API key; put it into the environment variable {variable}",
            kind.as_str()
        );
        return Err(checks.error("search_provider", problem));
    }
    section.providers.push(ProviderSection {
        name: ProviderName(kind),
        url,
        api_key_env: known.map(|variable| VariableName(variable.to_owned())),
        api_key_file: None,
        requests_per_minute: None,
    });
    if let Some(variable) = known {
        let origin = Origin::Variable(variable.to_owned());
        checks
            .origins
            .put("search.providers[0].api_key_env", origin);
    }
    Ok(())
}

/// Refuses a listed provider without the API key that it needs.
fn check_keys(sections: &[ProviderSection], checks: &Validation<'_>) -> Result<(), ConfigError> {
    for (index, section) in sections.iter().enumerate() {
        let has_key = section.api_key_env.is_some() || section.api_key_file.is_some();
        let kind = section.name.0;
        if let (Some(variable), false) = (key_variable(kind), has_key) {
            let problem = format!(
                "{} needs an API key; name the variable that holds it with api_key_env = \"{variable}\"",
                kind.as_str()
            );
            return Err(checks.error(&format!("search.providers[{index}]"), problem));
        }
    }
    Ok(())
}

fn providers(
    sections: &mut [ProviderSection],
    checks: &Validation<'_>,
) -> Result<Vec<ProviderSettings>, ConfigError> {
    let sections = sections.iter_mut().enumerate();
    let providers = sections.map(|(index, section)| {
        let table = format!("search.providers[{index}]");
        provider(section, &table, checks)
    });
    providers.collect()
}

fn provider(
    section: &mut ProviderSection,
    table: &str,
    checks: &Validation<'_>,
) -> Result<ProviderSettings, ConfigError> {
    let kind = section.name.0;
    let (key_env, key_file) = (section.api_key_env.as_ref(), section.api_key_file.as_ref());
    let api_key = checks.secret(
        &format!("{table}.api_key"),
        key_env,
        key_file,
        names::api_key,
    )?;
    if kind == ProviderKind::SearXng && section.url.is_none() {
        let problem = "searxng needs the address of your instance; give it as url";
        return Err(checks.error(table, problem));
    }
    if let Some(url) = &section.url {
        checks.secrets.add_parts(&url.0);
    }
    let pace = section
        .requests_per_minute
        .get_or_insert_with(|| Count::computed(pace(kind)));
    Ok(ProviderSettings {
        kind,
        url: section.url.clone().map(Into::into),
        api_key,
        requests_per_minute: (*pace).into(),
    })
}

/// The variable that holds the API key of a provider that needs one.
fn key_variable(kind: ProviderKind) -> Option<&'static str> {
    match kind {
        ProviderKind::Brave => Some("BRAVE_API_KEY"),
        ProviderKind::Tavily => Some("TAVILY_API_KEY"),
        ProviderKind::Exa => Some("EXA_API_KEY"),
        ProviderKind::Serper => Some("SERPER_API_KEY"),
        ProviderKind::SearXng | ProviderKind::DuckDuckGo => None,
    }
}

/// The default requests per minute: the limit of the provider's smallest plan or, without a key, the rate that it
/// tolerates.
fn pace(kind: ProviderKind) -> u32 {
    match kind {
        ProviderKind::DuckDuckGo => 20,
        ProviderKind::Brave => 60,
        ProviderKind::Tavily | ProviderKind::SearXng => 100,
        ProviderKind::Exa | ProviderKind::Serper => 300,
    }
}

fn embeddings(
    section: &mut SearchSection,
    upstreams: &[UpstreamSettings],
    checks: &Validation<'_>,
) -> Result<Option<EmbeddingSettings>, ConfigError> {
    const KEY: &str = "search.embedding_upstream";
    let Some(model) = &section.embedding_model else {
        return match &section.embedding_upstream {
            Some(_) => Err(checks.error(KEY, "it needs 'embedding_model', the name of the model")),
            None => Ok(None),
        };
    };
    let found = match &section.embedding_upstream {
        None => upstreams.first(),
        Some(name) => upstreams.iter().find(|upstream| upstream.name == *name),
    };
    let Some(upstream) = found else {
        let problem = "there is no upstream of this name; write the 'name' of one of [[upstreams]]";
        return Err(checks.error(KEY, problem));
    };
    let mut url = upstream.base_url.clone();
    let path = format!("{}/embeddings", url.path().trim_end_matches('/'));
    url.set_path(&path);
    let settings = EmbeddingSettings {
        url,
        api_key: upstream.api_key.clone(),
        model: model.clone(),
        timeout: section.embedding_timeout.into(),
        certificates: checks.certificates.clone(),
    };
    section.embedding_upstream = Some(upstream.name.clone());
    Ok(Some(settings))
}
