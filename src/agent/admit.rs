//! Admits drafts: merges the defaults of the server and of the caller's key into a draft, chooses its route and tools,
//! and decides whether the request passes through or is run as a turn.

mod asked;
mod call;
mod defaults;
mod offer;
mod resumed;
mod servers;
mod tool_choice;

use std::sync::Arc;

use self::asked::AskedTools;
pub(crate) use self::defaults::Defaults;
use self::offer::ServerOffer;
use self::servers::level;
use self::tool_choice::ToolChoice;
use super::Agent;
use super::draft::{CallDraft, Decoded, FaultScope, Faults, TurnDraft};
use super::turn::{
    CallTemplate, Caller, Capability, ConnectedServer, Permissions, Route, ToolFilter, ToolSet,
    TurnRequest,
};
use crate::event::Notice;
use crate::session::WaitingTurn;
use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;

/// The member of a model call that asks the model server itself to search the web.
const WEB_SEARCH_OPTIONS: &str = "web_search_options";
/// Members that servers refuse in a model call without tools.
const TOOLS_ONLY: [&str; 1] = ["parallel_tool_calls"];

/// What becomes of a request.
#[derive(Debug)]
pub enum Admitted {
    /// It is forwarded to the upstream.
    PassThrough(PassThrough),
    /// It is run as a turn.
    Turn(Box<AdmittedTurn>),
}

/// A request that no server-side tool can touch.
#[derive(Debug)]
pub struct PassThrough {
    /// The model as the client names it.
    pub model: String,
    /// The upstreams that serve it.
    pub route: Arc<Route>,
    /// The request says that there are no rounds of tools, which the upstream is not sent.
    pub without_rounds: bool,
}

/// A turn, with facts about its tools for the encoder of the answer.
#[derive(Debug)]
pub struct AdmittedTurn {
    /// The input of the loop.
    pub turn: TurnRequest,
    /// The MCP servers that the request declares, once they are connected to.
    pub servers: Vec<ConnectedServer>,
    /// Notices for the client about tools that were left out.
    pub left_out: Vec<Notice>,
}

/// Why a request is not admitted.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    /// A field is invalid, or names something that does not exist.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The request has the result of a call for which no turn waits.
    #[error("no turn waits for the call '{0}'")]
    UnknownCall(String),
}

/// A draft whose route and tools are known.
struct Admitting<'a> {
    draft: TurnDraft,
    faults: Faults,
    caller: Caller,
    offer: ServerOffer<'a>,
    route: Arc<Route>,
    asked: AskedTools,
}

impl Agent {
    /// Admits a draft.
    ///
    /// # Errors
    /// When a field that counts is invalid, no upstream serves the model, or a tool cannot be offered.
    pub async fn admit(
        &self,
        decoded: Decoded,
        caller: Caller,
    ) -> Result<Admitted, AdmissionError> {
        let admitting = self.admitting(decoded, caller)?;
        let waiting = self.answered_turn(&admitting).await?;
        if !admitting.asked.servers.is_empty() {
            let turn = Box::pin(admitting.connected()).await?;
            return Ok(Admitted::Turn(turn));
        }
        let used = admitting.draft.extended || admitting.asked.requested.any();
        let without_rounds = !used && admitting.draft.options.max_tool_rounds == 0;
        let tools = &admitting.draft.tools;
        let client_only =
            without_rounds || !admitting.offer.offers_by_default() || tools.legacy_functions;
        let mut offered = None;
        if used || !client_only {
            let found = admitting.tools()?;
            if used || found.1.has_server_tools() {
                let turn = admitting.turn(found, waiting)?;
                return Ok(Admitted::Turn(turn));
            }
            offered = Some(found);
        }
        match self.continued_turn(&admitting).await {
            None => Ok(Admitted::PassThrough(PassThrough {
                model: admitting.draft.model,
                route: admitting.route,
                without_rounds,
            })),
            waiting => {
                let tools = offered.map_or_else(|| admitting.tools(), Ok)?;
                Ok(Admitted::Turn(admitting.turn(tools, waiting)?))
            }
        }
    }

