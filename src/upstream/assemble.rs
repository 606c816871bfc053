//! Assembles the streamed pieces of one model reply.
//!
//! The assembler decides which piece of a tool call belongs to which call. Some servers omit indexes, ids or both, repeat
//! names or send a call twice. It also replaces the upstream's call ids: clients may receive them, so that they must be
//! unique and unguessable.
//!
//! Last, it decides whether a reply is complete, cut or failed.

mod call;

use self::call::CallInPieces;
pub use super::reply::{AssembledCall, ModelReply};
use protocol::ids::{CallIdStyle, shown};
use protocol::openai::ending::AnswerEnd;
use protocol::openai::event::{ModelEvent, ToolCallDelta};
use protocol::openai::fold::FoldedFields;
use protocol::openai::raw::quoted;
use protocol::openai::usage::{FinishReason, Usage};

/// Most tool calls of one reply, as a model that makes more is broken. A reply with more is an error.
/// Tried by `assemble::one_call_too_many_is_refused`.
pub(crate) const MAX_CALLS: usize = 128;

/// The field of a message's content.
const CONTENT: &str = "content";

/// A reply has more than [`MAX_CALLS`] tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_CALLS} tool calls")]
pub struct TooManyCalls;

/// Why a reply is neither complete nor cut at a limit: how the upstream ended it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncompleteReply {
    /// The finish reason means a failure or is unknown.
    #[error("the model server ended its answer with the finish reason {0}")]
    Failed(String),
    /// Without a word, and before anything whole had come.
    #[error("the model server ended its answer without a finish reason, before it was complete")]
    Unstated,
    /// For calls that did not come.
    #[error("the model server ended its answer for tool calls and sent none")]
    NoCalls,
}

/// Assembles a reply from its events.
#[derive(Debug, Default)]
pub struct ReplyAssembler {
    split_names: bool,
    text: String,
    reasoning: Option<(String, &'static str)>,
    /// The content, if it is more than the text.
    parts: FoldedFields,
    calls: Vec<CallInPieces>,
    end: Option<AnswerEnd>,
    usage: Option<Usage>,
    model: Option<String>,
    extra: FoldedFields,
}

impl ReplyAssembler {
    /// Makes an assembler; with `split_names` the pieces of a call's name are joined, otherwise a repeated name is the
    /// same name again.
    pub fn new(split_names: bool) -> Self {
        Self {
            split_names,
            ..Self::default()
        }
    }

