//! From a request's body to a turn, or to the finding that the request passes through.
//!
//! Each field is read once: reading consumes it. A request that no server-side tool can touch is looked at only as far as
//! that takes.

mod body;
mod code;
mod extensions;
mod tool_choice;
mod tools;
mod web;

use std::sync::Arc;

use bytes::Bytes;

use self::body::{Fields, MessageFields};
use self::extensions::{ExtensionFields, Extensions};
use self::tool_choice::ToolChoice;
use self::tools::Declared;
use crate::agent::offer::ServerOffer;
use crate::agent::turn::{
    Asks, CallTemplate, Caller, Capability, NamedFile, Route, ToolSet, TurnRequest,
};
use crate::ids::Owner;
use crate::openai::raw::{RawObject, quoted};
use crate::openai::request::{RequestError, body_object};

pub use self::extensions::ProgressMode;

/// Members that a model call writes itself.
const REWRITTEN: [&str; 6] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
];
/// OpenAI's name for a budget that the loop keeps itself.
const CONSUMED: [&str; 1] = ["max_tool_calls"];
/// Members that servers refuse in a call without tools.
const ABOUT_TOOLS: [&str; 1] = ["parallel_tool_calls"];

/// What becomes of a chat request.
#[derive(Debug)]
pub enum Decision<'a> {
    /// It goes to the upstream as it is.
    PassThrough(Box<PassThrough<'a>>),
    /// It enters the loop.
    Turn(Box<ChatTurn>),
}

/// A turn, and how this client is answered.
#[derive(Debug)]
pub struct ChatTurn {
    /// What the loop is given.
    pub turn: TurnRequest,
    /// What the encoder is given.
    pub reply: ReplyOptions,
}

/// How a client is answered.
#[derive(Debug, Clone)]
pub struct ReplyOptions {
    /// The model as the client named it.
    pub model: String,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether a stream ends with a usage chunk.
    pub include_usage: bool,
    /// How progress is sent on a stream.
    pub progress: ProgressMode,
}

/// A request that passes through, unless a turn waits for what it brings.
#[derive(Debug)]
pub struct PassThrough<'a> {
    request: ReadSoFar<'a>,
    asked: Asked<'a>,
    without_rounds: bool,
}

/// The extensions of a request, and with them its tools.
#[derive(Debug)]
enum Asked<'a> {
    /// Nothing depended on them so far.
    Unread(ExtensionFields<'a>),
    /// They were read to decide.
    Read(Extensions, ToolSet),
}

/// A request of which the model, the tools and the hosted capabilities have been read.
#[derive(Debug)]
struct ReadSoFar<'a> {
    object: RawObject<'a>,
    messages: MessageFields<'a>,
    caller: Caller,
    offer: ServerOffer<'a>,
    route: Arc<Route>,
    model: String,
    asks: Asks,
    files: Vec<NamedFile>,
    declared: Declared,
    has_functions: bool,
    max_messages: usize,
}

/// Decides what becomes of a chat request.
///
/// # Errors
/// When a field that loopwright acts on is wrong; what passes through is left for the upstream to judge.
pub fn decode<'a>(
    body: &'a [u8],
    caller: Caller,
    offer: ServerOffer<'a>,
    max_messages: usize,
) -> Result<Decision<'a>, RequestError> {
    let object = body_object(body)?;
    let Fields {
        model,
        asks,
        extensions,
        messages,
        has_functions,
    } = Fields::sort(&object);
    let model = body::model(model)?;
    let route = offer.route(&model)?;
    let entries = tools::entries(asks.tools)?;
    let own = |kind: &str| tools::capability(kind).and_then(|kind| offer.tool_for(kind));
    let has = |capability| offer.tool_for(capability).is_some();
    let code = code::read(
        asks.enable_code_execution,
        asks.files,
        &entries,
        has(Capability::Code),
    )?;
    let web = match has(Capability::Web) {
        true => web::read(asks.web_search_options, &entries)?,
        false => None,
    };
    let declared = Declared::check(entries, &route.quirks.hosted_tools, own)?;
    let (code, files) = code.map_or_else(Default::default, |(ask, files)| (Some(ask), files));
    let asks = Asks { code, web };
    let used = extensions.used() || caller.session_header.is_some() || asks.any();
    let without_rounds = !used && extensions.max_tool_rounds.is("0");
    // The legacy `functions` API knows no tool messages: what it offers can only be run by the client.
    let client_only = without_rounds || !offer.offers_unasked() || has_functions;
    let mut request = ReadSoFar {
        object,
        messages,
        caller,
        offer,
        route,
        model,
        asks,
        files,
        declared,
        has_functions,
        max_messages,
    };
    let asked = if used || !client_only {
        let (extensions, tools) = request.asked(extensions)?;
        if used || tools.has_server_tools() {
            return Ok(Decision::Turn(request.turn(extensions, tools)?));
        }
        Asked::Read(extensions, tools)
    } else {
        Asked::Unread(extensions)
    };
    Ok(Decision::PassThrough(Box::new(PassThrough {
        request,
        asked,
        without_rounds,
    })))
}

