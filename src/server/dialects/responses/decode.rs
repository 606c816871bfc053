//! Decodes a request of the Responses API into the draft of a turn.

mod approvals;
mod fields;
mod include;
mod input;
pub(crate) mod names;
mod native;
mod references;
mod schema;
mod text;
mod tools;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use self::fields::ResponseFields;
use self::input::InputFields;
use self::names::ToolNames;
pub(crate) use self::native::{IssuedIds, plain_draft};
pub(crate) use self::references::{KnownHistory, NamedContainer, References};
pub(crate) use self::schema::ResponseRequest;
use crate::dialects::fields::extensions::ExtensionFields;
use crate::dialects::fields::head::RequestHead;
use crate::dialects::fields::hosted::HostedFields;
use agent::draft::{
    CallDraft, Decoded, DraftInput, DraftMessages, DraftTools, Faults, TurnDraft, UnofferedTools,
};
use agent::event::{Notice, ToolKind};
use agent::inputs::{FileMember, FilePosition, PartIndex};
use agent::options::{OnLimit, Options};
use agent::turn::{ConnectedServer, SessionMode};
use protocol::openai::message::Message;
use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, body_member, body_object};

/// Which calls of server-side tools are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShownItems {
    /// All, and events that OpenAI's API does not have.
    Named,
    #[default]
    All,
    /// Calls of hosted tools that the request declares.
    Declared,
    None,
}

/// The options of a request for the encoder.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ResponseOptions {
    /// Whether the answer is streamed.
    pub(crate) stream: bool,
    /// The answer is not waited for.
    pub(crate) background: bool,
    pub(crate) store: bool,
    /// The members of every response that follow from the request, without braces.
    pub(super) echo: String,
    /// Reasoning is sent as its summary.
    pub(super) summary: bool,
    pub(super) encrypted_reasoning: bool,
    pub(super) logprobs: bool,
    pub(super) web_sources: bool,
    pub(super) web_results: bool,
    pub(super) code_outputs: bool,
    pub(super) on_limit: OnLimit,
    pub(super) names: ToolNames,
    /// What decoding has to say to the client.
    pub(super) notices: Vec<Notice>,
    pub(super) origin: String,
    shown: ShownItems,
    declares_web: bool,
    declares_code: bool,
    /// The container that the request names.
    pub(super) container: Option<String>,
    /// The labels of the MCP servers that the request declares.
    servers: Vec<String>,
    /// What is shown of them.
    pub(super) listed: Vec<ListedServer>,
    /// The input item of each message.
    positions: Vec<usize>,
}

/// An MCP server that a request declares, with its tools.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ListedServer {
    pub(super) label: String,
    pub(super) tools: Value,
    /// Why its tools are not offered.
    pub(super) problem: Option<String>,
}

/// A request, and the options of its answer.
#[derive(Debug)]
pub(crate) struct DecodedResponse {
    /// The draft.
    pub(crate) decoded: Decoded,
    /// The options of the encoder.
    pub(crate) options: ResponseOptions,
}

impl ResponseOptions {
    /// The options of a request for this model without further fields.
    ///
    /// # Errors
    /// Never: the request is a plain one.
    pub(crate) fn plain(model: &str) -> Result<Self, RequestError> {
        ResponseFields::plain(model)
    }

    /// Adds the facts that are known once the request is admitted: the tools of its MCP servers, and the tools that
    /// were left out.
    pub(crate) fn take_admitted(&mut self, servers: &[ConnectedServer], left_out: Vec<Notice>) {
        self.notices.splice(0..0, left_out);
        if self.shown == ShownItems::None {
            return;
        }
        let listed = servers.iter().map(|server| ListedServer {
            label: server.label().to_owned(),
            tools: server.tools().into(),
            problem: server.problem(),
        });
        self.listed = listed.collect();
    }

