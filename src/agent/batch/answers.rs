//! The answers of calls: of those that ran, of those that do not run, and of those that are cancelled.

use std::mem;
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::super::call::{Call, CallAnswer, CallState};
use super::super::event::{AgentEvent, Notice, ProducedFile, ToolCallRecord};
use super::super::policy::CallDecision;
use super::super::policy::repeat::ResultDigest;
use super::Batch;
use super::kept::KeptParts;
use super::report::{add_note, count_call, fill_blank, unseen};
use tools::ToolOutput;
use tools::batch::ToolResult;
use tools::cap::cap_result;
use tools::refusal::CallRefusal;
use tools::repair;

impl Batch {
    /// Cancels the calls whose tools were called. The others stay as they are.
    pub(in super::super) fn cancel_started(&mut self) {
        self.cancel_if(|call| call.state.has_started());
    }

    /// Cancels every call that has no answer. Client tools are included: the client does not get these calls.
    pub(in super::super) fn cancel(&mut self) {
        self.cancel_if(|_| true);
    }

    fn cancel_if(&mut self, ends: impl Fn(&Call) -> bool) {
        self.running = stream::empty().boxed();
        for index in 0..self.open.calls.len() {
            let Some(call) = self.open.calls.get_mut(index) else {
                continue;
            };
            if call.answer().is_none() && ends(call) {
                call.decision = CallDecision::Run;
                let refusal = call.cancelled();
                self.refuse(index, &refusal);
            }
        }
    }

    /// Refuses the calls that wait for a decision, because no decision is possible.
    pub(in super::super) fn refuse_waiting(&mut self, refusal: &CallRefusal) {
        for index in 0..self.open.calls.len() {
            if self.open.calls.get(index).is_some_and(Call::waits) {
                self.refuse(index, refusal);
            }
        }
    }

    /// Records the answer to a call that does not run.
    pub(in super::super) fn refuse(&mut self, index: usize, refusal: &CallRefusal) {
        let most = self.context.services.max_result_chars;
        // A hook or a person may have written it.
        let mut output = ToolOutput {
            content: refusal.text.clone(),
            ..ToolOutput::default()
        };
        self.hide_secrets(&mut output);
        let short = cap_result(&output.content, most);
        if short.len() < output.content.len() {
            output.content = short.into_owned();
        }
        let result = ToolResult {
            status: refusal.status,
            output,
            duration: Duration::ZERO,
            changed_arguments: None,
        };
        let kept = KeptParts::of(ResultDigest::of_whole(&result.output));
        self.answered(index, result, kept, false);
    }

    /// Records the result of a call and reports it to the client. The text is shortened already, and the other parts
    /// are stored.
    pub(super) fn answered(
        &mut self,
        index: usize,
        result: ToolResult,
        mut kept: KeptParts,
        ran: bool,
    ) {
        let ToolResult {
            status,
            output,
            duration,
            ..
        } = result;
        self.end_live_output(index);
        let shows_images = self.shows_images();
        let Some(call) = self.open.calls.get_mut(index) else {
            return;
        };
        let mut content = output.content;
        let mut shown = mem::take(&mut kept.shown);
        if !shows_images {
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
            kind: notice.kind.into(),
            message: notice.message,
        });
        self.ready.extend(notices.map(AgentEvent::Notice));
        let record = call.shown().then(|| {
            let files = kept.files.iter().map(|file| file.id.clone());
            let file_ids = files.chain(kept.file_ids).collect();
            let repairs = call.repairs.iter();
            ToolCallRecord {
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
                edited: ran && self.context.call.approvals.has_edited(&call.call.id),
                kind: call.kind,
                detail: output.detail,
                frames: kept.frames,
            }
        });
        call.state = CallState::Answered(Box::new(CallAnswer {
            ran,
            status,
            digest: kept.digest,
            content,
            is_blank,
            full_text: kept.full_text,
            sources: output.sources,
            images: shown,
            terminate: output.terminate,
        }));
        if let Some(record) = record {
            self.report(record, kept.files);
        }
    }

    /// Ends the span of an answered call, and reports its files and its result to the client.
    fn report(&mut self, record: ToolCallRecord, files: Vec<ProducedFile>) {
        if let Some(span) = self.spans.remove(&record.index) {
            span.ended(&record, self.context.services.redactor.as_ref());
        }
        let files = files.into_iter();
        self.ready
            .extend(files.map(|file| AgentEvent::File(Box::new(file))));
        self.ready.push_back(AgentEvent::Complete(Box::new(record)));
    }

    /// Whether the model gets the images of results.
    pub(super) fn shows_images(&self) -> bool {
        self.context.shows_images && !self.open.calls.iter().any(Call::is_of_client)
    }
}
