//! What a scripted model server says, and how it breaks off.

use bytes::Bytes;
use serde_json::{Value, json};

use super::chat::{Call, Chat, Spelling};
use super::server::{Gate, HttpReply, Part};

/// One reply of the script.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    kind: Kind,
    headers: Vec<(String, String)>,
    before_head: Vec<Part>,
    edits: Vec<Edit>,
}

#[derive(Debug, Clone)]
enum Kind {
    Chat(Chat),
    Frames(Vec<Bytes>),
    Whole(HttpReply),
}

/// A change to the frames of a reply.
#[derive(Debug, Clone)]
enum Edit {
    /// Waits before every frame.
    Each(Gate),
    /// Does something before the frame with this number.
    Before(usize, Part),
    /// Ends after this many frames, with a last step or cleanly.
    End(usize, Option<Part>),
}

/// The model says this and stops.
pub(crate) fn text(text: &str) -> Reply {
    chat(Chat {
        text: text.to_owned(),
        ..Chat::default()
    })
}

/// The model thinks, says this and stops.
pub(crate) fn reasoning(reasoning: &str, text: &str) -> Reply {
    chat(Chat {
        reasoning: reasoning.to_owned(),
        text: text.to_owned(),
        ..Chat::default()
    })
}

/// The model calls tools.
pub(crate) fn calls<const N: usize>(calls: [(&str, Value); N]) -> Reply {
    text_and_calls("", calls)
}

/// The model says something and calls tools.
pub(crate) fn text_and_calls<const N: usize>(text: &str, calls: [(&str, Value); N]) -> Reply {
    chat(Chat {
        text: text.to_owned(),
        calls: calls.iter().map(call).collect(),
        ..Chat::default()
    })
}

/// The model calls these tools, however many.
pub(crate) fn calls_of(calls: &[(&str, Value)]) -> Reply {
    chat(Chat {
        calls: calls.iter().map(call).collect(),
        ..Chat::default()
    })
}

fn call((name, arguments): &(&str, Value)) -> Call {
    Call {
        id: None,
        name: (*name).to_owned(),
        // A string stands for the text of the arguments as it is, broken JSON included.
        arguments: match arguments {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        },
    }
}

/// These bytes, piece by piece, as an event stream.
pub(crate) fn raw_sse<T: Into<Bytes>>(pieces: impl IntoIterator<Item = T>) -> Reply {
    reply(Kind::Frames(pieces.into_iter().map(Into::into).collect()))
}

/// A status with a JSON or text body, and no answer of a model.
pub(crate) fn status(code: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
    let mut whole = reply(Kind::Whole(HttpReply::whole(
        code,
        "application/json",
        body,
    )));
    for (name, value) in headers {
        whole = whole.header(name, value);
    }
    whole
}

/// An error in OpenAI's envelope.
pub(crate) fn error(code: u16, message: &str) -> Reply {
    let body =
        json!({"error": {"message": message, "type": "server_error", "param": null, "code": code}});
    status(code, &[], body.to_string())
}

/// A stream of nonsense.
pub(crate) fn garbage() -> Reply {
    raw_sse([
        "data: {\"id\": \"chatcmpl-1\", \"cho\n\n",
        "data: <html>\n\n",
    ])
}

/// No answer at all; the connection stays open.
pub(crate) fn hang() -> Reply {
    let mut silent = text("");
    silent.before_head.push(Part::Hang);
    silent
}

/// The connection is reset before the answer's head.
pub(crate) fn reset() -> Reply {
    let mut broken = text("");
    broken.before_head.push(Part::Reset);
    broken
}

fn chat(chat: Chat) -> Reply {
    reply(Kind::Chat(chat))
}

fn reply(kind: Kind) -> Reply {
    Reply {
        kind,
        headers: Vec::new(),
        before_head: Vec::new(),
        edits: Vec::new(),
    }
}

impl Reply {
    /// Adds a header to the answer.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the token counts: prompt, completion.
    pub(crate) fn usage(self, prompt: u64, completion: u64) -> Self {
        self.said(|chat| chat.usage = Some((prompt, completion)))
    }

    /// Sets the finish reason.
    pub(crate) fn finish(self, reason: &str) -> Self {
        self.said(|chat| chat.finish = Some(reason.to_owned()))
    }

