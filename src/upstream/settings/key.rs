//! The origin of a model server's key. The key itself is not here.

use std::fmt;
use std::path::PathBuf;

/// The origin of the key that an upstream is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// An environment variable, by its name.
    Variable(String),
    /// A file.
    File(PathBuf),
    /// A header of the upstream's `headers`.
    Headers,
    /// The clients: their `authorization` is passed on.
    Clients,
    /// There is none.
    None,
}

impl KeySource {
    /// Whether loopwright itself has a key for the upstream.
    pub(crate) fn is_own(&self) -> bool {
        match self {
            Self::Variable(_) | Self::File(_) | Self::Headers => true,
            Self::Clients | Self::None => false,
        }
    }

    /// The remedy if the model server refuses the key, or asks for one.
    pub fn remedy(&self) -> String {
        match self {
            Self::Clients => "loopwright has no key for it and passes on what clients send; \
                              set --upstream-api-key-env (`api_key_env` in the file), or give the clients a key of the model server"
                .to_owned(),
            Self::None => "loopwright has no key for it; set --upstream-api-key-env (`api_key_env` in the file)".to_owned(),
            own => format!("{own} is not accepted; put a key of this model server there"),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => write!(formatter, "the key in {name}"),
            Self::File(path) => write!(formatter, "the key in the file {}", path.display()),
            Self::Headers => formatter.write_str("the key in `headers`"),
            Self::Clients => formatter.write_str("the client's key"),
            Self::None => formatter.write_str("no key"),
        }
    }
}
