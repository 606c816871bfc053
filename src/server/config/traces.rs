//! The settings of traces: the keys of the file, and the variables by which OpenTelemetry is configured everywhere.

use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use url::Url;

use super::file::File;
use super::parse::{http_url, needs_feature};
use super::validation::Validation;
use super::{ConfigError, Origin};
use agent::traces::settings::{Sampling, Settings, SpanEncoding};

/// The key of the collector.
const KEY: &str = "otlp_endpoint";
/// The path of traces below the base URL of a collector.
const PATH: &str = "v1/traces";
/// Longest time of a request to the collector, unless a variable says otherwise. After it the spans are lost.
/// Tried by `outages::lost_spans_are_counted_and_the_log_says_so_once`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of the port at which collectors speak gRPC as a rule.
const GRPC_PORT: u16 = 4317;

/// A variable of OpenTelemetry's that is set, and its value.
struct Variable {
    name: &'static str,
    value: String,
}

pub(super) fn settings(
    file: &File,
    checks: &mut Validation<'_>,
) -> Result<Option<Settings>, ConfigError> {
    let Some((endpoint, origin)) = endpoint(file, checks)? else {
        return match file.otlp_contents {
            true => Err(checks.error(
                "otlp_contents",
                "there is no collector; set otlp_endpoint, or remove it",
            )),
            false => Ok(None),
        };
    };
    if !cfg!(feature = "otlp") {
        return Err(ConfigError::invalid(origin, needs_feature("otlp")));
    }
    checks.secrets.add_parts(&endpoint);
    if endpoint.port() == Some(GRPC_PORT) {
        checks.notices.push(format!(
            "{origin}: {GRPC_PORT} is the port at which collectors speak gRPC as a rule; traces are sent over HTTP, whose port is 4318"
        ));
    }
    Ok(Some(Settings {
        endpoint,
        encoding: encoding(checks)?,
        headers: headers(checks)?,
        timeout: timeout(checks)?,
        resource: resource(checks)?,
        sampling: sampling(checks)?,
        contents: file.otlp_contents,
        certificates: checks.certificates.clone(),
    }))
}

/// The URL for traces, and the setting or variable that it comes from. OpenTelemetry's own variables count if the
/// settings have none.
fn endpoint(file: &File, checks: &Validation<'_>) -> Result<Option<(Url, Origin)>, ConfigError> {
    if let Some(base) = &file.otlp_endpoint {
        return Ok(Some((below(&base.0), checks.origins.of(KEY))));
    }
    let is_off = |name, word| {
        let variable = variable(checks, &[name]);
        variable.is_some_and(|it| it.value.eq_ignore_ascii_case(word))
    };
    if is_off("OTEL_SDK_DISABLED", "true") || is_off("OTEL_TRACES_EXPORTER", "none") {
        return Ok(None);
    }
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ];
    let Some(given) = variable(checks, &names) else {
        return Ok(None);
    };
    let url = http_url(&given.value).map_err(|problem| given.refused(problem))?;
    // A URL that is only for traces is used unchanged.
    let url = match given.name == names[0] {
        true => url,
        false => below(&url),
    };
    Ok(Some((url, given.origin())))
}

fn below(base: &Url) -> Url {
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/');
    url.set_path(&format!("{path}/{PATH}"));
    url
}

fn encoding(checks: &Validation<'_>) -> Result<SpanEncoding, ConfigError> {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ];
    let Some(given) = variable(checks, &names) else {
        return Ok(SpanEncoding::default());
    };
    match given.value.as_str() {
        "http/protobuf" => Ok(SpanEncoding::Protobuf),
        "http/json" => Ok(SpanEncoding::Json),
        "grpc" => Err(given.refused(
            "grpc is not spoken; write http/protobuf or http/json, and the HTTP port of the collector, 4318 as a rule",
        )),
        _ => Err(given.refused("not a protocol; write http/protobuf or http/json")),
    }
}

