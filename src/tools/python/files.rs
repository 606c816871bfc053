//! `reset_python`, `list_files` and `read_file`.

use super::arguments::Read;
use super::describe::{size, working_directory};
use super::interpreters::Interpreters;
use crate::cap::first_chars;
use crate::{ToolError, ToolInvocation, ToolOutput};
use protocol::media::{is_utf8_text, media_type};
use sandbox::FileRange;

/// Most bytes of a file that are read for one page. Of a larger file the rest is not shown.
const MAX_READ_BYTES: u64 = 16 * 1024 * 1024;
/// Default number of lines of a page.
const DEFAULT_LINES: usize = 500;
/// Most characters of a page; the others are on the next one.
/// Tried by `python::working_files::long_lines_and_long_pages_are_cut_and_say_so`.
const MAX_PAGE_CHARS: usize = 40_000;
/// Most characters shown of one line. The result counts the lines that were cut.
/// Tried by `python::working_files::long_lines_and_long_pages_are_cut_and_say_so`.
const MAX_LINE_CHARS: usize = 4_000;
/// The start of the result of `reset_python`.
pub(super) const CLEARED: &str = "All variables are cleared.";

pub(super) async fn reset(
    interpreters: &Interpreters,
    invocation: &ToolInvocation,
) -> Result<ToolOutput, ToolError> {
    interpreters.reset(&invocation.context.workspace).await?;
    Ok(plain(format!(
        "{CLEARED} Files in the working directory are kept."
    )))
}

pub(super) async fn list(
    interpreters: &Interpreters,
    invocation: &ToolInvocation,
) -> Result<ToolOutput, ToolError> {
    let files = interpreters
        .list_files(&invocation.context.workspace, &invocation.context.files)
        .await?;
    if files.is_empty() {
        let text = "The working directory is empty.".to_owned();
        return Ok(plain(with_notices(text, &files.notices)));
    }
    let mut text = match files.len() {
        1 => "1 file in the working directory:".to_owned(),
        count => format!("{count} files in the working directory:"),
    };
    for file in files.iter() {
        text.push_str(&format!("\n- {} ({})", file.name, size(file.size)));
    }
    Ok(plain(with_notices(text, &files.notices)))
}

pub(super) async fn read(
    interpreters: &Interpreters,
    invocation: &ToolInvocation,
) -> Result<ToolOutput, ToolError> {
    let directory = working_directory(interpreters.report());
    let asked = Read::from_arguments(&invocation.arguments, directory)?;
    let part = FileRange {
        name: &asked.name,
        offset: 0,
        max_bytes: MAX_READ_BYTES,
    };
    let content = interpreters
        .read_file(
            &invocation.context.workspace,
            &invocation.context.files,
            part,
        )
        .await?;
    let kind = media_type(&asked.name, &content.bytes);
    let head = format!("{} ({kind}, {})", asked.name, size(content.size));
    if !is_utf8_text(&content.bytes) {
        let text = format!("{head} is not a text file. Use execute_python to look into it.");
        return Ok(plain(with_notices(text, &content.notices)));
    }
    let whole = content.bytes.len() as u64 >= content.size;
    let text = String::from_utf8_lossy(&content.bytes);
    let page = page(&head, &text, whole, &asked)?;
    Ok(plain(with_notices(page, &content.notices)))
}

/// Formats one page of a text: its file, position, continuation, and lines.
fn page(head: &str, text: &str, whole: bool, asked: &Read) -> Result<String, ToolError> {
    let total = text.lines().count();
    if total == 0 {
        return Ok(format!("{head} is empty."));
    }
    let of_total = if whole {
        total.to_string()
    } else {
        format!("the first {total} that can be read this way")
    };
    if asked.offset > total {
        return Err(ToolError::Rejected(format!(
            "'offset' is {}, but the file has only {total} lines that can be shown; send a smaller one",
            asked.offset
        )));
    }
    let most = asked.limit.unwrap_or(DEFAULT_LINES);
    let (mut shown, mut chars, mut lines, mut cut) = (String::new(), 0, 0, 0);
    for line in text.lines().skip(asked.offset - 1).take(most) {
        let part = first_chars(line, MAX_LINE_CHARS);
        let count = part.chars().count() + 1;
        if lines > 0 && chars + count > MAX_PAGE_CHARS {
            break;
        }
        (chars, lines) = (chars + count, lines + 1);
        shown.push('\n');
        shown.push_str(part);
        if part.len() < line.len() {
            cut += 1;
            shown.push_str(" [line cut here]");
        }
    }
    let last = asked.offset + lines - 1;
    let mut top = format!("{head}, lines {}-{last} of {of_total}", asked.offset);
    if last < total {
        top.push_str(&format!("; go on with offset {}", last + 1));
    } else if !whole {
        top.push_str("; use execute_python for the rest");
    }
    if cut > 0 {
        top.push_str(&format!(
            "; {cut} long line(s) cut to {MAX_LINE_CHARS} characters, use execute_python to see them whole"
        ));
    }
    Ok(format!("{top}:\n{shown}"))
}

/// Puts notices before a text, because a page may be truncated at its end.
fn with_notices(text: String, notices: &[String]) -> String {
    match notices {
        [] => text,
        notices => format!("Note: {}.\n\n{text}", notices.join("; ")),
    }
}

fn plain(content: String) -> ToolOutput {
    ToolOutput {
        content,
        ..ToolOutput::default()
    }
}
