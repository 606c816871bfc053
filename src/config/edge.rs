//! The settings of the HTTP edge.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use ::http::HeaderName;
use sha2::{Digest, Sha256};

use super::file::ApiKey as RawKey;
use super::input::{Found, Input, Place};
use super::{ConfigError, Origin, parse, secrets};
use crate::http::settings::{ApiKey, Settings};

/// Where to listen if nothing else is said.
pub(super) const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));

const DEFAULT_BODY_BYTES: usize = 32 * 1024 * 1024;
const DEFAULT_HEADER_BYTES: usize = 64 * 1024;
const DEFAULT_MESSAGES: usize = 10_000;
const DEFAULT_HEADER_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_BODY_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_FIRST_BYTE_WAIT: Duration = Duration::from_secs(15);
const DEFAULT_KEEP_ALIVE: Duration = Duration::from_secs(10);
const DEFAULT_SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

/// Smallest buffer for a request's head that the HTTP library takes, in bytes.
const MIN_HEADER_BYTES: u64 = 8 * 1024;
/// Smallest limit for bodies that leaves room for any request at all, in bytes.
const MIN_BODY_BYTES: u64 = 1024;
/// Shortest API key taken from a variable; a shorter one can be guessed.
const MIN_KEY_CHARS: usize = 16;

/// The header that always carries a session id.
const SESSION_HEADER: HeaderName = HeaderName::from_static("x-session-id");

pub(super) fn settings(
    input: &Input<'_>,
    notices: &mut Vec<String>,
) -> Result<Settings, ConfigError> {
    let Input { file, place, .. } = input;
    let api_keys = api_keys(input)?;
    let allowed_hosts = list(
        &place.key("allowed_hosts"),
        &file.allowed_hosts,
        parse::host,
    )?;
    let listen = listen(input, &api_keys)?;
    if api_keys.is_empty() && !is_loopback(listen) && allowed_hosts.is_empty() {
        notices.push(
            "without API keys only loopback host names are accepted; add the name that callers use to `allowed_hosts`"
                .to_owned(),
        );
    }
    Ok(Settings {
        listen,
        max_body_bytes: place
            .at_least("max_body_bytes", file.max_body_bytes, MIN_BODY_BYTES)?
            .unwrap_or(DEFAULT_BODY_BYTES),
        max_header_bytes: place
            .at_least("max_header_bytes", file.max_header_bytes, MIN_HEADER_BYTES)?
            .unwrap_or(DEFAULT_HEADER_BYTES),
        max_messages: place
            .at_least("max_messages", file.max_messages, 1)?
            .unwrap_or(DEFAULT_MESSAGES),
        header_timeout: place
            .positive("header_timeout", file.header_timeout)?
            .unwrap_or(DEFAULT_HEADER_TIMEOUT),
        body_timeout: place
            .positive("body_timeout", file.body_timeout)?
            .unwrap_or(DEFAULT_BODY_TIMEOUT),
        first_byte_wait: file
            .first_byte_wait
            .map_or(DEFAULT_FIRST_BYTE_WAIT, |wait| wait.0),
        keep_alive: place
            .positive("keep_alive", file.keep_alive)?
            .unwrap_or(DEFAULT_KEEP_ALIVE),
        shutdown_grace: file
            .shutdown_grace
            .map_or(DEFAULT_SHUTDOWN_GRACE, |grace| grace.0),
        session_headers: session_headers(input)?,
        allowed_hosts,
        cors_origins: list(
            &place.key("cors_origins"),
            &file.cors_origins,
            parse::origin,
        )?,
        api_keys,
    })
}

/// The address, refused where it would open an unprotected server to the network.
fn listen(input: &Input<'_>, api_keys: &[ApiKey]) -> Result<SocketAddr, ConfigError> {
    let Input { flags, file, .. } = input;
    let in_file = file.listen.as_deref().map(parse::listen);
    let Some(Found { value, origin }) =
        input.pick("listen", flags.listen.as_ref(), parse::listen, in_file)?
    else {
        return Ok(DEFAULT_LISTEN);
    };
    let open = input.pick(
        "insecure-no-auth",
        flags.insecure_no_auth.as_ref(),
        parse::boolean,
        file.insecure_no_auth.map(Ok),
    )?;
    let open = open.is_some_and(|found| found.value);
    if is_loopback(value) || open || !api_keys.is_empty() {
        return Ok(value);
    }
    Err(ConfigError::invalid(
        origin,
        format!(
            "{value} can be reached from the network and no API key is configured; add [[api_keys]] to the file, \
             listen on 127.0.0.1, or allow it with --insecure-no-auth"
        ),
    ))
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn session_headers(input: &Input<'_>) -> Result<Vec<HeaderName>, ConfigError> {
    let place = input.place.key("session_headers");
    let mut headers = vec![SESSION_HEADER];
    for header in list(&place, &input.file.session_headers, parse::session_header)? {
        if !headers.contains(&header) {
            headers.push(header);
        }
    }
    Ok(headers)
}

fn api_keys(input: &Input<'_>) -> Result<Vec<ApiKey>, ConfigError> {
    let mut keys: Vec<ApiKey> = Vec::with_capacity(input.file.api_keys.len());
    for (index, raw) in input.file.api_keys.iter().enumerate() {
        let place = input.place.key("api_keys").index(index);
        let key = ApiKey {
            name: place.key("name").check(parse::name(&raw.name))?,
            sha256: digest(input, &place, raw)?,
        };
        if keys.iter().any(|other| other.name == key.name) {
            let problem =
                "another key has this name; what a key makes belongs to its name, so names differ";
            return Err(place.key("name").error(problem));
        }
        if let Some(other) = keys.iter().find(|other| other.sha256 == key.sha256) {
            return Err(place.error(format!(
                "is the same key as `{}`; take one away",
                other.name
            )));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn digest(input: &Input<'_>, place: &Place, raw: &RawKey) -> Result<[u8; 32], ConfigError> {
    let variable = match (&raw.sha256, &raw.env) {
        (Some(digits), None) => return place.key("sha256").check(parse::sha256(digits)),
        (None, Some(variable)) => variable,
        (Some(_), Some(_)) | (None, None) => {
            return Err(place.error(
                "write either `sha256` (of the key) or `env` (the variable that holds it)",
            ));
        }
    };
    let place = place.key("env");
    place.check(parse::variable_name(variable))?;
    let key = secrets::from_variable(input.env, variable, place.origin())?;
    check_key(&key, variable, place.origin())?;
    Ok(Sha256::digest(key.as_bytes()).into())
}

fn check_key(key: &str, variable: &str, origin: Origin) -> Result<(), ConfigError> {
    if key.len() < MIN_KEY_CHARS {
        return Err(ConfigError::invalid(
            origin,
            format!(
                "the key in {variable} is shorter than {MIN_KEY_CHARS} characters and could be guessed; \
                 make one with `openssl rand -hex 32`"
            ),
        ));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ConfigError::invalid(
            origin,
            format!(
                "the key in {variable} cannot travel in a header; use visible ASCII without spaces"
            ),
        ));
    }
    Ok(())
}

fn list<T>(
    place: &Place,
    given: &[String],
    parse: fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, ConfigError> {
    let entries = given.iter().enumerate();
    entries
        .map(|(index, text)| place.index(index).check(parse(text)))
        .collect()
}
