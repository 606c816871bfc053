//! Where values come from: the order of precedence, and the places that errors name.

use std::sync::Arc;
use std::time::Duration;

use super::cli::ServeFlags;
use super::file::File;
use super::value::Seconds;
use super::{ConfigError, Lookup, Origin};

/// Everything that settings are made from.
pub(super) struct Input<'a> {
    pub(super) flags: &'a ServeFlags,
    pub(super) env: Lookup<'a>,
    pub(super) file: &'a File,
    pub(super) place: Place,
}

/// A value and where it stood.
#[derive(Debug)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) origin: Origin,
}

/// A key of the file, or the part of one that its inner keys begin with.
#[derive(Debug, Clone)]
pub(super) struct Place {
    file: Arc<str>,
    key: String,
}

impl Input<'_> {
    /// The value that counts, if it stands anywhere; the key of the file has the flag's name.
    pub(super) fn pick<T: Clone>(
        &self,
        flag: &'static str,
        given: Option<&T>,
        parse: fn(&str) -> Result<T, String>,
        in_file: Option<Result<T, String>>,
    ) -> Result<Option<Found<T>>, ConfigError> {
        if let Some(found) = choose(flag, given, self.env, parse)? {
            return Ok(Some(found));
        }
        let Some(in_file) = in_file else {
            return Ok(None);
        };
        let place = self.place.key(&flag.replace('-', "_"));
        let value = place.check(in_file)?;
        let origin = place.origin();
        Ok(Some(Found { value, origin }))
    }
}

/// The value that counts of flag and environment.
pub(super) fn choose<T: Clone>(
    flag: &'static str,
    given: Option<&T>,
    env: Lookup<'_>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<Found<T>>, ConfigError> {
    if let Some(value) = given {
        return Ok(Some(Found {
            value: value.clone(),
            origin: Origin::Flag(flag),
        }));
    }
    let name = variable(flag);
    let Some(text) = env(&name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let origin = Origin::Variable(name);
    match parse(&text) {
        Ok(value) => Ok(Some(Found { value, origin })),
        Err(problem) => Err(ConfigError::invalid(origin, problem)),
    }
}

/// The environment variable of a flag.
pub(super) fn variable(flag: &str) -> String {
    format!("LOOPWRIGHT_{}", flag.replace('-', "_").to_ascii_uppercase())
}

impl Place {
    /// The top level of a file.
    pub(super) fn root(file: Arc<str>) -> Self {
        Self {
            file,
            key: String::new(),
        }
    }

    /// A key inside; a place whose path ends in `_` is the beginning of the key's own name.
    pub(super) fn key(&self, name: &str) -> Self {
        let dot = if self.key.is_empty() || self.key.ends_with('_') {
            ""
        } else {
            "."
        };
        Self {
            file: Arc::clone(&self.file),
            key: format!("{}{dot}{name}", self.key),
        }
    }

    /// An entry of a list.
    pub(super) fn index(&self, index: usize) -> Self {
        Self {
            file: Arc::clone(&self.file),
            key: format!("{}[{index}]", self.key),
        }
    }

    pub(super) fn origin(&self) -> Origin {
        Origin::Key {
            file: Arc::clone(&self.file),
            key: self.key.clone(),
        }
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> ConfigError {
        ConfigError::invalid(self.origin(), problem)
    }

    pub(super) fn check<T>(&self, result: Result<T, String>) -> Result<T, ConfigError> {
        result.map_err(|problem| self.error(problem))
    }

    /// The whole number under `key`, if it is given; refuses one below `least` or too large for its type.
    pub(super) fn at_least<T: TryFrom<u64>>(
        &self,
        key: &str,
        given: Option<impl Into<u64>>,
        least: u64,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = given.map(Into::into) else {
            return Ok(None);
        };
        if value < least {
            return Err(self
                .key(key)
                .error(format!("{value} is too small; write {least} or more")));
        }
        T::try_from(value)
            .map(Some)
            .map_err(|_| self.key(key).error(format!("{value} is too large")))
    }

    /// The time under `key`, if it is given; refuses zero.
    pub(super) fn positive(
        &self,
        key: &str,
        given: Option<Seconds>,
    ) -> Result<Option<Duration>, ConfigError> {
        match given {
            Some(Seconds(Duration::ZERO)) => Err(self
                .key(key)
                .error("must be longer than 0; write a time such as 30, \"500ms\" or \"5m\"")),
            Some(Seconds(time)) => Ok(Some(time)),
            None => Ok(None),
        }
    }
}
