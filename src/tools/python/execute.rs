//! `execute_python`: runs one cell and converts its outcome.

use super::arguments::Execute;
use super::describe::{WORKING_DIRECTORY, working_directory};
use super::interpreters::Interpreters;
use super::live::LiveOutput;
use super::report;
use crate::requested::WantedFile;
use crate::{
    CodeDetail, ToolDetail, ToolError, ToolFile, ToolImage, ToolInvocation, ToolNotice, ToolOutput,
};
use protocol::media::media_type;
use sandbox::{CapturedFile, Cell, CellOutcome, Image};

pub(super) async fn execute(
    interpreters: &Interpreters,
    wanted: &[WantedFile],
    invocation: &ToolInvocation,
) -> Result<ToolOutput, ToolError> {
    let settings = interpreters.settings();
    let directory = working_directory(interpreters.report());
    let Execute {
        code,
        mut outputs,
        refused,
    } = Execute::from_arguments(&invocation.arguments, directory)?;
    let asked = outputs.clone();
    for file in wanted {
        if !outputs.contains(&file.name) {
            outputs.push(file.name.clone());
        }
    }
    let cell = Cell {
        code,
        outputs: &outputs,
        inputs: &invocation.context.files,
        timeout: settings.timeout,
    };
    let live = LiveOutput::new(&invocation.progress);
    let outcome = interpreters
        .run(&invocation.context.workspace, cell, &|stream, text| {
            live.output(stream, text);
        })
        .await?;
    live.flush();
    let mut more = not_there(&outcome, &asked);
    more.extend(refused.iter().map(|name| {
        format!("'{name}' is not handed over: 'outputs' takes paths relative to the working directory, such as 'report.csv'")
    }));
    let content = report::text(&outcome, settings, &more);
    let notices = report::lost(outcome.end).map(|why| ToolNotice {
        kind: "interpreter_lost",
        message: format!("{why}; its variables are lost, its files are kept"),
    });
    let status = report::status(&outcome);
    let (result, exception) = (result(&outcome), report::exception(&outcome, settings));
    Ok(ToolOutput {
        content,
        status,
        images: outcome.images.into_iter().map(image).collect(),
        frames: outcome.frames.into_iter().map(image).collect(),
        detail: Some(Box::new(ToolDetail::Code(CodeDetail {
            code: code.to_owned(),
            result,
            exception,
            execution_time_ms: u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
            stdout: outcome.stdout,
            stderr: outcome.stderr,
            working_directory: shown_directory(&outcome.working_directory),
        }))),
        files: outcome.files.into_iter().map(file).collect(),
        notices: notices.into_iter().collect(),
        terminate: false,
        is_bounded: false,
        sources: Vec::new(),
    })
}

/// The working directory for clients: its path in a private root, otherwise `.`, because the path would be the
/// server's.
fn shown_directory(path: &str) -> String {
    match path {
        WORKING_DIRECTORY => path.to_owned(),
        _ => ".".to_owned(),
    }
}

/// Notices about requested files that are missing and that no other notice mentions.
fn not_there(outcome: &CellOutcome, asked: &[String]) -> Vec<String> {
    let is_mentioned = |name: &String| {
        let quoted = format!("'{name}'");
        outcome.files.iter().any(|file| file.name == *name)
            || outcome
                .notices
                .iter()
                .any(|notice| notice.contains(&quoted))
    };
    let missing = asked.iter().filter(|name| !is_mentioned(name));
    missing
        .map(|name| {
            format!("'{name}' is not handed over: there is no such file in the working directory")
        })
        .collect()
}

fn result(outcome: &CellOutcome) -> Option<String> {
    let value = outcome.value.iter().map(|value| value.text.as_str());
    let texts: Vec<&str> = outcome
        .texts
        .iter()
        .map(String::as_str)
        .chain(value)
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

fn image(image: Image) -> ToolImage {
    ToolImage {
        mime_type: image.mime_type.into(),
        content: image.bytes.into(),
    }
}

fn file(file: CapturedFile) -> ToolFile {
    let name = file.name.rsplit('/').next().unwrap_or(&file.name);
    ToolFile {
        name: name.to_owned(),
        mime_type: media_type(name, &file.bytes),
        path: file.name,
        content: file.bytes,
    }
}
