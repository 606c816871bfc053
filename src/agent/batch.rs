//! One batch of calls: its events for the client and its messages for the history.

mod context;
mod files;
mod kept;
mod outcome;
mod report;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};

use super::calls::ResolvedCall;
use super::contents::NamedContents;
use super::event::{AgentEvent, Notice, ToolCallRecord};
use super::images::image_message;
use super::policy::CallDecision;
use super::transcript;
use super::turn_bytes::TurnBytes;
use crate::openai::message::Message;
use crate::openai::tool::ToolCall;
use crate::session::StoredMessage;
use crate::tools::batch::{BatchCall, BatchEvent, BatchLimits, ToolResult, run};
use crate::tools::cap::cap_result;
use crate::tools::gate::CallRefusal;
use crate::tools::repair;
use crate::tools::{ToolOutput, ToolStatus};
use crate::upstream::assemble::ModelReply;
pub(super) use context::BatchContext;
use kept::KeptParts;
use outcome::{CallAnswer, digest};
pub(super) use report::millis;
use report::{
    add_note, calling, calling_without_arguments, cancelled_text, count_call, fill_blank, unseen,
};

/// A batch of calls. Dropping it cancels the running tools.
pub(super) struct Batch {
    context: BatchContext,
    reply: ModelReply,
    /// Buffered events of the model call before the batch.
    buffered: Vec<AgentEvent>,
    calls: Vec<ResolvedCall>,
    decisions: Vec<CallDecision>,
    running: BoxStream<'static, BatchEvent>,
    answers: Vec<Option<CallAnswer>>,
    /// Which of the calls that run have started, by index.
    started: Vec<Arc<AtomicBool>>,
    ready: VecDeque<AgentEvent>,
}

/// The outcome of one step of a batch.
#[derive(Debug)]
pub(super) enum BatchStep {
    /// An event for the client.
    Event(AgentEvent),
    /// Every server-side call has its answer.
    Ended,
    /// The turn is aborted.
    Aborted,
}

/// The outcome of a finished batch.
#[derive(Debug)]
pub(super) struct BatchOutcome {
    /// The messages for the history, in order.
    pub(super) messages: Vec<StoredMessage>,
    /// The images that they name.
    pub(super) images: NamedContents,
    /// The buffered events of the model call before the batch.
    pub(super) buffered: Vec<AgentEvent>,
    /// The texts of the results that have one, in the order of the calls.
    pub(super) contents: Vec<String>,
    /// The calls that the client is to run.
    pub(super) client_calls: Vec<ToolCall>,
    /// Bytes that the turn may still keep.
    pub(super) turn_bytes: TurnBytes,
}

impl Batch {
    /// Starts a batch: reports every server-side call, and starts those that run.
    pub(super) fn start(
        context: BatchContext,
        reply: ModelReply,
        buffered: Vec<AgentEvent>,
        mut calls: Vec<ResolvedCall>,
        decisions: Vec<CallDecision>,
    ) -> Self {
        let shown = calls.iter().filter(|call| call.shown());
        let ready = shown
            .map(|call| AgentEvent::Calling(Box::new(calling(&context, call))))
            .collect();
        let started: Vec<Arc<AtomicBool>> = calls.iter().map(|_| Arc::default()).collect();
        let mut runnable = Vec::new();
        let planned = calls.iter_mut().zip(&decisions).zip(&started);
        for (index, ((call, decision), started)) in planned.enumerate() {
            if *decision == CallDecision::Run
                && let Some((tool, arguments)) = call.runnable.take()
            {
                runnable.push(BatchCall {
                    index,
                    tool,
                    name: call.call.name.clone(),
                    arguments,
                    call_id: call.call.id.clone(),
                    started: started.clone(),
                });
            }
        }
        for repair in calls.iter().flat_map(|call| &call.repairs) {
            context.parts.metrics.call_repaired(*repair);
        }
        let limits = BatchLimits {
            max_parallel: context.max_parallel(),
            deadline: context.deadline,
        };
        let running = run(
            runnable,
            context.call.clone(),
            context.parts.gate.clone(),
            limits,
        )
        .boxed();
        let answers = calls.iter().map(|_| None).collect();
        let mut batch = Self {
            context,
            reply,
            buffered,
            calls,
            decisions,
            running,
            answers,
            started,
            ready,
        };
        batch.answer_without_running();
        batch
    }

