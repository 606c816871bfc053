//! The result of a cell as text for the model: labelled sections, and a message for every kind of end.

use super::describe::{limit_texts, seconds, size};
use crate::OutputStatus;
use protocol::media::media_type;
use protocol::openai::message::NO_OUTPUT;
use sandbox::settings::Settings;
use sandbox::{CapturedFile, CellEnd, CellError, CellOutcome, ResourceLimit};

/// The exception with which code ends itself.
const EXIT: &str = "SystemExit";
/// The start of its message if the code exited successfully.
const CLEAN_EXITS: [&str; 3] = ["sys.exit() ", "sys.exit(0) ", "sys.exit(False) "];

/// The text for the model; never empty.
pub(super) fn text(outcome: &CellOutcome, settings: &Settings, more: &[String]) -> String {
    let mut sections = Sections::default();
    sections.add("stdout", &outcome.stdout);
    sections.add("stderr", &outcome.stderr);
    sections.add("displayed", &outcome.texts.join("\n"));
    if let Some(value) = &outcome.value {
        sections.add("result", &value.text);
    }
    if let Some(error) = &outcome.error {
        sections.add("exception", &error_text(error));
    }
    if let Some(end) = end_text(outcome.end, settings) {
        sections.add("ended", &end);
    }
    sections.add("images", &images_text(outcome));
    sections.add("files", &files_text(&outcome.files));
    let notices: Vec<String> = outcome
        .notices
        .iter()
        .chain(more)
        .map(|notice| format!("- {notice}"))
        .collect();
    sections.add("notices", &notices.join("\n"));
    sections.finish()
}

/// The status of a call.
pub(super) fn status(outcome: &CellOutcome) -> OutputStatus {
    match outcome.end {
        CellEnd::Interrupted | CellEnd::TimedOut => OutputStatus::Timeout,
        CellEnd::LimitExceeded(_) | CellEnd::Crashed => OutputStatus::Error,
        CellEnd::Completed => match &outcome.error {
            Some(error) if !is_clean_exit(error) => OutputStatus::Error,
            Some(_) | None => OutputStatus::Ok,
        },
    }
}

/// The traceback and the reason why the code was ended, if any.
pub(super) fn exception(outcome: &CellOutcome, settings: &Settings) -> Option<String> {
    let traceback = outcome.error.as_ref().map(error_text);
    let end = end_text(outcome.end, settings);
    match (traceback, end) {
        (Some(traceback), Some(end)) => Some(format!("{traceback}\n{end}")),
        (one, other) => one.or(other),
    }
}

/// Why the workspace's interpreter was lost; `None` if it still runs.
pub(super) fn lost(end: CellEnd) -> Option<&'static str> {
    match end {
        CellEnd::Completed | CellEnd::Interrupted => None,
        CellEnd::TimedOut => Some("the code ran out of time and would not be interrupted"),
        CellEnd::LimitExceeded(ResourceLimit::Memory) => Some("the code ran out of memory"),
        CellEnd::LimitExceeded(ResourceLimit::Disk) => Some("the disk space of the code was full"),
        CellEnd::LimitExceeded(ResourceLimit::Processes) => {
            Some("the code started too many processes")
        }
        CellEnd::LimitExceeded(ResourceLimit::Output) => Some("the code wrote too much output"),
        CellEnd::LimitExceeded(ResourceLimit::Protocol) | CellEnd::Crashed => {
            Some("the interpreter ended unexpectedly")
        }
    }
}

