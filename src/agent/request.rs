//! From a request's body to what a run needs, or to the finding that no run is needed.

mod hosted;

use std::sync::Arc;

use http::HeaderMap;

use self::hosted::{Own, declared, hosted_entries};
use super::Agent;
use super::code::{CODE_INTERPRETER, CodeAsk};
use super::conversation::find_by_call;
use super::options::{EXTENSION_FIELDS, Options};
use super::transcript;
use super::web::{self, WEB_SEARCH_OPTIONS, names_web_search};
use crate::ids::{Owner, RequestId, SessionId};
use crate::openai::message::Message;
use crate::openai::request::{ChatBody, RequestError};
use crate::openai::tool::ToolDefinition;
use crate::tools::set::{Lookup, ToolFilter, ToolSet};
use crate::tools::web::{WebAccess, WebAsk};
use crate::upstream::router::Route;

/// Body fields that a model call writes itself.
const REWRITTEN_FIELDS: [&str; 6] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "stream",
    "stream_options",
];
/// OpenAI's name for a budget that the loop keeps itself.
const CONSUMED_FIELDS: [&str; 1] = ["max_tool_calls"];
/// Body fields that servers refuse in a call without tools.
const TOOL_FIELDS: [&str; 1] = ["parallel_tool_calls"];

/// Who asks, and what came with the request besides its body.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The request's id.
    pub request_id: RequestId,
    /// The key behind the request.
    pub owner: Owner,
    /// The session id that a header carried.
    pub session_header: Option<SessionId>,
    /// Headers that the upstream should see.
    pub headers: Arc<HeaderMap>,
    /// `traceparent` and `tracestate`, for tools.
    pub trace: HeaderMap,
    /// Most messages taken.
    pub max_messages: usize,
}

/// What becomes of a chat request.
#[derive(Debug)]
pub enum Decision {
    /// It goes to the upstream as it is.
    PassThrough {
        /// But for this field.
        without: Option<&'static str>,
        /// Unless a turn waits for the result of this call.
        unless: Option<String>,
    },
    /// It enters the loop.
    Run(Box<RunRequest>),
}

/// A chat request in the loop.
#[derive(Debug)]
pub struct RunRequest {
    /// Who asks.
    pub caller: Caller,
    /// The model as the client named it.
    pub model: String,
    /// The request's `user`.
    pub user: Option<String>,
    /// The extensions.
    pub options: Options,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// Whether a stream ends with a usage chunk.
    pub include_usage: bool,
    /// `stream_options` as JSON text.
    pub stream_options: Option<Arc<str>>,
    /// The messages.
    pub messages: Vec<Message>,
    /// The members that go upstream untouched.
    pub fields: Arc<str>,
    /// Those of them that a call without tools may have.
    pub fields_without_tools: Arc<str>,
    /// `tool_choice` as JSON text.
    pub tool_choice: Option<Arc<str>>,
    /// The tools of this request.
    pub tools: ToolSet,
    /// What is asked of code execution.
    pub code: Option<CodeAsk>,
    /// The upstreams that may answer.
    pub route: Arc<Route>,
}

impl Agent {
    /// Decides what becomes of a chat request.
    ///
    /// # Errors
    /// When a field that loopwright acts on is wrong; what passes through is left for the upstream to judge.
    pub fn decide(&self, body: &ChatBody<'_>, caller: &Caller) -> Result<Decision, RequestError> {
        let route = self.route(body)?;
        let (code, web) = (self.code(body)?, self.web(body)?);
        let declared = declared(body, &route, self.own())?;
        let asks = code.is_some() || web.is_some();
        let used = Options::used(body) || caller.session_header.is_some() || asks;
        let zero_rounds = !used
            && body
                .field("max_tool_rounds")
                .is_some_and(|value| value.get() == "0");
        // The legacy `functions` API knows no tool messages: what it offers can only be run by the client.
        let client_only = zero_rounds || !self.offers_unasked() || body.has("functions");
        if used || !client_only {
            let options = self.options(body, caller)?;
            let tools = self.tools(declared, &options, (code.as_ref(), web.as_ref()))?;
            if used || tools.has_server_tools() {
                let asked = Asked {
                    options,
                    tools,
                    code,
                };
                let run = self.read(body, caller, route, asked)?;
                return Ok(Decision::Run(Box::new(run)));
            }
        }
        Ok(Decision::PassThrough {
            without: zero_rounds.then_some("max_tool_rounds"),
            unless: body.answered_call(),
        })
    }

