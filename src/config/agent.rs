//! The settings of the loop, of sessions, of runs and of logs.

use std::time::Duration;

use super::ConfigError;
use super::file::File;
use super::text::Directory;
use super::validation::Validation;
use super::value::{ByteSize, GIB};
use crate::session::settings::{SessionLimits, default_files_dir};
use crate::tools::set::Globs;
use crate::{agent, runs, session, telemetry};

const DEFAULT_TOTAL_FILE_BYTES: u64 = 10 * GIB;
const DEFAULT_TOTAL_SESSION_BYTES: u64 = 20 * GIB;

pub(super) fn agent(
    file: &File,
    checks: &Validation<'_>,
) -> Result<agent::settings::Settings, ConfigError> {
    let repeat_threshold = file.repeat_threshold.into();
    if repeat_threshold == 1 {
        let problem = "1 would hold back every call; write 2 or more, or 0 for no repeat guard";
        return Err(checks.error("repeat_threshold", problem));
    }
    let plain: Vec<String> = file.plain_models.iter().cloned().map(Into::into).collect();
    let plain_models = Globs::new(&plain);
    let plain_models =
        plain_models.map_err(|error| checks.error("plain_models", error.to_string()))?;
    Ok(agent::settings::Settings {
        max_tool_rounds: file.max_tool_rounds.into(),
        max_tool_calls: file.max_tool_calls.map(Into::into),
        max_duration: file.max_seconds.map(Into::into),
        max_total_tokens: file.max_total_tokens.map(Into::into),
        repeat_threshold,
        repeat_override: file.repeat_override,
        max_turn_bytes: file.max_turn_bytes.into(),
        permission: file.agent_permission.0,
        citations: file.citations,
        images: file.images,
        plain_models,
    })
}

pub(super) fn session(
    file: &mut File,
    checks: &Validation<'_>,
) -> Result<session::settings::Settings, ConfigError> {
    let store = file.session_store.0.clone();
    let files_dir = file.files_dir.clone().map(Into::into);
    if let Some(path) = store.file() {
        file.files_dir
            .get_or_insert_with(|| Directory(default_files_dir(path)));
    }
    let most = u64::from(file.max_file_bytes);
    // The defaults grow with the limit of one file or session, so that setting that limit alone is valid.
    let default = || ByteSize::computed(DEFAULT_TOTAL_FILE_BYTES.max(most));
    let total = u64::from(*file.max_total_file_bytes.get_or_insert_with(default));
    if total < most {
        let problem = format!(
            "{total} is less than the limit of one file (max_file_bytes is {most}); write {most} or more"
        );
        return Err(checks.error("max_total_file_bytes", problem));
    }
    let limits = session_limits(file, checks)?;
    let unless_zero = |ttl: Duration| (!ttl.is_zero()).then_some(ttl);
    Ok(session::settings::Settings {
        store,
        ttl: unless_zero(file.session_ttl.into()),
        nameless_ttl: unless_zero(file.nameless_session_ttl.into()),
        wait: Duration::from_millis(file.session_wait_ms.into()),
        max_messages: file.session_max_messages.into(),
        limits,
        files_dir,
        max_file_bytes: most,
        max_total_file_bytes: total,
    })
}

fn session_limits(file: &mut File, checks: &Validation<'_>) -> Result<SessionLimits, ConfigError> {
    let most = u64::from(file.session_max_bytes);
    let default = || ByteSize::computed(DEFAULT_TOTAL_SESSION_BYTES.max(most));
    let total = u64::from(*file.max_total_session_bytes.get_or_insert_with(default));
    if total < most {
        let problem = format!(
            "{total} is less than the limit of one session (session_max_bytes is {most}); write {most} or more"
        );
        return Err(checks.error("max_total_session_bytes", problem));
    }
    Ok(SessionLimits {
        session_bytes: most,
        total_bytes: total,
        min_free_disk: file.min_free_disk.into(),
    })
}

pub(super) fn runs(file: &File) -> runs::settings::Settings {
    runs::settings::Settings {
        answer_ttl: file.answer_ttl.into(),
        max_total_answer_bytes: file.max_total_answer_bytes.into(),
        max_total_event_bytes: file.max_total_event_bytes.into(),
    }
}

pub(super) fn log(file: &File) -> telemetry::Settings {
    telemetry::Settings {
        format: file.log_format.0,
        level: file.log_level.0.clone(),
    }
}
