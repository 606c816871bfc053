//! Chooses the upstreams of a request by the model's name.
//!
//! The router holds the model name patterns and the fail-over order. It has no state about the health of upstreams.

use std::sync::Arc;

use globset::{Glob, GlobSet, GlobSetBuilder};
use parking_lot::Mutex;

use super::Upstream;
use super::fail_over::FailOver;
use super::http::{HttpUpstream, HttpUpstreamError};
use super::learned::LearnedQuirks;
use super::retry::RetryPolicy;
pub use super::route::Route;
use super::settings::{PoolSettings, ServerKind, Settings};
use super::state::UpstreamState;

/// An upstream and the models that it takes.
#[derive(Debug)]
pub struct UpstreamEntry {
    /// The upstream.
    pub upstream: Arc<dyn Upstream>,
    /// Model name patterns (globs); empty takes every model.
    pub models: Vec<String>,
    /// Renamed models: the client's name, the upstream's name.
    pub model_map: Vec<(String, String)>,
}

/// Chooses upstreams by model name.
#[derive(Debug)]
pub struct Router {
    first: Arc<dyn Upstream>,
    entries: Vec<RouterEntry>,
    has_patterns: bool,
    retry: RetryPolicy,
    learned: LearnedQuirks,
}

#[derive(Debug)]
pub(super) struct RouterEntry {
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) model_map: Vec<(String, String)>,
    /// Absent if the upstream takes every model.
    patterns: Option<GlobSet>,
    /// What was last seen of it.
    seen: Mutex<Option<(UpstreamState, Option<ServerKind>)>>,
}

/// Why a router cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// There is no upstream.
    #[error("there is no upstream")]
    Empty,
    /// A model name pattern is not a valid glob.
    #[error("model pattern of upstream {upstream} cannot be used")]
    Pattern {
        /// The upstream's configured name.
        upstream: String,
        /// The cause.
        #[source]
        source: globset::Error,
    },
    /// The client of an upstream cannot be made.
    #[error(transparent)]
    Upstream(#[from] HttpUpstreamError),
}

impl Router {
    /// Makes a router over upstreams in fail-over order.
    ///
    /// # Errors
    /// When there is no upstream or a pattern cannot be used.
    pub fn new(entries: Vec<UpstreamEntry>) -> Result<Self, RouterError> {
        let entries = entries
            .into_iter()
            .map(RouterEntry::new)
            .collect::<Result<Vec<_>, _>>()?;
        let first = entries.first().ok_or(RouterError::Empty)?.upstream.clone();
        Ok(Self {
            first,
            has_patterns: entries.iter().any(|entry| entry.patterns.is_some()),
            entries,
            retry: RetryPolicy::default(),
            learned: LearnedQuirks::default(),
        })
    }

    /// The same with another retry policy.
    #[must_use]
    pub(crate) fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// The attempts of one call over the upstreams of a route.
    pub fn fail_over(&self, route: Arc<Route>) -> FailOver {
        FailOver::new(self.retry, route)
    }

    /// The quirks that the upstreams have shown so far.
    pub fn learned(&self) -> &LearnedQuirks {
        &self.learned
    }

    /// Makes a router over the configured upstreams.
    ///
    /// # Errors
    /// When there is no upstream, or one of them cannot be used.
    pub fn from_settings(settings: &PoolSettings) -> Result<Self, RouterError> {
        let entry = |settings: &Settings| -> Result<UpstreamEntry, RouterError> {
            Ok(UpstreamEntry {
                upstream: Arc::new(HttpUpstream::new(settings.clone())?),
                models: settings.models.clone(),
                model_map: settings.model_map.clone(),
            })
        };
        let entries = settings.upstreams.iter().map(entry);
        let router = Self::new(entries.collect::<Result<_, _>>()?)?;
        Ok(router.with_retry(settings.retry))
    }

    /// The upstreams that take a model, in fail-over order; none if no upstream does.
    pub fn candidates(&self, model: &str) -> Option<Arc<Route>> {
        if !self.has_patterns {
            return Some(self.all());
        }
        let upstreams = self.entries.iter().filter(|entry| entry.takes(model));
        Route::new(upstreams.map(|entry| entry.upstream.clone()).collect()).map(Arc::new)
    }

    /// All upstreams, in fail-over order. Made anew, as the kind of an upstream may have become known.
    pub fn all(&self) -> Arc<Route> {
        let upstreams = self.entries.iter().map(|entry| entry.upstream.clone());
        Arc::new(Route::over(self.first.clone(), upstreams.collect()))
    }

    /// The first upstream, for requests that name no model.
    pub fn default(&self) -> &Arc<dyn Upstream> {
        &self.first
    }

    pub(super) fn entries(&self) -> &[RouterEntry] {
        &self.entries
    }
}

