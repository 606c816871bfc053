//! The items of calls that the client runs.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use serde_json::json;

use super::events::EventWriter;
use super::items::ItemPlace;
use crate::dialects::responses::decode::ResponseOptions;
use crate::dialects::responses::decode::names::custom_input;
use agent::event::{ArgumentsPiece, RoundCall};
use protocol::ids::RunId;
use protocol::openai::raw::quoted;
use protocol::openai::tool::{CallKind, ToolCall};

/// The client's calls of a response.
#[derive(Debug)]
pub(super) struct ClientCalls {
    run: RunId,
    options: Arc<ResponseOptions>,
    /// Calls whose arguments arrive, by their id.
    arriving: HashMap<String, ArrivingCall>,
    /// How many calls of this round have an item.
    begun: usize,
    /// Arguments of calls that stand behind one without an item, by the call's id.
    held: HashMap<String, String>,
    /// The calls of the round that have no item yet, in the order of the model.
    next: VecDeque<RoundCall>,
}

/// A call whose arguments arrive.
#[derive(Debug)]
struct ArrivingCall {
    place: ItemPlace,
    call_id: String,
    /// The name under which the model is offered it.
    name: String,
    is_custom: bool,
    /// What of the arguments was sent. The input of a custom tool is known with its end.
    sent: String,
}

impl ClientCalls {
    pub(super) fn new(run: &RunId, options: Arc<ResponseOptions>) -> Self {
        Self {
            run: run.clone(),
            options,
            arriving: HashMap::new(),
            begun: 0,
            held: HashMap::new(),
            next: VecDeque::new(),
        }
    }

    /// The calls of a round, once all are known.
    pub(super) fn end_round(
        &mut self,
        calls: &[RoundCall],
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        self.begun = 0;
        let is_new = |of: &&RoundCall| !self.arriving.contains_key(&of.id);
        self.next = calls.iter().filter(is_new).cloned().collect();
        self.begin_next(items, events, out);
    }

    /// A server-side call of the round has its item now.
    pub(super) fn after(
        &mut self,
        server_call: &str,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        if self.next.front().is_some_and(|of| of.id == server_call) {
            self.next.pop_front();
        }
        self.begin_next(items, events, out);
    }

    /// Begins the items of the calls up to the next server-side one.
    fn begin_next(
        &mut self,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        while let Some(RoundCall { id, name, kind, .. }) =
            self.next.pop_front_if(|of| of.is_of_client)
        {
            let is_custom = self.is_custom(kind, &name);
            let mut open = self.begin(&id, &name, is_custom, items, events, out);
            if let Some(held) = self.held.remove(&id).filter(|_| !is_custom) {
                open.delta(&held, events, out);
                open.sent = held;
            }
            self.arriving.insert(id, open);
        }
    }

    fn is_custom(&self, kind: CallKind, name: &str) -> bool {
        kind == CallKind::Custom || self.options.names.is_custom(name)
    }

    /// A piece of the arguments of a call.
    pub(super) fn arguments(
        &mut self,
        piece: &ArgumentsPiece,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        if !self.arriving.contains_key(&piece.call_id) {
            // The items stand in the order of the model, and the one before this is not known yet.
            if piece.index != self.begun {
                let held = self.held.entry(piece.call_id.clone()).or_default();
                held.push_str(&piece.piece);
                return;
            }
            self.begun += 1;
            let is_custom = self.options.names.is_custom(&piece.name);
            let call = self.begin(&piece.call_id, &piece.name, is_custom, items, events, out);
            self.arriving.insert(piece.call_id.clone(), call);
        }
        if let Some(call) = self.arriving.get_mut(&piece.call_id)
            && !call.is_custom
        {
            call.sent.push_str(&piece.piece);
            call.delta(&piece.piece, events, out);
        }
    }

    /// A call whose arguments are complete.
    pub(super) fn hand_over(
        &mut self,
        call: &ToolCall,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        let is_custom = self.is_custom(call.kind, &call.name);
        let text = match is_custom {
            true => custom_input(&call.arguments),
            false => call.arguments.clone(),
        };
        let open = match self.arriving.remove(&call.id) {
            Some(open) => open,
            None => self.begin(&call.id, &call.name, is_custom, items, events, out),
        };
        let rest = text.strip_prefix(&open.sent).unwrap_or_default();
        if !rest.is_empty() {
            open.delta(rest, events, out);
        }
        let (_, name) = self.options.names.split(&call.name);
        let (members, whole) = (open.place.members(), quoted(&text));
        let (kind, members) = match is_custom {
            true => (
                "response.custom_tool_call_input.done",
                format!("{members},\"input\":{whole}"),
            ),
            false => (
                "response.function_call_arguments.done",
                format!("{members},\"name\":{},\"arguments\":{whole}", quoted(name)),
            ),
        };
        events.write(kind, &members, out);
        let item = self.item(&open, &text, "completed");
        open.place.done(item, items, events, out);
    }

    /// Ends the calls that are not handed over after all.
    pub(super) fn interrupt(
        &mut self,
        items: &mut [Option<String>],
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) {
        let mut open: Vec<ArrivingCall> = self.arriving.drain().map(|(_, call)| call).collect();
        open.sort_by_key(|call| call.place.index);
        for call in open {
            let item = self.item(&call, &call.sent, "incomplete");
            call.place.done(item, items, events, out);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the items, the writer and the buffer are the encoder's"
    )]
    fn begin(
        &self,
        call_id: &str,
        name: &str,
        is_custom: bool,
        items: &mut Vec<Option<String>>,
        events: &mut EventWriter,
        out: &mut BytesMut,
    ) -> ArrivingCall {
        let prefix = if is_custom { "ctc" } else { "fc" };
        let call = ArrivingCall {
            place: ItemPlace::next(prefix, &self.run, items),
            call_id: call_id.to_owned(),
            name: name.to_owned(),
            is_custom,
            sent: String::new(),
        };
        let item = self.item(&call, "", "in_progress");
        call.place.added(&item, events, out);
        call
    }

    fn item(&self, call: &ArrivingCall, text: &str, status: &str) -> String {
        let (namespace, name) = self.options.names.split(&call.name);
        let (kind, key) = match call.is_custom {
            true => ("custom_tool_call", "input"),
            false => ("function_call", "arguments"),
        };
        let mut item = json!({
            "type": kind, "id": call.place.id, "call_id": call.call_id, "name": name, "status": status, key: text,
        });
        if let Some(namespace) = namespace {
            item["namespace"] = namespace.into();
        }
        item.to_string()
    }
}

impl ArrivingCall {
    fn delta(&self, text: &str, events: &mut EventWriter, out: &mut BytesMut) {
        let kind = match self.is_custom {
            true => "response.custom_tool_call_input.delta",
            false => "response.function_call_arguments.delta",
        };
        let before = format!("{},\"delta\":", self.place.members());
        events.write_text(kind, &before, text, "", out);
    }
}
