//! The settings of the loop, of sessions, of runs and of logs.

use std::time::Duration;

use secrecy::ExposeSecret;

use super::ConfigError;
use super::file::File;
use super::parse::FilesPlace;
use super::text::{FilesDir, NamePattern};
use super::validation::Validation;
use super::value::{ByteSize, GIB};
use crate::telemetry;
use agent::runs;
use agent::session;
use agent::session::settings::{
    BlobLocation, BucketSettings, SessionLimits, StoreUrl, default_files_dir,
};
use policy::rules::LevelName;
use tools::set::Globs;

/// Default of `max_total_file_bytes`.
const DEFAULT_TOTAL_FILE_BYTES: u64 = 10 * GIB;
/// Default of `max_total_session_bytes`.
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
    let globs = |key: &str, patterns: &[NamePattern]| {
        let patterns: Vec<String> = patterns.iter().cloned().map(Into::into).collect();
        Globs::new(&patterns).map_err(|error| checks.error(key, error.to_string()))
    };
    Ok(agent::settings::Settings {
        max_tool_rounds: file.max_tool_rounds.into(),
        max_tool_calls: file.max_tool_calls.map(Into::into),
        max_duration: file.max_seconds.map(Into::into),
        max_total_tokens: file.max_total_tokens.map(Into::into),
        repeat_threshold,
        repeat_override: file.repeat_override,
        max_turn_bytes: file.max_turn_bytes.into(),
        permissions: checks.level(
            LevelName::Server,
            "permissions",
            &file.permissions,
            Some(file.agent_permission.0),
        )?,
        approval_wait: file.approval_wait.into(),
        approval_timeout: file.approval_timeout.into(),
        citations: file.citations,
        images: file.images,
        plain_models: globs("plain_models", &file.plain_models)?,
        ignore_tools: globs("ignore_tools", &file.ignore_tools)?,
    })
}

pub(super) fn session(
    file: &mut File,
    checks: &Validation<'_>,
) -> Result<session::settings::Settings, ConfigError> {
    let store = file.session_store.0.clone();
    if let StoreUrl::Postgres(url) = &store {
        let passwords = url.passwords();
        passwords
            .iter()
            .for_each(|it| checks.secrets.add(it.expose_secret()));
        // The driver reads it where the URL has none.
        let password = (checks.env)("PGPASSWORD");
        password.iter().for_each(|it| checks.secrets.add(it));
    }
    let files_dir = files_dir(file, &store, checks)?;
    if let Some(path) = store.file() {
        let default = || FilesDir(FilesPlace::Directory(default_files_dir(path)));
        file.files_dir.get_or_insert_with(default);
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

/// The location of the contents of files; `None` is the default.
pub(super) fn files_dir(
    file: &File,
    store: &StoreUrl,
    checks: &Validation<'_>,
) -> Result<Option<BlobLocation>, ConfigError> {
    let is_memory = *store == StoreUrl::Memory;
    match file.files_dir.clone().map(|FilesDir(place)| place) {
        Some(FilesPlace::Directory(path)) => Ok(Some(BlobLocation::Directory(path))),
        Some(FilesPlace::Bucket(_)) if is_memory => {
            let problem = "files in object storage would stay after sessions in memory are gone; write a directory, or \
                           another session_store";
            Err(checks.error("files_dir", problem))
        }
        Some(FilesPlace::Bucket(url)) => {
            let settings = BucketSettings::new(url, checks.env);
            let settings = checks.valid("files_dir", settings)?;
            for (name, value) in &settings.variables {
                checks.secrets.add_named(name, value.expose_secret());
            }
            let settings = settings.trusting(checks.certificates.clone());
            Ok(Some(BlobLocation::Bucket(settings)))
        }
        None if store.file().is_some() || is_memory => Ok(None),
        None => {
            let problem = "is missing, and with this session_store the files need a place that all replicas share; write \
                           a directory that they share, or s3://bucket/prefix";
            Err(checks.error("files_dir", problem))
        }
    }
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
