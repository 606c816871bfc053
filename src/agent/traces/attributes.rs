//! The kinds of spans, with their names and attributes. They follow the semantic conventions for HTTP servers and for
//! generative AI; additional names begin with `loopwright.`.

use std::borrow::Cow;

use http::{HeaderMap, Method, StatusCode};
use url::Url;

use super::{Kind, Span, Start, Traces, Value};

/// Kind of a tool that runs on the side of the agent.
const TOOL_TYPE: &str = "extension";

/// An HTTP request that begins.
#[derive(Debug, Clone, Copy)]
pub struct TracedRequest<'a> {
    /// The method, which is a known one.
    pub method: &'a Method,
    /// The template of the path, if there is one.
    pub route: Option<&'a str>,
    /// The path.
    pub path: &'a str,
    /// The id of the request.
    pub id: &'a str,
}

/// A turn, which is the work of an agent.
#[derive(Debug, Clone, Copy)]
pub struct TracedTurn<'a> {
    /// The model as the client named it.
    pub model: &'a str,
    /// The provider of the model, if it is known.
    pub provider: &'a str,
    /// The id of the run.
    pub run: &'a str,
    /// The run resumes by itself: its span begins a new trace, with a link to the first one.
    pub is_resumed: bool,
}

/// A call of a server-side tool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TracedCall<'a> {
    /// The name of the tool.
    pub(crate) tool: &'a str,
    pub(crate) id: &'a str,
    /// The session, if it is stored.
    pub(crate) session: Option<&'a str>,
}

/// The facts about one answer of a model, or about all answers of a turn together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TracedReply<'a> {
    /// The id that the model server gave it.
    pub(crate) id: Option<&'a str>,
    /// The model's own name.
    pub(crate) model: Option<&'a str>,
    /// Why the model stopped.
    pub(crate) finish: Option<&'a str>,
    /// The tokens of the prompt.
    pub(crate) input_tokens: Option<u64>,
    /// The tokens that the model has written.
    pub(crate) output_tokens: Option<u64>,
}

impl Traces {
    /// Begins the span of a request, whose headers may name the client's own span.
    pub fn request(&self, headers: &HeaderMap, request: TracedRequest<'_>) -> Option<Span> {
        self.begin(|| {
            let TracedRequest {
                method,
                route,
                path,
                id,
            } = request;
            let mut attributes: Vec<(_, Value)> = vec![
                ("http.request.method", method.as_str().into()),
                ("url.path", path.into()),
                ("url.scheme", "http".into()),
                ("loopwright.request.id", id.into()),
            ];
            attributes.extend(route.map(|route| ("http.route", route.into())));
            Start {
                kind: Kind::Server,
                name: named(method.as_str(), route),
                attributes,
                parent: headers,
                is_linked: false,
            }
        })
    }

    /// Begins the span of a turn.
    pub fn turn(&self, parent: &HeaderMap, turn: TracedTurn<'_>) -> Option<Span> {
        const OPERATION: &str = "invoke_agent";
        self.begin(|| Start {
            kind: Kind::Internal,
            name: OPERATION.to_owned(),
            attributes: vec![
                ("gen_ai.operation.name", OPERATION.into()),
                ("gen_ai.provider.name", turn.provider.into()),
                ("gen_ai.request.model", turn.model.into()),
                ("loopwright.run.id", turn.run.into()),
            ],
            parent,
            is_linked: turn.is_resumed,
        })
    }

    /// Begins the span of a model call: an operation such as `chat` of a model, if the request names one.
    pub fn model_call(
        &self,
        parent: &HeaderMap,
        operation: &str,
        model: Option<&str>,
    ) -> Option<Span> {
        self.begin(|| {
            let mut attributes: Vec<(_, Value)> = vec![("gen_ai.operation.name", operation.into())];
            attributes.extend(model.map(|model| ("gen_ai.request.model", model.into())));
            Start {
                kind: Kind::Client,
                name: named(operation, model),
                attributes,
                parent,
                is_linked: false,
            }
        })
    }

