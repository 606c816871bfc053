//! Encodes the events of a call outside of a turn as its entry of `agentic_tool_calls`, with its files and notices.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::completion::write_list;
use super::records::{FileEntry, NoticeEntry, ToolCallEntry, file_text, open_call_text};
use agent::event::{AgentEvent, Notice};
use blobs::segments::{SegmentedText, SegmentedWriter};

/// The answer to a call outside of a turn: an entry of `agentic_tool_calls`, with what an answer has beside its entries.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DirectCallAnswer<'a> {
    #[serde(flatten)]
    call: ToolCallEntry<'a>,
    /// The files that the call made.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    files: &'a [FileEntry<'a>],
    /// What the client should know about the call.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notices: &'a [NoticeEntry<'a>],
}

/// Collects the events of a call outside of a turn.
#[derive(Debug, Default)]
pub(crate) struct CallCollector {
    files: Vec<SegmentedText>,
    notices: Vec<Notice>,
}

impl CallCollector {
    /// Adds one event. Returns the JSON body of the answer with the end of the call, and how long its tool took.
    pub(crate) fn take(&mut self, event: AgentEvent) -> Option<(SegmentedText, Duration)> {
        match event {
            AgentEvent::File(file) => self.files.push(file_text(*file)),
            AgentEvent::Notice(notice) => self.notices.push(notice),
            AgentEvent::Complete(record) => {
                let duration = record.duration;
                let mut body = SegmentedWriter::default();
                body.push_segmented(open_call_text(*record));
                write_list(&mut body, "files", self.files.drain(..));
                let notice = |notice| {
                    let entry = NoticeEntry::from(notice);
                    SegmentedText::from(serde_json::to_string(&entry).unwrap_or_default())
                };
                write_list(&mut body, "notices", self.notices.iter().map(notice));
                body.text("}");
                return Some((body.finish(), duration));
            }
            _ => {}
        }
        None
    }
}