impl PassThrough<'_> {
    /// The call that the last message answers, if it is a tool's result: a turn may wait for it.
    pub fn answered_call(&self) -> Option<String> {
        self.request.messages.answered_call()
    }

    /// The key behind the request.
    pub fn owner(&self) -> &Owner {
        &self.request.caller.owner
    }

    /// The model as the client named it.
    pub fn model(&self) -> &str {
        &self.request.model
    }

    /// The body to send, where it is not the very bytes that came.
    pub fn edited_body(&self) -> Option<Bytes> {
        self.without_rounds.then(|| {
            let members = self.request.object.members_without(&["max_tool_rounds"]);
            format!("{{{members}}}").into()
        })
    }

    /// The same request as a turn.
    ///
    /// # Errors
    /// When a field that loopwright acts on is wrong.
    pub fn into_turn(self) -> Result<Box<ChatTurn>, RequestError> {
        let mut request = self.request;
        let (extensions, tools) = match self.asked {
            Asked::Read(extensions, tools) => (extensions, tools),
            Asked::Unread(fields) => request.asked(fields)?,
        };
        request.turn(extensions, tools)
    }
}

impl ReadSoFar<'_> {
    /// Reads the extensions and finds the tools.
    fn asked(
        &mut self,
        fields: ExtensionFields<'_>,
    ) -> Result<(Extensions, ToolSet), RequestError> {
        let session = self.caller.session_header.clone();
        let extensions = fields.read(session, self.offer.settings())?;
        let declared = std::mem::take(&mut self.declared.functions);
        let filter = &extensions.filter;
        let set = self.offer.tool_set(declared, &self.asks, filter)?;
        Ok((extensions, set.with_hosted(&self.declared.hosted)))
    }

    /// Reads what is left.
    fn turn(self, extensions: Extensions, tools: ToolSet) -> Result<Box<ChatTurn>, RequestError> {
        let fields = self.messages;
        refuse_several_choices(fields.n.read("a whole number")?, &tools)?;
        let offer = &self.offer;
        let own = |kind: &str| tools::capability(kind).and_then(|kind| offer.tool_for(kind));
        let tool_choice = ToolChoice::read(fields.tool_choice);
        if !self.has_functions {
            let declared = &self.declared.names;
            let known = |name: &str| {
                tools::capability(name).is_some()
                    || offer.has_tool(name)
                    || declared.iter().any(|declared| declared == name)
            };
            tool_choice.refuse_unknown(&tools, known)?;
        }
        let web_options = offer.tool_for(Capability::Web).map(|_| web::OPTIONS);
        let left_out = [
            &ExtensionFields::NAMES[..],
            &REWRITTEN,
            &CONSUMED,
            web_options.as_slice(),
        ]
        .concat();
        let user = fields.user.read("a string")?;
        let stream = fields.stream.read("true or false")?.unwrap_or(false);
        let stream_options = fields.stream_options.raw();
        let include_usage = body::include_usage(stream_options)?;
        let messages = body::messages(fields.messages, self.max_messages)?;
        let (first_choice, later_choice) = tool_choice.for_rounds(&tools, own);
        let call = CallTemplate {
            fields: self.object.members_without(&left_out).into(),
            fields_without_tools: self
                .object
                .members_without(&[&left_out[..], &ABOUT_TOOLS].concat())
                .into(),
            stream_options: stream_options.map(|options| options.get().into()),
            first_choice,
            later_choice,
        };
        let reply = ReplyOptions {
            model: self.model.clone(),
            stream,
            include_usage,
            progress: extensions.progress,
        };
        let wanted = self.asks.code.into_iter().flat_map(|ask| ask.wanted);
        let turn = TurnRequest {
            caller: self.caller,
            model: self.model,
            user,
            options: extensions.options,
            streamed: stream,
            messages,
            tools,
            files: self.files,
            wanted: wanted.map(|file| file.name).collect(),
            call,
            route: self.route,
        };
        Ok(Box::new(ChatTurn { turn, reply }))
    }
}

/// The body with the model's name as an upstream has it; the same bytes where the names are equal.
pub fn renamed(bytes: &Bytes, model: &str, name: &str) -> Bytes {
    if name == model {
        return bytes.clone();
    }
    let Ok(object) = body_object(bytes) else {
        return bytes.clone();
    };
    let mut json = format!("{{\"model\":{}", quoted(name));
    let members = object.members_without(&["model"]);
    if !members.is_empty() {
        json.push(',');
        json.push_str(&members);
    }
    json.push('}');
    json.into()
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
