//! How often rules with `from_call` have matched in a turn.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// The calls of a turn that rules with `from_call` have matched. A call counts once, however often it is decided.
///
/// A rule is known by the position of its level and its index. Levels may be added at the end during a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallCounts {
    rules: Vec<CountedRule>,
}

/// The first calls that a rule has matched, without effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct CountedRule {
    level: usize,
    rule: usize,
    /// Ids of calls. At most one less than the `from_call` of the rule.
    calls: Vec<String>,
}

impl CallCounts {
    /// Counts a call that the rule matches. Returns whether the rule holds for the call.
    pub(super) fn count(
        &mut self,
        level: usize,
        rule: usize,
        from_call: NonZeroU32,
        call_id: &str,
    ) -> bool {
        let before = usize::try_from(from_call.get() - 1).unwrap_or(usize::MAX);
        if before == 0 {
            return true;
        }
        let known = self
            .rules
            .iter()
            .position(|counted| counted.level == level && counted.rule == rule);
        let counted = match known.and_then(|index| self.rules.get_mut(index)) {
            Some(counted) => counted,
            None => self.rules.push_mut(CountedRule {
                level,
                rule,
                calls: Vec::new(),
            }),
        };
        if counted.calls.iter().any(|id| id == call_id) {
            return false;
        }
        if counted.calls.len() < before {
            counted.calls.push(call_id.to_owned());
            return false;
        }
        true
    }
}
