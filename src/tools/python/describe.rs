//! The descriptions of the tools for models.

use super::{EXECUTE_PYTHON, LIST_FILES, READ_FILE, RESET_PYTHON};
use crate::requested::WantedFile;
use protocol::openai::tool::ToolDefinition;
use sandbox::IsolationReport;
use sandbox::settings::{InterpreterLimits, Network, Settings, Tier};

const EXECUTE_PARAMETERS: &str = r#"{"type":"object","properties":{"code":{"type":"string","description":"Python source code."},"outputs":{"type":"array","description":"Files of the working directory to hand to the user even if this call does not change them.","items":{"anyOf":[{"type":"string"},{"type":"object","properties":{"name":{"type":"string"},"format":{"type":"string"}},"required":["name"],"additionalProperties":false}]}}},"required":["code"],"additionalProperties":false}"#;
const READ_PARAMETERS: &str = r#"{"type":"object","properties":{"name":{"type":"string","description":"Path relative to the working directory, as list_files shows it."},"offset":{"type":"integer","minimum":1,"description":"First line to show, from 1. Default 1."},"limit":{"type":"integer","minimum":1,"description":"Most lines to show. Default 500."}},"required":["name"],"additionalProperties":false}"#;
const NO_PARAMETERS: &str = r#"{"type":"object","properties":{},"additionalProperties":false}"#;

/// The working directory in a private root.
pub(super) const WORKING_DIRECTORY: &str = "/mnt/data";

/// The working directory as code sees it, if it has a fixed path.
pub(super) fn working_directory(report: &IsolationReport) -> Option<&'static str> {
    match report.level {
        Tier::Strong => Some(WORKING_DIRECTORY),
        Tier::Weak | Tier::Basic | Tier::Medium | Tier::External => None,
    }
}

pub(super) fn execute(
    report: &IsolationReport,
    settings: &Settings,
    wanted: &[WantedFile],
) -> ToolDefinition {
    let limits = &settings.limits;
    let python = match report.python.as_str() {
        "" => "Python".to_owned(),
        version => format!("Python {version}"),
    };
    let directory = working_directory(report).map_or_else(String::new, |path| format!(" ({path})"));
    let network = match settings.network {
        Network::None => "There is no network access, so packages cannot be installed.",
        Network::Full => "The network can be reached.",
    };
    let packages = match report.packages.as_slice() {
        [] => "Only the standard library is sure to be there.".to_owned(),
        packages => format!("Installed packages: {}.", packages.join(", ")),
    };
    let has_matplotlib = report
        .packages
        .iter()
        .any(|package| package.split(' ').next() == Some("matplotlib"));
    let images = match has_matplotlib {
        true => {
            "matplotlib figures, displayed images and animations are captured by themselves; no savefig() and no \
             show() is needed."
        }
        false => {
            "displayed PNG and JPEG images are captured by themselves; matplotlib is not installed."
        }
    };
    let pauses = match report.level {
        Tier::External => "go on until the interpreter ends",
        Tier::Weak | Tier::Basic | Tier::Medium | Tier::Strong => {
            "stand still between calls and go on during the next one"
        }
    };
    let mut text = format!(
        "Runs {python} code and returns what it prints, the value of its last expression, its traceback if it fails, \
         its figures and its files.\n\
         - State: one interpreter per conversation, like the cells of a notebook, but plain Python without \
         %magics and !commands. Variables, functions and imports stay between calls and between turns until the result of a call says that they are lost; {RESET_PYTHON} \
         clears them. Top-level await works. Threads and processes that a call leaves running {pauses}.\n\
         - Files: the current directory{directory} is the working directory; use relative paths. Files that the user \
         sent are there. Every file that a call creates or changes there is handed to the user (at most {} files, {} \
         each), but hidden files and caches; name files in 'outputs' to hand them over all the same or although they \
         did not change. Files stay when variables \
         are lost.\n\
         - Images: {images}\n\
         - {packages} {network}\n\
         - Limits: {} per call, {} of memory, {} in the working directory; long output is shortened, so print what \
         matters. input() does not work: put values into the code.",
        limits.files,
        size(limits.captured_file),
        seconds(settings.timeout),
        size(limits.memory),
        size(limits.disk),
    );
    if !wanted.is_empty() {
        text.push_str(
            "\n- The user wants these files; write each of them to the working directory under exactly this name:",
        );
        wanted.iter().for_each(|file| text.push_str(&line(file)));
    }
    ToolDefinition::function(EXECUTE_PYTHON, &text, EXECUTE_PARAMETERS)
}

pub(super) fn reset() -> ToolDefinition {
    let text = "Clears all variables, functions and figures of the Python interpreter of this conversation. Files in \
         the working directory stay. Use it when leftovers of earlier code are in the way.";
    ToolDefinition::function(RESET_PYTHON, text, NO_PARAMETERS)
}

pub(super) fn read() -> ToolDefinition {
    let text = format!(
        "Shows a text file of the working directory page by page, without running code. Files that the user sent and \
         files that code wrote are there; {LIST_FILES} shows their names. Of a file that is not text only type and \
         size are told: use {EXECUTE_PYTHON} to look into it."
    );
    ToolDefinition::function(READ_FILE, &text, READ_PARAMETERS)
}

pub(super) fn list() -> ToolDefinition {
    let text = "Lists the files of the working directory with their sizes: those that the user sent and those that \
         code wrote.";
    ToolDefinition::function(LIST_FILES, text, NO_PARAMETERS)
}

fn line(file: &WantedFile) -> String {
    let format = file.format.as_deref();
    let format = format.map_or_else(String::new, |format| format!(" ({format})"));
    let description = file.description.as_deref();
    let description = description.map_or_else(String::new, |text| format!(": {text}"));
    format!("\n  - {}{format}{description}", file.name)
}

/// The limits on memory, disk and output, as text.
pub(super) fn limit_texts(limits: &InterpreterLimits) -> [String; 3] {
    [size(limits.memory), size(limits.disk), size(limits.output)]
}

/// Formats a number of bytes in whole KiB, MiB or GiB.
pub(super) fn size(bytes: u64) -> String {
    let (kib, mib, gib) = (bytes >> 10, bytes >> 20, bytes >> 30);
    match bytes {
        1 => "1 byte".to_owned(),
        _ if kib == 0 => format!("{bytes} bytes"),
        _ if mib == 0 => format!("{kib} KiB"),
        _ if gib > 0 && gib << 30 == bytes => format!("{gib} GiB"),
        _ => format!("{mib} MiB"),
    }
}

/// Formats a duration.
pub(super) fn seconds(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds.fract() == 0.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{seconds:.1} s")
    }
}