    /// Whether a turn of this owner waits for the result of a call.
    pub async fn waits_for(&self, owner: &Owner, call: &str) -> bool {
        self.parts.store.parked(owner, call).is_some()
            || find_by_call(&self.parts, owner, call).await.is_some()
    }

    /// Reads what a run needs, whether or not the request asks for one.
    ///
    /// # Errors
    /// When a field that loopwright acts on is wrong.
    pub fn run_request(
        &self,
        body: &ChatBody<'_>,
        caller: &Caller,
    ) -> Result<RunRequest, RequestError> {
        let route = self.route(body)?;
        let options = self.options(body, caller)?;
        let (code, web) = (self.code(body)?, self.web(body)?);
        let declared = declared(body, &route, self.own())?;
        let tools = self.tools(declared, &options, (code.as_ref(), web.as_ref()))?;
        let asked = Asked {
            options,
            tools,
            code,
        };
        self.read(body, caller, route, asked)
    }

    fn code(&self, body: &ChatBody<'_>) -> Result<Option<CodeAsk>, RequestError> {
        CodeAsk::parse(body, self.parts.code.is_some())
    }

    /// What the request asks of the web; `None` also where that is the upstream's business.
    fn web(&self, body: &ChatBody<'_>) -> Result<Option<WebAsk>, RequestError> {
        match self.parts.web {
            Some(_) => web::parse(body),
            None => Ok(None),
        }
    }

    /// The hosted tools of OpenAI's whose work is done here.
    fn own(&self) -> Own {
        Own {
            code: self.parts.code.is_some(),
            web: self.parts.web.is_some(),
        }
    }

    /// Whether a request gets server-side tools that does not ask for any.
    fn offers_unasked(&self) -> bool {
        let web = self.parts.web.as_ref();
        !self.parts.tools.is_empty() || web.is_some_and(WebAccess::is_unasked)
    }

    fn route(&self, body: &ChatBody<'_>) -> Result<Arc<Route>, RequestError> {
        let model = body.model()?;
        self.parts.router.candidates(&model).ok_or_else(|| {
            let message = format!("no upstream serves the model '{model}'; see GET /v1/models");
            RequestError {
                missing: true,
                ..RequestError::field("model", message)
            }
        })
    }

    fn options(&self, body: &ChatBody<'_>, caller: &Caller) -> Result<Options, RequestError> {
        Options::parse(body, caller.session_header.clone(), &self.parts.settings)
    }

    fn tools(
        &self,
        declared: Vec<ToolDefinition>,
        options: &Options,
        (code, web): (Option<&CodeAsk>, Option<&WebAsk>),
    ) -> Result<ToolSet, RequestError> {
        let filter = tool_filter(options)?;
        let mut asked = match (code, &self.parts.code) {
            (Some(ask), Some(code)) => code.tools(&ask.wanted),
            (None, _) | (_, None) => Vec::new(),
        };
        match (web, &self.parts.web) {
            (Some(ask), Some(access)) => asked.extend(access.tools(ask)),
            (None, Some(access)) if access.is_unasked() => asked.extend(access.list().cloned()),
            (None, _) | (_, None) => {}
        }
        let set = self.parts.tools.for_request(declared, &asked, &filter);
        set.map_err(|error| RequestError::field("tools", error.to_string()))
    }

