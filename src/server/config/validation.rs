//! Context and helpers of the checks that involve several keys or the environment. Reads secrets; no error repeats one.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::file::File;
use super::secrets::SecretValues;
use super::source::Origins;
use super::text::VariableName;
use super::value::{HeaderText, Headers, SecretRef};
use super::{ConfigError, Environment, names};
use policy::rules::{Effect, Level, LevelName, RuleEntry, RuleSet};
use upstream::settings::CaCertificates;

/// Largest file with a secret or a schema, in bytes. With a larger one the start fails.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Headers whose values debug output does not show, even if the file has them as texts.
const SECRET_HEADERS: [&str; 5] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "api-key",
];

/// The context of the checks.
pub(super) struct Validation<'a> {
    pub(super) env: Environment<'a>,
    pub(super) origins: Origins,
    pub(super) notices: Vec<String>,
    /// The secrets that were read so far.
    pub(super) secrets: SecretValues,
    /// The certificates of `ca_file`.
    pub(super) certificates: CaCertificates,
}

impl<'a> Validation<'a> {
    /// Reads the certificates, which several parts need.
    pub(super) fn begin(
        file: &File,
        env: Environment<'a>,
        origins: Origins,
    ) -> Result<Self, ConfigError> {
        let mut checks = Self {
            env,
            origins,
            notices: Vec::new(),
            secrets: SecretValues::default(),
            certificates: CaCertificates::default(),
        };
        if let Some(path) = &file.ca_file {
            let text = checks.content("ca_file", path)?;
            let read = CaCertificates::from_pem(text.as_bytes());
            let read = read.map_err(|problem| format!("{} {problem}", path.display()));
            checks.certificates = checks.valid("ca_file", read)?;
        }
        Ok(checks)
    }

    /// The refusal of the value of a key.
    pub(super) fn error(&self, key: &str, problem: impl Into<String>) -> ConfigError {
        ConfigError::invalid(self.origins.of(key), problem)
    }

    /// The result of reading the value of a key.
    pub(super) fn valid<T>(&self, key: &str, result: Result<T, String>) -> Result<T, ConfigError> {
        result.map_err(|problem| self.error(key, problem))
    }

    /// The secret under `<key>_env` or `<key>_file`, if one of the two is given; `check` returns the problem with it.
    pub(super) fn secret(
        &self,
        key: &str,
        env: Option<&VariableName>,
        file: Option<&PathBuf>,
        check: fn(&str) -> Result<(), String>,
    ) -> Result<Option<SecretString>, ConfigError> {
        let (env_key, file_key) = (format!("{key}_env"), format!("{key}_file"));
        let (key, text) = match (env, file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let problem =
                    "a secret comes from a variable or a file; remove one of the two keys";
                return Err(self.error(&file_key, problem));
            }
            (Some(variable), None) => (&env_key, self.variable(&env_key, variable)?),
            (None, Some(path)) => (&file_key, self.secret_content(&file_key, path)?),
        };
        self.valid(key, check(&text))?;
        Ok(Some(text.into()))
    }

    /// The secret that a variable holds, without white space around it.
    pub(super) fn variable(
        &self,
        key: &str,
        VariableName(variable): &VariableName,
    ) -> Result<String, ConfigError> {
        match (self.env)(variable).as_deref().map(str::trim) {
            None | Some("") => Err(self.error(
                key,
                format!("the environment variable {variable} is not set; set it to the secret"),
            )),
            Some(text) => {
                self.secrets.add(text);
                Ok(text.to_owned())
            }
        }
    }

    /// The secret that a small file holds.
    pub(super) fn secret_content(&self, key: &str, path: &Path) -> Result<String, ConfigError> {
        let text = self.content(key, path)?;
        self.secrets.add(&text);
        Ok(text)
    }

    /// The text of a small file without white space around it; refuses an empty one.
    pub(super) fn content(&self, key: &str, path: &Path) -> Result<String, ConfigError> {
        let text = read(path).map_err(|cause| ConfigError::Unreadable {
            origin: self.origins.of(key),
            path: path.to_owned(),
            cause,
        })?;
        match text.trim() {
            "" => Err(self.error(key, format!("{} is empty", path.display()))),
            text => Ok(text.to_owned()),
        }
    }

    /// The rules under a key, and the word beside them.
    pub(super) fn level(
        &self,
        name: LevelName,
        key: &str,
        rules: &[RuleEntry],
        word: Option<Effect>,
    ) -> Result<Level, ConfigError> {
        let compiled = RuleSet::compile(rules.to_vec()).map_err(|error| {
            let key = format!("{key}[{}].{}", error.index, error.field);
            self.error(&key, error.problem)
        })?;
        Ok(Level {
            name,
            rules: Arc::new(compiled),
            word,
        })
    }

    /// The headers of a table.
    pub(super) fn headers(&self, table: &str, given: &Headers) -> Result<HeaderMap, ConfigError> {
        let mut headers = HeaderMap::with_capacity(given.len());
        for (name, text) in given {
            let key = format!("{table}.{name}");
            let name = self.valid(&key, names::header_name(name))?;
            let mut value = self.header_value(&key, text)?;
            if SECRET_HEADERS.contains(&name.as_str()) {
                value.set_sensitive(true);
            }
            if headers.insert(name, value).is_some() {
                let problem = "is given twice; upper and lower case are the same in header names";
                return Err(self.error(&key, problem));
            }
        }
        Ok(headers)
    }

    fn header_value(&self, key: &str, text: &HeaderText) -> Result<HeaderValue, ConfigError> {
        let secret = match text {
            HeaderText::Literal(text) => {
                self.secrets.add_named(key, text.expose_secret());
                return self.valid(key, names::header_value(text.expose_secret()));
            }
            HeaderText::Secret(SecretRef {
                env: Some(variable),
                file: None,
            }) => self.variable(key, variable)?,
            HeaderText::Secret(SecretRef {
                env: None,
                file: Some(path),
            }) => self.secret_content(key, path)?,
            HeaderText::Secret(_) => {
                let forms = "write a text, { env = \"NAME\" } or { file = \"PATH\" }";
                return Err(self.error(key, forms));
            }
        };
        let mut value = self.valid(key, names::header_value(&secret))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = fs::File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if u64::try_from(read).is_ok_and(|read| read <= MAX_FILE_BYTES) {
        Ok(text)
    } else {
        let problem = "it is larger than 1 MiB";
        Err(io::Error::new(io::ErrorKind::FileTooLarge, problem))
    }
}
