//! Calls about which a person decides: the question, and the answers to the earlier questions of the conversation.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{CallRefusal, GateRequest, TurnPermissions, Verdict};
use crate::ToolSource;
use policy::rules::{RuleEntry, RuleRef};
use protocol::ids::{ApprovalId, hex};

/// Default of `approval_timeout`, in seconds.
pub const DEFAULT_APPROVAL_TIMEOUT: u64 = 24 * 60 * 60;
/// Threshold of denials of the same call in a conversation from which nobody is asked about it any more.
const DENIALS: usize = 2;

/// What a call waits for: the question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateWait {
    /// Identifies the decision that is awaited.
    pub id: ApprovalId,
    /// Why a person is asked.
    pub reason: Option<String>,
    /// The rule that asks; `None` for the word of a level.
    pub rule: Option<RuleRef>,
    /// Where the tool comes from.
    pub source: ToolSource,
    /// The digest of the arguments that are shown.
    pub digest: String,
    /// What later calls must have in common with this one, for a decision that holds for them too.
    pub scope: String,
    /// Until when it can be decided, in seconds since 1970.
    pub expires_at: i64,
}

#[cfg(any(test, feature = "test-helpers"))]
#[expect(clippy::unwrap_used, reason = "the number makes a valid id")]
impl GateWait {
    /// A question with the id of this number.
    pub fn example(number: u8) -> Self {
        Self {
            id: ApprovalId::parse(&format!("apr_{number:048x}")).unwrap(),
            reason: None,
            rule: None,
            source: ToolSource::Http,
            digest: "d".to_owned(),
            scope: "s".to_owned(),
            expires_at: i64::from(u32::MAX),
        }
    }
}

/// The questions of a conversation.
#[derive(Debug, Default)]
pub struct Approvals(Vec<ApprovalRecord>);

/// A call about which a person was asked.
#[derive(Debug)]
pub struct ApprovalRecord {
    /// The id of the call.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// The question.
    pub wait: GateWait,
    /// What became of it.
    pub answer: ApprovalAnswer,
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalAnswer {
    /// There is no decision yet.
    Waiting,
    /// The call may run.
    Approved {
        /// The changed arguments, if the person has changed them.
        edited: Option<Map<String, Value>>,
        /// The later calls for which this holds too.
        grant: Option<Grant>,
    },
    /// The call may not run.
    Denied {
        /// What the person says.
        message: Option<String>,
    },
    /// There was no decision in time.
    Expired,
    /// The conversation continued without it.
    Left,
}

/// The later calls of a conversation for which a decision holds too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The calls with the same scope.
    Same,
    /// All of the tool.
    Tool,
}

/// What asks about a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct ApprovalReason<'a> {
    /// The rule that asks; `None` for the word of a level, and a hook.
    pub(super) rule: Option<&'a RuleRef>,
    /// Why.
    pub(super) reason: Option<&'a str>,
    /// A hook asks, whatever the rules say.
    pub(super) by_hook: bool,
}

/// How long a question can be decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetime(pub(super) Duration);

impl Default for Lifetime {
    fn default() -> Self {
        Self(Duration::from_secs(DEFAULT_APPROVAL_TIMEOUT))
    }
}

impl Lifetime {
    fn end(self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let end = now.unwrap_or_default().saturating_add(self.0);
        i64::try_from(end.as_secs()).unwrap_or(i64::MAX)
    }
}

impl Approvals {
    /// These questions, the oldest first.
    pub fn new(record: Vec<ApprovalRecord>) -> Self {
        Self(record)
    }

    /// What became of the question with this id.
    pub fn answer(&self, id: &ApprovalId) -> Option<&ApprovalAnswer> {
        let record = self.0.iter().find(|record| record.wait.id == *id);
        record.map(|record| &record.answer)
    }

    /// Whether a question about this call is closed: decided, expired or abandoned.
    pub fn is_decided(&self, call_id: &str) -> bool {
        let mut of_call = self.0.iter().filter(|record| record.call_id == call_id);
        of_call.any(|record| record.answer != ApprovalAnswer::Waiting)
    }

    /// Whether a person has changed the arguments of a call.
    pub fn has_edited(&self, call_id: &str) -> bool {
        let mut of_call = self.0.iter().filter(|record| record.call_id == call_id);
        of_call.any(|record| {
            matches!(
                record.answer,
                ApprovalAnswer::Approved {
                    edited: Some(_),
                    ..
                }
            )
        })
    }

