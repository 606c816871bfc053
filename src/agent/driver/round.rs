//! One round of a run: the model call, and the decision about its answer.

use std::time::Instant;

use super::super::call::{Call, LARGE_ARGUMENTS, Resolver};
use super::super::event::Notice;
use super::super::machine::{AfterModelCall, BeforeModelCall, Offer, ReplyFacts};
use super::super::model_call::{ActiveModelCall, ModelAnswer, ModelCallContext};
use super::super::policy::CallDecision;
use super::super::stop::StopReason;
use super::super::token_estimate::estimate_input;
use super::super::traced::ModelSpan;
use super::super::{AgentError, InputTokens};
use super::{Aborted, Phase, Run};
use net::polling::block_in_place_if;
use protocol::openai::tool::ToolCall;
use protocol::openai::usage::FinishReason;
use tools::refusal::CallRefusal;
use upstream::assemble::ModelReply;
use upstream::learned::LearnedQuirk;
use upstream::retry::is_too_long;
use upstream::settings::FinalCall;
use upstream::{ModelCall, Upstream};

/// Threshold of calls in an answer above which their validation may take long.
const MANY_CALLS: usize = 8;

impl Run {
    /// Starts the next model call, or ends the turn if the machine decides so.
    pub(super) async fn start_model_call(
        &mut self,
        aborted: &mut Aborted,
    ) -> Result<(), AgentError> {
        if self.control.stops_after_round() {
            return self.abort().await;
        }
        let output_left = self.output_left();
        if output_left == Some(0) {
            return self.stop_at_limit(StopReason::Length).await;
        }
        let offer = match self.turn.machine.before_model_call(self.age()) {
            BeforeModelCall::Call(offer) => offer,
            BeforeModelCall::Finish(reason) => return self.stop_at_limit(reason).await,
            BeforeModelCall::Fail(reason) => {
                self.fail_at_limit(reason);
                return Ok(());
            }
        };
        if let Offer::Withheld(reason) = offer {
            self.limit_notice(reason);
        }
        self.last_buffered.clear();
        if self.turn.machine.rounds() > 0 {
            let sources = self
                .parts
                .tools
                .sources
                .snapshot_for(&self.request.caller.owner);
            self.request.tools.follow(&sources);
        }
        let opened = loop {
            if !Box::pin(self.ask_before_model()).await? {
                return Ok(());
            }
            let mut call = self.model_call(offer, output_left);
            let services = &self.parts.tools;
            let span = ModelSpan::begin(
                &services.traces,
                services.redactor.as_ref(),
                &self.request,
                self.traced_session(),
                &mut call,
            );
            let waiting_since = Instant::now();
            let mut context = ModelCallContext {
                router: &self.parts.router,
                metrics: &self.parts.metrics,
                request: &self.request,
                prompt: &mut self.prompt,
            };
            let opened = tokio::select! {
                biased;
                () = &mut *aborted => None,
                opened = ActiveModelCall::open(&mut context, call, offer, span) => Some(opened),
            };
            self.waited += waiting_since.elapsed();
            match opened {
                None => return self.abort().await,
                Some(Err(error)) if self.shorten(&error) => {}
                Some(opened) => break opened,
            }
        };
        let (call, notices) = opened?;
        if !self.started_queued {
            self.queue_start(call.headers());
        }
        notices.into_iter().for_each(|notice| self.notify(notice));
        self.answer_text.begin_round();
        self.phase = Phase::ModelCall(Box::new(call));
        Ok(())
    }

    /// Leaves the oldest turns out of a prompt that was refused as too long. Returns whether there were any.
    fn shorten(&mut self, error: &AgentError) -> bool {
        let is_too_long = matches!(error, AgentError::Upstream(error) if is_too_long(error));
        if !is_too_long || !self.prompt.shorten() {
            return false;
        }
        let left_out = Notice {
            kind: "truncated".into(),
            message: "the prompt was too long for the model; its oldest turns were left out"
                .to_owned(),
        };
        match self.started_queued {
            true => self.notify(left_out),
            false => self.request.notices.push(left_out),
        }
        true
    }

    /// How many tokens the model may still write, if that is limited.
    fn output_left(&self) -> Option<u64> {
        let most = self.turn.limits.max_output_tokens?;
        Some(most.saturating_sub(self.turn.output_tokens))
    }

    fn model_call(&self, offer: Offer, output_left: Option<u64>) -> ModelCall {
        let tools = self.request.tools.tools_json();
        let template = &self.request.call;
        let removes_tools = self.request.route.quirks.final_call == FinalCall::RemoveTools;
        let (tools, tool_choice) = match offer {
            _ if tools.is_none() => (None, None),
            Offer::Forbidden | Offer::Withheld(_) if removes_tools => (None, None),
            Offer::AsRequested | Offer::Forbidden => (tools, template.first_choice.clone()),
            Offer::Unforced => (tools, template.later_choice.clone()),
            Offer::Removed(_) => (None, None),
            Offer::Withheld(_) => (tools, Some("\"none\"".into())),
        };
        let fields = match tools {
            Some(_) => template.fields.clone(),
            None => template.fields_without_tools.clone(),
        };
        ModelCall {
            model: self.request.model.clone(),
            fields,
            stream_options: template.stream_options.clone(),
            tools,
            tool_choice,
            max_output_tokens: output_left,
            transcript: self.prompt.transcript().clone(),
            streams: true,
            sends_stream_options: true,
            headers: self.request.caller.headers.clone(),
            session: self.turn_env.workspace().clone(),
        }
    }

