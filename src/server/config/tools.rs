//! The settings of server-side tools.

use std::collections::HashSet;
use std::time::Duration;

use ::http::Method;
use serde_json::Value;

use super::ConfigError;
use super::file::{File, ToolSection};
use super::text::ServiceUrl;
use super::validation::Validation;
use tools::set::Globs;
use tools::settings::{DispatchSettings, EndpointSettings, HttpToolSettings, Settings};

/// A tool without parameters takes an empty object.
const NO_PARAMETERS: &str = r#"{"properties":{},"type":"object"}"#;

pub(super) fn settings(
    file: &mut File,
    checks: &mut Validation<'_>,
) -> Result<Settings, ConfigError> {
    let dispatch = dispatch(file, checks)?;
    Ok(Settings {
        http_tools: http_tools(file, dispatch.as_ref(), checks)?,
        dispatch,
        max_parallel_tools: file.max_parallel_tools.into(),
        max_result_chars: file.max_result_chars.into(),
        connect_timeout: file.tool_connect_timeout.into(),
        code_by_default: !bool::from(file.code_execution_on_request),
        certificates: checks.certificates.clone(),
    })
}

fn dispatch(
    file: &File,
    checks: &mut Validation<'_>,
) -> Result<Option<DispatchSettings>, ConfigError> {
    let tools = file.dispatch_tools.as_ref().map(|patterns| {
        let patterns = patterns.iter().cloned();
        patterns.map(Into::into).collect::<Vec<String>>()
    });
    if tools.as_ref().is_some_and(Vec::is_empty) {
        let problem = "names nothing; write at least one pattern, or `*` for all";
        return Err(checks.error("dispatch_tools", problem));
    }
    let Some(url) = &file.tool_dispatch_url else {
        if tools.is_some() {
            let tools = checks.origins.of("dispatch_tools");
            checks
                .notices
                .push(format!("{tools} has no effect without a dispatch URL"));
        }
        return Ok(None);
    };
    if tools.is_none() {
        let url = checks.origins.of("tool_dispatch_url");
        checks.notices.push(format!(
            "{url} is set without `dispatch_tools`: it gets the functions that a request of chat completions declares, without \
             those of `client_tool_names`, which coding agents run themselves, such as `bash` or `write_file`, and none of the \
             Responses API, whose clients declare tools of their own machine; set --dispatch-tools '*' for all of them, or \
             patterns such as 'crm_*'"
        ));
    }
    checks.secrets.add_parts(&url.0);
    let (secret_env, secret_file) = (&file.dispatch_secret_env, &file.dispatch_secret_file);
    Ok(Some(DispatchSettings {
        tools,
        client_tool_names: (file.client_tool_names.iter().cloned())
            .map(Into::into)
            .collect(),
        endpoint: EndpointSettings {
            url: url.0.clone(),
            method: Method::POST,
            headers: checks.headers("dispatch_headers", &file.dispatch_headers)?,
            secret: checks.secret(
                "dispatch_secret",
                secret_env.as_ref(),
                secret_file.as_ref(),
                signing_secret,
            )?,
            timeout: file.dispatch_timeout.into(),
            max_answer_bytes: file.dispatch_max_answer_bytes.into(),
            max_retries: file.dispatch_max_retries.into(),
        },
        sequential: file.dispatch_sequential,
        idempotent: file.dispatch_idempotent,
    }))
}

fn http_tools(
    file: &mut File,
    dispatch: Option<&DispatchSettings>,
    checks: &Validation<'_>,
) -> Result<Vec<HttpToolSettings>, ConfigError> {
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(file.tools.len());
    for (index, section) in file.tools.iter_mut().enumerate() {
        let table = format!("tools[{index}]");
        if !names.insert(section.name.0.clone()) {
            let problem = "another tool has this name; write another name";
            return Err(checks.error(&format!("{table}.name"), problem));
        }
        section.parameters_json = parameters(section, &table, checks)?;
        let (endpoint, shared) = match &section.url {
            Some(url) => (own_endpoint(section, url, &table, checks)?, None),
            None => {
                let dispatch = dispatch_of(section, &table, dispatch, checks)?;
                section.timeout.get_or_insert(file.dispatch_timeout);
                section.max_retries.get_or_insert(file.dispatch_max_retries);
                let max_answer_bytes = file.dispatch_max_answer_bytes;
                section.max_answer_bytes.get_or_insert(max_answer_bytes);
                (dispatch.endpoint.clone(), Some(dispatch))
            }
        };
        tools.push(HttpToolSettings {
            name: section.name.0.clone(),
            description: section.description.0.clone(),
            parameters_json: section.parameters_json.clone(),
            endpoint: EndpointSettings {
                timeout: (*section.timeout.get_or_insert_default()).into(),
                max_answer_bytes: (*section.max_answer_bytes.get_or_insert_default()).into(),
                max_retries: (*section.max_retries.get_or_insert_default()).into(),
                ..endpoint
            },
            sequential: section.sequential || shared.is_some_and(|dispatch| dispatch.sequential),
            idempotent: section.idempotent || shared.is_some_and(|dispatch| dispatch.idempotent),
            read_only: section.read_only,
            destructive: section.destructive.into(),
            open_world: section.open_world.into(),
            repeatable: section.repeatable,
        });
    }
    Ok(tools)
}

