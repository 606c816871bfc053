//! Remedies for names that do not exist: the nearest name, the table in which the key belongs, and the usual guesses.

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use super::file::web::{FileUrlsSection, PagesSection, ProviderSection, SearchSection};
use super::file::{
    ApiKeySection, File, LimitsSection, RetrySection, SandboxSection, ToolSection, UpstreamSection,
};

/// Longest list of possible keys that an error repeats, in characters; a longer one is left out.
const MAX_KEY_LIST_CHARS: usize = 300;
/// Threshold of 1 that a name must reach to be near; the measure of the command line, which asks for 0.7.
const NEAR: f64 = 0.8;
/// What people call a secret, and the keys that name its variable.
const SECRETS: (&[&str], &[&str]) = (
    &["api_key", "apikey", "key", "token", "secret", "password"],
    &["api_key_env", "secret_env", "env", "upstream_api_key_env"],
);
/// What people call an address, and the keys for it.
const ADDRESSES: (&[&str], &[&str]) = (
    &["url", "base_url", "endpoint", "uri", "api_base", "address"],
    &["base_url", "url", "upstream"],
);
/// Tables that are lists.
const LISTS: [&str; 4] = ["upstreams", "tools", "api_keys", "search.providers"];
/// Tables that exist once.
const TABLES: [&str; 7] = [
    "retry",
    "sandbox",
    "sandbox.limits",
    "search",
    "search.pages",
    "file_urls",
    "mcp_requests",
];

/// The nearest of some names, if it is near enough to be meant.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let scored = known
        .into_iter()
        .map(|other| (strsim::jaro(name, other), other));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(score, _)| *score >= NEAR)
        .map(|(_, name)| name)
}

/// The problem with an unknown key, given the message of the TOML reader and the table that the key is in, which is empty for
/// the top level. `None` if the message says something else.
pub(super) fn unknown_key(message: &str, table: &str) -> Option<String> {
    let (name, list) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let list = list.trim_start_matches([',', ' ']);
    let known = quoted_names(list);
    let hint = hint(name, &known, table);
    Some(if list.len() <= MAX_KEY_LIST_CHARS {
        let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
        format!("unknown key, {list}{hint}")
    } else {
        let hint = hint.map(|hint| format!("{hint}; ")).unwrap_or_default();
        format!("unknown key; {hint}`loopwright check-config --template` shows all keys")
    })
}

fn hint(name: &str, known: &[String], table: &str) -> Option<String> {
    let has = |key: &&&str| known.iter().any(|known| known == **key);
    let guessed = |(guesses, keys): (&[&str], &'static [&'static str])| {
        let is_guess = guesses.contains(&name);
        is_guess.then(|| keys.iter().find(has).copied()).flatten()
    };
    if let Some(key) = guessed(SECRETS) {
        let text = "with the name of the environment variable that holds the secret";
        return Some(format!("write `{key} = \"NAME\"` {text}"));
    }
    if let Some(key) = guessed(ADDRESSES) {
        return Some(format!("write `{key}`"));
    }
    if !table.is_empty() && keys_of::<File>().iter().any(|key| key == name) {
        return Some(format!("`{name}` belongs above the first table"));
    }
    if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
        return Some(format!("did you mean `{near}`?"));
    }
    let homes = tables_with(name);
    (!homes.is_empty()).then(|| format!("`{name}` belongs below {}", homes.join(" or ")))
}

/// The headers of the tables that have a key.
fn tables_with(name: &str) -> Vec<&'static str> {
    let all = [
        ("[retry]", keys_of::<RetrySection>()),
        ("[[upstreams]]", keys_of::<UpstreamSection>()),
        ("[[tools]]", keys_of::<ToolSection>()),
        ("[[api_keys]]", keys_of::<ApiKeySection>()),
        ("[search]", keys_of::<SearchSection>()),
        ("[search.pages]", keys_of::<PagesSection>()),
        ("[[search.providers]]", keys_of::<ProviderSection>()),
        ("[sandbox]", keys_of::<SandboxSection>()),
        ("[sandbox.limits]", keys_of::<LimitsSection>()),
        ("[file_urls]", keys_of::<FileUrlsSection>()),
    ];
    let having = all
        .into_iter()
        .filter(|(_, keys)| keys.iter().any(|key| key == name));
    having.map(|(header, _)| header).collect()
}

/// The keys of a table. The reader lists them where it refuses one.
fn keys_of<T: DeserializeOwned>() -> Vec<String> {
    let refused = toml::from_str::<T>("\"\" = 0").err();
    let list = refused.map(|error| error.message().to_owned());
    let list = list.unwrap_or_default();
    quoted_names(list.strip_prefix("unknown field ``").unwrap_or_default())
}

/// The names between backticks.
fn quoted_names(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// A table that stands where a list of tables is expected, or the other way round: its key, and the problem.
pub(super) fn wrong_brackets(file: &DeTable<'_>) -> Option<(&'static str, String)> {
    let lists = LISTS.into_iter().filter_map(|key| {
        let is_table = matches!(value_of(file, key)?, DeValue::Table(_));
        is_table.then(|| {
            (
                key,
                format!("there may be several of this table; write [[{key}]]"),
            )
        })
    });
    let tables = TABLES.into_iter().filter_map(|key| {
        let is_list = matches!(value_of(file, key)?, DeValue::Array(_));
        is_list.then(|| {
            (
                key,
                format!("there is one table of this name; write [{key}]"),
            )
        })
    });
    lists.chain(tables).next()
}

fn value_of<'a, 'b>(file: &'a DeTable<'b>, key: &str) -> Option<&'a DeValue<'b>> {
    let mut names = key.split('.');
    let first = file.get(names.next()?)?.get_ref();
    names.try_fold(first, |value, name| match value {
        DeValue::Table(table) => Some(table.get(name)?.get_ref()),
        _ => None,
    })
}