    fn read(
        &self,
        body: &ChatBody<'_>,
        caller: &Caller,
        route: Arc<Route>,
        asked: Asked,
    ) -> Result<RunRequest, RequestError> {
        let Asked {
            options,
            tools,
            code,
        } = asked;
        let own = self.own();
        let hosted = hosted_entries(body, own)?;
        let tools = tools.with_hosted(&hosted);
        refuse_several_choices(body, &tools)?;
        self.refuse_unknown_choice(body, &tools)?;
        let left_out: Vec<&str> = [
            &EXTENSION_FIELDS[..],
            &REWRITTEN_FIELDS[..],
            &CONSUMED_FIELDS[..],
            if own.web { &[WEB_SEARCH_OPTIONS] } else { &[] },
        ]
        .concat();
        Ok(RunRequest {
            model: body.model()?.into_owned(),
            user: body.typed("user", "a string")?,
            stream: body.stream()?,
            include_usage: body.include_usage()?,
            stream_options: body
                .field("stream_options")
                .map(|options| options.get().into()),
            messages: body.messages(caller.max_messages)?,
            fields: body.members_without(&left_out).into(),
            fields_without_tools: body
                .members_without(&[&left_out[..], &TOOL_FIELDS].concat())
                .into(),
            tool_choice: body
                .field("tool_choice")
                .and_then(|choice| self.tool_choice(choice.get(), &tools)),
            options,
            tools,
            code,
            route,
            caller: caller.clone(),
        })
    }

    /// Refuses a `tool_choice` that names a function which nobody has declared. A tool that the request's own filters leave
    /// out is another matter: it was declared, and the choice is left out with it.
    fn refuse_unknown_choice(
        &self,
        body: &ChatBody<'_>,
        tools: &ToolSet,
    ) -> Result<(), RequestError> {
        let choice = body.field("tool_choice");
        let Some(name) = choice.and_then(|choice| transcript::chosen_function(choice.get())) else {
            return Ok(());
        };
        let offered = !matches!(tools.lookup(&name), Lookup::Unknown);
        if offered
            || name == CODE_INTERPRETER
            || names_web_search(&name)
            || self.parts.tools.has(&name)
            || body.has("functions")
        {
            return Ok(());
        }
        let (declared, _) = body.tools()?;
        if declared.iter().any(|definition| definition.name == name) {
            return Ok(());
        }
        let message = format!(
            "'tool_choice' names the function '{name}', which is not declared; add it to 'tools', or choose another"
        );
        Err(RequestError::field("tool_choice", message))
    }

    /// `tool_choice` as it is sent: what names OpenAI's hosted tool means ours.
    fn tool_choice(&self, choice: &str, tools: &ToolSet) -> Option<Arc<str>> {
        let own = self.own();
        let meant = transcript::with_own(choice, tools, |kind| own.tool(kind));
        transcript::offered(&meant, tools)
    }
}

/// What a request asks for, read and checked.
#[derive(Debug)]
struct Asked {
    options: Options,
    tools: ToolSet,
    code: Option<CodeAsk>,
}

fn tool_filter(options: &Options) -> Result<ToolFilter, RequestError> {
    let patterns = &options.tools;
    let (allow, deny) = (patterns.allow.as_deref(), patterns.deny.as_deref());
    let client_tools = options.client_tools.as_deref();
    // Read alone first, so that an error names the right list.
    ToolFilter::parse(None, None, client_tools, false)
        .map_err(|error| RequestError::field("agent.client_tools", error.to_string()))?;
    ToolFilter::parse(allow, deny, client_tools, options.max_tool_rounds > 0)
        .map_err(|error| RequestError::field("agent.tools", error.to_string()))
}

fn refuse_several_choices(body: &ChatBody<'_>, tools: &ToolSet) -> Result<(), RequestError> {
    let choices: Option<u64> = body.typed("n", "a whole number")?;
    match choices {
        Some(n) if n != 1 && tools.has_server_tools() => {
            let message = format!(
                "'n' is {n}, but server-side tools need 'n' to be 1; leave 'n' out or switch the tools off with \"max_tool_rounds\": 0"
            );
            Err(RequestError::field("n", message))
        }
        Some(n) if n != 1 => {
            let message = format!(
                "'n' is {n}, but a request with a session or other extensions needs 'n' to be 1; leave 'n' out"
            );
            Err(RequestError::field("n", message))
        }
        _ => Ok(()),
    }
}
