//! Which running server a command asks, and with which key.

use std::net::SocketAddr;

use ::http::HeaderValue;
use url::Url;

use super::cli::RunningServerFlags;
use super::{ConfigError, Environment, Origin, source};
use crate::http::settings::local_url;

/// The variable of the key, if no flag names another one.
pub(super) const DEFAULT_KEY_VARIABLE: &str = "LOOPWRIGHT_API_KEY";

/// A running server.
#[derive(Debug, Clone)]
pub struct ServerAddress {
    /// The URL, without `/v1`.
    pub url: Url,
    /// The header with the API key, if there is one.
    pub authorization: Option<HeaderValue>,
    /// The name of the variable of the key.
    pub(crate) key_variable: String,
    /// The flags and variables that name the server.
    pub(crate) named_by: &'static str,
}

/// The key of a server, and its variable.
pub(super) struct GivenKey {
    pub(super) key: Option<String>,
    pub(super) header: Option<HeaderValue>,
    pub(super) variable: String,
}

impl GivenKey {
    /// Reads the key from the variable that the flag names, or from the usual one.
    ///
    /// # Errors
    /// When there is no such variable, or its value is no key.
    pub(super) fn read(
        named: Option<&str>,
        flag: &str,
        env: Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let variable = named.unwrap_or(DEFAULT_KEY_VARIABLE).to_owned();
        let key = env(&variable);
        if named.is_some() && key.is_none() {
            let problem = format!("the environment variable {variable} is not set");
            return Err(ConfigError::invalid(Origin::Flag(flag.to_owned()), problem));
        }
        let header = key.as_deref().map(authorization).transpose();
        let header = header
            .map_err(|problem| ConfigError::invalid(Origin::Variable(variable.clone()), problem))?;
        Ok(Self {
            key: key.map(|key| key.trim().to_owned()),
            header,
            variable,
        })
    }
}

impl ServerAddress {
    /// The server of `--url`, or the one that listens where the settings say.
    pub(super) fn of(
        flags: &RunningServerFlags,
        key: &GivenKey,
        env: Environment<'_>,
    ) -> Result<Self, ConfigError> {
        let url = match &flags.url {
            Some(text) => server(text)
                .map_err(|problem| ConfigError::invalid(Origin::Flag("url".to_owned()), problem))?,
            None => listening(flags, env)?,
        };
        Ok(Self {
            url,
            authorization: key.header.clone(),
            key_variable: key.variable.clone(),
            named_by: "--url",
        })
    }
}

/// The URL of the server with these settings, on this machine.
fn listening(flags: &RunningServerFlags, env: Environment<'_>) -> Result<Url, ConfigError> {
    let (file, origins) = source::read(flags.config.as_deref(), flags, env)?;
    let address: SocketAddr = file.listen.0;
    if address.port() == 0 {
        let problem = "port 0 is any port, which only the server knows; name the server with --url";
        return Err(ConfigError::invalid(origins.of("listen"), problem));
    }
    let url = Url::parse(&local_url(address));
    url.map_err(|_| ConfigError::invalid(origins.of("listen"), "is no address of a server"))
}

/// The URL of a server. The base URL of its API is taken as well.
pub(super) fn server(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(mut url) = url else {
        return Err("is not the URL of a server; write such as http://127.0.0.1:8080");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "holds a name or a password; leave them out, and put an API key into the variable LOOPWRIGHT_API_KEY",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has more than an address and a path; write such as http://127.0.0.1:8080");
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

fn authorization(key: &str) -> Result<HeaderValue, &'static str> {
    let value = HeaderValue::from_str(&format!("Bearer {}", key.trim()));
    let mut value = value.map_err(
        |_| "is no API key: it has characters that a header cannot have; set it to a key of the server",
    )?;
    value.set_sensitive(true);
    Ok(value)
}