    /// Whether a server-side call of this kind is shown; `server` is the MCP server that has the tool.
    pub(super) fn shows(&self, kind: ToolKind, server: Option<&str>) -> bool {
        match self.shown {
            ShownItems::Named | ShownItems::All => true,
            ShownItems::None => false,
            ShownItems::Declared => match kind {
                ToolKind::WebSearch => self.declares_web,
                ToolKind::CodeExecution => self.declares_code,
                ToolKind::Custom => server.is_some_and(|server| self.asks_client(server)),
            },
        }
    }

    /// Whether the client is asked about calls of this MCP server: whether the request declares it.
    pub(super) fn asks_client(&self, server: &str) -> bool {
        self.servers.iter().any(|label| label == server)
    }

    /// Whether the stream has events that OpenAI's API does not have.
    pub(super) fn is_named(&self) -> bool {
        self.shown == ShownItems::Named
    }

    /// The path of the field that names or holds a file, such as `input[0].content[1].file_id`.
    pub(crate) fn file_path(&self, position: &FilePosition) -> String {
        match position {
            FilePosition::Part {
                index: PartIndex { message, part },
                member,
                ..
            } => {
                let item = self.positions.get(*message).copied().unwrap_or_default();
                let member = match member {
                    FileMember::Id => "file_id",
                    FileMember::Data => "file_data",
                    FileMember::Url => "file_url",
                };
                format!("input[{item}].content[{part}].{member}")
            }
            FilePosition::Field(param) => param.clone(),
        }
    }
}

/// The messages that `items` of a body come to; none if there is no such member.
///
/// # Errors
/// When an item is not usable.
pub(crate) fn item_messages(object: &RawObject<'_>) -> Result<Vec<Message>, RequestError> {
    let Some(items) = object.get_some("items").filter(|items| items.get() != "[]") else {
        return Ok(Vec::new());
    };
    if !items.get().starts_with('[') {
        return Err(RequestError::invalid("items", "must be a list of items"));
    }
    let renamed = format!("{{\"input\":{}}}", items.get());
    let of_items = |error: RequestError| RequestError {
        param: error.param.map(|param| param.replacen("input", "items", 1)),
        message: error.message.replacen("'input", "'items", 1),
        ..error
    };
    let read = || -> Result<Vec<Message>, RequestError> {
        let fields = InputFields::read(
            &body_object(renamed.as_bytes())?,
            &KnownHistory::default(),
            false,
        )?;
        if let Some(decision) = fields.decisions.first() {
            let problem = "decides about a call; send the item as input of a response";
            return Err(RequestError::invalid(&decision.param, problem));
        }
        let parse = |json: &String| {
            Message::parse(json).map_err(|problem| RequestError::invalid("input", &problem))
        };
        fields.messages.iter().map(parse).collect()
    };
    refuse_file_urls(items)?;
    read().map_err(of_items)
}

/// Refuses items that name files by their URLs: files are downloaded for turns only.
fn refuse_file_urls(items: &RawValue) -> Result<(), RequestError> {
    if !items.get().contains("file_url") {
        return Ok(());
    }
    let items: Vec<Value> = serde_json::from_str(items.get()).unwrap_or_default();
    for (index, item) in items.iter().enumerate() {
        let mut parts = item["content"].as_array().into_iter().flatten();
        if let Some(part) = parts.position(|part| !part["file_url"].is_null()) {
            let param = format!("items[{index}].content[{part}].file_url");
            let problem = "is not downloaded here; send 'file_data' or 'file_id', or the item as input of a response";
            return Err(RequestError::invalid(&param, problem));
        }
    }
    Ok(())
}

