//! Decodes a chat request into a turn, or decides that the request passes through.
//!
//! Each field is read once: reading consumes it. For a request that passes through, only the fields that this decision
//! needs are read.

mod body;
mod code;
mod extensions;
mod mcp;
mod object;
mod require_approval;
mod schema;
mod tool_choice;
mod tools;
mod web;

use std::sync::Arc;

use bytes::Bytes;

use self::body::{ChatFields, MessageFields};
use self::code::CodeRequest;
use self::extensions::{ExtensionFields, Extensions};
use self::tool_choice::ToolChoice;
use self::tools::DeclaredTools;
use agent::event::Notice;
use agent::offer::ServerOffer;
use agent::settings::ImageStyle;
use agent::turn::{
    CallTemplate, Caller, Capability, ConnectedServer, NamedFile, RequestedTools, Route, ToolSet,
    TurnRequest,
};
use protocol::ids::Owner;
use protocol::openai::raw::{RawObject, quoted};
use protocol::openai::request::{RequestError, body_object};

pub use self::extensions::{PROGRESS_HEADER, ProgressMode};
pub use self::mcp::DeclaringServers;
pub use self::schema::ChatRequest;
pub use self::tools::{capability, switched_on_by};

/// Members that every model call replaces by its own.
const REWRITTEN: [&str; 6] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
];
/// Members of OpenAI's API that the loop applies itself and does not send to the upstream.
const CONSUMED: [&str; 1] = ["max_tool_calls"];
/// Members that servers refuse in a model call without tools.
const TOOLS_ONLY: [&str; 1] = ["parallel_tool_calls"];

/// How a chat request is processed.
#[derive(Debug)]
pub enum Decision<'a> {
    /// It is forwarded to the upstream, unless a suspended turn waits for it.
    PassThrough(Box<PassThrough<'a>>),
    /// It is run as a turn.
    Turn(Box<ChatTurn>),
    /// It is run as a turn once the MCP servers that it declares are connected.
    Servers(Box<DeclaringServers<'a>>),
}

/// A turn, and the options of its answer.
#[derive(Debug)]
pub struct ChatTurn {
    /// The input of the loop.
    pub turn: TurnRequest,
    /// The options of the encoder.
    pub reply: ReplyOptions,
    /// The MCP servers that the request declares, once they are connected to.
    pub servers: Vec<ConnectedServer>,
}

/// How the client wants the answer.
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
    /// How images of tools are sent.
    pub images: ImageStyle,
}

/// A request that passes through, unless a suspended turn waits for the tool result that it carries.
#[derive(Debug)]
pub struct PassThrough<'a> {
    request: PartialRequest<'a>,
    extensions: ExtensionState<'a>,
    /// Whether `max_tool_rounds` is 0, so that the field is removed from the body.
    without_rounds: bool,
}

/// The extensions of a request, and the tools that follow from them.
#[derive(Debug)]
enum ExtensionState<'a> {
    /// Not read, because the decision did not depend on them.
    Unread(ExtensionFields<'a>),
    /// Read for the decision.
    Read(Box<Extensions>, ToolSet),
}

/// A request of which the model, the tools and the requested capabilities have been read.
#[derive(Debug)]
struct PartialRequest<'a> {
    body: &'a Bytes,
    object: RawObject<'a>,
    messages: MessageFields<'a>,
    caller: Caller,
    offer: ServerOffer<'a>,
    route: Arc<Route>,
    model: String,
    asks: RequestedTools,
    files: Vec<NamedFile>,
    declared: DeclaredTools,
    has_functions: bool,
    max_messages: usize,
    notices: Vec<Notice>,
}