impl RouterEntry {
    fn new(entry: UpstreamEntry) -> Result<Self, RouterError> {
        let patterns = if entry.models.is_empty() {
            None
        } else {
            let set = glob_set(&entry.models).map_err(|source| RouterError::Pattern {
                upstream: entry.upstream.name().to_owned(),
                source,
            })?;
            Some(set)
        };
        Ok(Self {
            upstream: entry.upstream,
            model_map: entry.model_map,
            patterns,
            seen: Mutex::default(),
        })
    }

    /// Records the result of a probe. Returns whether it differs from the one before.
    pub(super) fn is_news(&self, seen: (UpstreamState, Option<ServerKind>)) -> bool {
        self.seen.lock().replace(seen) != Some(seen)
    }

    /// Whether the upstream takes a model.
    pub(super) fn takes(&self, model: &str) -> bool {
        self.patterns
            .as_ref()
            .is_none_or(|patterns| patterns.is_match(model))
    }
}

fn glob_set(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern)?);
    }
    set.build()
}

#[cfg(test)]
mod tests {
    use super::super::settings::{
        EmptyContent, FinalCall, MissingReasoning, Quirks, ReasoningField, RoleOrder,
    };
    use super::super::testing::FakeUpstream;
    use super::*;
    use protocol::ids::CallIdStyle;

    fn entry(name: &str, models: &[&str], quirks: Quirks) -> UpstreamEntry {
        UpstreamEntry {
            upstream: Arc::new(FakeUpstream::new(name, quirks)),
            models: models.iter().map(|&model| model.to_owned()).collect(),
            model_map: Vec::new(),
        }
    }

    fn names(route: Option<Arc<Route>>) -> Vec<String> {
        route.map_or_else(Vec::new, |route| {
            let names = route.upstreams().iter().map(|it| it.name().to_owned());
            names.collect()
        })
    }

    #[test]
    fn patterns_choose_the_upstreams_in_the_configured_order() {
        let router = Router::new(vec![
            entry("a", &["gpt-*", "org/*"], Quirks::default()),
            entry("b", &["gpt-4"], Quirks::default()),
            entry("c", &["llama"], Quirks::default()),
        ])
        .unwrap();
        for (model, expected) in [
            ("gpt-4", vec!["a", "b"]),
            ("gpt-3.5", vec!["a"]),
            ("org/x/y", vec!["a"]),
            ("llama", vec!["c"]),
            ("other", vec![]),
        ] {
            assert_eq!(names(router.candidates(model)), expected, "{model}");
        }
        assert_eq!(router.default().name(), "a");
    }

    #[test]
    fn without_patterns_every_upstream_takes_every_model() {
        let router = Router::new(vec![
            entry("a", &[], Quirks::default()),
            entry("b", &[], Quirks::default()),
        ])
        .unwrap();
        assert_eq!(names(router.candidates("anything")), ["a", "b"]);
        assert_eq!(names(Some(router.all().clone())), ["a", "b"]);
    }

    #[test]
    fn the_quirks_of_a_route_suit_all_its_upstreams() {
        let a = Quirks {
            images: true,
            hosted_tools: vec!["web_search".into(), "x".into()],
            ..Quirks::default()
        };
        let b = Quirks {
            send_reasoning: false,
            call_ids: CallIdStyle::Short,
            final_call: FinalCall::RemoveTools,
            hosted_tools: vec!["x".into()],
            developer_role: false,
            roles: RoleOrder::Alternate,
            empty_content: EmptyContent::Null,
            reasoning_field: ReasoningField::Reasoning,
            missing_reasoning: MissingReasoning::Space,
            blank_text: false,
            tool_result_name: true,
            ..Quirks::default()
        };
        let router = Router::new(vec![entry("a", &[], a), entry("b", &[], b)]).unwrap();
        let quirks = &router.all().quirks;
        assert!(!quirks.send_reasoning && !quirks.images);
        assert_eq!(quirks.call_ids, CallIdStyle::Short);
        assert_eq!(quirks.final_call, FinalCall::RemoveTools);
        assert_eq!(quirks.hosted_tools, ["x"]);
        assert!(!quirks.developer_role);
        assert_eq!(quirks.roles, RoleOrder::Alternate);
        assert_eq!(quirks.empty_content, EmptyContent::Empty);
        assert_eq!(quirks.reasoning_field, ReasoningField::Reasoning);
        assert_eq!(quirks.missing_reasoning, MissingReasoning::Space);
        assert!(!quirks.blank_text && quirks.tool_result_name);
    }

    #[test]
    fn a_router_needs_an_upstream_and_valid_patterns() {
        assert!(matches!(Router::new(Vec::new()), Err(RouterError::Empty)));
        let bad = vec![entry("a", &["gpt-[4"], Quirks::default())];
        assert!(matches!(
            Router::new(bad),
            Err(RouterError::Pattern { upstream, .. }) if upstream == "a"
        ));
    }
}
