//! Reports of calls to the client, the log and the metrics, and texts about calls for the model.

use std::time::Duration;

use super::super::AgentParts;
use super::super::calls::ResolvedCall;
use super::super::event::Calling;
use super::BatchContext;
use crate::ids::shown;
use crate::metrics::ToolLabel;
use crate::openai::message::NO_OUTPUT;
use crate::tools::{ToolDetail, ToolStatus};

/// Stands for the text of a result that has images only.
const NO_TEXT: &str = "(no text, but images)";
/// The result for the model of a call that was cancelled while it ran.
const CANCELLED: &str = "The call was cancelled while it was running. It may have taken effect or not; find out before you \
                         repeat it.";
/// The same of a call that changes nothing.
const CANCELLED_READ: &str = "The call was cancelled before it had a result.";
/// The same of a call that had not started.
const CANCELLED_BEFORE: &str = "This call was not run: the turn was cancelled before it started.";

/// The label of a tool in metrics, and its kind in the log. Names that come from a request are not used.
fn label<'a>(parts: &AgentParts, call: &'a ResolvedCall) -> ToolLabel<'a> {
    let sources = parts.sources.snapshot();
    let server = call.on_server.as_ref();
    // A tool of a configured server may have gone from its list since the turn began.
    if sources.has(&call.call.name) || server.is_some_and(|it| sources.has_server(&it.server)) {
        ToolLabel::Configured(&call.call.name)
    } else if server.is_some() {
        ToolLabel::McpRequest
    } else if call.shown() {
        ToolLabel::Dispatch
    } else {
        ToolLabel::Unknown
    }
}

/// Counts a call that was answered, and writes its record to the log.
pub(super) fn count_call(
    context: &BatchContext,
    call: &ResolvedCall,
    status: ToolStatus,
    duration: Duration,
    detail: Option<&ToolDetail>,
) {
    let metrics = &context.parts.metrics;
    let label = label(&context.parts, call);
    metrics.tool_finished(label, status, duration);
    tracing::info!(
        tool = shown(&call.call.name),
        kind = label.as_str(),
        round = context.call.round,
        status = status.as_str(),
        ms = millis(duration),
        "tool call finished"
    );
    if let Some(ToolDetail::Code(detail)) = detail {
        metrics.cell_finished(Duration::from_millis(detail.execution_time_ms));
    }
}

/// Identifies a call, with its arguments.
pub(super) fn calling(context: &BatchContext, call: &ResolvedCall) -> Calling {
    Calling {
        arguments: call.call.arguments.clone(),
        ..calling_without_arguments(context, call)
    }
}

/// Identifies the call that live output belongs to. The arguments are left out because they may be large.
pub(super) fn calling_without_arguments(context: &BatchContext, call: &ResolvedCall) -> Calling {
    Calling {
        round: context.call.round,
        name: call.call.name.clone(),
        tool_call_id: call.call.id.clone(),
        arguments: String::new(),
        kind: call.kind,
        on_server: call.on_server.clone(),
    }
}

/// The note for a model that does not get so many images.
pub(super) fn unseen(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!("[{count} image(s) came with this result; they cannot be shown to this model.]")
    })
}

/// Adds a note to the text of a result.
pub(super) fn add_note(text: &mut String, note: Option<String>) {
    if let Some(note) = note {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&note);
    }
}

/// Puts what stands for it in the place of a text without words; returns whether the text was one.
pub(super) fn fill_blank(text: &mut String, has_images: bool) -> bool {
    let is_blank = text.trim().is_empty();
    if is_blank {
        *text = if has_images { NO_TEXT } else { NO_OUTPUT }.to_owned();
    }
    is_blank
}

/// The result for the model of a call that was cancelled, which had started or not.
pub(super) fn cancelled_text(started: bool, read_only: bool) -> &'static str {
    match (started, read_only) {
        (false, _) => CANCELLED_BEFORE,
        (true, true) => CANCELLED_READ,
        (true, false) => CANCELLED,
    }
}

/// A duration in milliseconds.
pub(in super::super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
