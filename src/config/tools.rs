//! The settings of server-side tools.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use ::http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::file::{Headers, Tool as RawTool};
use super::input::{Input, Place};
use super::value::{Keeper, Seconds, Size, Whole};
use super::{ConfigError, parse, secrets};
use crate::tools::settings::{DispatchSettings, EndpointSettings, HttpToolSettings, Settings};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const DEFAULT_ANSWER_BYTES: usize = 4 * 1024 * 1024;
const DEFAULT_RETRIES: u32 = 2;
const DEFAULT_PARALLEL: usize = 8;
const DEFAULT_RESULT_CHARS: usize = 48_000;
/// Fewer characters leave no room for head, marker and tail of a cut result.
const MIN_RESULT_CHARS: u64 = 256;
/// A tool without parameters takes an empty object.
const NO_PARAMETERS: &str = r#"{"properties":{},"type":"object"}"#;

/// What is the same for the dispatch URL and a tool of its own.
struct RawEndpoint<'a> {
    url: Url,
    method: Method,
    headers: &'a Headers,
    secret: Keeper,
    timeout: Option<Seconds>,
    max_answer_bytes: Option<Size>,
    max_retries: Option<Whole>,
}

pub(super) fn settings(
    input: &Input<'_>,
    notices: &mut Vec<String>,
) -> Result<Settings, ConfigError> {
    let Input { file, place, .. } = input;
    Ok(Settings {
        dispatch: dispatch(input, notices)?,
        http_tools: http_tools(input)?,
        max_parallel_tools: place
            .at_least("max_parallel_tools", file.max_parallel_tools, 1)?
            .unwrap_or(DEFAULT_PARALLEL),
        max_result_chars: place
            .at_least("max_result_chars", file.max_result_chars, MIN_RESULT_CHARS)?
            .unwrap_or(DEFAULT_RESULT_CHARS),
        connect_timeout: place
            .positive("tool_connect_timeout", file.tool_connect_timeout)?
            .unwrap_or(DEFAULT_CONNECT_TIMEOUT),
    })
}

fn dispatch(
    input: &Input<'_>,
    notices: &mut Vec<String>,
) -> Result<Option<DispatchSettings>, ConfigError> {
    let Input {
        flags, file, place, ..
    } = input;
    let url = input.pick(
        "tool-dispatch-url",
        flags.tool_dispatch_url.as_ref(),
        parse::tool_url,
        file.tool_dispatch_url.as_deref().map(parse::tool_url),
    )?;
    let in_file = file.dispatch_tools.as_ref();
    let tools = input.pick(
        "dispatch-tools",
        flags.dispatch_tools.as_ref(),
        parse::globs,
        in_file.map(|list| parse::glob_list(list.iter().map(String::as_str))),
    )?;
    let Some(url) = url else {
        if let Some(tools) = tools.filter(|found| found.value.0 != ["*"]) {
            notices.push(format!(
                "{} has no effect without a dispatch URL",
                tools.origin
            ));
        }
        return Ok(None);
    };
    let raw = RawEndpoint {
        url: url.value,
        method: Method::POST,
        headers: &file.dispatch_headers,
        secret: Keeper {
            env: file.dispatch_secret_env.clone(),
            file: file.dispatch_secret_file.clone(),
        },
        timeout: file.dispatch_timeout,
        max_answer_bytes: file.dispatch_max_answer_bytes,
        max_retries: file.dispatch_max_retries,
    };
    Ok(Some(DispatchSettings {
        tools: tools.map_or_else(|| vec!["*".to_owned()], |found| found.value.0),
        endpoint: endpoint(input, &place.key("dispatch_"), raw)?,
        sequential: file.dispatch_sequential,
        idempotent: file.dispatch_idempotent,
    }))
}

fn http_tools(input: &Input<'_>) -> Result<Vec<HttpToolSettings>, ConfigError> {
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(input.file.tools.len());
    for (index, raw) in input.file.tools.iter().enumerate() {
        let place = input.place.key("tools").index(index);
        if !names.insert(&raw.name) {
            return Err(place
                .key("name")
                .error("another tool has this name; names differ"));
        }
        tools.push(http_tool(input, &place, raw)?);
    }
    Ok(tools)
}

fn http_tool(
    input: &Input<'_>,
    place: &Place,
    raw: &RawTool,
) -> Result<HttpToolSettings, ConfigError> {
    if raw.description.trim().is_empty() {
        return Err(place
            .key("description")
            .error("is empty; say in a sentence what the tool does, the model reads it"));
    }
    let method = raw.method.as_deref().map(parse::method);
    let endpoint_raw = RawEndpoint {
        url: place.key("url").check(parse::tool_url(&raw.url))?,
        method: place
            .key("method")
            .check(method.unwrap_or(Ok(Method::POST)))?,
        headers: &raw.headers,
        secret: Keeper {
            env: raw.secret_env.clone(),
            file: raw.secret_file.clone(),
        },
        timeout: raw.timeout,
        max_answer_bytes: raw.max_answer_bytes,
        max_retries: raw.max_retries,
    };
    Ok(HttpToolSettings {
        name: place.key("name").check(parse::tool_name(&raw.name))?,
        description: raw.description.trim().to_owned(),
        parameters_json: parameters(place, raw)?,
        endpoint: endpoint(input, place, endpoint_raw)?,
        sequential: raw.sequential,
        idempotent: raw.idempotent,
    })
}

