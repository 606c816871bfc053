//! Figures by model and by API key.

use std::sync::Arc;

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;

use super::{Metrics, Names, Page, Total, create};

/// Most names of models that get series of their own; others are counted together.
/// Tried by `usage::only_models_that_have_answered_get_series_and_only_so_many`.
const MAX_MODELS: usize = 100;
/// Longest name of a model that gets series of its own, in bytes; others are counted together.
/// Tried by `usage::only_models_that_have_answered_get_series_and_only_so_many`.
const MAX_MODEL_BYTES: usize = 128;
/// The label value of all other models.
const OTHER: &str = "other";
/// The values of `kind`.
const KINDS: [&str; 2] = ["prompt", "completion"];

/// What a model was used for: its name as the client wrote it, and the name of the API key, which is empty without keys.
#[derive(Debug, Clone, Copy)]
pub struct ModelUse<'a> {
    /// The model.
    pub model: &'a str,
    /// The key. Keys come from the configuration.
    pub key: &'a str,
}

#[derive(Debug)]
pub(super) struct UsageMetrics {
    tokens: Family<TokenLabels, Total>,
    requests: Family<ModelKeyLabels, Total>,
    /// Models that have answered.
    models: RwLock<Names>,
    keys: RwLock<Names>,
    other: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
    model: Arc<str>,
    key: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelKeyLabels {
    model: Arc<str>,
    key: Arc<str>,
}

impl UsageMetrics {
    pub(super) fn new(page: &mut Page) -> Self {
        let usage = Self {
            tokens: page.metric("tokens", "Tokens as model servers reported them"),
            requests: page.metric(
                "model_requests",
                "Requests that name a model, by model and API key",
            ),
            models: RwLock::default(),
            keys: RwLock::default(),
            other: OTHER.into(),
        };
        for kind in KINDS {
            let (model, key) = (Arc::clone(&usage.other), "".into());
            create(&usage.tokens, &TokenLabels { kind, model, key });
        }
        usage
    }

    /// The label value of a model that has answered.
    fn confirmed(&self, model: &str) -> Arc<str> {
        match model.len() > MAX_MODEL_BYTES {
            true => Arc::clone(&self.other),
            false => {
                learnt(&self.models, model, MAX_MODELS).unwrap_or_else(|| Arc::clone(&self.other))
            }
        }
    }

    /// The label value of a model that has not answered now.
    fn known(&self, model: &str) -> Arc<str> {
        let known = self.models.read().get(model).cloned();
        known.unwrap_or_else(|| Arc::clone(&self.other))
    }

    fn key(&self, key: &str) -> Arc<str> {
        learnt(&self.keys, key, usize::MAX).unwrap_or_else(|| key.into())
    }
}

impl Metrics {
    /// Counts tokens as a model server reported them with a whole answer.
    pub(crate) fn tokens(&self, of: ModelUse<'_>, prompt: u64, completion: u64) {
        let usage = &self.0.usage;
        let (model, key) = (usage.confirmed(of.model), usage.key(of.key));
        for (kind, tokens) in KINDS.into_iter().zip([prompt, completion]) {
            let (model, key) = (Arc::clone(&model), Arc::clone(&key));
            let labels = TokenLabels { kind, model, key };
            usage.tokens.get_or_create(&labels).inc_by(tokens);
        }
    }

    /// Counts a request that names a model. Only a model that has answered gets series of its own.
    pub fn model_request(&self, of: ModelUse<'_>, answered: bool) {
        let usage = &self.0.usage;
        let model = match answered {
            true => usage.confirmed(of.model),
            false => usage.known(of.model),
        };
        let key = usage.key(of.key);
        let labels = ModelKeyLabels { model, key };
        usage.requests.get_or_create(&labels).inc();
    }
}

/// The label value of a name. A new name is added while there are fewer than `most`.
fn learnt(names: &RwLock<Names>, name: &str, most: usize) -> Option<Arc<str>> {
    if let Some(known) = names.read().get(name) {
        return Some(Arc::clone(known));
    }
    let mut names = names.write();
    if names.len() >= most && !names.contains_key(name) {
        return None;
    }
    let label = names.entry(name.to_owned()).or_insert_with(|| name.into());
    Some(Arc::clone(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(metrics: &Metrics, series: &str) -> Option<u64> {
        let page = metrics.encode();
        let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
        page.lines().find_map(value)
    }

    #[test]
    fn only_models_that_have_answered_get_series_and_only_so_many() {
        let metrics = Metrics::new([], [], []);
        let key = "team";
        let request = |model: &str, answered| {
            metrics.model_request(ModelUse { model, key }, answered);
        };
        request("guessed", false);
        (0..MAX_MODELS + 2).for_each(|number| request(&format!("m{number}"), true));
        request("m0", false);
        request(&"x".repeat(MAX_MODEL_BYTES + 1), true);
        let of = |model: &str| {
            let series =
                format!(r#"loopwright_model_requests_total{{model="{model}",key="team"}}"#);
            value(&metrics, &series)
        };
        assert_eq!(of("m0"), Some(2));
        assert_eq!(of("m99"), Some(1));
        assert_eq!(of("m100"), None);
        assert_eq!(of("guessed"), None);
        // The guessed name, two names beyond the bound, and the long one.
        assert_eq!(of("other"), Some(4));
    }

    #[test]
    fn hostile_names_stay_within_their_label() {
        let metrics = Metrics::new([], [], []);
        let (model, key) = ("a\"} 1\nb\\", "k");
        metrics.tokens(ModelUse { model, key }, 3, 4);
        let page = metrics.encode();
        let series = r#"loopwright_tokens_total{kind="prompt",model="a\"} 1\nb\\",key="k"} 3"#;
        assert!(page.lines().any(|line| line == series), "{page}");
    }
}
