//! The spans of a turn: its own, and the spans of its model calls and tool calls. Without a collector there are none,
//! and each function only checks an empty option.

mod contents;

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;

use self::contents::{input_messages, output_messages, shortened};
use super::AgentError;
use super::call::Call;
use super::event::ToolCallRecord;
use super::stop::{StopReason, TurnEnd};
use super::turn::TurnRequest;
use crate::traces::{Span, TracedCall, TracedReply, TracedTurn, Traces};
use policy::redact::Redactor;
use protocol::ids::{RunId, SessionId, shown};
use protocol::openai::usage::{FinishReason, Usage};
use tools::{CallContext, ToolStatus};
use upstream::assemble::ModelReply;
use upstream::fail_over::FailOver;
use upstream::{AnswerId, ModelCall};

/// The operation of a model call.
const CHAT: &str = "chat";

/// The span of a model call, which includes its retries.
#[derive(Debug)]
pub(super) struct ModelSpan {
    span: Span,
    redactor: Option<Redactor>,
}

/// The span of a tool call.
#[derive(Debug)]
pub(super) struct CallSpan(Span);

/// Begins the span of a turn, which becomes the parent of what the turn leads to.
pub(super) fn begin_turn(traces: &Traces, request: &mut TurnRequest, run: &RunId) -> Option<Span> {
    if !traces.is_on() {
        return None;
    }
    let caller = &mut request.caller;
    let turn = TracedTurn {
        model: &shown(&request.model),
        provider: request.route.candidate(0).provider(),
        run: run.as_str(),
        is_resumed: caller.is_resumed,
    };
    let span = traces.turn(&caller.trace, turn)?;
    caller.trace = span.headers();
    Some(span)
}

/// How a turn has ended, for its span.
#[derive(Debug)]
pub(super) struct TracedEnd<'a> {
    pub(super) end: TurnEnd,
    /// The class of the error, if it failed.
    pub(super) error: Option<Cow<'static, str>>,
    /// The session, if it is stored or may be.
    pub(super) session: Option<&'a SessionId>,
    pub(super) finish: FinishReason,
    pub(super) usage: Option<&'a Usage>,
    pub(super) rounds: u32,
}

/// Ends the span of a turn.
pub(super) fn end_turn(mut span: Span, ended: TracedEnd<'_>) {
    let TracedEnd {
        end,
        error,
        session,
        finish,
        usage,
        rounds,
    } = ended;
    let has_answer = error.is_none() && matches!(end, TurnEnd::Stopped(_));
    span.in_session(session.map(SessionId::as_str));
    span.replied(&TracedReply {
        finish: has_answer.then(|| finish.as_str()),
        input_tokens: usage.map(Usage::prompt_tokens),
        output_tokens: usage.map(Usage::completion_tokens),
        ..TracedReply::default()
    });
    span.stopped(end.as_str(), rounds);
    match (error, end) {
        (Some(class), _) => span.fail(class),
        (None, TurnEnd::Failed | TurnEnd::Cancelled | TurnEnd::Stopped(StopReason::Cancelled)) => {
            span.fail(end.as_str());
        }
        (None, TurnEnd::Stopped(_)) => span.end(),
    }
}

impl AgentError {
    /// The class of the error, for traces.
    pub(super) fn class(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Upstream(error) => return error.class(),
            Self::Session(_) => "session",
            Self::NoPosition
            | Self::NothingWaits
            | Self::UnknownCall { .. }
            | Self::Approval { .. }
            | Self::NoSession => "invalid_request",
            Self::NeedsApproval { .. } => "approval_required",
            Self::Limit(reason) => reason.as_str(),
            Self::InputFile(_) | Self::Files(_) => "file",
            Self::Hook => "hook",
            Self::Stopping => "stopping",
        })
    }
}

impl ModelSpan {
    /// Begins the span of a model call, whose requests name it.
    pub(super) fn begin(
        traces: &Traces,
        redactor: Option<&Redactor>,
        request: &TurnRequest,
        session: Option<&SessionId>,
        call: &mut ModelCall,
    ) -> Option<Box<Self>> {
        if !traces.is_on() {
            return None;
        }
        let model = shown(&call.model);
        let mut span = traces.model_call(&request.caller.trace, CHAT, Some(&model))?;
        span.in_session(session.map(SessionId::as_str));
        let mut headers = HeaderMap::clone(&call.headers);
        span.put(&mut headers);
        call.headers = Arc::new(headers);
        Some(Box::new(Self {
            span,
            redactor: redactor.cloned(),
        }))
    }

    /// The call has failed for good.
    pub(super) fn failed(mut self, error: &AgentError, fail_over: &FailOver) {
        self.at_upstream(fail_over);
        self.span.fail(error.class());
    }

    pub(super) fn answered(
        mut self,
        reply: &ModelReply,
        call: &ModelCall,
        fail_over: &FailOver,
        id: &AnswerId,
    ) {
        let usage = reply.usage.as_ref();
        self.at_upstream(fail_over);
        self.span.replied(&TracedReply {
            id: id.get(),
            model: reply.model.as_deref().map(shown).as_deref(),
            finish: Some(reply.finish.as_str()),
            input_tokens: usage.map(Usage::prompt_tokens),
            output_tokens: usage.map(Usage::completion_tokens),
        });
        if self.span.has_contents() {
            let redactor = self.redactor.as_ref();
            self.span
                .has_input(input_messages(&call.transcript, redactor));
            self.span.has_output(output_messages(reply, redactor));
        }
        self.span.end();
    }

    fn at_upstream(&mut self, fail_over: &FailOver) {
        let upstream = fail_over.upstream();
        let (name, url) = (upstream.name(), upstream.address());
        self.span.at_upstream(name, url, upstream.provider());
        self.span.retried(fail_over.retries());
    }
}

impl CallSpan {
    /// Begins the span of a call, unless the call is hidden from the client.
    pub(super) fn begin(traces: &Traces, context: &CallContext, call: &Call) -> Option<Self> {
        if !traces.is_on() || !call.shown() {
            return None;
        }
        let traced = TracedCall {
            tool: &shown(&call.call.name),
            id: &call.call.id,
            session: context.session_id.as_ref().map(SessionId::as_str),
        };
        traces.tool_call(&context.trace, traced).map(Self)
    }

    /// The headers that name the span.
    pub(super) fn headers(&self) -> HeaderMap {
        self.0.headers()
    }

    /// Ends the span of a call with the record that the client gets.
    pub(super) fn ended(mut self, record: &ToolCallRecord, redactor: Option<&Redactor>) {
        if self.0.has_contents() {
            self.0.has_arguments(shortened(&record.arguments, redactor));
            // Secrets are hidden in results.
            self.0.has_result(shortened(&record.content, None));
        }
        let status = record.status.as_str();
        self.0.has_status(status);
        match record.status {
            ToolStatus::Ok => self.0.end(),
            ToolStatus::Error
            | ToolStatus::Timeout
            | ToolStatus::Denied
            | ToolStatus::Suppressed
            | ToolStatus::Interrupted
            | ToolStatus::Cancelled => self.0.fail(status),
        }
    }

    /// The call waits for a decision. Once there is one, it has another span.
    pub(super) fn waits(mut self) {
        self.0.has_status("waiting");
        self.0.end();
    }
}