    /// Whether a model server can answer a request because the loop has no part in it. False for an invalid request.
    pub fn passes_through(&self, decoded: Decoded, caller: Caller) -> bool {
        let Ok(admitting) = self.admitting(decoded, caller) else {
            return false;
        };
        let asked = &admitting.asked;
        let is_used =
            admitting.draft.extended || asked.requested.any() || !asked.servers.is_empty();
        let has_tools = || {
            let offered = admitting.tools();
            offered.map_or(true, |(_, tools)| tools.has_server_tools())
        };
        !(is_used || admitting.offer.offers_by_default() && has_tools())
    }

    /// The upstreams that serve a model.
    ///
    /// # Errors
    /// When no upstream serves it.
    pub fn route(&self, model: &str) -> Result<Arc<Route>, RequestError> {
        offer::route(&self.parts.router, model)
    }

    fn admitting(&self, decoded: Decoded, caller: Caller) -> Result<Admitting<'_>, RequestError> {
        let Decoded { mut draft, faults } = decoded;
        faults.check(FaultScope::Head)?;
        let route = self.route(&draft.model)?;
        let sources = self.parts.tools.sources.snapshot_for(&caller.owner);
        let offer = ServerOffer::new(sources, &self.parts.settings, &draft.model);
        let asked = AskedTools::read(&draft, &faults, &offer, &route)?;
        Defaults::of(&self.parts.settings, &caller).merge(&mut draft);
        Ok(Admitting {
            draft,
            faults,
            caller,
            offer,
            route,
            asked,
        })
    }
}

impl Admitting<'_> {
    /// What the calls of the turn are permitted, and its tools.
    fn tools(&self) -> Result<(Permissions, ToolSet), RequestError> {
        let (permissions, filter) = self.permitted()?;
        let tools = self.tool_set(&filter)?;
        Ok((permissions, tools))
    }

    fn permitted(&self) -> Result<(Permissions, ToolFilter), RequestError> {
        self.faults.check(FaultScope::Extensions)?;
        let defaults = Defaults::of(self.offer.settings(), &self.caller);
        let permissions = defaults.permissions(&self.draft.permissions)?;
        let enabled = self.draft.options.max_tool_rounds > 0;
        let filter = defaults::filter(&self.draft.tools.filter, enabled)?;
        Ok((permissions.clone(), filter.under(permissions)))
    }

    fn tool_set(&self, filter: &ToolFilter) -> Result<ToolSet, RequestError> {
        let declared = self.asked.functions.clone();
        let requested = &self.asked.requested;
        let set = self.offer.tool_set(declared, requested, filter)?;
        Ok(set.with_hosted(&self.asked.hosted))
    }

    /// Connects to the MCP servers that the request declares. Leaves out a server that cannot be used, with a notice
    /// for the client. Calls for which the request wants an approval become rules of its level.
    async fn connected(mut self) -> Result<Box<AdmittedTurn>, RequestError> {
        let (mut permissions, filter) = self.permitted()?;
        let servers = std::mem::take(&mut self.asked.servers).into_iter();
        let (servers, required): (Vec<_>, Vec<_>) = servers.unzip();
        let mut connected = Vec::new();
        if self.draft.options.max_tool_rounds > 0 {
            connected = self.offer.connect(&self.caller.owner, servers).await;
        }
        let tools = self.tool_set(&filter)?;
        if let Some(level) = level(&connected, &required, &tools) {
            permissions.push(level);
        }
        let mut admitted = self.turn((permissions, tools), None)?;
        admitted.turn.notices = connected.iter().filter_map(offer::unavailable).collect();
        admitted.servers = connected;
        Ok(admitted)
    }

    /// Checks the faults that only count for a turn, and makes the turn.
    fn turn(
        mut self,
        (permissions, tools): (Permissions, ToolSet),
        waiting: Option<WaitingTurn>,
    ) -> Result<Box<AdmittedTurn>, RequestError> {
        refuse_several_choices(self.draft.call.choices, &tools)?;
        let tool_choice = self.tool_choice(&tools)?;
        self.faults.check(FaultScope::Turn)?;
        let offer = &self.offer;
        let input = std::mem::take(&mut self.draft.input);
        let messages = input.messages.read()?;
        let server_tool =
            |kind: &str| Capability::of_type(kind).and_then(|kind| offer.tool_for(kind));
        let choices = tool_choice.for_rounds(&tools, server_tool);
        let searches_here = offer.tool_for(Capability::Web).is_some();
        let (members, members_without_tools) = call_members(&self.draft.call, searches_here);
        let call = CallTemplate {
            fields_without_tools: members_without_tools,
            fields: members,
            stream_options: self.draft.call.stream_options.clone(),
            first_choice: choices.first,
            later_choice: choices.later,
        };
        let code = self.asked.requested.code.into_iter();
        let wanted = code.flat_map(|code| code.wanted).map(|file| file.name);
        let draft = self.draft;
        let turn = TurnRequest {
            resumption: None,
            waiting,
            is_resumed: false,
            kept_servers: None,
            caller: self.caller,
            model: draft.model.clone(),
            user: draft.user.clone(),
            options: draft.options.clone(),
            permissions,
            instructions: draft.call.instructions.clone(),
            answered_calls: input.answered_calls,
            decisions: input.decisions,
            asking_servers: self.asked.asking_servers,
            messages,
            tools: tools.only(choices.allowed),
            files: self.asked.files,
            wanted: wanted.collect(),
            call,
            route: self.route,
            notices: Vec::new(),
            draft: Some(Box::new(draft)),
        };
        Ok(Box::new(AdmittedTurn {
            turn,
            servers: Vec::new(),
            left_out: self.asked.left_out,
        }))
    }

    fn tool_choice(&self, tools: &ToolSet) -> Result<ToolChoice, RequestError> {
        let offer = &self.offer;
        let mut tool_choice = ToolChoice::read(self.draft.tools.choice.as_deref());
        let hosted = &self.route.quirks.hosted_tools;
        // Otherwise the upstream connects to the servers itself.
        if offer.connects_to_servers() || !hosted.iter().any(|kind| kind == tool_choice::MCP) {
            tool_choice = tool_choice.of_servers(tools, |label| offer.has_server(label))?;
        }
        tools.find(&tool_choice.names());
        if !self.draft.tools.legacy_functions {
            let declared = &self.asked.functions;
            let known = |name: &str| {
                Capability::of_type(name).is_some()
                    || offer.has_tool(name)
                    || declared.iter().any(|declared| declared.name == name)
            };
            tool_choice.refuse_unknown(tools, known)?;
        }
        Ok(tool_choice)
    }
}

