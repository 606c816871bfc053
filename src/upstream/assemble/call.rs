//! A tool call that arrives in pieces.

use super::AssembledCall;
use protocol::ids::{CallIdStyle, fresh_call_id};
use protocol::openai::event::ToolCallDelta;
use protocol::openai::fold::FoldedFields;
use protocol::openai::tool::{CallKind, CallMembers, ToolCall};

/// Most bytes of an empty object with white space. More are arguments.
const MAX_PLACEHOLDER: usize = 16;
/// A call that is still arriving.
#[derive(Debug, Default)]
pub(super) struct CallInPieces {
    pub(super) index: Option<u32>,
    pub(super) id: Option<String>,
    name: String,
    arguments: String,
    /// The arguments came in one piece that is marked as whole.
    whole: bool,
    /// The id of the call, if it is known before the reply ends.
    fresh_id: Option<String>,
    /// How much of the arguments was passed on, in bytes.
    passed_on: usize,
    scan: ObjectScan,
    kind: CallKind,
    beside: FoldedFields,
    inside: FoldedFields,
    /// The members of the last piece.
    last_members: CallMembers,
}

/// An incremental search for the end of the JSON object in a growing text.
///
/// Each byte is scanned once.
#[derive(Debug, Default)]
pub(super) struct ObjectScan {
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    closed: bool,
    broken: bool,
}

impl CallInPieces {
    /// What has arrived of the arguments since the last time: the call's id, its name and the piece. Nothing while the arguments
    /// may still be replaced.
    pub(super) fn next_arguments(&mut self, style: CallIdStyle) -> Option<(String, &str, &str)> {
        if self.whole || self.name.is_empty() || self.is_placeholder() {
            return None;
        }
        let piece = self.arguments.get(self.passed_on..)?;
        if piece.is_empty() {
            return None;
        }
        self.passed_on = self.arguments.len();
        let id = self.fresh_id.get_or_insert_with(|| fresh_call_id(style));
        Some((id.clone(), &self.name, piece))
    }

    /// Whether the arguments are complete.
    pub(super) fn is_whole(&self) -> bool {
        self.kind == CallKind::Custom
            || serde_json::from_str::<serde::de::IgnoredAny>(self.arguments()).is_ok()
    }

    /// The call, under a fresh id.
    pub(super) fn assembled(self, style: CallIdStyle) -> AssembledCall {
        AssembledCall {
            call: ToolCall {
                arguments: self.arguments().to_owned(),
                id: self.fresh_id.unwrap_or_else(|| fresh_call_id(style)),
                name: self.name,
                kind: self.kind,
                members: CallMembers {
                    beside: self.beside.into_entries().collect(),
                    inside: self.inside.into_entries().collect(),
                },
            },
            upstream_id: self.id,
        }
    }

    /// Whether nothing but an id has come.
    pub(super) fn is_empty(&self) -> bool {
        self.name.is_empty() && self.arguments.is_empty()
    }

    /// Whether the arguments are an empty object. Some servers send one before the actual arguments.
    fn is_placeholder(&self) -> bool {
        let arguments = self.arguments.get(..MAX_PLACEHOLDER);
        let rest = after_empty_object(arguments.unwrap_or(&self.arguments));
        arguments.is_none() && rest.is_some_and(|rest| rest.trim_start().is_empty())
    }

    /// The arguments without such an object in front.
    fn arguments(&self) -> &str {
        let rest = after_empty_object(&self.arguments);
        rest.filter(|rest| rest.trim_start().starts_with('{'))
            .unwrap_or(&self.arguments)
    }

    /// Whether the piece starts another call although it has the index or id of this one.
    pub(super) fn is_followed_by(&mut self, delta: &ToolCallDelta, split_names: bool) -> bool {
        // A call starts with a name. Ids alone do not count: some servers make a new id for every piece of one call.
        let Some(name) = &delta.name else {
            return false;
        };
        match (&self.id, &delta.id) {
            (Some(known), Some(other)) => return known != other,
            // Only the id of the call has arrived so far.
            _ if self.name.is_empty() => return false,
            (None, Some(_)) if delta.index.is_none() => return true,
            (None, Some(_)) | (_, None) => {}
        }
        if split_names {
            return false;
        }
        if *name != self.name {
            return !(self.arguments.is_empty() && name.starts_with(&self.name));
        }
        let Some(arguments) = delta
            .arguments
            .as_deref()
            .filter(|it| !it.trim().is_empty())
        else {
            return false;
        };
        if delta.whole {
            // A complete call that repeats the assembled one is not a second call.
            self.whole && (delta.index.is_none() || arguments != self.arguments)
        } else if delta.index.is_some() && self.is_placeholder() {
            false
        } else {
            self.scan.finds_whole_object(&self.arguments)
        }
    }

    pub(super) fn take(&mut self, delta: &ToolCallDelta, split_names: bool) {
        self.index = self.index.or(delta.index);
        if self.id.is_none() {
            self.id.clone_from(&delta.id);
        }
        if delta.kind == CallKind::Custom {
            self.kind = CallKind::Custom;
        }
        if let Some(name) = &delta.name {
            if split_names {
                self.name.push_str(name);
            } else {
                self.name.clone_from(name);
            }
        }
        // Some servers repeat the members with every piece.
        if delta.members != self.last_members {
            for (key, json) in &delta.members.beside {
                self.beside.push(key, json);
            }
            for (key, json) in &delta.members.inside {
                self.inside.push(key, json);
            }
            self.last_members.clone_from(&delta.members);
        }
        let Some(arguments) = &delta.arguments else {
            return;
        };
        if delta.whole {
            self.replace_arguments(arguments);
            self.whole = true;
        } else if self.is_placeholder() && arguments.trim_start().starts_with('{') {
            self.replace_arguments(arguments);
            self.whole = false;
        } else if !self.whole {
            self.arguments.push_str(arguments);
        }
    }

    fn replace_arguments(&mut self, arguments: &String) {
        self.arguments.clone_from(arguments);
        self.scan = ObjectScan::default();
    }
}

/// What follows an empty object.
fn after_empty_object(text: &str) -> Option<&str> {
    let inside = text.trim_start().strip_prefix('{')?;
    inside.trim_start().strip_prefix('}')
}

impl ObjectScan {
    /// Whether the text, which may only have grown since the last call, is one complete JSON object.
    pub(super) fn finds_whole_object(&mut self, text: &str) -> bool {
        for byte in text.as_bytes().iter().skip(self.seen) {
            self.step(*byte);
        }
        self.seen = text.len();
        self.closed && !self.broken && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
    }

    fn step(&mut self, byte: u8) {
        if self.escaped {
            self.escaped = false;
        } else if self.in_string {
            self.escaped = byte == b'\\';
            self.in_string = byte != b'"';
        } else if self.depth > 0 {
            match byte {
                b'"' => self.in_string = true,
                b'{' => self.depth += 1,
                b'}' => {
                    self.depth -= 1;
                    self.closed = self.depth == 0;
                }
                _ => {}
            }
        } else if byte == b'{' && !self.closed {
            self.depth = 1;
        } else if !byte.is_ascii_whitespace() {
            // There is text outside of the object, so that this is not a single object and cannot become one.
            self.broken = true;
        }
    }
}
