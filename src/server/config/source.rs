//! Reads the file, and replaces its values by the values of variables and flags.
//!
//! A flag, its variable and its key in the file have the same name. A flag or variable is checked alone first, so that
//! an error names it; then its value replaces the value of the key.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, Deserializer};
use toml::{Table, Value};

use super::file::File;
use super::locate::{self, KeyLines};
use super::{ConfigError, Environment, Origin, hints, names, parse};

/// The origins of the values of the keys.
#[derive(Debug)]
pub(super) struct Origins {
    file: Option<Arc<str>>,
    lines: KeyLines,
    /// The keys that a flag or variable has set.
    set: BTreeMap<String, Origin>,
    /// The values of keys that become others by the checks.
    short_forms: Table,
}

/// Keys that are short forms of a list with one entry; none of their values holds a secret.
const SHORT_FORMS: [&str; 4] = [
    "upstream",
    "upstream_api_key_env",
    "search_provider",
    "search_url",
];

impl Origins {
    /// Whether a key of the top level is in the file, or set by a flag or variable.
    pub(super) fn is_given(&self, key: &str) -> bool {
        self.set.contains_key(key) || self.lines.line(key).is_some()
    }

    /// The origin of a key's value; for a missing key, its place in the file.
    pub(super) fn of(&self, key: &str) -> Origin {
        let file = || Origin::Key {
            file: self.file.clone(),
            line: self.lines.line(key),
            key: key.to_owned(),
        };
        self.set.get(key).cloned().unwrap_or_else(file)
    }

    /// Whether a key of any table is in the file, or set by a flag or variable.
    pub(super) fn has(&self, key: &str) -> bool {
        self.set.contains_key(key) || self.lines.iter().any(|(known, _)| known == key)
    }

    /// The origin of a key's value, without the key.
    pub(super) fn place(&self, key: &str) -> Origin {
        match self.of(key) {
            Origin::Key { file, line, .. } => Origin::Key {
                file,
                line,
                key: String::new(),
            },
            other => other,
        }
    }

    /// The values of keys that are short forms of a list with one entry.
    pub(super) fn short_forms(&self) -> &Table {
        &self.short_forms
    }

    /// Records where the value of a key comes from.
    pub(super) fn put(&mut self, key: &str, origin: Origin) {
        self.set.insert(key.to_owned(), origin);
    }

    fn refused(&self, text: &str, error: &toml::de::Error) -> ConfigError {
        let offset = error.span().map_or(0, |span| span.start);
        let key = self.lines.key_at(offset).unwrap_or_default();
        let origin = Origin::Key {
            file: self.file.clone(),
            line: Some(locate::line_of(text, offset)),
            key: key.to_owned(),
        };
        let table = key.rsplit_once('.').map_or("", |(table, _)| table);
        ConfigError::invalid(origin, locate::reworded(error, table))
    }
}

/// Reads the file at `path`, or the one that the variable of `--config` names, and then the flags and their variables.
pub(super) fn read(
    path: Option<&Path>,
    flags: &impl Serialize,
    env: Environment<'_>,
) -> Result<(File, Origins), ConfigError> {
    let (file, text) = match file_path(path, env) {
        Some((path, origin)) => (
            Some(path.display().to_string().into()),
            content(path, origin)?,
        ),
        None => (None, String::new()),
    };
    let (set, overlay) = given(flags, env)?;
    let mut origins = Origins {
        file,
        lines: KeyLines::default(),
        set,
        short_forms: Table::new(),
    };
    let mut table = DeTable::parse(&text).map_err(|error| origins.refused(&text, &error))?;
    origins.lines = KeyLines::of(&text, table.get_ref());
    let overlay = overlay.to_string();
    let overlay = DeTable::parse(&overlay).map_err(|error| origins.refused(&text, &error))?;
    for (key, value) in overlay.into_inner() {
        table.get_mut().insert(key, value);
    }
    if let Some((key, problem)) = hints::wrong_brackets(table.get_ref()) {
        return Err(ConfigError::invalid(origins.of(key), problem));
    }
    let short = SHORT_FORMS.iter().filter_map(|&key| {
        let value = table.get_ref().get(key)?.get_ref().as_str()?;
        Some((key.to_owned(), value.into()))
    });
    origins.short_forms = short.collect();
    let file = File::deserialize(Deserializer::from(table));
    let file = file.map_err(|error| origins.refused(&text, &error))?;
    Ok((file, origins))
}

/// How the names of the variables of settings begin.
pub(super) const PREFIX: &str = "LOOPWRIGHT_";

/// The environment variables of flags.
pub(super) fn variables_of(flags: &impl Serialize) -> BTreeSet<String> {
    let flags = serde_json::to_value(flags).unwrap_or_default();
    let names = flags.as_object().into_iter().flatten();
    let names = names.map(|(name, _)| variable(name));
    names.chain([variable("config")]).collect()
}

/// The environment variable of a flag or key.
pub(super) fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('-', "_").to_ascii_uppercase())
}

fn file_path(path: Option<&Path>, env: Environment<'_>) -> Option<(PathBuf, Origin)> {
    let name = variable("config");
    match path {
        Some(path) => Some((path.to_owned(), Origin::Flag("config".to_owned()))),
        None => env(&name).map(|path| (path.into(), Origin::Variable(name))),
    }
}

fn content(path: PathBuf, origin: Origin) -> Result<String, ConfigError> {
    fs::read_to_string(&path).map_err(|cause| ConfigError::Unreadable {
        origin,
        path,
        cause,
    })
}

/// The values of the flags that are given and of the variables of the others, and where each comes from.
fn given(
    flags: &impl Serialize,
    env: Environment<'_>,
) -> Result<(BTreeMap<String, Origin>, Table), ConfigError> {
    let typed_keys = File {
        // A list without a default.
        dispatch_tools: Some(Vec::new()),
        ..File::default()
    };
    let defaults = toml::to_string(&typed_keys).unwrap_or_default();
    let defaults: Table = defaults.parse().unwrap_or_default();
    let mut origins = BTreeMap::new();
    let mut values = Table::new();
    let flags = serde_json::to_value(flags).unwrap_or_default();
    for (key, flag) in flags.as_object().into_iter().flatten() {
        let name = variable(key);
        let (text, origin) = match flag.as_str() {
            Some(text) => (text.to_owned(), Origin::Flag(key.replace('_', "-"))),
            None => match env(&name).filter(|text| !text.is_empty()) {
                Some(text) => (text, Origin::Variable(name)),
                None => continue,
            },
        };
        let refused = |problem| ConfigError::invalid(origin.clone(), problem);
        let value = typed(&text, defaults.get(key)).map_err(refused)?;
        let alone = Table::from_iter([(key.clone(), value.clone())]);
        let read = Deserializer::parse(&alone.to_string()).and_then(File::deserialize);
        read.map_err(|error| refused(locate::reworded(&error, "")))?;
        origins.insert(key.clone(), origin);
        values.insert(key.clone(), value);
    }
    Ok((origins, values))
}

/// A text as the TOML value of a key: of the type that the key's default has.
fn typed(text: &str, default: Option<&Value>) -> Result<Value, String> {
    Ok(match (default, text.trim().parse::<i64>()) {
        (Some(Value::Boolean(_)), _) => parse::boolean(text)?.into(),
        (Some(Value::Integer(_)), Ok(number)) => number.into(),
        (Some(Value::Array(_)), _) => Value::Array(names::list(text).map(Into::into).collect()),
        (Some(_) | None, _) => text.into(),
    })
}
