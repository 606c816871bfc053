//! Calls about which the client is asked: the items with the questions, and the items of calls that may have to wait.
//!
//! A call that waits has no item but the question. So the item of a call that may wait begins once it is known that the call
//! runs, and the items behind it in its batch begin after it.

use std::collections::VecDeque;

use bytes::BytesMut;
use serde_json::json;

use super::ResponseEncoder;
use super::items::ItemPlace;
use crate::dialects::chat::encode::PendingApproval;
use agent::event::{Calling, ToolCallRecord, WaitingCall};
use protocol::ids::SessionId;

/// The calls of a batch whose items have not begun.
#[derive(Debug, Default)]
pub(super) struct HeldCalls(VecDeque<HeldCall>);

#[derive(Debug)]
struct HeldCall {
    calling: Calling,
    /// The call may have to wait; nothing else has happened yet.
    may_wait: bool,
    /// It has ended.
    record: Option<Box<ToolCallRecord>>,
}

impl HeldCalls {
    fn find(&mut self, call_id: &str) -> Option<&mut HeldCall> {
        let mut held = self.0.iter_mut();
        held.find(|held| held.calling.tool_call_id == call_id)
    }
}

impl ResponseEncoder {
    /// A server-side call starts.
    pub(super) fn calling(&mut self, calling: Calling, out: &mut BytesMut) {
        self.end_texts(true, "completed", out);
        let server = calling.on_server.as_ref();
        let may_wait = calling.may_wait
            && server.is_some_and(|remote| self.options.asks_client(&remote.server));
        self.held.0.push_back(HeldCall {
            calling,
            may_wait,
            record: None,
        });
        self.release(out);
    }

    /// A server-side call has ended.
    pub(super) fn complete(&mut self, record: Box<ToolCallRecord>, out: &mut BytesMut) {
        match self.held.find(&record.tool_call_id) {
            Some(held) => {
                held.may_wait = false;
                held.record = Some(record);
                self.release(out);
            }
            None => self
                .calls
                .end(&record, &mut self.items, &mut self.events, out),
        }
    }

    /// A server-side call has begun to write.
    pub(super) fn runs(&mut self, call_id: &str, out: &mut BytesMut) {
        if let Some(held) = self.held.find(call_id) {
            held.may_wait = false;
            self.release(out);
        }
    }

    /// A server-side call waits for a person.
    pub(super) fn waits(&mut self, call: &WaitingCall, out: &mut BytesMut) {
        let id = &call.of.tool_call_id;
        self.held.0.retain(|held| held.calling.tool_call_id != *id);
        self.release(out);
    }

    /// Reports that a person is asked about a call for which there will be no item, for clients that ask for it.
    pub(super) fn asks(
        &mut self,
        call: &WaitingCall,
        session: Option<&SessionId>,
        out: &mut BytesMut,
    ) {
        let server = call.of.on_server.as_ref();
        if server.is_some_and(|remote| self.options.asks_client(&remote.server)) {
            return;
        }
        let approval = serde_json::to_string(&PendingApproval::new(call, session));
        let members = format!("\"approval\":{}", approval.unwrap_or_default());
        self.events
            .write("loopwright.approval_required", &members, out);
    }

    /// Begins the items of all calls that have none.
    pub(super) fn release_all(&mut self, out: &mut BytesMut) {
        for held in &mut self.held.0 {
            held.may_wait = false;
        }
        self.release(out);
    }

    fn release(&mut self, out: &mut BytesMut) {
        while let Some(HeldCall {
            calling, record, ..
        }) = self.held.0.pop_front_if(|held| !held.may_wait)
        {
            let id = calling.tool_call_id.clone();
            let (items, events) = (&mut self.items, &mut self.events);
            self.calls.start(calling, items, events, out);
            self.client_calls.after(&id, items, events, out);
            if let Some(record) = record {
                self.calls.end(&record, items, events, out);
            }
        }
    }

    /// Adds the questions about the calls that wait.
    pub(super) fn ask(&mut self, waiting: &[WaitingCall], out: &mut BytesMut) {
        for WaitingCall { of, wait } in waiting {
            let Some(remote) = &of.on_server else {
                continue;
            };
            if !self.options.asks_client(&remote.server) {
                continue;
            }
            let place = ItemPlace {
                id: wait.id.item_id(),
                ..ItemPlace::next("mcpr", &self.run, &mut self.items)
            };
            let item = json!({
                "type": "mcp_approval_request", "id": place.id, "server_label": remote.server, "name": remote.name,
                "arguments": of.arguments,
            });
            let item = item.to_string();
            place.added(&item, &mut self.events, out);
            place.done(item, &mut self.items, &mut self.events, out);
        }
    }
}
