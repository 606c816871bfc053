//! One batch of calls: its events for the client and its messages for the history.

mod context;
mod files;
mod report;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};

use super::calls::ResolvedCall;
use super::event::{AgentEvent, Notice, ProducedFile, ToolCallRecord};
use super::policy::CallDecision;
use super::transcript;
use crate::openai::citation::CitedSource;
use crate::openai::message::Message;
use crate::openai::tool::ToolCall;
use crate::session::StoredMessage;
use crate::tools::batch::{BatchCall, BatchEvent, BatchLimits, ToolResult, run};
use crate::tools::cap::cap_result;
use crate::tools::gate::CallRefusal;
use crate::tools::{ToolDetail, ToolFile, ToolOutput, ToolStatus};
use crate::upstream::assemble::ModelReply;
pub(super) use context::BatchContext;
pub(super) use files::MAX_INLINE_BYTES;
pub(super) use report::millis;
use report::{calling, calling_without_arguments, frames_shown, image_message, label};

/// The result for the model of a call that was cancelled while it ran.
const CANCELLED: &str = "The call was cancelled while it was running. It may have taken effect or not; find out before you \
                         repeat it.";
/// The same of a call that changes nothing.
const CANCELLED_READ: &str = "The call was cancelled before it had a result.";
/// The same of a call that had not started.
const CANCELLED_BEFORE: &str = "This call was not run: the turn was cancelled before it started.";

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

/// The answer to one call.
#[derive(Debug)]
struct CallAnswer {
    /// The call ran.
    ran: bool,
    /// The text for the model, shortened if necessary.
    content: String,
    /// The whole text, if `content` is shortened.
    full_text: Option<String>,
    sources: Vec<CitedSource>,
    images: Vec<String>,
    terminate: bool,
}

/// The outcome of one step of a batch.
#[derive(Debug)]
pub(super) enum BatchStep {
    /// An event for the client.
    Event(AgentEvent),
    /// Every server-side call has its answer.
    Ended,
}

/// The outcome of a finished batch.
#[derive(Debug)]
pub(super) struct BatchOutcome {
    /// The messages for the history, in order.
    pub(super) messages: Vec<StoredMessage>,
    /// The buffered events of the model call before the batch.
    pub(super) buffered: Vec<AgentEvent>,
    /// The texts of the results, in the order of the calls.
    pub(super) contents: Vec<String>,
    /// The calls that the client is to run.
    pub(super) client_calls: Vec<ToolCall>,
    /// Bytes of files that the answer may still carry inline.
    pub(super) inline_left: u64,
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

    /// The next event of the batch.
    ///
    /// Dropping the future is safe; dropping the batch cancels its tools.
    pub(super) async fn step(&mut self) -> BatchStep {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return BatchStep::Event(event);
            }
            match self.running.next().await {
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
                Some(BatchEvent::Refused { index, refusal }) => self.refused(index, refusal),
                Some(BatchEvent::Done { index, mut result }) => {
                    if let Some(arguments) = result.changed_arguments.take()
                        && let Some(call) = self.calls.get_mut(index)
                    {
                        call.call.arguments = arguments;
                    }
                    let made = std::mem::take(&mut result.output.files);
                    let (files, lost) = self.store_files(index, made).await;
                    if !lost.is_empty() {
                        let text = format!(
                            "\n\nnot handed to the user after all:\n- {}",
                            lost.join("\n- ")
                        );
                        result.output.content.push_str(&text);
                    }
                    self.answered(index, result, files, true);
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
            let text = match (started, read_only) {
                (false, _) => CANCELLED_BEFORE,
                (true, true) => CANCELLED_READ,
                (true, false) => CANCELLED,
            };
            if let Some(decision) = self.decisions.get_mut(index) {
                *decision = CallDecision::Run;
            }
            let refusal = CallRefusal {
                status: ToolStatus::Cancelled,
                text: text.to_owned(),
            };
            self.refused(index, refusal);
        }
    }

    /// Takes the events that are ready.
    pub(super) fn take_events(&mut self) -> VecDeque<AgentEvent> {
        std::mem::take(&mut self.ready)
    }

    /// The decisions, in the order of the calls.
    pub(super) fn decisions(&self) -> &[CallDecision] {
        &self.decisions
    }