    /// Begins the span of a tool call.
    pub(crate) fn tool_call(&self, parent: &HeaderMap, call: TracedCall<'_>) -> Option<Span> {
        const OPERATION: &str = "execute_tool";
        let span = self.begin(|| Start {
            kind: Kind::Internal,
            name: named(OPERATION, Some(call.tool)),
            attributes: vec![
                ("gen_ai.operation.name", OPERATION.into()),
                ("gen_ai.tool.name", call.tool.into()),
                ("gen_ai.tool.call.id", call.id.into()),
                ("gen_ai.tool.type", TOOL_TYPE.into()),
            ],
            parent,
            is_linked: false,
        });
        span.map(|mut span| {
            span.in_session(call.session);
            span
        })
    }
}

impl Span {
    /// The session that it belongs to, if it is stored.
    pub(crate) fn in_session(&mut self, id: Option<&str>) {
        if let Some(id) = id {
            self.set("gen_ai.conversation.id", id);
        }
    }

    /// The model server that is asked: its name in the settings, its base URL, and who provides it.
    pub fn at_upstream(&mut self, name: &str, url: &str, provider: &str) {
        self.set("loopwright.upstream", name);
        self.set("gen_ai.provider.name", provider);
        let url = Url::parse(url).ok();
        if let Some(url) = &url
            && let Some(host) = url.host_str()
        {
            self.set("server.address", host);
            if let Some(port) = url.port_or_known_default() {
                self.set("server.port", port);
            }
        }
    }

    /// How often the model server was asked again.
    pub fn retried(&mut self, times: usize) {
        if let Ok(times @ 1..) = u64::try_from(times) {
            self.set("loopwright.retries", times);
        }
    }

    /// What the model has answered.
    pub(crate) fn replied(&mut self, reply: &TracedReply<'_>) {
        let texts = [
            ("gen_ai.response.id", reply.id),
            ("gen_ai.response.model", reply.model),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                self.set(key, text);
            }
        }
        if let Some(finish) = reply.finish {
            let reasons = Value::Words(vec![finish.to_owned()]);
            self.set("gen_ai.response.finish_reasons", reasons);
        }
        let counts = [
            ("gen_ai.usage.input_tokens", reply.input_tokens),
            ("gen_ai.usage.output_tokens", reply.output_tokens),
        ];
        for (key, count) in counts {
            if let Some(count) = count {
                self.set(key, count);
            }
        }
    }

    /// How a turn ended, and its rounds of tools.
    pub(crate) fn stopped(&mut self, reason: &'static str, rounds: u32) {
        self.set("loopwright.stop_reason", reason);
        self.set("loopwright.rounds", rounds);
    }

    /// What became of a tool call.
    pub(crate) fn has_status(&mut self, status: &'static str) {
        self.set("loopwright.tool.status", status);
    }

    /// Ends the span of a request. `ended` says how its answer broke off, if it did.
    pub fn answered(mut self, status: Option<StatusCode>, ended: Option<&'static str>) {
        if let Some(status) = status {
            self.set("http.response.status_code", status.as_u16());
        }
        let failed = status.filter(StatusCode::is_server_error);
        let class = failed.map(|status| Cow::Owned(status.as_u16().to_string()));
        match class.or_else(|| ended.map(Cow::Borrowed)) {
            Some(class) => self.fail(class),
            None => self.end(),
        }
    }

    /// The messages of a model call, as the JSON text of the conventions.
    pub(crate) fn has_input(&mut self, messages: String) {
        self.set("gen_ai.input.messages", messages);
    }

    /// The message that the model answered with, in the same form.
    pub(crate) fn has_output(&mut self, messages: String) {
        self.set("gen_ai.output.messages", messages);
    }

    /// The arguments of a tool call.
    pub(crate) fn has_arguments(&mut self, arguments: String) {
        self.set("gen_ai.tool.call.arguments", arguments);
    }

    /// The result of a tool call.
    pub(crate) fn has_result(&mut self, result: String) {
        self.set("gen_ai.tool.call.result", result);
    }
}

/// The name of a span: an operation and its subject.
fn named(operation: &str, about: Option<&str>) -> String {
    match about {
        Some(about) => format!("{operation} {about}"),
        None => operation.to_owned(),
    }
}
