//! The fields of a request that only this dialect has.

use memchr::memchr2;
use serde::Deserialize;
use serde_json::Value;

use super::approvals::refuse_unstored;
use super::include::Include;
use super::input::InputFields;
use super::names::ToolNames;
use super::references::References;
use super::text::{ReasoningFields, TextFields};
use super::tools::DeclaredFields;
use super::{KnownHistory, ResponseOptions, ShownItems};
use crate::dialects::fields::extensions::ExtensionFields;
use crate::dialects::fields::head::{PROGRESS_HEADER, RequestHead};
use crate::dialects::fields::hosted::ToolEntry;
use agent::options::OnLimit;
use agent::turn::ClientDecision;
use protocol::openai::metadata::metadata;
use protocol::openai::raw::{RawObject, push_entry, quoted};
use protocol::openai::request::{RequestError, body_member, one_of};

/// Members that are read here and that a model call has in another form, or not at all.
const OWN: [&str; 24] = [
    "background",
    "client_metadata",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "messages",
    "metadata",
    "model",
    "moderation",
    "previous_response_id",
    "prompt",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "stream",
    "stream_options",
    "text",
    "tools",
    "tool_choice",
    "truncation",
];
const WHOLE: &str = "a whole number of 0 or more";
/// Members that no response can be made with.
const UNSUPPORTED: [&str; 3] = ["context_management", "moderation", "prompt"];
/// Clients that fail on calls of tools that they did not declare.
const STRICT_CLIENTS: [&str; 4] = ["ai-sdk/openai/1.", "ai-sdk/openai/2.", "ai/4.", "ai/5."];

/// The words of `agent.progress`; `None`: as the client needs it.
const SHOWN: [(&str, Option<ShownItems>); 4] = [
    ("auto", None),
    ("declared", Some(ShownItems::Declared)),
    ("named", Some(ShownItems::Named)),
    ("none", Some(ShownItems::None)),
];

/// What the fields of a request come to.
#[derive(Debug)]
pub(super) struct ResponseFields<'a> {
    pub(super) model: String,
    /// The declared tools.
    pub(super) entries: Vec<ToolEntry<'a>>,
    /// The choice among them, as JSON text.
    pub(super) choice: Option<String>,
    /// The members of the model calls, without braces.
    pub(super) members: String,
    /// The answer is to be a JSON document.
    pub(super) wants_json: bool,
    /// JSON texts of messages.
    pub(super) messages: Vec<String>,
    pub(super) instructions: Option<String>,
    pub(super) max_output_tokens: Option<u64>,
    pub(super) unknown_calls: Vec<String>,
    pub(super) decisions: Vec<ClientDecision>,
    /// The oldest turns are left out of a prompt that is too long.
    pub(super) truncates: bool,
    pub(super) options: ResponseOptions,
}

impl<'a> ResponseFields<'a> {
    /// The options of a request that names only its model.
    pub(super) fn plain(model: &str) -> Result<ResponseOptions, RequestError> {
        let empty = RawObject::default();
        let echo = Echo {
            object: &empty,
            model,
            tools: &[],
            text: &TextFields::read(&empty)?.echo,
            reasoning: &ReasoningFields::read(&empty)?.echo,
            conversation: None,
            background: false,
        };
        Ok(ResponseOptions {
            stream: false,
            background: false,
            store: true,
            echo: echo.write()?,
            summary: false,
            encrypted_reasoning: false,
            logprobs: false,
            web_sources: false,
            web_results: false,
            code_outputs: true,
            on_limit: OnLimit::default(),
            names: ToolNames::default(),
            notices: Vec::new(),
            origin: String::new(),
            shown: ShownItems::All,
            declares_web: false,
            declares_code: false,
            servers: Vec::new(),
            listed: Vec::new(),
            container: None,
            positions: Vec::new(),
        })
    }