/// Decides how a chat request is processed, given the JSON text of its body.
///
/// # Errors
/// When a field that loopwright acts on is invalid. Other fields are left for the upstream to check.
pub fn decode<'a>(
    body: &'a Bytes,
    caller: Caller,
    offer: ServerOffer<'a>,
    max_messages: usize,
) -> Result<Decision<'a>, RequestError> {
    let object = body_object(body)?;
    let ChatFields {
        model,
        tools: tool_fields,
        mut extensions,
        messages,
        has_functions,
    } = ChatFields::sort(&object);
    extensions.take_head(&caller)?;
    let model = body::model(model)?;
    let route = offer.route(&model)?;
    let offer = offer.for_model(&model);
    let entries = tools::entries(tool_fields.tools)?;
    let server_tool = |kind: &str| capability(kind).and_then(|kind| offer.tool_for(kind));
    let has = |capability| offer.tool_for(capability).is_some();
    let code = code::read(
        tool_fields.enable_code_execution,
        tool_fields.files,
        &entries,
        offer.availability(Capability::Code),
    )?;
    let web = match has(Capability::Web) {
        true => web::read(tool_fields.web_search_options, &entries)?,
        false => None,
    };
    let servers = mcp::read(&entries, &offer)?;
    let runs_here = |kind: &str| match kind {
        mcp::MCP => offer.connects_to_servers(),
        _ => server_tool(kind).is_some(),
    };
    let declared = DeclaredTools::check(entries, &route.quirks.hosted_tools, runs_here)?;
    let declines_code = code == CodeRequest::Declined;
    let (code, files) = match code {
        CodeRequest::Asked(ask, files) => (Some(ask), files),
        CodeRequest::Unsaid | CodeRequest::Declined => (None, Vec::new()),
    };
    let asks = RequestedTools {
        code,
        declines_code,
        web,
        only_named_functions: offer.only_named_functions(),
    };
    let named = caller.session_header.is_some() || caller.chat_header.is_some();
    let used = extensions.used() || named || asks.any() || !servers.is_empty();
    let without_rounds = !used && extensions.max_tool_rounds.is("0");
    // The legacy `functions` API has no tool messages, so only the client can run what it declares.
    let client_only = without_rounds || !offer.offers_by_default() || has_functions;
    let mut request = PartialRequest {
        body,
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
        notices: Vec::new(),
    };
    if !servers.is_empty() {
        let extensions = extensions.read(&request.caller, request.offer.settings())?;
        let declaring = DeclaringServers::new(request, extensions, servers);
        return Ok(Decision::Servers(Box::new(declaring)));
    }
    let extensions = if used || !client_only {
        let (extensions, tools) = request.read_extensions(extensions)?;
        if used || tools.has_server_tools() {
            return Ok(Decision::Turn(request.turn(extensions, tools)?));
        }
        ExtensionState::Read(Box::new(extensions), tools)
    } else {
        ExtensionState::Unread(extensions)
    };
    Ok(Decision::PassThrough(Box::new(PassThrough {
        request,
        extensions,
        without_rounds,
    })))
}

impl PassThrough<'_> {
    /// The id of the call that the last message answers, if that is a tool result. A suspended turn may wait for it.
    pub fn answered_call(&self) -> Option<String> {
        self.request.messages.answered_call()
    }

    /// The owner of the request.
    pub fn owner(&self) -> &Owner {
        &self.request.caller.owner
    }

    /// The model as the client named it.
    pub fn model(&self) -> &str {
        &self.request.model
    }

    /// The body to forward, if it differs from the received one.
    pub fn edited_body(&self) -> Option<Bytes> {
        self.without_rounds.then(|| {
            let members = self.request.object.members_without(&["max_tool_rounds"]);
            format!("{{{members}}}").into()
        })
    }

    /// Turns the request into a turn.
    ///
    /// # Errors
    /// When a field that loopwright acts on is wrong.
    pub fn into_turn(self) -> Result<Box<ChatTurn>, RequestError> {
        let mut request = self.request;
        let (extensions, tools) = match self.extensions {
            ExtensionState::Read(extensions, tools) => (*extensions, tools),
            ExtensionState::Unread(fields) => request.read_extensions(fields)?,
        };
        request.turn(extensions, tools)
    }
}

