//! A turn as a dialect decodes it: data only. It names no upstream and holds no live tool. It can be stored and read by
//! another version, which ignores unknown members.
//!
//! A dialect reads a body alone. Whether an error counts may depend on the server: an invalid option of web search is
//! an error only if the server searches the web. Such errors are [`Faults`] beside the draft; [`super::Agent::admit`]
//! reports those that count.

mod faults;
mod input;
mod tools;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::faults::{FaultScope, Faults};
pub use self::input::{DraftMessages, UnreadMessages};
pub use self::tools::{
    CodeDraft, DraftFilter, DraftTool, DraftTools, HostedTool, NamedFile, RequiredApproval,
    ServerDraft, UnofferedTools,
};
use super::options::Options;
use policy::rules::{Effect, RuleEntry};
use protocol::ids::ApprovalId;
use protocol::openai::raw::RawObject;

/// A draft, with the faults of fields that may not count.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The draft.
    pub draft: TurnDraft,
    /// What is wrong with the request.
    pub faults: Faults,
}

/// A turn as a dialect decodes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnDraft {
    /// The model as the client names it.
    pub model: String,
    /// The end user as the client names it (`user`).
    pub user: Option<String>,
    /// The request uses an extension of its dialect, so it does not pass through.
    pub extended: bool,
    /// The options of the request, without the defaults of the server.
    pub options: Options,
    /// What the request says of server-side calls.
    pub permissions: DraftPermissions,
    /// The tools.
    pub tools: DraftTools,
    /// What the model calls have in common.
    pub call: CallDraft,
    /// MCP servers were left out, because they are not stored.
    pub lacks_servers: bool,
    /// What the request adds to its conversation. The session has it once the turn is stored.
    #[serde(skip)]
    pub input: DraftInput,
}

/// The rules of a request, and its effect for calls that no rule matches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DraftPermissions {
    /// The rules.
    pub rules: Vec<RuleEntry>,
    /// What happens to other calls.
    pub word: Option<Effect>,
}

/// What the model calls of a turn have in common.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallDraft {
    /// Members of every model call, as the text of a JSON object without its braces. Those that the loop sets itself are
    /// not among them.
    pub members: Arc<str>,
    /// `stream_options` of the request, as JSON text.
    pub stream_options: Option<Arc<str>>,
    /// How many answers are asked for.
    pub choices: Option<u64>,
    /// Leading instructions of this turn alone, which are no part of the history.
    pub instructions: Option<String>,
}

/// What a request adds to its conversation.
#[derive(Debug, Clone, Default)]
pub struct DraftInput {
    /// The messages.
    pub messages: DraftMessages,
    /// Calls whose results the request has without the calls. If one is not in the session, the turn fails.
    pub answered_calls: Vec<String>,
    /// Decisions about waiting calls of the session. They are stored before the turn resumes.
    pub decisions: Vec<ClientDecision>,
}

/// A decision of a request about a call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientDecision {
    /// The field that names the call, for errors.
    pub param: String,
    /// The id of the question; `None` if the client's is the id of none.
    pub id: Option<ApprovalId>,
    /// Whether the call runs.
    pub approves: bool,
    /// The reason for a denial, which the model reads.
    pub reason: Option<String>,
}

impl CallDraft {
    fn over(self, suspended: Self) -> Self {
        Self {
            members: joined_members(self.members, &suspended.members),
            stream_options: self.stream_options.or(suspended.stream_options),
            choices: self.choices,
            instructions: self.instructions.or(suspended.instructions),
        }
    }
}

/// Adds the members of an earlier text that these members do not name, or name as null.
fn joined_members(members: Arc<str>, earlier: &str) -> Arc<str> {
    let (own, before) = (format!("{{{members}}}"), format!("{{{earlier}}}"));
    let (Ok(own), Ok(before)) = (RawObject::parse(&own), RawObject::parse(&before)) else {
        return members;
    };
    let is_null = |(name, value): (&str, &RawValue)| {
        (value.get() == "null" && before.get(name).is_some()).then(|| name.to_owned())
    };
    let nulls: Vec<String> = own.iter().filter_map(is_null).collect();
    let nulls: Vec<&str> = nulls.iter().map(String::as_str).collect();
    let members: Arc<str> = own.members_without(&nulls).into();
    let named = own.iter().map(|(name, _)| name);
    let named: Vec<&str> = named.filter(|name| !nulls.contains(name)).collect();
    let missing = before.members_without(&named);
    match (&*members, &*missing) {
        (_, "") => members,
        ("", missing) => missing.into(),
        (members, missing) => format!("{members},{missing}").into(),
    }
}

impl TurnDraft {
    /// The tools that hold secrets.
    pub(crate) fn servers(&self) -> Vec<DraftTool> {
        let declared = self.tools.declared.iter();
        declared
            .filter(|tool| tool.holds_secrets())
            .cloned()
            .collect()
    }

    /// Adds the MCP servers that were not stored with the draft; returns whether the draft is complete.
    pub fn add_servers(&mut self, kept: Option<Vec<DraftTool>>) -> bool {
        if self.lacks_servers
            && let Some(kept) = kept
        {
            self.tools.declared.extend(kept);
            self.lacks_servers = false;
        }
        !self.lacks_servers
    }

    /// The draft as it is stored: without MCP servers, which hold secrets.
    pub(crate) fn without_servers(&self) -> Cow<'_, Self> {
        if !self.tools.declared.iter().any(DraftTool::holds_secrets) {
            return Cow::Borrowed(self);
        }
        let mut draft = self.clone();
        draft.tools.declared.retain(|tool| !tool.holds_secrets());
        draft.lacks_servers = true;
        Cow::Owned(draft)
    }

    /// The draft of a request that resumes a suspended turn: fields that the request does not name come from the draft
    /// of the turn.
    #[must_use]
    pub(crate) fn over(self, suspended: Self) -> Self {
        let permissions = match self.permissions == DraftPermissions::default() {
            true => suspended.permissions,
            false => self.permissions,
        };
        Self {
            user: self.user.or(suspended.user),
            permissions,
            tools: self.tools.over(suspended.tools),
            call: self.call.over(suspended.call),
            ..self
        }
    }

    /// Makes it the draft of a turn that was suspended in this session: the session has its messages.
    pub fn resume_in(&mut self, session: protocol::ids::SessionId) {
        let options = &mut self.options;
        options.session_id = Some(session);
        (options.chat, options.previous) = (None, None);
        options.session_mode = super::session::SessionMode::Auto;
        self.extended = true;
        self.input = DraftInput {
            messages: DraftMessages::Read(Vec::new()),
            ..DraftInput::default()
        };
    }
}
