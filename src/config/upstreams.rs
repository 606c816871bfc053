//! The settings of model servers.

use std::time::Duration;

use ::http::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::file::{Quirks as RawQuirks, Upstream as RawUpstream};
use super::input::{Found, Input, Place};
use super::value::Keeper;
use super::{ConfigError, parse, secrets};
use crate::upstream::retry::RetryPolicy;
use crate::upstream::settings::{Quirks, Settings};

/// The name of the one server that a flag or the short form of the file gives.
const SHORT_NAME: &str = "default";

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(600);
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(300);
const DEFAULT_STREAM_BYTES: u64 = 64 * 1024 * 1024;
/// Smallest limit for a streamed answer that leaves room for a short one, in bytes.
const MIN_STREAM_BYTES: u64 = 64 * 1024;
/// More attempts than this are a slip.
const MAX_ATTEMPTS: u32 = 100;

pub(super) fn settings(
    input: &Input<'_>,
    notices: &mut Vec<String>,
) -> Result<(Vec<Settings>, RetryPolicy), ConfigError> {
    let Input { flags, file, .. } = input;
    let in_file = file.upstream.as_deref().map(parse::base_url);
    let short = input.pick(
        "upstream",
        flags.upstream.as_ref(),
        parse::base_url,
        in_file,
    )?;
    let key = short_key(input)?;
    let upstreams = match (short, key, file.upstreams.as_slice()) {
        (None, None, []) => {
            return Err(ConfigError::Missing(
                "no upstream is configured; give --upstream URL, LOOPWRIGHT_UPSTREAM, or `upstream` or [[upstreams]] \
                 in the file (`loopwright demo` needs none)",
            ));
        }
        (Some(url), key, []) => vec![short_form(url.value, key.map(|found| found.value))],
        (None, None, list) => long_form(input, list)?,
        (None, Some(key), []) => {
            return Err(ConfigError::invalid(
                key.origin,
                "there is no upstream for it; give --upstream as well",
            ));
        }
        (Some(Found { origin, .. }), _, _) | (None, Some(Found { origin, .. }), _) => {
            let problem = "the file lists [[upstreams]] as well; use one form or the other";
            return Err(ConfigError::invalid(origin, problem));
        }
    };
    for upstream in &upstreams {
        if upstream.base_url.path() == "/" {
            notices.push(format!(
                "the base URL of upstream `{}` has no path; most servers answer below /v1",
                upstream.name
            ));
        }
    }
    Ok((upstreams, retry(input)?))
}

fn retry(input: &Input<'_>) -> Result<RetryPolicy, ConfigError> {
    let (raw, place) = (&input.file.retry, input.place.key("retry"));
    let default = RetryPolicy::default();
    let settings = RetryPolicy {
        max_attempts: place
            .at_least("max_attempts", raw.max_attempts, 1)?
            .unwrap_or(default.max_attempts),
        base_delay: place
            .positive("base_delay", raw.base_delay)?
            .unwrap_or(default.base_delay),
        max_delay: place
            .positive("max_delay", raw.max_delay)?
            .unwrap_or(default.max_delay),
    };
    if settings.max_attempts > MAX_ATTEMPTS {
        let problem = format!("is more than {MAX_ATTEMPTS}; write 1 for no retries, or a few");
        return Err(place.key("max_attempts").error(problem));
    }
    if settings.base_delay > settings.max_delay {
        let problem = format!(
            "is longer than max_delay ({:?}); lower it or raise max_delay",
            settings.max_delay
        );
        return Err(place.key("base_delay").error(problem));
    }
    Ok(settings)
}

/// The key of the short form's server.
fn short_key(input: &Input<'_>) -> Result<Option<Found<SecretString>>, ConfigError> {
    let Input { flags, file, .. } = input;
    let in_file = file.upstream_api_key_env.as_deref();
    let Some(Found { value, origin }) = input.pick(
        "upstream-api-key-env",
        flags.upstream_api_key_env.as_ref(),
        parse::variable_name,
        in_file.map(parse::variable_name),
    )?
    else {
        return Ok(None);
    };
    let text = secrets::from_variable(input.env, &value, origin.clone())?;
    if let Err(problem) = parse::header_value(&text) {
        return Err(ConfigError::invalid(origin, problem));
    }
    Ok(Some(Found {
        value: text.into(),
        origin,
    }))
}