    /// Reads the fields that only this dialect has.
    ///
    /// # Errors
    /// When one is invalid or not supported.
    pub(super) fn read(
        object: &RawObject<'a>,
        head: &RequestHead,
        known: &KnownHistory,
    ) -> Result<Self, RequestError> {
        let truncates = refuse(object)?;
        let model = model(object, known)?;
        let include = Include::read(object)?;
        let tools = DeclaredFields::read(object)?;
        let text = TextFields::read(object)?;
        let reasoning = ReasoningFields::read(object)?;
        let background = body_member(object, "background", "true or false")?.unwrap_or(false);
        let shown = shown(object, head)?;
        let is_named = head.session.is_some() || object.get_some("session_id").is_some();
        let in_session = is_named || known.session.is_some();
        let input = InputFields::read(object, known, in_session)?;
        refuse_unstored(object, &input.decisions)?;
        let instructions: Option<String> = body_member(object, "instructions", "a string")?;
        let max_output_tokens = max_output_tokens(object)?;
        body_member::<RawObject<'_>>(object, "stream_options", "an object")?;
        let top_logprobs: Option<u64> = body_member(object, "top_logprobs", WHOLE)?;
        let logprobs = include.logprobs || top_logprobs.is_some_and(|count| count > 0);
        let conversation = References::conversation_of(object)?;
        let echo = Echo {
            object,
            model: &model,
            tools: &tools.echo,
            text: &text.echo,
            reasoning: &reasoning.echo,
            conversation: conversation.as_deref(),
            background,
        };
        let echo = echo.write()?;
        let stream = body_member(object, "stream", "true or false")?.unwrap_or(false);
        let options = ResponseOptions {
            stream,
            background,
            store: body_member(object, "store", "true or false")?.unwrap_or(true),
            echo,
            summary: reasoning.summary,
            encrypted_reasoning: include.encrypted_reasoning,
            logprobs,
            web_sources: include.web_sources,
            web_results: include.web_results,
            code_outputs: include.code_outputs,
            on_limit: OnLimit::default(),
            names: tools.names,
            notices: input.notice().into_iter().collect(),
            origin: head.origin.clone(),
            shown,
            declares_web: tools.declares_web,
            declares_code: tools.declares_code,
            servers: tools.servers,
            listed: Vec::new(),
            container: tools.container,
            positions: input.positions,
        };
        let derived = [
            ("response_format", text.response_format),
            ("verbosity", text.verbosity),
            ("reasoning_effort", reasoning.effort),
            ("logprobs", logprobs.then(|| "true".to_owned())),
        ];
        Ok(Self {
            wants_json: derived[0].1.is_some(),
            members: members(object, &derived),
            model,
            entries: tools.entries,
            choice: tools.choice,
            messages: input.messages,
            instructions,
            max_output_tokens,
            unknown_calls: input.unknown_calls,
            decisions: input.decisions,
            truncates,
            options,
        })
    }
}

/// The model of the request, or the model of the response that it continues.
fn model(object: &RawObject<'_>, known: &KnownHistory) -> Result<String, RequestError> {
    let model: Option<String> = body_member(object, "model", "a string")?;
    model.or_else(|| known.model.clone()).ok_or_else(|| {
        let message = "'model' is missing; send the id of a model that GET /v1/models lists";
        RequestError::field("model", message)
    })
}

fn max_output_tokens(object: &RawObject<'_>) -> Result<Option<u64>, RequestError> {
    match body_member(object, "max_output_tokens", WHOLE)? {
        Some(0) => {
            let problem = "must be a whole number of 1 or more";
            Err(RequestError::invalid("max_output_tokens", problem))
        }
        most => Ok(most),
    }
}

/// The members of the model calls: members that are derived from others, and members that go to the model server
/// unchanged.
fn members(object: &RawObject<'_>, derived: &[(&str, Option<String>)]) -> String {
    let mut members = String::from("{");
    for (key, value) in derived {
        if let Some(value) = value {
            push_entry(&mut members, key, value);
        }
    }
    let is_derived = |key: &str| {
        let mut derived = derived.iter();
        derived.any(|(known, value)| *known == key && value.is_some())
    };
    for (key, value) in object.iter() {
        let is_own = OWN.contains(&key) || ExtensionFields::NAMES.contains(&key);
        if !is_own && !is_derived(key) && value.get() != "null" {
            push_entry(&mut members, key, value.get());
        }
    }
    members.remove(0);
    members
}

/// Refuses members that are not supported, so that none of them is ignored silently. Returns whether `truncation` is `auto`.
fn refuse(object: &RawObject<'_>) -> Result<bool, RequestError> {
    for key in UNSUPPORTED {
        if object.get_some(key).is_some() {
            let problem = "is not supported; leave it out";
            return Err(RequestError::invalid(key, problem));
        }
    }
    let stored = body_member::<bool>(object, "store", "true or false")?.unwrap_or(true);
    if body_member(object, "background", "true or false")? == Some(true) && !stored {
        let problem = "needs a stored response; leave out 'store' or send \"store\": true";
        return Err(RequestError::invalid("background", problem));
    }
    let words = "\"auto\" or \"disabled\"";
    match body_member::<String>(object, "truncation", words)?.as_deref() {
        None | Some("disabled") => Ok(false),
        Some("auto") => Ok(true),
        Some(_) => Err(RequestError::invalid(
            "truncation",
            &format!("must be {words}"),
        )),
    }
}