    /// Adds reasoning before the rest.
    pub(crate) fn thinking(self, text: &str) -> Self {
        self.said(|chat| text.clone_into(&mut chat.reasoning))
    }

    /// Sets the ids of the calls, in order.
    pub(crate) fn call_ids<const N: usize>(self, ids: [&str; N]) -> Self {
        self.said(|chat| {
            for (call, id) in chat.calls.iter_mut().zip(ids) {
                call.id = Some(id.to_owned());
            }
        })
    }

    /// Waits at the gate before every frame; one `release` is one frame.
    pub(crate) fn gate(self, gate: &Gate) -> Self {
        self.edit(Edit::Each(gate.clone()))
    }

    /// Waits at the gate before the frame with this number, from 0.
    pub(crate) fn gate_before(self, frame: usize, gate: &Gate) -> Self {
        self.edit(Edit::Before(frame, Part::Wait(gate.clone())))
    }

    /// Waits at the gate before the answer's head.
    pub(crate) fn gate_head(mut self, gate: &Gate) -> Self {
        self.before_head.push(Part::Wait(gate.clone()));
        self
    }

    /// Ends the body cleanly after this many frames, without finish reason and `[DONE]`.
    pub(crate) fn truncate_after(self, frames: usize) -> Self {
        self.edit(Edit::End(frames, None))
    }

    /// Closes the connection after this many frames, in the middle of the body.
    pub(crate) fn cut_after(self, frames: usize) -> Self {
        self.edit(Edit::End(frames, Some(Part::Cut)))
    }

    /// Resets the connection after this many frames.
    pub(crate) fn reset_after(self, frames: usize) -> Self {
        self.edit(Edit::End(frames, Some(Part::Reset)))
    }

    /// Falls silent after this many frames; the connection stays open.
    pub(crate) fn hang_after(self, frames: usize) -> Self {
        self.edit(Edit::End(frames, Some(Part::Hang)))
    }

    /// The answer to a request.
    pub(crate) fn spell(&self, spelling: &Spelling) -> HttpReply {
        let (status, content_type, frames) = match &self.kind {
            Kind::Chat(chat) if spelling.stream => (
                200,
                "text/event-stream; charset=utf-8",
                chat.frames(spelling),
            ),
            Kind::Chat(chat) => {
                let body = chat.completion(spelling).to_string();
                (200, "application/json", vec![body.into()])
            }
            Kind::Frames(frames) => (200, "text/event-stream; charset=utf-8", frames.clone()),
            Kind::Whole(whole) => {
                let mut whole = whole.clone();
                for (name, value) in &self.headers {
                    whole.headers.retain(|(known, _)| known != name);
                    whole.headers.push((name.clone(), value.clone()));
                }
                whole.before_head.clone_from(&self.before_head);
                return whole;
            }
        };
        let mut headers = vec![("server".to_owned(), "uvicorn".to_owned())];
        if !self.headers.iter().any(|(name, _)| name == "content-type") {
            headers.push(("content-type".to_owned(), content_type.to_owned()));
        }
        headers.extend(self.headers.iter().cloned());
        HttpReply {
            status,
            headers,
            before_head: self.before_head.clone(),
            body: self.edited(frames),
        }
    }

    fn said(mut self, change: impl FnOnce(&mut Chat)) -> Self {
        match &mut self.kind {
            Kind::Chat(chat) => change(chat),
            Kind::Frames(_) | Kind::Whole(_) => panic!("this reply is no answer of a model"),
        }
        self
    }

    fn edit(mut self, edit: Edit) -> Self {
        self.edits.push(edit);
        self
    }

    fn edited(&self, frames: Vec<Bytes>) -> Vec<Part> {
        let mut parts = Vec::new();
        for (position, frame) in frames.into_iter().enumerate() {
            for edit in &self.edits {
                match edit {
                    Edit::Each(gate) => parts.push(Part::Wait(gate.clone())),
                    Edit::Before(at, part) if *at == position => parts.push(part.clone()),
                    Edit::End(at, last) if *at == position => {
                        parts.extend(last.clone());
                        return parts;
                    }
                    Edit::Before(..) | Edit::End(..) => {}
                }
            }
            parts.push(Part::Bytes(frame));
        }
        parts
    }
}
