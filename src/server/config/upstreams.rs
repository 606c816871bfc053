//! The settings of model servers.

use ::http::HeaderMap;
use serde::Deserialize;
use serde::de::value::{Error, MapDeserializer};

use super::file::{File, UpstreamSection};
use super::text::UpstreamKind;
use super::validation::Validation;
use super::{ConfigError, names};
use upstream::retry::RetryPolicy;
use upstream::settings::{KeySource, ServerKind, Settings};

/// The name of the one server of `upstream`.
const DEFAULT_NAME: &str = "default";

/// Headers in which model servers take a key.
const KEY_HEADERS: [&str; 4] = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];

const MISSING: &str = "no upstream is configured; give --upstream URL, LOOPWRIGHT_UPSTREAM, or `upstream` or [[upstreams]] \
                       in the file (`loopwright demo` needs none)";

pub(super) fn settings(
    file: &mut File,
    checks: &mut Validation<'_>,
) -> Result<Vec<Settings>, ConfigError> {
    single_to_list(file, checks)?;
    let has_api_keys = !file.api_keys.is_empty();
    let mut upstreams: Vec<Settings> = Vec::with_capacity(file.upstreams.len());
    for (index, section) in file.upstreams.iter_mut().enumerate() {
        let table = format!("upstreams[{index}]");
        let upstream = one(section, &table, has_api_keys, checks)?;
        if upstreams.iter().any(|other| other.name == upstream.name) {
            let problem = "another upstream has this name; write another name";
            return Err(checks.error(&format!("{table}.name"), problem));
        }
        if upstream.base_url.path() == "/" {
            checks.notices.push(format!(
                "the base URL of upstream `{}` has no path; most servers answer below /v1",
                upstream.name
            ));
        }
        upstreams.push(upstream);
    }
    Ok(upstreams)
}

pub(super) fn retry(file: &File, checks: &Validation<'_>) -> Result<RetryPolicy, ConfigError> {
    let policy = RetryPolicy::from(&file.retry);
    if policy.base_delay > policy.max_delay {
        let problem = format!(
            "is longer than max_delay ({:?}); lower it or raise max_delay",
            policy.max_delay
        );
        return Err(checks.error("retry.base_delay", problem));
    }
    Ok(policy)
}

/// Makes `upstream` the one entry of `upstreams`.
fn single_to_list(file: &mut File, checks: &mut Validation<'_>) -> Result<(), ConfigError> {
    let (url, key, kind) = (
        file.upstream.take(),
        file.upstream_api_key_env.take(),
        file.upstream_kind.take(),
    );
    let given = match (&url, &key, &kind) {
        (Some(_), _, _) => "upstream",
        (None, Some(_), _) => "upstream_api_key_env",
        (None, None, Some(_)) => "upstream_kind",
        (None, None, None) if file.upstreams.is_empty() => {
            return Err(ConfigError::Missing(MISSING));
        }
        (None, None, None) => return Ok(()),
    };
    if !file.upstreams.is_empty() {
        let problem = "the file lists [[upstreams]] as well; use one form or the other";
        return Err(checks.error(given, problem));
    }
    let Some(url) = url else {
        let problem = "there is no upstream for it; give --upstream as well";
        return Err(checks.error(given, problem));
    };
    let required = [("name", DEFAULT_NAME), ("base_url", url.0.as_str())];
    let section = UpstreamSection::deserialize(MapDeserializer::new(required.into_iter()));
    let mut section = section.map_err(|error: Error| checks.error(given, error.to_string()))?;
    section.api_key_env = key;
    section.kind = kind.unwrap_or_default();
    file.upstreams.push(section);
    let origin = checks.origins.of("upstream_api_key_env");
    checks.origins.put("upstreams[0].api_key_env", origin);
    Ok(())
}

/// The origin of an upstream's key.
fn key_source(section: &UpstreamSection, headers: &HeaderMap, has_api_keys: bool) -> KeySource {
    match (&section.api_key_env, &section.api_key_file) {
        (Some(variable), _) => KeySource::Variable(variable.0.clone()),
        (None, Some(path)) => KeySource::File(path.clone()),
        (None, None) if KEY_HEADERS.iter().any(|name| headers.contains_key(*name)) => {
            KeySource::Headers
        }
        // If clients have keys of loopwright, their keys are not passed on.
        (None, None) if has_api_keys => KeySource::None,
        (None, None) => KeySource::Clients,
    }
}

fn one(
    section: &mut UpstreamSection,
    table: &str,
    has_api_keys: bool,
    checks: &Validation<'_>,
) -> Result<Settings, ConfigError> {
    let (key_env, key_file) = (section.api_key_env.as_ref(), section.api_key_file.as_ref());
    let mut renamed = section.model_map.iter();
    if renamed.any(|(from, to)| from.is_empty() || to.is_empty()) {
        let problem = "a model has no name; write \"client's name\" = \"server's name\"";
        return Err(checks.error(&format!("{table}.model_map"), problem));
    }
    let kind = section.kind.0;
    let kind = kind.or_else(|| ServerKind::at(&section.base_url.0));
    section.kind = UpstreamKind(kind);
    let quirks = section.quirks.clone();
    // All of them, so that they are shown.
    section.quirks = quirks.settle(kind).into();
    let headers = checks.headers(&format!("{table}.headers"), &section.headers)?;
    Ok(Settings {
        name: section.name.0.clone(),
        kind,
        base_url: section.base_url.0.clone(),
        api_key: checks.secret(
            &format!("{table}.api_key"),
            key_env,
            key_file,
            names::api_key,
        )?,
        key_source: key_source(section, &headers, has_api_keys),
        headers,
        models: section.models.iter().cloned().map(Into::into).collect(),
        model_map: section.model_map.clone().into_iter().collect(),
        connect_timeout: section.connect_timeout.into(),
        first_byte_timeout: section.first_byte_timeout.into(),
        idle_timeout: section.idle_timeout.into(),
        max_stream_bytes: section.max_stream_bytes.into(),
        certificates: checks.certificates.clone(),
        affinity_header: section.affinity_header.clone().map(Into::into),
        quirks,
    })
}
