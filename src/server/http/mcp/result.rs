//! The result of a call, as MCP has it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::http::error::{ApiError, codes};
use agent::event::{AgentEvent, ProducedFile, ToolCallRecord, ToolStatus};
use agent::runs::{Encode, RunReport};

/// How a call has ended.
pub(super) enum DirectCallEnd {
    Answered(Box<CallToolResult>),
    /// It was not made, or the process is stopping.
    Failed(ApiError),
}

/// Collects the reports of a call.
pub(super) struct Collected {
    live: mpsc::Sender<String>,
    end: Option<oneshot::Sender<DirectCallEnd>>,
    files: Vec<ProducedFile>,
}

impl Collected {
    /// A collector that passes on live output, and the receiver of the end of its call.
    pub(super) fn new(live: mpsc::Sender<String>) -> (Self, oneshot::Receiver<DirectCallEnd>) {
        let (end, received) = oneshot::channel();
        let collected = Self {
            live,
            end: Some(end),
            files: Vec::new(),
        };
        (collected, received)
    }

    /// Encodes the reports of a run that has no answer of its own.
    pub(super) fn encode(mut self) -> Encode {
        Box::new(move |report, _lines| {
            self.take(report);
            None
        })
    }

    fn take(&mut self, report: RunReport) {
        let end = match report {
            RunReport::Event(AgentEvent::ToolOutput { text, .. }) => {
                // A piece that is left out here is in the result.
                let _full = self.live.try_send(text);
                return;
            }
            RunReport::Event(AgentEvent::File(file)) => return self.files.push(*file),
            RunReport::Event(AgentEvent::Complete(record)) => {
                let files = std::mem::take(&mut self.files);
                DirectCallEnd::Answered(Box::new(result(*record, files)))
            }
            RunReport::Event(AgentEvent::Finished(_)) => {
                DirectCallEnd::Failed(codes::CALL_CANCELLED.error())
            }
            RunReport::Event(_) => return,
            RunReport::Failed(error) => {
                DirectCallEnd::Failed(ApiError::of_turn(error.error, |_| "session_id".to_owned()))
            }
            RunReport::Panicked { .. } => DirectCallEnd::Failed(codes::INTERNAL.error()),
        };
        if let Some(sender) = self.end.take() {
            // The client may have left.
            let _gone = sender.send(end);
        }
    }
}

/// The text of a result, its images and its files. A text that is a JSON object is the structured result as well.
fn result(record: ToolCallRecord, files: Vec<ProducedFile>) -> CallToolResult {
    let ToolCallRecord {
        content,
        status,
        images,
        ..
    } = record;
    let structured = match content.starts_with('{') {
        true => serde_json::from_str::<Value>(&content).ok(),
        false => None,
    };
    let mut blocks = vec![ContentBlock::text(content)];
    // An image of another type than PNG is among the files, too.
    let is_image = |file: &ProducedFile| {
        let data = file.data.as_ref();
        data.is_some_and(|data| images.iter().any(|image| image.bytes == *data))
    };
    let files = files.into_iter().filter(|file| !is_image(file));
    let files: Vec<ContentBlock> = files.map(block_of_file).collect();
    blocks.extend(images.iter().map(|image| {
        let data = STANDARD.encode(&image.bytes);
        ContentBlock::image(data, image.mime_type.clone())
    }));
    blocks.extend(files);
    let mut result = match status {
        ToolStatus::Ok => CallToolResult::success(blocks),
        _ => CallToolResult::error(blocks),
    };
    result.structured_content = structured;
    result
}

/// A file with its content, or the way to it.
fn block_of_file(file: ProducedFile) -> ContentBlock {
    let Some(data) = file.data else {
        let ProducedFile { name, id, size, .. } = file;
        return ContentBlock::text(format!(
            "The file '{name}' ({size} bytes) is at GET /v1/files/{id}/content."
        ));
    };
    let name = utf8_percent_encode(&file.name, NON_ALPHANUMERIC);
    ContentBlock::resource(ResourceContents::BlobResourceContents {
        uri: format!("file:///{name}"),
        mime_type: Some(file.mime_type),
        blob: STANDARD.encode(&data),
        meta: None,
    })
}
