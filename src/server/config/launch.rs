//! The arguments of `launch`.

use std::ffi::OsString;
use std::path::PathBuf;

use secrecy::SecretString;

use super::cli::{CodingAgent, LaunchArguments};
use super::server::{GivenKey, ServerAddress};
use super::{ConfigError, Environment};

/// What `loopwright launch` starts, and against which server.
#[derive(Debug, Clone)]
pub struct LaunchConfig {
    /// The agent.
    pub(crate) agent: CodingAgent,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// The server.
    pub server: ServerAddress,
    /// The key of the server, if there is one.
    pub key: Option<SecretString>,
    /// The model, if one is named.
    pub model: Option<String>,
    /// Only shows what would be set.
    pub(crate) shows: bool,
    /// The names of all variables of the environment.
    pub(crate) variables: Vec<String>,
    /// The user's configuration of Git, if there is one.
    pub(crate) git_config: Option<PathBuf>,
}

impl LaunchConfig {
    /// Reads the arguments, and the settings that say where the server listens; `variables` are the names of all variables.
    ///
    /// # Errors
    /// When the URL is no URL, or the key no key.
    pub fn load(
        arguments: &LaunchArguments,
        env: Environment<'_>,
        variables: Vec<String>,
    ) -> Result<Self, ConfigError> {
        let key = GivenKey::read(arguments.api_key_env.as_deref(), "api-key-env", env)?;
        Ok(Self {
            agent: arguments.agent,
            arguments: arguments.arguments.clone(),
            server: ServerAddress::of(&arguments.server, &key, env)?,
            key: key.key.map(SecretString::from),
            model: arguments.model.clone(),
            shows: arguments.print,
            variables,
            git_config: git_config(env),
        })
    }
}

/// The path of Git's configuration in the user's home directory.
fn git_config(env: Environment<'_>) -> Option<PathBuf> {
    let named = env("GIT_CONFIG_GLOBAL").map(PathBuf::from);
    let home = env("HOME").map(PathBuf::from);
    let inside = home.into_iter().flat_map(|home| {
        let places = [".gitconfig", ".config/git/config"];
        places.map(|place| home.join(place))
    });
    named.or_else(|| inside.into_iter().find(|file| file.is_file()))
}