/// Decodes a request from the JSON text of its body, its head, and the things that it refers to.
///
/// # Errors
/// When a field that loopwright acts on is invalid or not available. What is wrong with tools that this server may not have
/// is in the faults.
pub(crate) fn decode(
    body: &[u8],
    head: &RequestHead,
    known: &KnownHistory,
) -> Result<DecodedResponse, RequestError> {
    let object = body_object(body)?;
    let fields = ResponseFields::read(&object, head, known)?;
    let ResponseFields {
        mut options,
        messages,
        ..
    } = fields;
    let mut faults = Faults::default();
    let tools = HostedFields::of(&object).read(fields.entries, &mut faults);
    let response_format = object.get_some("response_format");
    let wants_json = fields.wants_json || response_format.is_some_and(is_json_format);
    let extensions = ExtensionFields::of(&object).read(head, wants_json)?;
    let names_session = object.get_some("session_id").is_some();
    let streamed = options.stream;
    let mut of_turn = Options {
        keep: !extensions.options.ephemeral,
        background: options.background,
        truncates: fields.truncates,
        previous: known.previous.clone(),
        container: known.container.clone(),
        streamed,
        streams_arguments: streamed,
        asks_client: true,
        ..extensions.options
    };
    of_turn.limits.max_output_tokens = fields.max_output_tokens;
    join(&mut of_turn, known, names_session)?;
    options.on_limit = of_turn.on_limit;
    let draft = TurnDraft {
        input: DraftInput {
            messages: DraftMessages::Read(read_messages(messages, &options, head)?),
            answered_calls: fields.unknown_calls,
            decisions: fields.decisions,
        },
        model: fields.model,
        user: body_member(&object, "user", "a string")?,
        extended: true,
        options: of_turn,
        permissions: extensions.permissions,
        tools: DraftTools {
            choice: fields.choice.map(Into::into),
            filter: extensions.filter,
            of_client_machine: true,
            unoffered: UnofferedTools::RefuseUnlessIgnored,
            ..tools
        },
        call: CallDraft {
            members: fields.members.into(),
            stream_options: None,
            choices: body_member(&object, "n", "a whole number")?,
            instructions: fields.instructions,
        },
        lacks_servers: false,
    };
    let decoded = Decoded { draft, faults };
    Ok(DecodedResponse { decoded, options })
}

/// Reads the messages that the items of the input come to.
fn read_messages(
    messages: Vec<String>,
    options: &ResponseOptions,
    head: &RequestHead,
) -> Result<Vec<Message>, RequestError> {
    let most = head.max_messages;
    if messages.len() > most {
        let count = messages.len();
        let problem = format!("has {count} messages; at most {most} are allowed");
        return Err(RequestError::invalid("input", &problem));
    }
    let messages = messages.into_iter().zip(&options.positions);
    let read = messages.map(|(json, item)| {
        let bytes = Bytes::from(json.clone());
        Message::parse_shared(&json, bytes)
            .map_err(|problem| RequestError::invalid(&format!("input[{item}]"), &problem))
    });
    read.collect()
}

/// Whether a `response_format` asks for a JSON document.
fn is_json_format(format: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Format {
        r#type: String,
    }
    let format = serde_json::from_str::<Format>(format.get());
    format.is_ok_and(|format| matches!(&*format.r#type, "json_object" | "json_schema"))
}

/// Sets the session of a turn, and how its input joins the history. A session that the request names takes precedence
/// over the session to which the ids of its items lead.
fn join(
    options: &mut Options,
    known: &KnownHistory,
    names_session: bool,
) -> Result<(), RequestError> {
    let named = options.session_id.as_ref();
    let found = known.session.as_ref();
    let is_other = named.is_some() && found.is_some() && named != found;
    if is_other && known.appends {
        let problem = "names another session than the rest of the request; leave it out";
        return Err(RequestError::invalid("session_id", problem));
    }
    let asked = options.session_mode;
    options.session_mode = match found {
        _ if known.appends => SessionMode::Continue,
        _ if names_session && asked == SessionMode::Auto => SessionMode::Continue,
        Some(_) if !names_session && !is_other => SessionMode::Replay,
        _ => asked,
    };
    options.session_id = options.session_id.take().or_else(|| known.session.clone());
    Ok(())
}
