//! The log: its destination, format and level.
//!
//! Owns the one subscriber of the process. Other modules decide what is logged.

use std::io::{self, IsTerminal};
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// What can be configured about logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The format of a record.
    pub format: Format,
    /// Which records are written: a level, or directives such as `info,loopwright_agent=debug`.
    pub level: String,
}

/// The format of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// One line of text.
    #[default]
    Text,
    /// One JSON object on a line, with the record's fields beside `message`.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The text is neither a level nor a list of directives.
    #[error("`{level}` is not a log level; {LEVEL_FORMS}")]
    Level {
        /// The text.
        level: String,
    },
    /// The process already has a subscriber.
    #[error("logging was set up twice")]
    Twice(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The format in which the process writes its log.
static FORMAT: OnceLock<Format> = OnceLock::new();

/// The forms of a level.
const LEVEL_FORMS: &str =
    "write off, error, warn, info, debug or trace, or directives such as info,loopwright=debug";

/// Libraries whose records are not written: the MCP library, which logs what servers send, and the certificate library,
/// whose errors are in the records of this program. An operator who needs their records names them.
const QUIET: [&str; 2] = ["rmcp", "rustls_platform_verifier"];

/// The levels.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: Format::default(),
            level: "info".to_owned(),
        }
    }
}

impl Format {
    /// The word for flags and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// Starts writing logs to stderr.
///
/// # Errors
/// When the level cannot be read, or when logging has been set up before.
pub fn init(settings: &Settings) -> Result<(), TelemetryError> {
    let builder = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_env_filter(filter(&settings.level)?);
    if settings.format == Format::Json {
        // The default hook writes text.
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string);
            tracing::error!(place, "a thread panicked");
        }));
    }
    match settings.format {
        Format::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        Format::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .try_init(),
    }
    .map_err(TelemetryError::Twice)?;
    let _only_the_first_counts = FORMAT.set(settings.format);
    Ok(())
}

/// The format of the log, once [`init`] has started it.
pub fn format() -> Option<Format> {
    FORMAT.get().copied()
}

/// A record of its own in the form of the log, whatever its level: the last words of a process, for example.
pub fn json_line(level: &str, message: &str, fields: &[(&str, &str)]) -> String {
    let mut timestamp = String::new();
    let _no_clock = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let mut record =
        serde_json::json!({"timestamp": timestamp, "level": level, "message": message});
    for (key, value) in fields {
        record[*key] = (*value).into();
    }
    record.to_string()
}

/// Reads a level or a list of directives.
///
/// # Errors
/// When the text is neither.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    let refused = || TelemetryError::Level {
        level: level.to_owned(),
    };
    // In the syntax of directives a single word is the name of a module: a misspelt level would switch all records off.
    let bare_words = level
        .split(',')
        .filter(|directive| !directive.contains(['=', '[']));
    for word in bare_words {
        if !LEVELS.contains(&word.trim().to_ascii_lowercase().as_str()) {
            return Err(refused());
        }
    }
    let mut filter = EnvFilter::try_new(level).map_err(|_| refused())?;
    for library in QUIET.into_iter().filter(|name| !level.contains(name)) {
        if let Ok(quiet) = format!("{library}=off").parse() {
            filter = filter.add_directive(quiet);
        }
    }
    Ok(filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_read_and_misspellings_refused() {
        for good in [
            "info",
            "DEBUG",
            "off",
            "warn,loopwright=trace",
            "loopwright_agent=debug,info",
            "info,loopwright[run]=debug",
        ] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["verbose", "", "info,inof", "loopwright=loud"] {
            let refused = filter(bad).unwrap_err().to_string();
            assert!(refused.contains("trace"), "{bad}: {refused}");
        }
    }
}