fn endpoint(
    input: &Input<'_>,
    place: &Place,
    raw: RawEndpoint<'_>,
) -> Result<EndpointSettings, ConfigError> {
    let secret = secrets::secret(input, place, "secret", &raw.secret)?;
    if let Some(secret) = &secret {
        check_secret(place, secret)?;
    }
    Ok(EndpointSettings {
        url: raw.url,
        method: raw.method,
        headers: secrets::headers(input, &place.key("headers"), raw.headers)?,
        secret,
        timeout: place
            .positive("timeout", raw.timeout)?
            .unwrap_or(DEFAULT_TIMEOUT),
        max_answer_bytes: place
            .at_least("max_answer_bytes", raw.max_answer_bytes, 1)?
            .unwrap_or(DEFAULT_ANSWER_BYTES),
        max_retries: place
            .at_least("max_retries", raw.max_retries, 0)?
            .unwrap_or(DEFAULT_RETRIES),
    })
}

fn check_secret(place: &Place, secret: &SecretString) -> Result<(), ConfigError> {
    match standardwebhooks::Webhook::new(secret.expose_secret()) {
        Ok(_) => Ok(()),
        Err(_) => Err(place.key("secret").error(
            "no Standard Webhooks secret; it is `whsec_` and base64, as `echo whsec_$(openssl rand -base64 32)` makes it",
        )),
    }
}

/// The JSON Schema of a tool's arguments as text.
fn parameters(place: &Place, raw: &RawTool) -> Result<String, ConfigError> {
    let (place, text) = match (&raw.parameters, &raw.parameters_file) {
        (None, None) => return Ok(NO_PARAMETERS.to_owned()),
        (Some(_), Some(_)) => {
            return Err(place
                .key("parameters_file")
                .error("`parameters` is given as well; take one away"));
        }
        (Some(table), None) => {
            let place = place.key("parameters");
            let json = place.check(to_json(&toml::Value::Table(table.clone())))?;
            (place, json.to_string())
        }
        (None, Some(path)) => {
            let place = place.key("parameters_file");
            let text = schema_file(path, &place)?;
            (place, text)
        }
    };
    place.check(check_schema(&text))?;
    Ok(text)
}

/// The schema in a file, without the white space between its parts but in its own order of keys.
fn schema_file(path: &Path, place: &Place) -> Result<String, ConfigError> {
    let text = secrets::from_file(path, place)?;
    Ok(minified(&text))
}

/// Takes white space outside strings away; text that is no JSON stays no JSON.
fn minified(text: &str) -> String {
    let mut in_string = false;
    let mut escaped = false;
    let keep = |char: &char| {
        if in_string {
            in_string = escaped || *char != '"';
            escaped = !escaped && *char == '\\';
            return true;
        }
        in_string = *char == '"';
        !matches!(char, ' ' | '\t' | '\n' | '\r')
    };
    text.chars().filter(keep).collect()
}

fn check_schema(text: &str) -> Result<(), String> {
    let schema: Value = serde_json::from_str(text)
        .map_err(|error| format!("no JSON ({error}); write a JSON Schema"))?;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(
            "arguments are an object; write `type = \"object\"` and `properties`".to_owned(),
        );
    }
    match jsonschema::validator_for(&schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "no JSON Schema ({} at `{}`); correct it there",
            error.to_string().replace('\n', " "),
            error.instance_path()
        )),
    }
}

fn to_json(value: &toml::Value) -> Result<Value, String> {
    match value {
        toml::Value::String(text) => Ok(text.as_str().into()),
        toml::Value::Integer(number) => Ok((*number).into()),
        toml::Value::Boolean(value) => Ok((*value).into()),
        toml::Value::Float(number) => serde_json::Number::from_f64(*number)
            .map(Value::Number)
            .ok_or_else(|| format!("{number} does not exist in JSON; write another number")),
        toml::Value::Datetime(time) => Err(format!(
            "{time} is a TOML date, which JSON does not have; put it between quotes"
        )),
        toml::Value::Array(entries) => entries.iter().map(to_json).collect(),
        toml::Value::Table(table) => table
            .iter()
            .map(|(key, value)| Ok((key.clone(), to_json(value)?)))
            .collect(),
    }
}
