//! The hooks of a call: those that are asked before it runs, and those that see its result.

use tokio::time::Instant;

use super::{CallRefusal, Gate, GateRequest, Verdict};
use crate::{OutputStatus, ToolInvocation, ToolOutput, ToolStatus};
use policy::hooks::HookPoint;
use policy::hooks::answer::{ApproverAnswer, ToolDecision};
use policy::hooks::client::{AfterTool, BeforeTool, ResultExtent, ToolUse, join};
use policy::hooks::event::HookedOutput;

/// A result on its way to the model.
#[derive(Debug)]
pub(crate) struct PassedResult<'a> {
    /// The call.
    pub(crate) invocation: &'a ToolInvocation,
    /// What the hooks before the call have added to its result.
    pub(crate) context: Option<String>,
    /// When no hook is waited for any more.
    pub(crate) deadline: Option<Instant>,
}

impl Gate {
    /// Asks the hooks about a call. Arguments that they change have to fit the tool as they are. A call about which a person
    /// was asked has passed them: the decision is about the arguments as they left them.
    pub(super) async fn ask_hooks(&self, request: &GateRequest<'_>) -> BeforeTool {
        // What a person was asked about is decided by the answer, also if nothing asks any more.
        if request.context.approvals.knows(request) {
            return BeforeTool {
                decision: Some(ToolDecision::Ask),
                ..BeforeTool::default()
            };
        }
        if !self.hooks.has(HookPoint::BeforeTool) {
            return BeforeTool::default();
        }
        self.before_tool(request).await
    }

    /// Why the hooks deny a call whose arguments a person has changed. Nothing else that they say is heeded: a person has
    /// decided about these very arguments.
    pub(super) async fn denied_by_hook(&self, request: &GateRequest<'_>) -> Option<CallRefusal> {
        if !self.hooks.has(HookPoint::BeforeTool) {
            return None;
        }
        let said = self.before_tool(request).await;
        let denies = said.decision == Some(ToolDecision::Deny);
        denies.then(|| CallRefusal::denied(request.name, said.reason.as_deref()))
    }

    /// Asks the approver about a call, unless a person was asked about it. A person decides what the approver leaves
    /// open.
    pub(super) async fn ask_approver(
        &self,
        request: &GateRequest<'_>,
        verdict: Verdict,
    ) -> Verdict {
        let Some(approver) = &self.approver else {
            return verdict;
        };
        if !matches!(verdict, Verdict::Wait(_)) || request.context.approvals.knows(request) {
            return verdict;
        }
        let call = ToolUse {
            name: request.name,
            id: request.call_id,
            arguments: request.arguments,
        };
        let turn = request.context.hooked(None, request.trace);
        match Box::pin(approver.ask(turn, call)).await {
            ApproverAnswer::Allow {
                updated_input: None,
            } => Verdict::Run,
            ApproverAnswer::Allow {
                updated_input: Some(arguments),
            } => Verdict::RunWith(arguments),
            ApproverAnswer::Deny { reason, .. } => {
                Verdict::Refuse(CallRefusal::denied(request.name, reason.as_deref()))
            }
            ApproverAnswer::Person => verdict,
        }
    }

    async fn before_tool(&self, request: &GateRequest<'_>) -> BeforeTool {
        let call = ToolUse {
            name: request.name,
            id: request.call_id,
            arguments: request.arguments,
        };
        let tool = &**request.tool;
        let fits = |arguments: &_| {
            let text = serde_json::to_string(arguments).unwrap_or_default();
            let read = self.prepare(tool, &text);
            read.arguments.is_ok() && read.repairs.is_empty()
        };
        let turn = request.context.hooked(None, request.trace);
        Box::pin(self.hooks.before_tool(turn, call, fits)).await
    }

    /// Passes the result of an ended call to the hooks, and adds the messages of the hooks before the call.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request to the hook, and leaves the result as it was.
    pub(crate) async fn pass_result(
        &self,
        passed: PassedResult<'_>,
        status: &mut ToolStatus,
        output: &mut ToolOutput,
    ) {
        let invocation = passed.invocation;
        // A call that was cancelled has no result.
        if self.hooks.has(HookPoint::AfterTool) && *status != ToolStatus::Cancelled {
            // What they add is hidden with the rest of the result, once it is made.
            let hidden = self.redactor.as_ref();
            let hidden = hidden.map(|redactor| redactor.redact(&output.content).into_owned());
            if let Some(hidden) = hidden {
                output.content = hidden;
            }
            let call = ToolUse {
                name: &invocation.name,
                id: &invocation.call_id,
                arguments: &invocation.arguments,
            };
            let result = HookedOutput {
                content: &output.content,
                status: status.as_str(),
            };
            let turn = invocation
                .context
                .hooked(passed.deadline, invocation.trace.as_ref());
            let after = Box::pin(self.hooks.after_tool(turn, call, result)).await;
            apply(after, status, output);
        }
        if let Some(context) = passed.context {
            join(&mut output.content, &context);
            output.is_bounded = false;
        }
    }
}

fn apply(after: AfterTool, status: &mut ToolStatus, output: &mut ToolOutput) {
    output.terminate |= after.terminate;
    let Some(content) = after.content else {
        return;
    };
    match after.extent {
        ResultExtent::Nothing => {}
        // The details have the text that is replaced.
        ResultExtent::Text => output.detail = None,
        ResultExtent::Whole => {
            *status = ToolStatus::Error;
            let whole = std::mem::take(output);
            output.status = OutputStatus::Error;
            output.terminate = whole.terminate;
            output.notices = whole.notices;
        }
    }
    output.content = content;
    output.is_bounded = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeDetail, ToolDetail, ToolFile};

    fn result() -> ToolOutput {
        ToolOutput {
            content: "secret".to_owned(),
            is_bounded: true,
            detail: Some(Box::new(ToolDetail::Code(CodeDetail {
                stdout: "secret".to_owned(),
                ..CodeDetail::default()
            }))),
            files: vec![ToolFile {
                name: "a".to_owned(),
                path: "a".to_owned(),
                mime_type: "text/plain".to_owned(),
                content: "secret".into(),
            }],
            ..ToolOutput::default()
        }
    }

    #[test]
    fn what_is_replaced_is_in_no_other_part_of_the_result() {
        for (extent, status, files, has_detail) in [
            (ResultExtent::Nothing, ToolStatus::Ok, 1, true),
            (ResultExtent::Text, ToolStatus::Ok, 1, false),
            (ResultExtent::Whole, ToolStatus::Error, 0, false),
        ] {
            let (mut found, mut output) = (ToolStatus::Ok, result());
            let after = AfterTool {
                content: Some("new".to_owned()),
                extent,
                terminate: true,
            };
            apply(after, &mut found, &mut output);
            assert_eq!((found, output.files.len()), (status, files));
            assert_eq!(output.detail.is_some(), has_detail);
            assert_eq!(output.content, "new");
            assert!(output.terminate && !output.is_bounded);
        }
        let (mut status, mut output) = (ToolStatus::Ok, result());
        apply(AfterTool::default(), &mut status, &mut output);
        assert_eq!((status, output), (ToolStatus::Ok, result()));
    }
}