fn short_form(base_url: Url, api_key: Option<SecretString>) -> Settings {
    Settings {
        name: SHORT_NAME.to_owned(),
        base_url,
        api_key,
        headers: HeaderMap::new(),
        models: Vec::new(),
        model_map: Vec::new(),
        connect_timeout: DEFAULT_CONNECT_TIMEOUT,
        first_byte_timeout: DEFAULT_FIRST_BYTE_TIMEOUT,
        idle_timeout: DEFAULT_IDLE_TIMEOUT,
        max_stream_bytes: DEFAULT_STREAM_BYTES,
        quirks: Quirks::default(),
    }
}

fn long_form(input: &Input<'_>, list: &[RawUpstream]) -> Result<Vec<Settings>, ConfigError> {
    let mut upstreams: Vec<Settings> = Vec::with_capacity(list.len());
    for (index, raw) in list.iter().enumerate() {
        let place = input.place.key("upstreams").index(index);
        let upstream = one(input, &place, raw)?;
        if upstreams.iter().any(|other| other.name == upstream.name) {
            return Err(place
                .key("name")
                .error("another upstream has this name; names differ"));
        }
        upstreams.push(upstream);
    }
    Ok(upstreams)
}

fn one(input: &Input<'_>, place: &Place, raw: &RawUpstream) -> Result<Settings, ConfigError> {
    let keeper = Keeper {
        env: raw.api_key_env.clone(),
        file: raw.api_key_file.clone(),
    };
    let api_key = secrets::secret(input, place, "api_key", &keeper)?;
    if let Some(key) = &api_key {
        place.check(parse::header_value(key.expose_secret()))?;
    }
    let patterns = raw.models.iter().enumerate();
    let models = patterns
        .map(|(index, text)| place.key("models").index(index).check(parse::glob(text)))
        .collect::<Result<_, _>>()?;
    let limit = raw.max_stream_bytes;
    Ok(Settings {
        name: place.key("name").check(parse::name(&raw.name))?,
        base_url: place
            .key("base_url")
            .check(parse::base_url(&raw.base_url))?,
        api_key,
        headers: secrets::headers(input, &place.key("headers"), &raw.headers)?,
        models,
        model_map: model_map(place, raw)?,
        connect_timeout: place
            .positive("connect_timeout", raw.connect_timeout)?
            .unwrap_or(DEFAULT_CONNECT_TIMEOUT),
        first_byte_timeout: place
            .positive("first_byte_timeout", raw.first_byte_timeout)?
            .unwrap_or(DEFAULT_FIRST_BYTE_TIMEOUT),
        idle_timeout: place
            .positive("idle_timeout", raw.idle_timeout)?
            .unwrap_or(DEFAULT_IDLE_TIMEOUT),
        max_stream_bytes: place
            .at_least("max_stream_bytes", limit, MIN_STREAM_BYTES)?
            .unwrap_or(DEFAULT_STREAM_BYTES),
        quirks: quirks(&raw.quirks),
    })
}

fn model_map(place: &Place, raw: &RawUpstream) -> Result<Vec<(String, String)>, ConfigError> {
    let place = place.key("model_map");
    for (from, to) in &raw.model_map {
        if from.is_empty() || to.is_empty() {
            return Err(
                place.error("a model has no name; write \"client's name\" = \"server's name\"")
            );
        }
    }
    Ok(raw.model_map.clone().into_iter().collect())
}

fn quirks(raw: &RawQuirks) -> Quirks {
    let default = Quirks::default();
    Quirks {
        streams: raw.streams.unwrap_or(default.streams),
        stream_options: raw.stream_options.unwrap_or(default.stream_options),
        think_tags: raw.think_tags.unwrap_or(default.think_tags),
        split_names: raw.split_names.unwrap_or(default.split_names),
        send_reasoning: raw.send_reasoning.unwrap_or(default.send_reasoning),
        final_call: raw.final_call.unwrap_or(default.final_call),
        call_ids: raw.call_ids.unwrap_or(default.call_ids),
        images: raw.images.unwrap_or(default.images),
        hosted_tools: raw.hosted_tools.clone().unwrap_or(default.hosted_tools),
    }
}
