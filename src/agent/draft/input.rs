//! The messages of a draft. The messages of a request that passes through are never parsed.

use bytes::Bytes;
use serde_json::value::RawValue;

use protocol::openai::message::{Message, Role};
use protocol::openai::raw::slice_of;
use protocol::openai::request::RequestError;

/// The messages of a draft.
#[derive(Debug, Clone)]
pub enum DraftMessages {
    /// The JSON text of a list of messages.
    Unread(UnreadMessages),
    /// Messages that have been read.
    Read(Vec<Message>),
}

/// A list of messages that is not parsed.
#[derive(Debug, Clone)]
pub struct UnreadMessages {
    /// The JSON text of the member; `None` if it is absent.
    pub text: Option<Bytes>,
    /// The text is most of the request, so messages may share its bytes. A message that lives long then holds the whole
    /// request.
    pub shares: bool,
    /// Most messages.
    pub most: usize,
    /// The request names a session: a suspended turn resumes without a message.
    pub may_be_empty: bool,
}

impl Default for DraftMessages {
    fn default() -> Self {
        Self::Read(Vec::new())
    }
}

impl DraftMessages {
    /// The messages.
    ///
    /// # Errors
    /// When there is none, there are too many, or one has the wrong shape.
    pub fn read(self) -> Result<Vec<Message>, RequestError> {
        match self {
            Self::Read(messages) => Ok(messages),
            Self::Unread(unread) => unread.read(),
        }
    }

    /// The id of the call that the last message answers, if that is a tool result. A suspended turn may wait for it.
    pub(crate) fn answered_call(&self) -> Option<String> {
        let last = match self {
            Self::Read(messages) => messages.last().cloned(),
            Self::Unread(unread) => unread.last_result(),
        }?;
        let result = *last.role() == Role::Tool;
        last.tool_call_id().filter(|_| result).map(str::to_owned)
    }
}

impl DraftMessages {
    /// The id of the call that the last tool result answers, of messages that have been read.
    pub(crate) fn last_result(&self) -> Option<String> {
        let Self::Read(messages) = self else {
            return None;
        };
        let mut newest = messages.iter().rev();
        let result = newest.find(|message| *message.role() == Role::Tool)?;
        result.tool_call_id().map(str::to_owned)
    }
}

impl UnreadMessages {
    fn text(&self) -> Option<&str> {
        let text = self.text.as_ref().map(|text| std::str::from_utf8(text))?;
        text.ok().filter(|text| *text != "null")
    }

    /// The last message, if it may be a tool result.
    fn last_result(&self) -> Option<Message> {
        let text = self.text()?;
        // The messages are parsed only if the text can contain a tool result; most requests have none.
        memchr::memmem::find(text.as_bytes(), b"tool_call_id")?;
        let entries: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        Message::parse(entries.last()?.get()).ok()
    }

    fn read(self) -> Result<Vec<Message>, RequestError> {
        let entries: Option<Vec<&RawValue>> = self
            .text()
            .map(serde_json::from_str)
            .transpose()
            .map_err(|_| RequestError::invalid("messages", "must be an array of messages"))?;
        let may_be_empty = self.may_be_empty && entries.is_some();
        let entries = entries.unwrap_or_default();
        if entries.is_empty() && !may_be_empty {
            let message = "'messages' is missing or empty; send at least one message";
            return Err(RequestError::field("messages", message));
        }
        if entries.len() > self.most {
            let message = format!(
                "'messages' has {} messages; at most {} are allowed",
                entries.len(),
                self.most
            );
            return Err(RequestError::field("messages", message));
        }
        let shared = self.text.as_ref().filter(|_| self.shares);
        let parse = |(index, entry): (usize, &RawValue)| {
            let parsed = match shared {
                Some(text) => Message::parse_shared(entry.get(), slice_of(text, entry.get())),
                None => Message::parse(entry.get()),
            };
            parsed.map_err(|problem| {
                let param = format!("messages[{index}]");
                RequestError::invalid(&param, &problem)
            })
        };
        entries.into_iter().enumerate().map(parse).collect()
    }
}
