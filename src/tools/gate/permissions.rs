//! The rules of a turn. They can be stored with it, and then apply also under the request that resumes it.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use policy::rules::{
    CallCounts, Effect, Level, LevelName, Permissions, RuleDecision, RuleEntry, RuleSet, RuledCall,
};

/// The rules of a turn, and how often those match that hold from a later call on. Clones share the counts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(into = "StoredPermissions", from = "StoredPermissions")]
pub struct TurnPermissions {
    pub(super) rules: Permissions,
    pub(super) counts: Arc<Mutex<CallCounts>>,
}

/// What is stored: the settings of the server and of the key are read again.
#[derive(Debug, Serialize, Deserialize)]
struct StoredPermissions {
    of_requests: Vec<StoredLevel>,
    counts: CallCounts,
}

/// What a request asked for.
#[derive(Debug, Serialize, Deserialize)]
struct StoredLevel {
    rules: Vec<RuleEntry>,
    word: Option<Effect>,
}

impl TurnPermissions {
    /// The rules of a turn that begins.
    pub fn new(rules: Permissions) -> Self {
        Self {
            rules,
            counts: Arc::default(),
        }
    }

    /// Decides about a call. A call that is decided again counts once.
    pub fn decide(&self, call: &RuledCall<'_>) -> RuleDecision {
        self.rules.decide(call, &mut self.counts.lock())
    }

    /// Whether some call may be asked about.
    pub(crate) fn may_ask(&self) -> bool {
        self.rules.may_ask()
    }

    /// Whether some call of a tool of this name may be asked about.
    pub fn may_ask_about(&self, tool: &str) -> bool {
        self.rules.may_ask_about(tool)
    }

    /// The rules of a resumed turn: the rules of both requests apply. Counts identify levels by their position, so the
    /// new levels come last.
    #[must_use]
    pub fn under(self, now: &Self) -> Self {
        let is_of_request = |level: &&Level| level.name == LevelName::Request;
        let (new, same): (Vec<_>, Vec<_>) = now.rules.levels().iter().partition(is_of_request);
        let levels = same.into_iter().chain(self.rules.levels()).chain(new);
        Self {
            rules: Permissions::new(levels.cloned().collect()),
            ..self
        }
    }
}

impl From<TurnPermissions> for StoredPermissions {
    fn from(permissions: TurnPermissions) -> Self {
        let levels = permissions.rules.levels().iter();
        let of_requests = levels.filter(|level| level.name == LevelName::Request);
        let stored = |level: &Level| StoredLevel {
            rules: level.rules.entries().to_vec(),
            word: level.word,
        };
        Self {
            of_requests: of_requests.map(stored).collect(),
            counts: permissions.counts.lock().clone(),
        }
    }
}

impl From<StoredPermissions> for TurnPermissions {
    fn from(stored: StoredPermissions) -> Self {
        let level = |StoredLevel { rules, word }| match RuleSet::compile(rules) {
            Ok(rules) => Level {
                name: LevelName::Request,
                rules: Arc::new(rules),
                word,
            },
            // They were compiled when the turn began.
            Err(error) => {
                tracing::error!(%error, "the rules of a stored turn cannot be read; it may call nothing");
                Level {
                    name: LevelName::Request,
                    rules: Arc::default(),
                    word: Some(Effect::Deny),
                }
            }
        };
        Self {
            rules: Permissions::new(stored.of_requests.into_iter().map(level).collect()),
            counts: Arc::new(Mutex::new(stored.counts)),
        }
    }
}