/// The members of the model calls, and the members of a call without tools.
fn call_members(call: &CallDraft, searches_here: bool) -> (Arc<str>, Arc<str>) {
    let has = |name: &str| {
        let name = name.as_bytes();
        memchr::memmem::find(call.members.as_bytes(), name).is_some()
    };
    let mut left_out: Vec<&str> = Vec::new();
    if searches_here {
        left_out.push(WEB_SEARCH_OPTIONS);
    }
    let of_tools = TOOLS_ONLY.iter().any(|name| has(name));
    if !of_tools && !left_out.iter().any(|name| has(name)) {
        return (call.members.clone(), call.members.clone());
    }
    let text = format!("{{{}}}", call.members);
    let Ok(object) = RawObject::parse(&text) else {
        return (call.members.clone(), call.members.clone());
    };
    let members: Arc<str> = object.members_without(&left_out).into();
    if !TOOLS_ONLY.iter().any(|name| object.get(name).is_some()) {
        return (members.clone(), members);
    }
    left_out.extend(TOOLS_ONLY);
    (members, object.members_without(&left_out).into())
}

fn refuse_several_choices(n: Option<u64>, tools: &ToolSet) -> Result<(), RequestError> {
    let message = match n {
        None | Some(1) => return Ok(()),
        Some(n) if tools.has_server_tools() => format!(
            "'n' is {n}, but server-side tools need 'n' to be 1; leave 'n' out or turn the tools off with \"max_tool_rounds\": 0"
        ),
        Some(n) => format!(
            "'n' is {n}, but a request with a session or other extensions needs 'n' to be 1; leave 'n' out"
        ),
    };
    Err(RequestError::field("n", message))
}
