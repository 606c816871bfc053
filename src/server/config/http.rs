//! The settings of the HTTP edge.

use std::net::SocketAddr;

use ::http::HeaderName;
use sha2::{Digest, Sha256};

use super::ConfigError;
use super::file::{ApiKeySection, File};
use super::text::{ReplicaName, SessionHeader};
use super::validation::Validation;
use crate::http::settings::{ApiKey, KeyDefaults, Settings};
use policy::rules::LevelName;

/// Shortest API key in a variable, in bytes. With a shorter one, which can be guessed, the start fails.
const MIN_KEY_CHARS: usize = 16;

/// The header that carries a session id, and does not name a chat.
const SESSION_HEADER: HeaderName = HeaderName::from_static("x-session-id");

pub(super) fn settings(
    file: &mut File,
    checks: &mut Validation<'_>,
) -> Result<Settings, ConfigError> {
    let api_keys = api_keys(file, checks)?;
    let listen = file.listen.0;
    if api_keys.is_empty() && !is_loopback(listen) {
        check_public(file, checks)?;
    }
    if !api_keys.is_empty() && !api_keys.iter().any(|key| key.operator) {
        let notice = "every API key can read /metrics, which has the figures of all keys; set `operator = true` for the keys that may";
        checks.notices.push(notice.to_owned());
    }
    let session_headers = session_headers(file, checks);
    if file.session_store.0.is_shared() && file.replica_name.is_none() {
        file.replica_name = Settings::host_name().map(ReplicaName);
    }
    Ok(Settings {
        listen,
        max_body_bytes: file.max_body_bytes.into(),
        max_parsed_bytes: file.max_parsed_bytes.into(),
        max_header_bytes: file.max_header_bytes.into(),
        max_messages: file.max_messages.into(),
        header_timeout: file.header_timeout.into(),
        body_timeout: file.body_timeout.into(),
        first_byte_wait: file.first_byte_wait.into(),
        keep_alive: file.keep_alive.into(),
        write_timeout: file.write_timeout.into(),
        metrics_listen: file.metrics_listen.clone().map(Into::into),
        max_connections: file.max_connections.map(Into::into),
        shutdown_grace: file.shutdown_grace.into(),
        session_headers,
        replica_name: file.replica_name.clone().map(Into::into),
        allowed_hosts: file.allowed_hosts.iter().cloned().map(Into::into).collect(),
        console: file.console.into(),
        cors_origins: file.cors_origins.iter().cloned().map(Into::into).collect(),
        forward: file.forward.iter().cloned().map(Into::into).collect(),
        api_keys,
    })
}

/// The headers that name a chat, each once.
fn session_headers(file: &mut File, checks: &mut Validation<'_>) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = Vec::new();
    for SessionHeader(name) in &file.session_headers {
        if *name == SESSION_HEADER {
            let key = checks.origins.of("session_headers");
            checks.notices.push(format!(
                "{key}: x-session-id always carries a session id; remove it from the list"
            ));
        } else if !names.contains(name) {
            names.push(name.clone());
        }
    }
    file.session_headers = names.iter().cloned().map(SessionHeader).collect();
    names
}

/// Refuses an address that the network can reach without API keys, unless the operator allows it.
fn check_public(file: &File, checks: &mut Validation<'_>) -> Result<(), ConfigError> {
    if !file.insecure_no_auth {
        let problem = format!(
            "{} can be reached from the network and no API key is configured; add [[api_keys]] to the file, \
             listen on 127.0.0.1, or allow it with --insecure-no-auth",
            file.listen.0
        );
        return Err(checks.error("listen", problem));
    }
    if file.allowed_hosts.is_empty() {
        checks.notices.push(
            "without API keys only loopback host names are accepted; add the name that callers use to `allowed_hosts`"
                .to_owned(),
        );
    }
    Ok(())
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn api_keys(file: &File, checks: &Validation<'_>) -> Result<Vec<ApiKey>, ConfigError> {
    let mut keys: Vec<ApiKey> = Vec::with_capacity(file.api_keys.len());
    for (index, section) in file.api_keys.iter().enumerate() {
        let table = format!("api_keys[{index}]");
        let key = ApiKey {
            name: section.name.0.clone(),
            sha256: digest(section, &table, checks)?,
            forward: section
                .forward
                .as_ref()
                .map(|patterns| patterns.iter().cloned().map(Into::into).collect()),
            operator: section.operator,
            defaults: KeyDefaults {
                permissions: checks.level(
                    LevelName::Key,
                    &format!("{table}.permissions"),
                    &section.permissions,
                    section.agent_permission.as_ref().map(|word| word.0),
                )?,
            },
        };
        if keys.iter().any(|other| other.name == key.name) {
            let problem = "another key has this name, and sessions and files belong to the name; write another name";
            return Err(checks.error(&format!("{table}.name"), problem));
        }
        if let Some(other) = keys.iter().find(|other| other.sha256 == key.sha256) {
            let problem = format!("is the same key as `{}`; remove one of them", other.name);
            return Err(checks.error(&table, problem));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn digest(
    section: &ApiKeySection,
    table: &str,
    checks: &Validation<'_>,
) -> Result<[u8; 32], ConfigError> {
    let variable = match (&section.sha256, &section.env) {
        (Some(digest), None) => return Ok(digest.0),
        (None, Some(variable)) => variable,
        (Some(_), Some(_)) | (None, None) => {
            let problem =
                "write either `sha256` (of the key) or `env` (the variable that holds it)";
            return Err(checks.error(table, problem));
        }
    };
    let key = format!("{table}.env");
    let text = checks.variable(&key, variable)?;
    checks.valid(&key, check_key(&text, &variable.0))?;
    Ok(Sha256::digest(text.as_bytes()).into())
}

/// Refuses a key that can be guessed or not be sent.
pub(super) fn check_key(key: &str, variable: &str) -> Result<(), String> {
    if key.len() < MIN_KEY_CHARS {
        return Err(format!(
            "the key in {variable} is shorter than {MIN_KEY_CHARS} characters and could be guessed; \
             make one with `openssl rand -hex 32`"
        ));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "the key in {variable} cannot be sent in a header; use visible ASCII without spaces"
        ));
    }
    Ok(())
}
