//! Reports of calls to the client, the log and the metrics, and texts about calls for the model.

use std::time::Duration;

use super::super::call::Call;
use super::super::event::Calling;
use super::BatchContext;
use crate::metrics::ToolLabel;
use protocol::ids::shown;
use protocol::openai::message::NO_OUTPUT;
use tools::source::Sources;
use tools::{ToolDetail, ToolStatus};

/// Replaces the text of a result that has images only.
const NO_TEXT: &str = "(no text, but images)";
/// The label of a tool in metrics, and its kind in the log. Names that come from a request are not used.
fn label<'a>(sources: &Sources, call: &'a Call) -> ToolLabel<'a> {
    let sources = sources.snapshot();
    let server = call.on_server.as_ref();
    // A configured server may have removed a tool from its list since the turn began.
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
    call: &Call,
    status: ToolStatus,
    duration: Duration,
    detail: Option<&ToolDetail>,
) {
    let metrics = &context.services.metrics;
    let label = label(&context.services.sources, call);
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
pub(super) fn calling(context: &BatchContext, call: &Call) -> Calling {
    Calling {
        arguments: call.call.arguments.clone(),
        may_wait: may_wait(context, call),
        ..calling_without_arguments(context, call)
    }
}

/// Identifies the call that live output belongs to. The arguments are left out because they may be large.
pub(super) fn calling_without_arguments(context: &BatchContext, call: &Call) -> Calling {
    Calling {
        round: context.call.round,
        name: call.call.name.clone(),
        tool_call_id: call.call.id.clone(),
        arguments: String::new(),
        kind: call.kind,
        on_server: call.on_server.clone(),
        may_wait: false,
    }
}

fn may_wait(context: &BatchContext, call: &Call) -> bool {
    let of_turn = &context.call;
    !of_turn.approvals.is_decided(&call.call.id)
        && of_turn.permissions.may_ask_about(&call.call.name)
}

/// The note for the model about images that it is not shown.
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

/// Replaces a blank text by a placeholder; returns whether the text was blank.
pub(super) fn fill_blank(text: &mut String, has_images: bool) -> bool {
    let is_blank = text.trim().is_empty();
    if is_blank {
        *text = if has_images { NO_TEXT } else { NO_OUTPUT }.to_owned();
    }
    is_blank
}

/// A duration in milliseconds.
pub(in super::super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
