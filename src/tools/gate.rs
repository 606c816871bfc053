//! The gate: decides for every call of the model whether and with which arguments it runs.
//!
//! The steps, in this order: repair → validation → hooks → validation of what they changed → permission → approval.
//! [`Gate::prepare`] repairs and validates; it does not wait, and the loop needs its result before it starts a batch.
//! [`Gate::admit`] does the rest; [`super::batch::run`] awaits it for each call before the time limit of the tool starts,
//! and [`Gate::pass_result`] once the tool is done. A step that asks a service must have a time limit; other calls of the
//! batch continue meanwhile, and the request is withdrawn if the future is dropped or the deadline of the turn passes. A
//! decision of a person is not awaited here: the verdict is that the call waits, and the call comes to the gate again once
//! it is decided.

mod approvals;
mod audit;
mod hooked;
mod permissions;

use std::time::Duration;

use ::http::HeaderMap;
use serde_json::{Map, Value};
use tokio::sync::Notify;

pub use self::approvals::{
    ApprovalAnswer, ApprovalRecord, Approvals, DEFAULT_APPROVAL_TIMEOUT, GateWait, Grant,
};
use self::approvals::{ApprovalReason, Lifetime};
use self::audit::DecidedBy;
pub use self::audit::DecisionCounter;
pub(crate) use self::hooked::PassedResult;
pub use self::permissions::TurnPermissions;
use super::refusal::CallRefusal;
use super::repair::{Repaired, repair_arguments};
use super::schema::SchemaCache;
use super::{CallContext, SharedTool, Tool};
use policy::hooks::answer::ToolDecision;
use policy::hooks::approver::Approver;
use policy::hooks::client::{BeforeTool, join};
use policy::hooks::{HookPoint, Hooks};
use policy::redact::Redactor;
use policy::rules::{Effect, RuleDecision, RuledCall};

/// Admits calls. One gate serves all turns.
#[derive(Debug, Default)]
pub struct Gate {
    /// Compiled argument schemas.
    schemas: SchemaCache,
    /// Asked before a call and after it.
    hooks: Hooks,
    /// Hides secrets in the results that hooks see; `None` hides nothing.
    redactor: Option<Redactor>,
    /// How long a person may take to decide.
    lifetime: Lifetime,
    /// Tells the turns that wait of decisions.
    decisions: Notify,
    counter: DecisionCounter,
    approver: Option<Approver>,
    #[cfg(any(test, feature = "test-helpers"))]
    scripted: Option<tests::ScriptedGate>,
}

/// A call that is to be admitted.
#[derive(Debug, Clone, Copy)]
pub struct GateRequest<'a> {
    /// The tool.
    pub tool: &'a SharedTool,
    /// The tool's name.
    pub name: &'a str,
    /// The id of the call.
    pub call_id: &'a str,
    /// The arguments, valid for the tool's schema.
    pub arguments: &'a Map<String, Value>,
    /// `traceparent` and `tracestate` of the call, if it has a span of its own.
    pub trace: Option<&'a HeaderMap>,
    /// What the call belongs to.
    pub context: &'a CallContext,
}

/// The answer of the gate, and the call as the hooks have changed it.
#[derive(Debug, Clone, PartialEq)]
pub struct Admission {
    /// What becomes of the call.
    pub verdict: Verdict,
    /// The arguments of a call that runs or waits, if a hook has changed them.
    pub arguments: Option<Map<String, Value>>,
    /// Joins the result of a call that runs.
    pub context: Option<String>,
}

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The call runs with the arguments of the request.
    Run,
    /// The call runs with these arguments.
    RunWith(Map<String, Value>),
    /// The call does not run.
    Refuse(CallRefusal),
    /// The call waits for a decision.
    Wait(Box<GateWait>),
}

impl From<Verdict> for Admission {
    fn from(verdict: Verdict) -> Self {
        Self {
            verdict,
            arguments: None,
            context: None,
        }
    }
}

impl Gate {
    /// A gate whose questions can be decided for so long, and which asks these hooks.
    pub fn new(approval_timeout: Duration, hooks: Hooks, redactor: Option<Redactor>) -> Self {
        Self {
            hooks,
            redactor,
            lifetime: Lifetime(approval_timeout),
            ..Self::default()
        }
    }

    /// The same gate, which counts its decisions.
    #[must_use]
    pub fn counted(self, counter: DecisionCounter) -> Self {
        Self { counter, ..self }
    }

    /// The same gate, which asks this service before a person.
    #[must_use]
    pub fn asking(self, approver: Option<Approver>) -> Self {
        Self { approver, ..self }
    }

    /// Repairs the arguments of a call and validates them against the tool's schema.
    pub fn prepare(&self, tool: &dyn Tool, arguments: &str) -> Repaired {
        let schema = tool.definition().parameters.as_deref();
        let schema = schema.and_then(|schema| self.schemas.get(schema));
        repair_arguments(arguments, schema.as_deref())
    }

    /// Tells the turns that wait of decisions.
    pub fn decisions(&self) -> &Notify {
        &self.decisions
    }