    /// Adds the next event.
    ///
    /// # Errors
    /// When it starts more than [`MAX_CALLS`] tool calls.
    pub fn push(&mut self, event: &ModelEvent) -> Result<(), TooManyCalls> {
        match event {
            ModelEvent::Text(text) => self.text.push_str(text),
            ModelEvent::Reasoning { text, field } => self.push_reasoning(text, field),
            ModelEvent::TextWasReasoning { field } => {
                let text = std::mem::take(&mut self.text);
                self.push_reasoning(&text, field);
            }
            ModelEvent::Parts(parts) => {
                if self.parts.is_empty() && !self.text.is_empty() {
                    let text = format!(r#"[{{"type":"text","text":{}}}]"#, quoted(&self.text));
                    self.parts.push(CONTENT, &text);
                }
                self.parts.push(CONTENT, &format!("[{}]", parts.join(",")));
            }
            ModelEvent::ToolCall(delta) => return self.push_call(delta),
            ModelEvent::DeltaExtra(fields) => {
                for (key, value) in fields {
                    self.extra.push(key, value);
                }
            }
            ModelEvent::Finish(end) => self.end = Some(end.clone()),
            ModelEvent::Usage(usage) => self.usage = Some(usage.clone()),
            ModelEvent::Model(model) => self.model = Some(model.clone()),
            ModelEvent::ChoiceExtra(_) | ModelEvent::ChunkExtra(_) => {}
        }
        Ok(())
    }

    /// What has arrived of the last call's arguments since the last time: the call's index, its id, its name and the piece.
    /// Nothing while the arguments may still be replaced.
    pub fn next_arguments(&mut self, style: CallIdStyle) -> Option<(usize, String, &str, &str)> {
        let index = self.calls.len().checked_sub(1)?;
        let (id, name, piece) = self.calls.last_mut()?.next_arguments(style)?;
        Some((index, id, name, piece))
    }

    /// Ends the reply; every call gets a fresh id. `withheld` says that the model was to make no calls.
    ///
    /// # Errors
    /// When the upstream did not end it as a complete one, or as one that was cut at a limit.
    pub fn finish(self, style: CallIdStyle, withheld: bool) -> Result<ModelReply, IncompleteReply> {
        let end = self.end.clone();
        let mut calls = self.calls.iter().filter(|call| !call.is_empty());
        let calls_are_whole = calls.all(CallInPieces::is_whole);
        let mut reply = self.so_far(style);
        let has_calls = !reply.calls.is_empty();
        reply.finish = match end {
            Some(AnswerEnd::Failed(word)) => {
                return Err(IncompleteReply::Failed(quoted(&shown(&word))));
            }
            Some(AnswerEnd::Reason(FinishReason::Stop)) if has_calls => FinishReason::ToolCalls,
            Some(AnswerEnd::Reason(FinishReason::ToolCalls)) if !has_calls && withheld => {
                FinishReason::Stop
            }
            Some(AnswerEnd::Reason(FinishReason::ToolCalls)) if !has_calls => {
                return Err(IncompleteReply::NoCalls);
            }
            Some(AnswerEnd::Reason(reason)) => reason,
            Some(AnswerEnd::Unstated) | None => match has_calls {
                true if calls_are_whole => FinishReason::ToolCalls,
                false if reply.has_answer() => FinishReason::Stop,
                true | false => return Err(IncompleteReply::Unstated),
            },
        };
        Ok(reply)
    }

    /// The reply received so far; every call gets a fresh id.
    pub fn so_far(self, style: CallIdStyle) -> ModelReply {
        let calls: Vec<AssembledCall> = self
            .calls
            .into_iter()
            .filter(|call| !call.is_empty())
            .map(|call| call.assembled(style))
            .collect();
        let parts = self.parts.into_entries().next().map(|(_, parts)| parts);
        // The parts of such a content hold the reasoning.
        let in_parts = parts
            .as_deref()
            .is_some_and(|parts| parts.contains(r#""thinking""#));
        ModelReply {
            text: self.text,
            parts,
            reasoning: self.reasoning.filter(|_| !in_parts),
            calls,
            finish: FinishReason::Stop,
            usage: self.usage,
            model: self.model,
            extra: self.extra.into_entries().collect(),
            origin: None,
        }
    }

    fn push_reasoning(&mut self, text: &str, field: &'static str) {
        match &mut self.reasoning {
            Some((all, _)) if !all.is_empty() => all.push_str(text),
            // A field with nothing in it says less than one with a text.
            Some(_) | None => self.reasoning = Some((text.to_owned(), field)),
        }
    }

    fn push_call(&mut self, delta: &ToolCallDelta) -> Result<(), TooManyCalls> {
        let split_names = self.split_names;
        let open = self
            .position_of(delta)
            .and_then(|position| self.calls.get_mut(position));
        if let Some(call) = open
            && !call.is_followed_by(delta, split_names)
        {
            call.take(delta, split_names);
            return Ok(());
        }
        if self.calls.len() >= MAX_CALLS {
            return Err(TooManyCalls);
        }
        let mut call = CallInPieces::default();
        call.take(delta, split_names);
        self.calls.push(call);
        Ok(())
    }

    /// The position of the open call that a piece seems to belong to, if any.
    ///
    /// A linear search suffices for [`MAX_CALLS`] calls.
    fn position_of(&self, delta: &ToolCallDelta) -> Option<usize> {
        let with_id = || {
            let id = delta.id.as_ref()?;
            self.calls
                .iter()
                .rposition(|call| call.id.as_ref() == Some(id))
        };
        if let Some(index) = delta.index {
            let with_index = self
                .calls
                .iter()
                .rposition(|call| call.index == Some(index));
            // The first piece of a call may have only an id and the later ones only an index.
            with_index.or_else(|| with_id().filter(|position| self.index_at(*position).is_none()))
        } else {
            with_id().or_else(|| self.calls.len().checked_sub(1))
        }
    }

    fn index_at(&self, position: usize) -> Option<u32> {
        self.calls.get(position).and_then(|call| call.index)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::call::ObjectScan;
    use super::*;
    use protocol::openai::tool::{CallKind, CallMembers};

    /// A piece written as index, id, name, arguments. `-` stands for a missing value; `=` before the arguments marks them as
    /// whole.
    fn piece(index: &str, id: &str, name: &str, arguments: &str) -> ToolCallDelta {
        let given = |text: &str| (text != "-").then(|| text.to_owned());
        ToolCallDelta {
            index: index.parse().ok(),
            id: given(id),
            name: given(name),
            arguments: given(arguments.trim_start_matches('=')),
            whole: arguments.starts_with('='),
            kind: CallKind::Function,
            text_form: None,
            members: CallMembers::default(),
        }
    }

    fn assemble(split_names: bool, pieces: &[ToolCallDelta]) -> Vec<(String, String)> {
        let mut assembler = ReplyAssembler::new(split_names);
        for piece in pieces {
            assembler
                .push(&ModelEvent::ToolCall(piece.clone()))
                .unwrap();
        }
        let reply = assembler.so_far(CallIdStyle::Standard);
        reply
            .calls
            .into_iter()
            .map(|it| (it.call.name, it.call.arguments))
            .collect()
    }

    fn check(what: &str, pieces: &[[&str; 4]], expected: &[(&str, &str)]) {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|[index, id, name, arguments]| piece(index, id, name, arguments))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned()))
            .collect();
        assert_eq!(assemble(false, &pieces), expected, "{what}");
    }

    #[test]
    fn pieces_with_an_index_or_an_id_find_their_call() {
        check(
            "as OpenAI does",
            &[
                ["0", "a", "f", "-"],
                ["0", "-", "-", "{\"x\""],
                ["0", "-", "-", ":1}"],
                ["1", "b", "g", "-"],
                ["1", "-", "-", "{}"],
            ],
            &[("f", "{\"x\":1}"), ("g", "{}")],
        );
        check(
            "interleaved",
            &[
                ["0", "a", "f", "{"],
                ["1", "b", "f", "{"],
                ["0", "-", "-", "}"],
                ["1", "-", "-", "\"y\":2}"],
            ],
            &[("f", "{}"), ("f", "{\"y\":2}")],
        );
        check(
            "no index, id repeated",
            &[
                ["-", "a", "f", "{"],
                ["-", "b", "g", "{"],
                ["-", "a", "-", "}"],
                ["-", "b", "-", "}"],
            ],
            &[("f", "{}"), ("g", "{}")],
        );
        check(
            "no index, id only at first",
            &[
                ["-", "a", "f", "{"],
                ["-", "-", "-", "}"],
                ["-", "b", "f", "{"],
                ["-", "-", "-", "}"],
            ],
            &[("f", "{}"), ("f", "{}")],
        );
    }

    #[test]
    fn ids_and_names_may_come_with_every_piece() {
        for index in ["0", "-"] {
            check(
                "one call, white space after its end",
                &[
                    [index, "a", "f", "{\"x\""],
                    [index, "a", "f", ":1"],
                    [index, "a", "f", "}"],
                    [index, "a", "f", " "],
                    [index, "a", "f", "-"],
                ],
                &[("f", "{\"x\":1} ")],
            );
        }
        check(
            "two calls of one tool",
            &[
                ["0", "a", "f", "{"],
                ["0", "a", "f", "}"],
                ["1", "b", "f", "{"],
                ["1", "b", "f", "}"],
            ],
            &[("f", "{}"), ("f", "{}")],
        );
    }

    #[test]
    fn calls_with_missing_or_changing_ids_are_assembled() {
        check(
            "same index, different ids",
            &[
                ["0", "a", "f", "{}"],
                ["0", "b", "f", "{"],
                ["0", "-", "-", "}"],
            ],
            &[("f", "{}"), ("f", "{}")],
        );
        check(
            "a fresh id with every piece",
            &[
                ["0", "a", "f", "-"],
                ["0", "b", "-", "{"],
                ["0", "c", "-", "}"],
            ],
            &[("f", "{}")],
        );
        check(
            "a fresh id with every piece and no index",
            &[
                ["-", "a", "f", "-"],
                ["-", "b", "-", "{"],
                ["-", "c", "-", "}"],
            ],
            &[("f", "{}")],
        );
        check(
            "the id first, the name later",
            &[
                ["0", "a", "-", "-"],
                ["0", "-", "f", "-"],
                ["0", "-", "-", "{}"],
            ],
            &[("f", "{}")],
        );
        check(
            "the index comes later than the id",
            &[["-", "a", "f", "{"], ["0", "a", "-", "}"]],
            &[("f", "{}")],
        );
        check(
            "the index goes missing",
            &[["0", "a", "f", "{"], ["-", "-", "-", "}"]],
            &[("f", "{}")],
        );
    }

    #[test]
    fn calls_without_index_and_id_are_distinguished_by_name_and_wholeness() {
        check(
            "one call in pieces",
            &[["-", "-", "f", "{"], ["-", "-", "-", "}"]],
            &[("f", "{}")],
        );
        check(
            "another name",
            &[["-", "-", "f", "{}"], ["-", "-", "g", "{}"]],
            &[("f", "{}"), ("g", "{}")],
        );
        check(
            "the same name after whole arguments",
            &[["-", "-", "f", "{\"a\":1}"], ["-", "-", "f", "{\"a\":2}"]],
            &[("f", "{\"a\":1}"), ("f", "{\"a\":2}")],
        );
        check(
            "whole calls with nothing else",
            &[["-", "-", "f", "={}"], ["-", "-", "f", "={}"]],
            &[("f", "{}"), ("f", "{}")],
        );
        check(
            "whole calls that all have index 0",
            &[
                ["0", "-", "f", "={\"a\":1}"],
                ["0", "-", "f", "={\"a\":2}"],
                ["0", "-", "g", "={}"],
            ],
            &[("f", "{\"a\":1}"), ("f", "{\"a\":2}"), ("g", "{}")],
        );
        check(
            "a nameless beginning",
            &[["-", "-", "-", "{}"]],
            &[("", "{}")],
        );
        check("nothing but ids", &[["0", "a", "-", "-"]], &[]);
    }

    #[test]
    fn repetition_is_no_second_call() {
        check(
            "the name with every piece",
            &[
                ["0", "a", "f", "{"],
                ["0", "a", "f", "\"a\":{}"],
                ["0", "a", "f", "}"],
            ],
            &[("f", "{\"a\":{}}")],
        );
        check(
            "the whole call after its pieces",
            &[
                ["0", "a", "f", "{\"a\":"],
                ["0", "a", "f", "={\"a\":1}"],
                ["0", "a", "f", "={\"a\":1}"],
            ],
            &[("f", "{\"a\":1}")],
        );
        check(
            "the whole call after its pieces, by index only",
            &[
                ["0", "-", "f", "{\"a\":1}"],
                ["0", "-", "f", "={\"a\":1}"],
                ["0", "-", "f", "={\"a\":1}"],
            ],
            &[("f", "{\"a\":1}")],
        );
        check(
            "an empty object before the pieces",
            &[
                ["0", "a", "f", "={}"],
                ["0", "-", "-", "{\"a\""],
                ["0", "-", "-", ":1}"],
            ],
            &[("f", "{\"a\":1}")],
        );
        check(
            "the text of an empty object before the pieces",
            &[
                ["0", "a", "f", "{}"],
                ["0", "-", "-", "-"],
                ["0", "-", "f", "{\"a\""],
                ["0", "-", "-", ":1}"],
            ],
            &[("f", "{\"a\":1}")],
        );
        check(
            "the text of an empty object before the object",
            &[["0", "a", "f", "={ }\n{\"a\":1}"]],
            &[("f", "\n{\"a\":1}")],
        );
        check(
            "the name grows",
            &[["0", "-", "get", "-"], ["0", "-", "get_x", "{}"]],
            &[("get_x", "{}")],
        );
    }

    #[test]
    fn split_names_are_joined_only_where_the_server_splits_them() {
        let pieces = [
            piece("0", "a", "get_", "-"),
            piece("0", "-", "get_", "-"),
            piece("0", "-", "-", "{}"),
        ];
        assert_eq!(
            assemble(true, &pieces),
            [("get_get_".to_owned(), "{}".to_owned())]
        );
        assert_eq!(
            assemble(false, &pieces),
            [("get_".to_owned(), "{}".to_owned())]
        );
    }

    #[test]
    fn ids_are_fresh_and_of_the_wanted_style() {
        let mut assembler = ReplyAssembler::new(false);
        for index in ["0", "1"] {
            assembler
                .push(&ModelEvent::ToolCall(piece(index, "same", "f", "{}")))
                .unwrap();
        }
        let reply = assembler.so_far(CallIdStyle::Short);
        assert_eq!(reply.calls[0].upstream_id.as_deref(), Some("same"));
        assert_eq!(reply.calls[0].call.id.len(), 9);
        assert_ne!(reply.calls[0].call.id, reply.calls[1].call.id);
    }

    #[test]
    fn one_call_too_many_is_refused() {
        let mut assembler = ReplyAssembler::new(false);
        let call = |nth: usize| ModelEvent::ToolCall(piece(&nth.to_string(), "-", "f", "{"));
        for nth in 0..MAX_CALLS {
            assembler.push(&call(nth)).unwrap();
        }
        assert_eq!(assembler.push(&call(MAX_CALLS)), Err(TooManyCalls));
        let more = ModelEvent::ToolCall(piece("7", "-", "-", "}"));
        assembler.push(&more).unwrap();
    }

    #[test]
    fn a_long_answer_is_assembled_in_time() {
        let began = std::time::Instant::now();
        let mut assembler = ReplyAssembler::new(false);
        // Every piece looks as if it could be the end of a whole object.
        let mut push = |arguments: &str| {
            let piece = piece("0", "a", "f", arguments);
            assembler.push(&ModelEvent::ToolCall(piece)).unwrap();
        };
        push(&format!("{{\"a\":\"{}", "x".repeat(1 << 20)));
        for _ in 0..20_000 {
            push("}");
        }
        let extra = |nth: usize| (nth.to_string(), Box::from("\"x\""));
        let extras = ModelEvent::DeltaExtra((0..256).map(extra).collect());
        for _ in 0..2_000 {
            assembler.push(&extras).unwrap();
        }
        assert_eq!(assembler.so_far(CallIdStyle::Standard).extra.len(), 256);
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }

    /// How a reply with this text, these arguments of a call and this end is finished.
    fn ended(
        text: &str,
        arguments: Option<&str>,
        end: AnswerEnd,
    ) -> Result<FinishReason, IncompleteReply> {
        let mut assembler = ReplyAssembler::new(false);
        assembler.push(&ModelEvent::Text(text.into())).unwrap();
        if let Some(arguments) = arguments {
            let call = ModelEvent::ToolCall(piece("0", "a", "f", arguments));
            assembler.push(&call).unwrap();
        }
        assembler.push(&ModelEvent::Finish(end)).unwrap();
        let reply = assembler.finish(CallIdStyle::Standard, false)?;
        Ok(reply.finish)
    }

    #[test]
    fn the_finish_agrees_with_the_calls() {
        use FinishReason::{ContentFilter, Length, Stop, ToolCalls};
        for (reason, calls, expected) in [
            (Stop, true, ToolCalls),
            (ToolCalls, true, ToolCalls),
            (Length, true, Length),
            (ContentFilter, true, ContentFilter),
            (Stop, false, Stop),
            (Length, false, Length),
        ] {
            let finish = ended("", calls.then_some("{}"), AnswerEnd::Reason(reason));
            assert_eq!(finish, Ok(expected), "{reason:?} {calls}");
        }
    }

    #[test]
    fn a_reply_without_a_good_end_is_not_complete() {
        use IncompleteReply::{Failed, NoCalls, Unstated};
        let failed = || AnswerEnd::Failed("abort".into());
        let calls = || AnswerEnd::Reason(FinishReason::ToolCalls);
        for (text, arguments, end, expected) in [
            ("a", None, failed(), Failed("\"abort\"".into())),
            ("", Some("{}"), failed(), Failed("\"abort\"".into())),
            ("a", None, calls(), NoCalls),
            ("", None, AnswerEnd::Unstated, Unstated),
            (" \n", None, AnswerEnd::Unstated, Unstated),
            ("a", Some("{\"a\":1"), AnswerEnd::Unstated, Unstated),
            ("a", Some("-"), AnswerEnd::Unstated, Unstated),
        ] {
            assert_eq!(
                ended(text, arguments, end.clone()),
                Err(expected),
                "{end:?}"
            );
        }
        let unstated = |text, arguments| ended(text, arguments, AnswerEnd::Unstated);
        assert_eq!(unstated("a", None), Ok(FinishReason::Stop));
        assert_eq!(unstated("", Some("{}")), Ok(FinishReason::ToolCalls));
        // A reply that was to have no calls.
        let mut assembler = ReplyAssembler::new(false);
        assembler.push(&ModelEvent::Finish(calls())).unwrap();
        let reply = assembler.finish(CallIdStyle::Standard, true).unwrap();
        assert_eq!(reply.finish, FinishReason::Stop);
    }

    #[test]
    fn the_last_finish_counts() {
        let mut assembler = ReplyAssembler::new(false);
        for word in ["abort", "stop", "length"] {
            let end = AnswerEnd::of_word(word).unwrap();
            assembler.push(&ModelEvent::Finish(end)).unwrap();
        }
        let reply = assembler.finish(CallIdStyle::Standard, false).unwrap();
        assert_eq!(reply.finish, FinishReason::Length);
    }

    #[test]
    fn members_of_a_call_are_kept_whenever_they_come() {
        let with = |beside: &[(&str, &str)], inside: &[(&str, &str)], arguments: &str| {
            let owned = |list: &[(&str, &str)]| {
                let list = list.iter();
                list.map(|(key, json)| ((*key).to_owned(), Box::from(*json)))
                    .collect()
            };
            let members = CallMembers {
                beside: owned(beside),
                inside: owned(inside),
            };
            let piece = piece("0", "a", "f", arguments);
            ModelEvent::ToolCall(ToolCallDelta { members, ..piece })
        };
        let mut assembler = ReplyAssembler::new(false);
        for event in [
            with(
                &[("extra_content", r#"{"google":{"thought_signature":"U0"}}"#)],
                &[],
                "{}",
            ),
            with(
                &[("extra_content", r#"{"google":{"thought_signature":"lH"}}"#)],
                &[],
                "-",
            ),
            with(&[], &[("provider_specific_fields", r#"{"a":1.0}"#)], "-"),
        ] {
            assembler.push(&event).unwrap();
        }
        let reply = assembler.so_far(CallIdStyle::Standard);
        let json = reply.calls[0].call.to_json(None);
        let id = &reply.calls[0].call.id;
        assert_eq!(
            json,
            format!(
                r#"{{"id":"{id}","type":"function","function":{{"name":"f","arguments":"{{}}","provider_specific_fields":{{"a":1.0}}}},"extra_content":{{"google":{{"thought_signature":"U0lH"}}}}}}"#
            )
        );
    }

    #[test]
    fn parts_of_the_content_are_kept_whole() {
        let mut assembler = ReplyAssembler::new(false);
        let parts =
            |list: &[&str]| ModelEvent::Parts(list.iter().map(|part| Box::from(*part)).collect());
        let text = |text: &str| ModelEvent::Text(text.into());
        for event in [
            text("a"),
            parts(&[r#"{"type":"thinking","thinking":[{"type":"text","text":"h"}]}"#]),
            parts(&[r#"{"type":"thinking","thinking":[{"type":"text","text":"m"}]}"#]),
            parts(&[r#"{"type":"text","text":"b"}"#]),
            text("b"),
            parts(&[
                r#"{"type":"text","text":"c"}"#,
                r#"{"type":"image_url","image_url":{"url":"u"}}"#,
            ]),
            text("c"),
        ] {
            assembler.push(&event).unwrap();
        }
        let reply = assembler.so_far(CallIdStyle::Standard);
        assert_eq!(reply.text, "abc");
        assert!(reply.has_answer());
        assert_eq!(
            reply.parts.as_deref(),
            Some(
                r#"[{"type":"text","text":"a"},{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"bc"},{"type":"image_url","image_url":{"url":"u"}}]"#
            )
        );
    }

    #[test]
    fn everything_else_is_collected() {
        let mut assembler = ReplyAssembler::new(false);
        let usage = |json: &str| Usage::parse(json).unwrap();
        let reasoning = |text: &str| ModelEvent::Reasoning {
            text: text.into(),
            field: "thinking",
        };
        let extra = |key: &str, json: &str| ModelEvent::DeltaExtra(vec![(key.into(), json.into())]);
        for event in [
            ModelEvent::Model("m".into()),
            reasoning("r1"),
            reasoning("r2"),
            ModelEvent::Text("a".into()),
            ModelEvent::Text("b".into()),
            extra("refusal", "\"no\""),
            extra("refusal", "\"\\n!\""),
            extra("annotations", "[]"),
            extra("annotations", "[1, 2]"),
            extra("annotations", "[3]"),
            extra("audio", "{\"id\":1}"),
            extra("audio", "{\"id\":2}"),
            ModelEvent::Usage(usage("{\"total_tokens\":1}")),
            ModelEvent::Usage(usage("{\"total_tokens\":2}")),
            ModelEvent::ChunkExtra(vec![("x".into(), "1".into())]),
        ] {
            assembler.push(&event).unwrap();
        }
        assert_eq!(
            assembler.so_far(CallIdStyle::Standard),
            ModelReply {
                text: "ab".into(),
                parts: None,
                reasoning: Some(("r1r2".into(), "thinking")),
                calls: Vec::new(),
                finish: FinishReason::Stop,
                usage: Some(usage("{\"total_tokens\":2}")),
                model: Some("m".into()),
                extra: vec![
                    ("refusal".into(), "\"no\\n!\"".into()),
                    ("annotations".into(), "[1,2,3]".into()),
                    ("audio".into(), "{\"id\":2}".into()),
                ],
                origin: None,
            }
        );
    }

    #[test]
    fn text_may_turn_out_to_be_reasoning() {
        for before in [None, Some("Hm. ")] {
            let mut assembler = ReplyAssembler::new(false);
            let reasoning = before.map(|text| ModelEvent::Reasoning {
                text: text.to_owned(),
                field: "thinking",
            });
            let text = |text: &str| ModelEvent::Text(text.to_owned());
            let was = ModelEvent::TextWasReasoning { field: "reasoning" };
            for event in reasoning
                .into_iter()
                .chain([text("a"), text("b"), was, text("c")])
            {
                assembler.push(&event).unwrap();
            }
            let reply = assembler.so_far(CallIdStyle::Standard);
            let expected = match before {
                None => ("ab".to_owned(), "reasoning"),
                Some(before) => (format!("{before}ab"), "thinking"),
            };
            assert_eq!(
                (reply.text.as_str(), reply.reasoning),
                ("c", Some(expected))
            );
        }
    }

    /// Cuts a text at the given places.
    fn cut(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
        places.extend([0, chars.len()]);
        places.sort_unstable();
        places
            .windows(2)
            .map(|pair| chars[pair[0]..pair[1]].iter().collect())
            .collect()
    }

    proptest! {
        #[test]
        fn a_whole_object_is_found_as_soon_as_it_is_whole(
            pieces in prop::collection::vec("[{}\\[\\]\"\\\\ a:1]{0,4}", 0..12),
        ) {
            let mut scan = ObjectScan::default();
            let mut text = String::new();
            for piece in pieces.iter().map(String::as_str).chain(["{\"}\": {}", "}", " ", "x"]) {
                text.push_str(piece);
                let whole = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text);
                prop_assert_eq!(scan.finds_whole_object(&text), whole.is_ok(), "{}", text);
            }
        }

        #[test]
        fn any_fragmentation_equals_the_whole(
            calls in prop::collection::vec(
                ("[a-z_]{1,8}", "[\\x20-\\x7eäß😀\\n]{0,24}", prop::collection::vec(any::<prop::sample::Index>(), 0..5)),
                1..5,
            ),
            order in prop::collection::vec(any::<prop::sample::Index>(), 32),
            repeat_names: bool,
            ids: bool,
        ) {
            let whole: Vec<(String, String)> = calls
                .iter()
                .map(|(name, text, _)| (name.clone(), serde_json::json!({ "text": text }).to_string()))
                .collect();
            let mut queues: Vec<std::collections::VecDeque<ToolCallDelta>> = calls
                .iter()
                .zip(&whole)
                .enumerate()
                .map(|(place, ((name, _, cuts), (_, arguments)))| {
                    cut(arguments, cuts)
                        .into_iter()
                        .enumerate()
                        .map(|(nth, part)| ToolCallDelta {
                            index: Some(u32::try_from(place).unwrap()),
                            id: (ids && nth == 0).then(|| format!("call_{place}")),
                            name: (nth == 0 || repeat_names).then(|| name.clone()),
                            arguments: (!part.is_empty()).then_some(part),
                            ..ToolCallDelta::default()
                        })
                        .collect()
                })
                .collect();
            // The first pieces come in the order of the calls, the rest interleaved at will.
            let mut pieces: Vec<_> = queues.iter_mut().filter_map(std::collections::VecDeque::pop_front).collect();
            for pick in order {
                let filled: Vec<usize> = (0..queues.len()).filter(|place| !queues[*place].is_empty()).collect();
                if !filled.is_empty() {
                    pieces.extend(queues[filled[pick.index(filled.len())]].pop_front());
                }
            }
            pieces.extend(queues.into_iter().flatten());
            prop_assert_eq!(assemble(false, &pieces), whole);
        }
    }
}
