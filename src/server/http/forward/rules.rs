//! Which paths are forwarded for which owner.

use std::collections::HashMap;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::super::settings::ApiKey;
use protocol::ids::{Owner, shown};

/// The paths that are forwarded for each owner, once API keys exist. Without keys all are.
#[derive(Debug)]
pub(in super::super) struct ForwardRules {
    has_keys: bool,
    general: GlobSet,
    /// The rules of keys that have their own.
    by_owner: HashMap<Owner, GlobSet>,
}

impl ForwardRules {
    pub(in super::super) fn new(keys: &[ApiKey], general: &[String]) -> Self {
        let own = keys.iter().filter_map(|key| {
            let patterns = key.forward.as_ref()?;
            Some((Owner::key(&key.name), glob_set(patterns)))
        });
        Self {
            has_keys: !keys.is_empty(),
            general: glob_set(general),
            by_owner: own.collect(),
        }
    }

    /// Whether a path is forwarded for this owner, given decoded and without `/v1/`.
    ///
    /// # Errors
    /// The reason for the client, if it is not.
    pub(super) fn check(&self, owner: &Owner, path: &str) -> Result<(), String> {
        let own = self.by_owner.get(owner);
        if !self.has_keys || own.unwrap_or(&self.general).is_match(path) {
            return Ok(());
        }
        let setting = match own {
            Some(_) => format!("`forward` of the API key '{}'", owner.as_str()),
            None => "`forward`".to_owned(),
        };
        let (pattern, path) = (shown(&pattern_for(path)), shown(path));
        Err(format!(
            "'/v1/{path}' is not forwarded to the model server; to allow it, the operator adds the line \"{pattern}\", to {setting} in the settings file"
        ))
    }
}

/// Patterns in which `*` does not match `/`, and `**` does. The configuration has refused invalid patterns; they match
/// nothing here.
fn glob_set(patterns: &[String]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    let glob = |pattern: &String| {
        GlobBuilder::new(pattern)
            .literal_separator(true)
            .build()
            .ok()
    };
    let globs = patterns.iter().filter_map(glob);
    globs.for_each(|glob| {
        set.add(glob);
    });
    set.build().unwrap_or_else(|_| GlobSet::empty())
}

/// A pattern that allows a path and those beside and below it.
fn pattern_for(path: &str) -> String {
    match path.split_once('/') {
        Some((first, _)) => format!("{}/**", globset::escape(first)),
        None => globset::escape(path),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::settings::DEFAULT_FORWARD;
    use super::*;

    fn key(name: &str, forward: Option<&[&str]>) -> ApiKey {
        let owned = |patterns: &[&str]| patterns.iter().map(|&it| it.to_owned()).collect();
        ApiKey {
            name: name.to_owned(),
            sha256: [0; 32],
            forward: forward.map(owned),
            operator: false,
            defaults: agent::turn::KeyDefaults::default(),
        }
    }

    fn rules(forward: &[&str], keys: &[ApiKey]) -> ForwardRules {
        let forward: Vec<String> = forward.iter().map(|&it| it.to_owned()).collect();
        ForwardRules::new(keys, &forward)
    }

    fn is_forwarded(rules: &ForwardRules, owner: &str, path: &str) -> bool {
        rules.check(&Owner::key(owner), path).is_ok()
    }

    #[test]
    fn a_star_ends_at_a_slash_and_two_do_not() {
        for (pattern, path, expected) in [
            ("audio/*", "audio/speech", true),
            ("audio/*", "audio/x/y", false),
            ("audio/*", "audio", false),
            ("audio/**", "audio/x/y", true),
            ("**", "batches/b_1/cancel", true),
            ("**", "embeddings", true),
            ("embeddings", "embeddings2", false),
            ("embeddings", "Embeddings", false),
            ("fine_tuning/*/ft:1", "fine_tuning/jobs/ft:1", true),
        ] {
            let rules = rules(&[pattern], &[key("a", None)]);
            assert_eq!(
                is_forwarded(&rules, "a", path),
                expected,
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn by_default_only_inference_is_forwarded_for_keys() {
        let with_key = rules(&DEFAULT_FORWARD, &[key("a", None)]);
        let without = rules(&DEFAULT_FORWARD, &[]);
        for (path, expected) in [
            ("embeddings", true),
            ("audio/transcriptions", true),
            ("images/generations", true),
            ("messages/count_tokens", true),
            ("messages/batches", false),
            ("responses/resp_1", false),
            ("batches", false),
            ("fine_tuning/jobs", false),
            ("models/ft:abc", false),
        ] {
            assert_eq!(is_forwarded(&with_key, "a", path), expected, "{path}");
            assert!(is_forwarded(&without, "a", path), "{path}");
        }
    }

    #[test]
    fn a_keys_own_list_replaces_the_general_one() {
        let keys = [key("a", None), key("b", Some(&["batches/**"]))];
        let rules = rules(&["embeddings"], &keys);
        for (owner, path, expected) in [
            ("a", "embeddings", true),
            ("a", "batches/b", false),
            ("b", "embeddings", false),
            ("b", "batches/b", true),
        ] {
            assert_eq!(
                is_forwarded(&rules, owner, path),
                expected,
                "{owner} {path}"
            );
        }
        let refusal = |owner: &str, path| rules.check(&Owner::key(owner), path).unwrap_err();
        assert_eq!(
            refusal("a", "batches/b_1/cancel"),
            "'/v1/batches/b_1/cancel' is not forwarded to the model server; to allow it, the operator adds the line \"batches/**\", to `forward` in the settings file"
        );
        let of_key = refusal("b", "x\u{7}[1]");
        assert!(
            of_key.contains("'/v1/x?[1]'") && of_key.contains("\"x?[[]1[]]\","),
            "{of_key}"
        );
        assert!(of_key.contains("`forward` of the API key 'b'"), "{of_key}");
        assert!(refusal("a", &"x".repeat(9999)).len() < 1000);
    }
}
