//! Quirks that upstreams show while the server runs. They are kept in memory and forgotten when the process ends.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use super::Upstream;

/// Most pairs of upstream and model that are remembered. Clients choose the names of models.
const MOST_PAIRS: usize = 4096;

/// Which models of which upstreams do not answer a call that withholds its tools with `tool_choice: "none"`.
#[derive(Debug, Default)]
pub struct LearnedQuirks {
    hasher: RandomState,
    /// Hashes of the pairs, because names of models may be long.
    remove_tools: Mutex<HashSet<u64>>,
}

impl LearnedQuirks {
    /// Whether the final call has to be made without tools. `model` is the name that clients use.
    pub fn removes_tools(&self, upstream: &dyn Upstream, model: &str) -> bool {
        let pair = self.pair(upstream, model);
        self.remove_tools.lock().contains(&pair)
    }

    /// Remembers that the final call has to be made without tools.
    pub fn remove_tools(&self, upstream: &dyn Upstream, model: &str) {
        let pair = self.pair(upstream, model);
        let mut pairs = self.remove_tools.lock();
        if pairs.len() >= MOST_PAIRS {
            pairs.clear();
        }
        if pairs.insert(pair) {
            tracing::info!(
                upstream = upstream.name(),
                "a model did not answer a call with tool_choice \"none\"; its final calls are made without tools from now on"
            );
        }
    }

    fn pair(&self, upstream: &dyn Upstream, model: &str) -> u64 {
        let names = (upstream.name(), upstream.model_name(model));
        self.hasher.hash_one(names)
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::Quirks;
    use super::super::testing::FakeUpstream;
    use super::*;

    #[test]
    fn a_quirk_belongs_to_one_upstream_and_one_model() {
        let [a, b] = ["a", "b"].map(|name| FakeUpstream::new(name, Quirks::default()));
        let learned = LearnedQuirks::default();
        learned.remove_tools(&a, "m");
        assert!(learned.removes_tools(&a, "m"));
        assert!(!learned.removes_tools(&a, "n"));
        assert!(!learned.removes_tools(&b, "m"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let upstream = FakeUpstream::new("a", Quirks::default());
        let learned = LearnedQuirks::default();
        for model in 0..=MOST_PAIRS {
            learned.remove_tools(&upstream, &model.to_string());
        }
        assert_eq!(learned.remove_tools.lock().len(), 1);
    }
}