/// The headers for the collector. Each of them may be secret.
fn headers(checks: &Validation<'_>) -> Result<HeaderMap, ConfigError> {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
        "OTEL_EXPORTER_OTLP_HEADERS",
    ];
    let mut headers = HeaderMap::new();
    let Some(given) = variable(checks, &names) else {
        return Ok(headers);
    };
    for (name, value) in given.pairs("header")? {
        checks.secrets.add(&value);
        let (Ok(name), Ok(mut value)) = (
            HeaderName::try_from(name.as_str()),
            HeaderValue::try_from(value),
        ) else {
            return Err(
                given.refused("has a header that cannot be sent; write NAME=VALUE,NAME=VALUE")
            );
        };
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn timeout(checks: &Validation<'_>) -> Result<Duration, ConfigError> {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
    ];
    let Some(given) = variable(checks, &names) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    match given.value.parse() {
        Ok(ms @ 1..) => Ok(Duration::from_millis(ms)),
        Ok(0) | Err(_) => {
            Err(given.refused("not a time; write a number of milliseconds, 1 or more"))
        }
    }
}

/// The attributes of the process. Attributes from the operator replace its own.
fn resource(checks: &Validation<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let own = [
        ("service.name", "loopwright"),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut resource = Vec::from(own);
    if let Some(given) = variable(checks, &["OTEL_RESOURCE_ATTRIBUTES"]) {
        resource.extend(given.pairs("attribute")?);
    }
    if let Some(Variable { value, .. }) = variable(checks, &["OTEL_SERVICE_NAME"]) {
        resource.push(("service.name".to_owned(), value));
    }
    Ok(resource)
}

fn sampling(checks: &Validation<'_>) -> Result<Sampling, ConfigError> {
    let Some(given) = variable(checks, &["OTEL_TRACES_SAMPLER"]) else {
        return Ok(Sampling::default());
    };
    let (name, heeds_parent) = match given.value.strip_prefix("parentbased_") {
        Some(name) => (name, true),
        None => (given.value.as_str(), false),
    };
    let share = match name {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => share(checks)?,
        _ => {
            return Err(given.refused(
                "not a sampler; write always_on, always_off or traceidratio, each also after parentbased_",
            ));
        }
    };
    Ok(Sampling {
        share,
        heeds_parent,
    })
}

fn share(checks: &Validation<'_>) -> Result<f64, ConfigError> {
    let Some(given) = variable(checks, &["OTEL_TRACES_SAMPLER_ARG"]) else {
        return Ok(1.0);
    };
    match given.value.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Ok(_) | Err(_) => {
            Err(given.refused("not a share; write a number from 0 to 1, such as 0.25"))
        }
    }
}

/// The first of these variables that is set.
fn variable(checks: &Validation<'_>, names: &[&'static str]) -> Option<Variable> {
    names.iter().find_map(|&name| {
        let value = (checks.env)(name)?.trim().to_owned();
        (!value.is_empty()).then_some(Variable { name, value })
    })
}

impl Variable {
    fn origin(&self) -> Origin {
        Origin::Variable(self.name.to_owned())
    }

    fn refused(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::invalid(self.origin(), problem)
    }

    /// The members of a list such as `a=1,b=2`, whose values may be percent-encoded.
    fn pairs(&self, what: &str) -> Result<Vec<(String, String)>, ConfigError> {
        let members = self.value.split(',').map(str::trim);
        let members = members.filter(|member| !member.is_empty());
        let pair = |member: &str| {
            let (name, value) = member.split_once('=')?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let name = name.trim();
            (!name.is_empty()).then(|| (name.to_owned(), value.into_owned()))
        };
        let pairs: Option<_> = members.map(pair).collect();
        pairs.ok_or_else(|| {
            self.refused(format!(
                "has something that is no {what}; write NAME=VALUE,NAME=VALUE"
            ))
        })
    }
}
