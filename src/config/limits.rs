//! The settings of the loop, of sessions and of logs.

use std::time::Duration;

use super::cli::LogFlags;
use super::input::{self, Input};
use super::{ConfigError, Lookup, parse};
use crate::{agent, session, telemetry};

/// The first call of a kind is always run.
const MIN_REPEAT_THRESHOLD: u64 = 2;

const DEFAULT_STORE: &str = "loopwright.db";
const DEFAULT_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const DEFAULT_SESSION_WAIT: Duration = Duration::from_secs(30);
const DEFAULT_SESSION_MESSAGES: usize = 20_000;
const DEFAULT_FILE_BYTES: u64 = 64 * 1024 * 1024;
const DEFAULT_TOTAL_FILE_BYTES: u64 = 10 * 1024 * 1024 * 1024;
/// Longest wait for another turn that can be set, in milliseconds: a day.
const MAX_SESSION_WAIT_MS: u64 = 24 * 60 * 60 * 1000;

pub(super) fn agent(input: &Input<'_>) -> Result<agent::settings::Settings, ConfigError> {
    let Input {
        flags, file, place, ..
    } = input;
    let in_file = place
        .at_least("max_tool_rounds", file.max_tool_rounds, 0)?
        .map(Ok);
    let rounds = input.pick(
        "max-tool-rounds",
        flags.max_tool_rounds.as_ref(),
        parse::rounds,
        in_file,
    )?;
    let in_file = file.agent_permission.as_deref().map(parse::permission);
    let permission = input.pick(
        "agent-permission",
        flags.agent_permission.as_ref(),
        parse::permission,
        in_file,
    )?;
    let threshold = file.repeat_threshold;
    let defaults = agent::settings::Settings::default();
    Ok(agent::settings::Settings {
        max_tool_rounds: rounds.map_or(defaults.max_tool_rounds, |found| found.value),
        max_tool_calls: place.at_least("max_tool_calls", file.max_tool_calls, 1)?,
        max_duration: place.positive("max_seconds", file.max_seconds)?,
        max_total_tokens: place.at_least("max_total_tokens", file.max_total_tokens, 1)?,
        repeat_threshold: place
            .at_least("repeat_threshold", threshold, MIN_REPEAT_THRESHOLD)?
            .unwrap_or(defaults.repeat_threshold),
        permission: permission.map_or(defaults.permission, |found| found.value),
    })
}

pub(super) fn session(input: &Input<'_>) -> Result<session::settings::Settings, ConfigError> {
    let Input {
        flags, file, place, ..
    } = input;
    let in_file = file.session_store.as_deref().map(parse::store);
    let store = input.pick(
        "session-store",
        flags.session_store.as_ref(),
        parse::store,
        in_file,
    )?;
    let default_store = || session::settings::StoreUrl::Sqlite(DEFAULT_STORE.into());
    let ttl = file.session_ttl.map_or(DEFAULT_TTL, |ttl| ttl.0);
    let wait: Option<u64> = place.at_least("session_wait_ms", file.session_wait_ms, 0)?;
    if wait.is_some_and(|wait| wait > MAX_SESSION_WAIT_MS) {
        let problem =
            format!("is more than a day; write at most {MAX_SESSION_WAIT_MS} milliseconds");
        return Err(place.key("session_wait_ms").error(problem));
    }
    let in_file = file.files_dir.as_deref().map(parse::directory);
    let files_dir = input.pick(
        "files-dir",
        flags.files_dir.as_ref(),
        parse::directory,
        in_file,
    )?;
    let max_file_bytes = place
        .at_least("max_file_bytes", file.max_file_bytes, 1)?
        .unwrap_or(DEFAULT_FILE_BYTES);
    let total: Option<u64> =
        place.at_least("max_total_file_bytes", file.max_total_file_bytes, 1)?;
    if let Some(total) = total.filter(|total| *total < max_file_bytes) {
        let problem = format!(
            "{total} is less than one file may have (max_file_bytes is {max_file_bytes}); write at least as much"
        );
        return Err(place.key("max_total_file_bytes").error(problem));
    }
    Ok(session::settings::Settings {
        store: store.map_or_else(default_store, |found| found.value),
        ttl: (!ttl.is_zero()).then_some(ttl),
        wait: wait.map_or(DEFAULT_SESSION_WAIT, Duration::from_millis),
        max_messages: place
            .at_least("session_max_messages", file.session_max_messages, 1)?
            .unwrap_or(DEFAULT_SESSION_MESSAGES),
        files_dir: files_dir.map(|found| found.value),
        max_file_bytes,
        // A larger limit of one file alone is not meant to be cut down.
        max_total_file_bytes: total.unwrap_or_else(|| DEFAULT_TOTAL_FILE_BYTES.max(max_file_bytes)),
    })
}

pub(super) fn log(input: &Input<'_>) -> Result<telemetry::Settings, ConfigError> {
    let Input { flags, file, .. } = input;
    let default = telemetry::Settings::default();
    let format = input.pick(
        "log-format",
        flags.log.log_format.as_ref(),
        parse::log_format,
        file.log_format.as_deref().map(parse::log_format),
    )?;
    let level = input.pick(
        "log-level",
        flags.log.log_level.as_ref(),
        parse::log_level,
        file.log_level.as_deref().map(parse::log_level),
    )?;
    Ok(telemetry::Settings {
        format: format.map_or(default.format, |found| found.value),
        level: level.map_or(default.level, |found| found.value),
    })
}

/// The log settings of a command that reads no file.
pub(super) fn log_from(
    flags: &LogFlags,
    env: Lookup<'_>,
) -> Result<telemetry::Settings, ConfigError> {
    let default = telemetry::Settings::default();
    let format = input::choose(
        "log-format",
        flags.log_format.as_ref(),
        env,
        parse::log_format,
    )?;
    let level = input::choose("log-level", flags.log_level.as_ref(), env, parse::log_level)?;
    Ok(telemetry::Settings {
        format: format.map_or(default.format, |found| found.value),
        // The tour tells what happens; the log would say it again between its lines.
        level: level.map_or_else(|| "warn".to_owned(), |found| found.value),
    })
}
