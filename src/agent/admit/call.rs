//! Admits a call outside of a turn.

use super::super::Agent;
use super::super::call::{LARGE_ARGUMENTS, Resolver};
use super::super::direct::{CallRequest, CallRequestError, CheckedCall};
use super::super::policy::{CallDecision, CallFacts};
use super::super::turn::{Caller, Globs, Permissions, ToolFilter};
use super::Defaults;
use net::polling::block_in_place_if;
use protocol::ids::{CallIdStyle, fresh_call_id};
use protocol::openai::tool::ToolCall;

impl Agent {
    /// Finds the tool of a call, and has its arguments repaired and validated.
    ///
    /// # Errors
    /// When the caller is offered no such tool, or the tool does not take the arguments.
    pub fn admit_call(&self, asked: CallRequest) -> Result<CheckedCall, CallRequestError> {
        let CallRequest {
            caller,
            name,
            arguments,
            session_id,
        } = asked;
        let services = &self.parts.tools;
        let (permissions, filter) = self.permitted(&caller);
        let sources = services.sources.snapshot_for(&caller.owner);
        let Some(tools) = sources.set_of_one(&name, &filter) else {
            let known = sources.callable();
            let known = known.map(|tool| tool.definition().name.clone());
            return Err(CallRequestError::UnknownTool {
                known: known.collect(),
            });
        };
        let resolver = Resolver {
            tools: &tools,
            gate: &services.gate,
            cut_off: false,
        };
        let long = arguments.len() > LARGE_ARGUMENTS;
        let call = ToolCall {
            id: fresh_call_id(CallIdStyle::Standard),
            name,
            arguments,
            ..ToolCall::default()
        };
        let mut call = block_in_place_if(long, || resolver.resolve_one(call));
        call.decision = match call.facts {
            CallFacts::Denied(_) => CallDecision::Deny,
            CallFacts::Unusable(_) => return Err(CallRequestError::Arguments(call.problem)),
            CallFacts::Server { .. } | CallFacts::Client | CallFacts::Unknown(_) => {
                CallDecision::Run
            }
        };
        for repair in &call.repairs {
            self.parts.metrics.call_repaired(*repair);
        }
        Ok(CheckedCall {
            caller,
            session_id,
            tools,
            permissions,
            call,
        })
    }

    /// What the server and the caller's key permit, and the tools that they offer.
    fn permitted(&self, caller: &Caller) -> (Permissions, ToolFilter) {
        let defaults = Defaults::of(&self.parts.settings, caller);
        let permissions = defaults.of_server_and_key();
        let filter = ToolFilter::new(None, Globs::default(), Globs::default(), true);
        (permissions.clone(), filter.under(permissions))
    }
}