    /// The next event of the batch. Once `aborted` resolves, only the parts of a result that has arrived are still kept.
    pub(super) async fn step(
        &mut self,
        aborted: &mut (impl Future<Output = ()> + Unpin),
    ) -> BatchStep {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return BatchStep::Event(event);
            }
            let event = tokio::select! {
                biased;
                () = &mut *aborted => return BatchStep::Aborted,
                event = self.running.next() => event,
            };
            match event {
                Some(BatchEvent::Progress { index, progress }) => {
                    if let Some(call) = self.calls.get(index) {
                        let of = Box::new(calling_without_arguments(&self.context, call));
                        let (text, stream) = (progress.text, progress.stream);
                        return BatchStep::Event(AgentEvent::ToolOutput { of, text, stream });
                    }
                }
                Some(BatchEvent::Waiting { index, wait }) => {
                    if let Some(call) = self.calls.get(index) {
                        let of = Box::new(calling(&self.context, call));
                        return BatchStep::Event(AgentEvent::Waiting { of, wait });
                    }
                }
                Some(BatchEvent::Refused { index, refusal }) => self.refused(index, &refusal),
                Some(BatchEvent::Done { index, mut result }) => {
                    if let Some(arguments) = result.changed_arguments.take()
                        && let Some(call) = self.calls.get_mut(index)
                    {
                        call.call.arguments = arguments;
                    }
                    let kept = self.keep_result(index, &mut result.output, aborted);
                    let kept = kept.await;
                    self.answered(index, result, kept, true);
                }
                None => return BatchStep::Ended,
            }
        }
    }

    /// Cancels the calls that run, and answers every call that has no answer yet.
    pub(super) fn cancel(&mut self) {
        self.running = stream::empty().boxed();
        for index in 0..self.calls.len() {
            if self.answers.get(index).is_none_or(Option::is_some) {
                continue;
            }
            let started = self.started.get(index);
            let started = started.is_some_and(|started| started.load(Ordering::Relaxed));
            let read_only = self.calls.get(index).is_none_or(|call| call.read_only);
            if let Some(decision) = self.decisions.get_mut(index) {
                *decision = CallDecision::Run;
            }
            let refusal = CallRefusal {
                status: ToolStatus::Cancelled,
                text: cancelled_text(started, read_only).to_owned(),
            };
            self.refused(index, &refusal);
        }
    }

    /// Takes the events that are ready.
    pub(super) fn take_events(&mut self) -> VecDeque<AgentEvent> {
        std::mem::take(&mut self.ready)
    }

    /// The outcome of the batch, once it has ended.
    pub(super) fn finish(self) -> BatchOutcome {
        let client_calls: Vec<ToolCall> = self
            .calls
            .iter()
            .zip(&self.decisions)
            .filter(|(_, decision)| **decision == CallDecision::HandOver)
            .map(|(call, _)| call.call.clone())
            .collect();
        let hidden = client_calls.len() < self.calls.len();
        let calls: Vec<ToolCall> = self.calls.iter().map(|call| call.call.clone()).collect();
        let assistant = transcript::assistant(&self.reply, &calls);
        let mut messages = vec![StoredMessage {
            hidden,
            ..StoredMessage::visible(assistant)
        }];
        let (mut contents, mut images) = (Vec::new(), Vec::new());
        for (call, answer) in self.calls.iter().zip(self.answers) {
            let Some(answer) = answer else { continue };
            let message = Message::tool_result(&call.call.id, &answer.content);
            messages.push(StoredMessage {
                full_text: answer.full_text,
                sources: answer.sources,
                ..StoredMessage::hidden(message)
            });
            images.extend(
                answer
                    .images
                    .into_iter()
                    .map(|image| (call.call.name.clone(), image)),
            );
            if !answer.is_blank {
                contents.push(answer.content);
            }
        }
        if !client_calls.is_empty() {
            images.clear();
        }
        let (message, images) = image_message(images).unzip();
        messages.extend(message.map(StoredMessage::hidden));
        BatchOutcome {
            messages,
            images: images.unwrap_or_default(),
            buffered: self.buffered,
            contents,
            client_calls,
            turn_bytes: self.context.turn_bytes,
        }
    }

    fn answer_without_running(&mut self) {
        for index in 0..self.calls.len() {
            let (Some(call), Some(decision)) = (self.calls.get(index), self.decisions.get(index))
            else {
                continue;
            };
            if matches!(decision, CallDecision::Run | CallDecision::HandOver) {
                continue;
            }
            let refusal = call.refusal(*decision);
            self.refused(index, &refusal);
        }
    }

    /// Records the answer to a call that does not run.
    fn refused(&mut self, index: usize, refusal: &CallRefusal) {
        let most = self.context.parts.max_result_chars;
        let result = ToolResult {
            status: refusal.status,
            output: ToolOutput {
                content: cap_result(&refusal.text, most).into_owned(),
                ..ToolOutput::default()
            },
            duration: Duration::ZERO,
            changed_arguments: None,
        };
        let kept = KeptParts::of(digest(&result.output));
        self.answered(index, result, kept, false);
    }

    /// Records the result of a call whose text is shortened and whose other parts are kept, and reports it to the client.
    fn answered(&mut self, index: usize, result: ToolResult, mut kept: KeptParts, ran: bool) {
        let ToolResult {
            status,
            output,
            duration,
            ..
        } = result;
        let Some(call) = self.calls.get(index) else {
            return;
        };
        let mut content = output.content;
        let mut shown = std::mem::take(&mut kept.shown);
        if !self.shows_images() {
            add_note(&mut content, unseen(kept.showable() + kept.beyond()));
            shown.clear();
        }
        add_note(&mut content, kept.note());
        // The contents of terminating calls are the answer to the user.
        if ran && !output.terminate {
            add_note(&mut content, repair::note(&call.repairs));
        }
        let is_blank = fill_blank(&mut content, !shown.is_empty());
        count_call(
            &self.context,
            call,
            status,
            duration,
            output.detail.as_deref(),
        );
        let notices = output.notices.into_iter().map(|notice| Notice {
            kind: notice.kind,
            message: notice.message,
        });
        self.ready.extend(notices.map(AgentEvent::Notice));
        if call.shown() {
            let files = kept.files.iter().map(|file| file.id.clone());
            let file_ids = files.chain(kept.file_ids).collect();
            let repairs = call.repairs.iter();
            let record = ToolCallRecord {
                index,
                round: self.context.call.round,
                tool_call_id: call.call.id.clone(),
                name: call.call.name.clone(),
                arguments: call.call.arguments.clone(),
                content: content.clone(),
                status,
                duration,
                images: kept.images,
                file_ids,
                repairs: repairs.map(|repair| repair.as_str().to_owned()).collect(),
                kind: call.kind,
                detail: output.detail,
                frames: kept.frames,
            };
            let files = kept.files.into_iter();
            self.ready
                .extend(files.map(|file| AgentEvent::File(Box::new(file))));
            self.ready.push_back(AgentEvent::Complete(Box::new(record)));
        }
        let answer = CallAnswer {
            ran,
            status,
            digest: kept.digest,
            content,
            is_blank,
            full_text: kept.full_text,
            sources: output.sources,
            images: shown,
            terminate: output.terminate,
        };
        if let Some(slot) = self.answers.get_mut(index) {
            *slot = Some(answer);
        }
    }

    /// Whether the model gets the images of results.
    fn shows_images(&self) -> bool {
        self.context.shows_images && !self.decisions.contains(&CallDecision::HandOver)
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Batch")
            .field("decisions", &self.decisions)
            .finish_non_exhaustive()
    }
}