/// Which calls are shown.
fn shown(object: &RawObject<'_>, head: &RequestHead) -> Result<ShownItems, RequestError> {
    let agent: Option<RawObject<'_>> = body_member(object, "agent", "an object")?;
    let agent = agent.unwrap_or_default();
    let by_head = head.progress.as_deref();
    let by_head = by_head.map(|word| one_of(PROGRESS_HEADER, word, &SHOWN));
    let by_body = agent.get_some("progress").map(|word| {
        // What is no string is none of the words.
        let word: String = serde_json::from_str(word.get()).unwrap_or_default();
        one_of("agent.progress", &word, &SHOWN)
    });
    let asked = by_body.transpose()?.or(by_head.transpose()?);
    if agent.get_some("background").is_some() {
        let problem = "is for chat completions; send 'background'";
        return Err(RequestError::invalid("agent.background", problem));
    }
    let is_strict = || {
        let mut strict = STRICT_CLIENTS.iter();
        strict.any(|client| head.user_agent.contains(client))
    };
    Ok(match asked.flatten() {
        Some(shown) => shown,
        None if is_strict() => ShownItems::Declared,
        None => ShownItems::All,
    })
}

/// The members of a response that follow from its request.
#[derive(Debug)]
struct Echo<'a> {
    object: &'a RawObject<'a>,
    model: &'a str,
    tools: &'a [String],
    text: &'a str,
    reasoning: &'a str,
    conversation: Option<&'a str>,
    background: bool,
}

impl Echo<'_> {
    /// The members without braces.
    fn write(&self) -> Result<String, RequestError> {
        let mut echo = String::from("{");
        push_entry(
            &mut echo,
            "background",
            if self.background { "true" } else { "false" },
        );
        push_entry(&mut echo, "model", &quoted(self.model));
        for key in [
            "instructions",
            "user",
            "safety_identifier",
            "prompt_cache_key",
        ] {
            self.member::<String>(&mut echo, key, "a string", "null")?;
        }
        self.member::<String>(&mut echo, "previous_response_id", "a string", "null")?;
        let conversation = match self.conversation {
            Some(id) => format!("{{\"id\":{}}}", quoted(id)),
            None => "null".to_owned(),
        };
        push_entry(&mut echo, "conversation", &conversation);
        push_entry(&mut echo, "tools", &format!("[{}]", self.tools.join(",")));
        self.member::<Value>(&mut echo, "tool_choice", "a choice", "\"auto\"")?;
        let flag = "true or false";
        self.member::<bool>(&mut echo, "parallel_tool_calls", flag, "true")?;
        self.member::<bool>(&mut echo, "store", flag, "true")?;
        self.member::<u64>(&mut echo, "max_output_tokens", WHOLE, "null")?;
        self.member::<u64>(&mut echo, "max_tool_calls", WHOLE, "null")?;
        self.member::<u64>(&mut echo, "top_logprobs", WHOLE, "0")?;
        push_entry(&mut echo, "text", self.text);
        push_entry(&mut echo, "reasoning", self.reasoning);
        for (key, default) in [
            ("temperature", "1.0"),
            ("top_p", "1.0"),
            ("presence_penalty", "0"),
            ("frequency_penalty", "0"),
        ] {
            self.member::<f64>(&mut echo, key, "a number", default)?;
        }
        self.member::<String>(&mut echo, "truncation", "a string", "\"disabled\"")?;
        self.member::<String>(&mut echo, "service_tier", "a string", "\"default\"")?;
        push_entry(&mut echo, "metadata", &self.metadata()?);
        echo.remove(0);
        // What is echoed as it came may have line breaks, which would end a line of a stream.
        match memchr2(b'\n', b'\r', echo.as_bytes()) {
            Some(_) => Ok(echo.replace(['\n', '\r'], " ")),
            None => Ok(echo),
        }
    }

    /// A member as it was asked for, if it has the right type, or the default.
    fn member<'a, T: Deserialize<'a>>(
        &'a self,
        echo: &mut String,
        key: &str,
        expected: &str,
        default: &str,
    ) -> Result<(), RequestError> {
        body_member::<T>(self.object, key, expected)?;
        let value = self.object.get_some(key);
        push_entry(
            echo,
            key,
            &value.map_or_else(|| default.to_owned(), |value| value.get().to_owned()),
        );
        Ok(())
    }

    fn metadata(&self) -> Result<String, RequestError> {
        Ok(Value::Object(metadata(self.object)?.unwrap_or_default()).to_string())
    }
}