    /// Whether a call of a turn may have to wait for a person.
    pub fn may_wait(&self, permissions: &TurnPermissions) -> bool {
        #[cfg(any(test, feature = "test-helpers"))]
        if self.scripted.is_some() {
            return true;
        }
        permissions.may_ask() || self.hooks.has(HookPoint::BeforeTool)
    }

    /// Decides whether a call runs. The rules see the arguments as the hooks left them.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub async fn admit(&self, request: GateRequest<'_>) -> Admission {
        #[cfg(any(test, feature = "test-helpers"))]
        if let Some(script) = &self.scripted {
            return script.admit(request).await.into();
        }
        if request.context.hook_record.has_ended() {
            return Verdict::Refuse(CallRefusal::turn_ended()).into();
        }
        let BeforeTool {
            arguments,
            decision: said,
            reason,
            context,
        } = self.ask_hooks(&request).await;
        if said == Some(ToolDecision::Deny) {
            let mut refusal = CallRefusal::denied(request.name, reason.as_deref());
            if let Some(context) = context {
                join(&mut refusal.text, &context);
            }
            let verdict = Verdict::Refuse(refusal);
            self.counter.record(&request, DecidedBy::Hook, &verdict);
            return verdict.into();
        }
        let asked = GateRequest {
            arguments: arguments.as_ref().unwrap_or(request.arguments),
            ..request
        };
        let permissions = &request.context.permissions;
        let mut decision = permissions.decide(&asked.ruled());
        // A hook that allows a call does not beat a rule.
        let by_hook = said == Some(ToolDecision::Ask);
        if by_hook && decision.effect == Effect::Allow {
            decision = RuleDecision {
                effect: Effect::Ask,
                rule: None,
                reason: None,
                position: None,
                ..decision
            };
        }
        let verdict = match decision.effect {
            Effect::Allow => Verdict::Run,
            Effect::Deny => {
                let reason = decision.reason.as_deref();
                Verdict::Refuse(CallRefusal::denied(request.name, reason))
            }
            Effect::Ask => {
                let approvals = &request.context.approvals;
                let cause = ApprovalReason {
                    rule: decision.rule.as_ref(),
                    reason: reason.as_deref().or(decision.reason.as_deref()),
                    by_hook,
                };
                let verdict = approvals.verdict(&asked, permissions, cause, self.lifetime);
                let verdict = self.ask_approver(&asked, verdict).await;
                self.check_edited(&asked, verdict).await
            }
        };
        let by = DecidedBy::Rules(&decision);
        self.counter.record(&asked, by, &verdict);
        if decision.effect == Effect::Deny {
            return verdict.into();
        }
        Admission {
            verdict,
            arguments,
            context,
        }
    }

    /// Arguments that a person has changed must be such as the tool takes, and neither the hooks nor the rules may deny them.
    async fn check_edited(&self, request: &GateRequest<'_>, verdict: Verdict) -> Verdict {
        let Verdict::RunWith(arguments) = verdict else {
            return verdict;
        };
        let text = Value::Object(arguments.clone()).to_string();
        if self.prepare(&**request.tool, &text).arguments.as_ref() != Ok(&arguments) {
            return Verdict::Refuse(CallRefusal::changed(request.name));
        }
        let edited = GateRequest {
            arguments: &arguments,
            ..*request
        };
        if let Some(refusal) = self.denied_by_hook(&edited).await {
            return Verdict::Refuse(refusal);
        }
        let decision = request.context.permissions.decide(&edited.ruled());
        match decision.effect {
            Effect::Allow | Effect::Ask => Verdict::RunWith(arguments),
            Effect::Deny => Verdict::Refuse(CallRefusal::denied(
                request.name,
                decision.reason.as_deref(),
            )),
        }
    }
}

impl GateRequest<'_> {
    /// The call as rules see it.
    fn ruled(&self) -> RuledCall<'_> {
        RuledCall {
            call_id: self.call_id,
            tool: self.name,
            classes: self.tool.policy().classes(),
            arguments: self.arguments,
        }
    }
}

#[cfg(any(test, feature = "test-helpers"))]
mod tests {
    use std::sync::Arc;

    use futures_util::future::BoxFuture;

    use super::*;

    type Decide = dyn Fn(String, String) -> BoxFuture<'static, Verdict> + Send + Sync;

    /// Decides as a test says.
    #[derive(Clone)]
    pub(super) struct ScriptedGate(Arc<Decide>);

    impl ScriptedGate {
        pub(super) async fn admit(&self, request: GateRequest<'_>) -> Verdict {
            (self.0)(request.call_id.to_owned(), request.name.to_owned()).await
        }
    }

    impl Gate {
        /// A gate that decides as a test says, by the id of the call and its tool.
        pub fn scripted<F>(
            decide: impl Fn(String, String) -> F + Send + Sync + 'static,
        ) -> Arc<Self>
        where
            F: Future<Output = Verdict> + Send + 'static,
        {
            Arc::new(Self {
                scripted: Some(ScriptedGate(Arc::new(move |call_id, tool| {
                    Box::pin(decide(call_id, tool))
                }))),
                ..Self::default()
            })
        }
    }

    impl std::fmt::Debug for ScriptedGate {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("ScriptedGate")
        }
    }
}