    /// The tokens that the next model call would send. The run ends without an answer, and is not counted as a turn.
    pub(in super::super) async fn input_tokens(mut self) -> InputTokens {
        self.counted = true;
        let call = self.model_call(Offer::AsRequested, None);
        for upstream in self.request.route.upstreams() {
            if let Some(tokens) = upstream.count_tokens(&call).await {
                return InputTokens {
                    tokens,
                    estimated: false,
                };
            }
        }
        InputTokens {
            tokens: estimate_input(self.prompt.transcript(), call.tools.as_deref()),
            estimated: true,
        }
    }

    /// Ends the model call: starts the batch of its calls, or ends the turn.
    pub(super) async fn end_model_call(&mut self, answer: ModelAnswer) -> Result<(), AgentError> {
        self.phase = Phase::Over;
        let ModelAnswer {
            mut reply,
            mut buffered,
            of_message,
            with_tools,
            upstream,
            ..
        } = answer;
        let tokens = self.count_answer(&reply, upstream.name());
        self.finish_reason = reply.finish;
        let resolved = self.resolve(&mut reply);
        let facts: Vec<_> = resolved.iter().map(|call| call.facts).collect();
        let after = self.turn.machine.after_model_call(&ReplyFacts {
            finish: &reply.finish,
            tokens,
            calls: &facts,
            has_answer: reply.has_answer(),
            with_tools,
        });
        match after {
            AfterModelCall::AskAgain => {
                self.learn(LearnedQuirk::WithheldTools, &*upstream);
                let _dropped = self.end_round(&reply.text, buffered);
                self.phase = Phase::BeforeModelCall;
                Ok(())
            }
            AfterModelCall::Finish(reason)
                if !reply.has_answer() && self.unanswered_sentence(reason).is_some() =>
            {
                self.finish_unanswered(reason, reply, buffered).await
            }
            AfterModelCall::Finish(reason) => {
                self.finish_answered(reason, &reply, buffered, of_message)
                    .await
            }
            AfterModelCall::Abandon(reason) => {
                self.queue_events(buffered);
                self.limit_notice(reason);
                let mut end = self.unrun_messages(&reply, &resolved, &CallRefusal::at_limit());
                end.extend(self.explain_limit(reason));
                self.finish(reason, end).await
            }
            AfterModelCall::Fail(reason) => {
                // A turn that fails in its first round stores nothing.
                if self.turn.machine.round() > 0 {
                    let end = self.unrun_messages(&reply, &resolved, &CallRefusal::at_limit());
                    self.store(end, Vec::new()).await;
                }
                self.fail_at_limit(reason);
                Ok(())
            }
            AfterModelCall::Batch(_) if self.control.stops_after_round() => {
                self.queue_events(buffered);
                let end = self.unrun_messages(&reply, &resolved, &CallRefusal::cancelled());
                self.finish(StopReason::Cancelled, end).await
            }
            AfterModelCall::Batch(decisions) => {
                let calls = decided(resolved, decisions);
                if calls.iter().all(Call::is_of_client) {
                    buffered.extend(of_message);
                }
                self.start_batch(&reply, buffered, calls).await;
                Ok(())
            }
        }
    }

    /// Takes the calls out of a reply, with all that is known about them.
    fn resolve(&self, reply: &mut ModelReply) -> Vec<Call> {
        let model_calls: Vec<ToolCall> = std::mem::take(&mut reply.calls)
            .into_iter()
            .map(|assembled| assembled.call)
            .collect();
        let bytes: usize = model_calls.iter().map(|call| call.arguments.len()).sum();
        // Repair and validation are bounded for each call. Many or large calls together may still take long.
        let long = model_calls.len() > MANY_CALLS || bytes > LARGE_ARGUMENTS;
        let resolver = Resolver {
            tools: &self.request.tools,
            gate: &self.parts.tools.gate,
            cut_off: reply.finish == FinishReason::Length,
        };
        block_in_place_if(long, || resolver.resolve(model_calls))
    }

    /// Says it if the model called no tool although it had to.
    pub(super) fn check_choice(&mut self, answer: &ModelAnswer) {
        let ModelAnswer {
            was_forced, reply, ..
        } = answer;
        if !was_forced || !reply.calls.is_empty() || reply.finish != FinishReason::Stop {
            return;
        }
        self.learn(LearnedQuirk::IgnoredChoice, &*answer.upstream);
        self.notify(Notice {
            kind: "tool_choice_ignored".into(),
            message: "the request asks for a tool call, and the model answered without one; the model server or the template \
                      of the model ignores the choice of tools"
                .to_owned(),
        });
    }

    fn learn(&self, quirk: LearnedQuirk, upstream: &dyn Upstream) {
        let learned = self.parts.router.learned();
        learned.learn(quirk, upstream, &self.request.model);
    }
}

/// The calls with what was decided about them.
fn decided(mut calls: Vec<Call>, decisions: Vec<CallDecision>) -> Vec<Call> {
    for (call, decision) in calls.iter_mut().zip(decisions) {
        call.decision = decision;
    }
    calls
}
