//! Quirks that upstreams show while the server runs. They are held in memory and lost when the process ends.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;

use super::Upstream;
use super::settings::ServerKind;
use protocol::ids::shown;

/// Most facts that are remembered, as clients choose the names of models. Then all are forgotten.
/// Tried by `learned::what_is_remembered_is_bounded`.
const MOST_FACTS: usize = 4096;

/// What the server of a model does not take or heed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LearnedQuirk {
    /// A call that withholds its tools with `tool_choice: "none"`: it is refused, or not answered.
    WithheldTools,
    /// A request for a stream.
    Stream,
    /// The field `stream_options`.
    StreamOptions,
    /// A `tool_choice` that forces a call: it is ignored.
    IgnoredChoice,
}

/// Quirks of pairs of upstream and model.
#[derive(Debug, Default)]
pub struct LearnedQuirks {
    hasher: RandomState,
    /// Hashes of the quirks with their pairs, because names of models may be long.
    facts: Mutex<HashSet<u64>>,
}

impl LearnedQuirk {
    fn report(self, upstream: &dyn Upstream, model: &str) {
        let name = upstream.name();
        let what_follows = match self {
            Self::WithheldTools => {
                "a model did not answer a call with tool_choice \"none\"; its final calls are made without tools from now on"
            }
            Self::Stream => "a model refused a stream; it is asked for whole answers from now on",
            Self::StreamOptions => "a model refused stream_options; they are left out from now on",
            Self::IgnoredChoice => {
                tracing::warn!(
                    upstream = name,
                    model = shown(upstream.model_name(model)),
                    "a model called no tool although tool_choice asks for one; {}",
                    likely_cause(upstream.kind())
                );
                return;
            }
        };
        tracing::info!(upstream = name, "{what_follows}");
    }
}

/// Why a server may ignore that a tool is to be called.
fn likely_cause(kind: Option<ServerKind>) -> &'static str {
    match kind {
        Some(ServerKind::LlamaCpp) => {
            "start llama-server with --jinja, and with a chat template that knows tools"
        }
        Some(ServerKind::Vllm) => {
            "start vLLM with --enable-auto-tool-choice and the --tool-call-parser of the model"
        }
        Some(ServerKind::SgLang) => "start SGLang with the --tool-call-parser of the model",
        Some(ServerKind::Ollama | ServerKind::Transformers) => {
            "this model server ignores tool_choice"
        }
        Some(_) | None => {
            "the likely cause is the chat template or the tool-call parser of the model server: llama.cpp needs --jinja, vLLM \
             --enable-auto-tool-choice and --tool-call-parser"
        }
    }
}

impl LearnedQuirks {
    /// Whether a quirk is known. `model` is the name that clients use.
    pub fn knows(&self, quirk: LearnedQuirk, upstream: &dyn Upstream, model: &str) -> bool {
        let fact = self.fact(quirk, upstream, model);
        self.facts.lock().contains(&fact)
    }

    /// Remembers a quirk.
    pub fn learn(&self, quirk: LearnedQuirk, upstream: &dyn Upstream, model: &str) {
        let fact = self.fact(quirk, upstream, model);
        let mut facts = self.facts.lock();
        if facts.len() >= MOST_FACTS {
            facts.clear();
        }
        if facts.insert(fact) {
            quirk.report(upstream, model);
        }
    }

    fn fact(&self, quirk: LearnedQuirk, upstream: &dyn Upstream, model: &str) -> u64 {
        let names = (quirk, upstream.name(), upstream.model_name(model));
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
        learned.learn(LearnedQuirk::Stream, &a, "m");
        assert!(learned.knows(LearnedQuirk::Stream, &a, "m"));
        assert!(!learned.knows(LearnedQuirk::Stream, &a, "n"));
        assert!(!learned.knows(LearnedQuirk::Stream, &b, "m"));
        assert!(!learned.knows(LearnedQuirk::StreamOptions, &a, "m"));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let upstream = FakeUpstream::new("a", Quirks::default());
        let learned = LearnedQuirks::default();
        for model in 0..=MOST_FACTS {
            learned.learn(LearnedQuirk::Stream, &upstream, &model.to_string());
        }
        assert_eq!(learned.facts.lock().len(), 1);
    }
}