impl PartialRequest<'_> {
    /// Reads the extensions and determines the tools.
    fn read_extensions(
        &mut self,
        fields: ExtensionFields<'_>,
    ) -> Result<(Extensions, ToolSet), RequestError> {
        let extensions = fields.read(&self.caller, self.offer.settings())?;
        let tools = self.tool_set(&extensions)?;
        Ok((extensions, tools))
    }

    fn tool_set(&mut self, extensions: &Extensions) -> Result<ToolSet, RequestError> {
        let declared = std::mem::take(&mut self.declared.functions);
        let filter = &extensions.filter;
        let set = self.offer.tool_set(declared, &self.asks, filter)?;
        Ok(set.with_hosted(&self.declared.hosted))
    }

    /// Reads the remaining fields.
    fn turn(self, extensions: Extensions, tools: ToolSet) -> Result<Box<ChatTurn>, RequestError> {
        let fields = self.messages;
        refuse_several_choices(fields.n.read("a whole number")?, &tools)?;
        let offer = &self.offer;
        let server_tool = |kind: &str| capability(kind).and_then(|kind| offer.tool_for(kind));
        let mut tool_choice = ToolChoice::read(fields.tool_choice);
        let hosted = &self.route.quirks.hosted_tools;
        // Else the upstream knows the servers.
        if offer.connects_to_servers() || !hosted.iter().any(|kind| kind == mcp::MCP) {
            tool_choice = tool_choice.of_servers(&tools, |label| offer.has_server(label))?;
        }
        tools.find(&tool_choice.names());
        if !self.has_functions {
            let declared = &self.declared.names;
            let known = |name: &str| {
                capability(name).is_some()
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
        let names_session = extensions.options.session_id.is_some();
        let most = self.max_messages;
        let messages = body::messages(fields.messages, most, self.body, names_session)?;
        let choices = tool_choice.for_rounds(&tools, server_tool);
        let call_fields: Arc<str> = self.object.members_without(&left_out).into();
        let call = CallTemplate {
            fields_without_tools: fields_without_tools(&self.object, &left_out)
                .unwrap_or_else(|| call_fields.clone()),
            fields: call_fields,
            stream_options: stream_options.map(|options| options.get().into()),
            first_choice: choices.first,
            later_choice: choices.later,
        };
        let reply = ReplyOptions {
            model: self.model.clone(),
            stream,
            include_usage,
            progress: extensions.progress,
            images: extensions.images,
        };
        let wanted = self.asks.code.into_iter().flat_map(|ask| ask.wanted);
        let turn = TurnRequest {
            continuation: None,
            caller: self.caller,
            model: self.model,
            user,
            options: extensions.options,
            permissions: extensions.permissions,
            streamed: stream,
            streams_arguments: false,
            instructions: None,
            answered_calls: Vec::new(),
            decisions: Vec::new(),
            asking_servers: Vec::new(),
            messages,
            tools: tools.only(choices.allowed),
            files: self.files,
            wanted: wanted.map(|file| file.name).collect(),
            call,
            route: self.route,
            notices: self.notices,
        };
        Ok(Box::new(ChatTurn {
            turn,
            reply,
            servers: Vec::new(),
        }))
    }
}

/// The body with the upstream's name of the model; the same bytes if the names are equal.
pub fn with_model_name(bytes: &Bytes, model: &str, name: &str) -> Bytes {
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

/// The fields of a call without tools, where they differ from those of other calls.
fn fields_without_tools(object: &RawObject<'_>, left_out: &[&str]) -> Option<Arc<str>> {
    let mut of_tools = TOOLS_ONLY.iter();
    let left_out = [left_out, &TOOLS_ONLY].concat();
    of_tools
        .any(|key| object.get(key).is_some())
        .then(|| object.members_without(&left_out).into())
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