fn end_text(end: CellEnd, settings: &Settings) -> Option<String> {
    let time = seconds(settings.timeout);
    let [memory, disk, output] = limit_texts(&settings.limits);
    let lost = "The interpreter was ended: all variables and imports are lost, files are kept. The next call starts a \
         fresh interpreter.";
    let text = match end {
        CellEnd::Completed => return None,
        CellEnd::Interrupted => format!(
            "The code was interrupted after {time}, the longest time of a call. Variables and files are kept. Do less \
             in one call, or split the work."
        ),
        CellEnd::TimedOut => format!(
            "The code did not end within {time}, the longest time of a call, and could not be interrupted. {lost}"
        ),
        CellEnd::LimitExceeded(ResourceLimit::Memory) => format!(
            "Out of memory: the code used more than {memory}. {lost} Work on smaller pieces of the data."
        ),
        CellEnd::LimitExceeded(ResourceLimit::Disk) => format!(
            "Disk full: the code wrote more than {disk} or too many files. {lost} Delete files that are not needed \
             any more."
        ),
        CellEnd::LimitExceeded(ResourceLimit::Processes) => format!(
            "Too many processes: the code had more than {} processes and threads at the same time. {lost} Use fewer.",
            settings.limits.processes
        ),
        CellEnd::LimitExceeded(ResourceLimit::Output) => format!(
            "Too much output: the code printed more than {output} in one call. {lost} Print less, or write to a file."
        ),
        CellEnd::LimitExceeded(ResourceLimit::Protocol) => format!(
            "The interpreter sent messages that it must not send, as code does that meddles with its descriptors. \
             {lost}"
        ),
        CellEnd::Crashed => format!(
            "The interpreter ended unexpectedly, as after os._exit(), a crash of native code or a kill by the \
             operating system. {lost}"
        ),
    };
    Some(text)
}

/// The traceback of an exception. For `SystemExit` the message is added or replaces it, because it tells the model that
/// the interpreter still runs.
fn error_text(error: &CellError) -> String {
    match error.traceback.trim_end() {
        "" => format!("{}: {}", error.name, error.message),
        _ if is_clean_exit(error) => error.message.clone(),
        traceback if error.name == EXIT => format!("{traceback}\n{}", error.message),
        traceback => traceback.to_owned(),
    }
}

/// Whether the code exited successfully; the worker program phrases the message.
fn is_clean_exit(error: &CellError) -> bool {
    error.name == EXIT
        && CLEAN_EXITS
            .iter()
            .any(|call| error.message.starts_with(call))
}

fn images_text(outcome: &CellOutcome) -> String {
    let counted = |count: usize, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one} captured")),
        count => Some(format!("{count} {one}s captured")),
    };
    let texts = [
        counted(outcome.images.len(), "image"),
        counted(outcome.frames.len(), "animation frame"),
    ];
    texts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn files_text(files: &[CapturedFile]) -> String {
    let line = |file: &CapturedFile| {
        format!(
            "- {} ({}, {})",
            file.name,
            media_type(&file.name, &file.bytes),
            size(file.bytes.len() as u64)
        )
    };
    match files {
        [] => String::new(),
        files => {
            let lines: Vec<String> = files.iter().map(line).collect();
            format!("handed to the user:\n{}", lines.join("\n"))
        }
    }
}

/// The labels of the sections.
const LABELS: [&str; 9] = [
    "stdout",
    "stderr",
    "displayed",
    "result",
    "exception",
    "ended",
    "images",
    "files",
    "notices",
];

/// Whether a text begins with a label of [`text`].
pub(super) fn begins_with_label(text: &str) -> bool {
    let label = text.split_once(":\n").map(|(label, _)| label);
    label.is_some_and(|label| LABELS.contains(&label))
}

/// Builds a text of labelled sections without empty ones.
#[derive(Debug, Default)]
struct Sections(String);

impl Sections {
    fn add(&mut self, label: &str, content: &str) {
        let content = content.trim_end_matches(['\n', '\r']);
        if content.trim().is_empty() {
            return;
        }
        if !self.0.is_empty() {
            self.0.push_str("\n\n");
        }
        self.0.push_str(label);
        self.0.push_str(":\n");
        self.0.push_str(content);
    }

    fn finish(self) -> String {
        match self.0.is_empty() {
            true => NO_OUTPUT.to_owned(),
            false => self.0,
        }
    }
}