/// The endpoint of a tool with a URL of its own, without its limits.
fn own_endpoint(
    section: &ToolSection,
    url: &ServiceUrl,
    table: &str,
    checks: &Validation<'_>,
) -> Result<EndpointSettings, ConfigError> {
    checks.secrets.add_parts(&url.0);
    let (secret_env, secret_file) = (&section.secret_env, &section.secret_file);
    Ok(EndpointSettings {
        url: url.0.clone(),
        method: section.method.0.clone(),
        headers: checks.headers(&format!("{table}.headers"), &section.headers)?,
        secret: checks.secret(
            &format!("{table}.secret"),
            secret_env.as_ref(),
            secret_file.as_ref(),
            signing_secret,
        )?,
        timeout: Duration::ZERO,
        max_answer_bytes: 0,
        max_retries: 0,
    })
}

/// The dispatch URL, for a tool that has no URL of its own.
fn dispatch_of<'a>(
    section: &ToolSection,
    table: &str,
    dispatch: Option<&'a DispatchSettings>,
    checks: &Validation<'_>,
) -> Result<&'a DispatchSettings, ConfigError> {
    let url = format!("{table}.url");
    let Some(dispatch) = dispatch else {
        let problem = "is missing, and there is no dispatch URL; write the tool's `url`, or set `tool_dispatch_url` \
                       (--tool-dispatch-url)";
        return Err(checks.error(&url, problem));
    };
    let patterns = dispatch.tools.as_deref().map(Globs::new).transpose();
    let patterns = patterns.map_err(|error| checks.error("dispatch_tools", error.to_string()))?;
    if patterns.is_some_and(|patterns| !patterns.matches(&section.name.0)) {
        let problem = "is missing, and `dispatch_tools` does not name the tool; add it there, or write the tool's `url`";
        return Err(checks.error(&url, problem));
    }
    for (key, is_given) in [
        ("method", section.method.0 != Method::POST),
        ("headers", !section.headers.is_empty()),
        ("secret_env", section.secret_env.is_some()),
        ("secret_file", section.secret_file.is_some()),
    ] {
        if is_given {
            let problem = "belongs to a tool with a `url`; for the dispatch URL there are the keys `dispatch_…`";
            return Err(checks.error(&format!("{table}.{key}"), problem));
        }
    }
    Ok(dispatch)
}

pub(super) fn signing_secret(text: &str) -> Result<(), String> {
    const FORM: &str =
        "it is `whsec_` and base64, as `echo whsec_$(openssl rand -base64 32)` makes it";
    match standardwebhooks::Webhook::new(text) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("not a Standard Webhooks secret; {FORM}")),
    }
}

/// The JSON Schema of a tool's arguments as text.
fn parameters(
    section: &ToolSection,
    table: &str,
    checks: &Validation<'_>,
) -> Result<String, ConfigError> {
    let (key, file_key) = (
        format!("{table}.parameters"),
        format!("{table}.parameters_file"),
    );
    let (key, text) = match (&section.parameters, &section.parameters_file) {
        (None, None) => return Ok(NO_PARAMETERS.to_owned()),
        (Some(_), Some(_)) => {
            let problem = "`parameters` is given as well; remove one of the two";
            return Err(checks.error(&file_key, problem));
        }
        (Some(schema), None) => {
            let json = to_json(&toml::Value::Table(schema.clone()));
            let json = checks.valid(&key, json)?;
            (key, json.to_string())
        }
        (None, Some(path)) => {
            let text = checks.content(&file_key, path)?;
            (file_key, minified(&text))
        }
    };
    checks.valid(&key, check_schema(&text))?;
    Ok(text)
}

/// Removes the white space outside of strings and keeps the order of the keys. Text that is not JSON does not become
/// valid.
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
        .map_err(|error| format!("not JSON ({error}); write a JSON Schema"))?;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(
            "arguments are an object; write `type = \"object\"` and `properties`".to_owned(),
        );
    }
    match jsonschema::validator_for(&schema) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "not a JSON Schema ({} at `{}`); correct it there",
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