    /// Marks all undecided questions as abandoned.
    #[must_use]
    pub fn left(mut self) -> Self {
        for record in &mut self.0 {
            if record.answer == ApprovalAnswer::Waiting {
                record.answer = ApprovalAnswer::Left;
            }
        }
        self
    }

    /// Whether a person was asked about this very call, with these arguments.
    pub(super) fn knows(&self, request: &GateRequest<'_>) -> bool {
        let mut of_call = self
            .0
            .iter()
            .filter(|record| record.call_id == request.call_id && record.tool == request.name);
        let digest = || digest(request.arguments);
        of_call.any(|record| record.wait.digest == digest())
    }

    /// The verdict about a call for which the rules require a person's decision.
    pub(super) fn verdict(
        &self,
        request: &GateRequest<'_>,
        permissions: &TurnPermissions,
        cause: ApprovalReason<'_>,
        lifetime: Lifetime,
    ) -> Verdict {
        let digest = digest(request.arguments);
        let source = request.tool.policy().source;
        let same_call = |record: &&ApprovalRecord| {
            record.call_id == request.call_id
                && record.tool == request.name
                && record.wait.digest == digest
        };
        if let Some(record) = self.0.iter().find(same_call) {
            return record.verdict(source);
        }
        let scope = permissions.scope(request, cause.by_hook, &digest);
        let of_tool = self.0.iter().filter(|record| record.tool == request.name);
        let of_tool: Vec<&ApprovalRecord> = of_tool.collect();
        if of_tool.iter().any(|record| record.grants(&scope)) {
            return Verdict::Run;
        }
        let is_denial = |record: &&&ApprovalRecord| {
            matches!(record.answer, ApprovalAnswer::Denied { .. }) && record.wait.digest == digest
        };
        if of_tool.iter().filter(is_denial).count() >= DENIALS {
            return Verdict::Refuse(CallRefusal::denied_before());
        }
        Verdict::Wait(Box::new(GateWait {
            id: ApprovalId::fresh(),
            reason: cause.reason.map(str::to_owned),
            rule: cause.rule.cloned(),
            source,
            digest,
            scope,
            expires_at: lifetime.end(),
        }))
    }
}

impl ApprovalRecord {
    fn verdict(&self, source: ToolSource) -> Verdict {
        match &self.answer {
            ApprovalAnswer::Waiting => Verdict::Wait(Box::new(GateWait {
                source,
                ..self.wait.clone()
            })),
            ApprovalAnswer::Approved { edited: None, .. } => Verdict::Run,
            ApprovalAnswer::Approved {
                edited: Some(arguments),
                ..
            } => Verdict::RunWith(arguments.clone()),
            ApprovalAnswer::Denied { message } => {
                Verdict::Refuse(CallRefusal::denied_by_person(message.as_deref()))
            }
            ApprovalAnswer::Expired => Verdict::Refuse(CallRefusal::expired()),
            ApprovalAnswer::Left => Verdict::Refuse(CallRefusal::left()),
        }
    }

    fn grants(&self, scope: &str) -> bool {
        let ApprovalAnswer::Approved { grant, .. } = &self.answer else {
            return false;
        };
        match grant {
            Some(Grant::Tool) => true,
            Some(Grant::Same) => self.wait.scope == scope,
            None => false,
        }
    }
}

impl TurnPermissions {
    /// What later calls must have in common with a call: each rule or hook that asks about it, and the values of the
    /// arguments that the rule tests. For a rule or hook that tests no argument, these are all values.
    fn scope(&self, request: &GateRequest<'_>, hook_asks: bool, all: &str) -> String {
        let asking = self.rules.asking(&request.ruled(), &mut self.counts.lock());
        let part = |(entry, value): &(Option<&RuleEntry>, Option<&Value>)| {
            let entry = entry.map(|entry| serde_json::to_string(entry).unwrap_or_default());
            let value = value.map_or_else(|| all.to_owned(), Value::to_string);
            (entry.unwrap_or_default(), value)
        };
        let mut parts: Vec<(String, String)> = asking.iter().map(part).collect();
        if hook_asks {
            parts.push(("hook".to_owned(), all.to_owned()));
        }
        parts.sort();
        let of = (request.name, request.tool.on_server(), parts);
        sha256(&serde_json::to_string(&of).unwrap_or_default())
    }
}

/// The digest of arguments: lower-case hexadecimal digits.
pub(super) fn digest(arguments: &Map<String, Value>) -> String {
    sha256(&serde_json::to_string(arguments).unwrap_or_default())
}

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}