    /// For each call that ran, whether its result asks for the end of the turn.
    pub(super) fn terminates(&self) -> Vec<bool> {
        let answers = self.answers.iter().flatten();
        answers
            .filter(|answer| answer.ran)
            .map(|answer| answer.terminate)
            .collect()
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
        let assistant = transcript::assistant(&self.reply, &calls, &self.context.quirks);
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
            contents.push(answer.content);
        }
        if !images.is_empty() && self.context.quirks.images && client_calls.is_empty() {
            let message = image_message(&images);
            messages.push(StoredMessage::hidden(message));
        }
        contents.retain(|content| !content.is_empty());
        BatchOutcome {
            messages,
            buffered: self.buffered,
            contents,
            client_calls,
            inline_left: self.context.inline_left,
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
            self.refused(index, refusal);
        }
    }

    /// Records the answer to a call that does not run.
    fn refused(&mut self, index: usize, refusal: CallRefusal) {
        let result = ToolResult {
            status: refusal.status,
            output: ToolOutput {
                content: refusal.text,
                ..ToolOutput::default()
            },
            duration: Duration::ZERO,
            changed_arguments: None,
        };
        self.answered(index, result, Vec::new(), false);
    }

    /// Stores the files that a call made. Also returns a text for each file whose content is lost.
    async fn store_files(
        &mut self,
        index: usize,
        made: Vec<ToolFile>,
    ) -> (Vec<ProducedFile>, Vec<String>) {
        let Some(tool) = self.calls.get(index).map(|call| call.call.name.clone()) else {
            return Default::default();
        };
        let (mut files, mut lost) = (Vec::with_capacity(made.len()), Vec::new());
        for file in made {
            let (file, notice) = self.context.deliver_file(&tool, file).await;
            // A file that is neither stored nor inline is lost. Its notice has the reason.
            if let (Some(notice), None) = (&notice, &file.data) {
                lost.push(notice.message.clone());
            }
            files.push(file);
            self.ready.extend(notice.map(AgentEvent::Notice));
        }
        (files, lost)
    }

    /// Records the result of a call. Shortens its text for the model, and reports the shortened text to the client.
    fn answered(&mut self, index: usize, result: ToolResult, files: Vec<ProducedFile>, ran: bool) {
        let ToolResult {
            status,
            output,
            duration,
            ..
        } = result;
        let Some(call) = self.calls.get(index) else {
            return;
        };
        let most = match output.is_bounded {
            true => usize::MAX,
            false => self.context.parts.max_result_chars,
        };
        let mut content = cap_result(&output.content, most).into_owned();
        let full_text = (content != output.content).then_some(output.content);
        let frames = frames_shown(&output.frames);
        self.note_images(&mut content, output.images.len() + frames.len());
        let label = label(&self.context.parts, call);
        self.context
            .parts
            .metrics
            .tool_finished(label, status, duration);
        tracing::info!(
            tool = label.as_str(),
            round = self.context.call.round,
            status = status.as_str(),
            duration_ms = millis(duration),
            "tool call finished"
        );
        if let Some(ToolDetail::Code(detail)) = output.detail.as_deref() {
            let seconds = Duration::from_millis(detail.execution_time_ms);
            self.context.parts.metrics.cell_finished(seconds);
        }
        let notices = output.notices.into_iter().map(|notice| Notice {
            kind: notice.kind,
            message: notice.message,
        });
        self.ready.extend(notices.map(AgentEvent::Notice));
        if call.shown() {
            let record = ToolCallRecord {
                index,
                round: self.context.call.round,
                tool_call_id: call.call.id.clone(),
                name: call.call.name.clone(),
                arguments: call.call.arguments.clone(),
                content: content.clone(),
                status,
                duration,
                images: output.images.clone(),
                file_ids: files.iter().map(|file| file.id.clone()).collect(),
                repairs: call.repairs.clone(),
                kind: call.kind,
                detail: output.detail,
                frames: output.frames,
            };
            self.ready.extend(
                files
                    .into_iter()
                    .map(|file| AgentEvent::File(Box::new(file))),
            );
            self.ready.push_back(AgentEvent::Complete(Box::new(record)));
        }
        let answer = CallAnswer {
            ran,
            content,
            full_text,
            sources: output.sources,
            images: [output.images, frames].concat(),
            terminate: output.terminate,
        };
        if let Some(slot) = self.answers.get_mut(index) {
            *slot = Some(answer);
        }
    }

    /// Adds a note to the text if the result has images that the model does not get.
    fn note_images(&self, content: &mut String, count: usize) {
        let shown = self.context.quirks.images && !self.decisions.contains(&CallDecision::HandOver);
        if count > 0 && !shown {
            let break_line = if content.is_empty() { "" } else { "\n" };
            content.push_str(&format!("{break_line}[{count} image(s) came with this result; they cannot be shown to this model.]"));
        }
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
