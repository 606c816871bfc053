//! The arguments of `store copy`.

use std::path::PathBuf;

use super::cli::CopyArguments;
use super::{ConfigError, Environment, Origin, parse, source};
use crate::session::settings::{PostgresUrl, StoreUrl};

/// What `loopwright store copy` copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyConfig {
    /// The SQLite file.
    pub from: PathBuf,
    /// The database.
    pub to: PostgresUrl,
}

impl CopyConfig {
    /// Reads the arguments. The target may be in the variable of the session store.
    ///
    /// # Errors
    /// When a store is missing or of another kind; no part of the target is repeated.
    pub fn load(arguments: &CopyArguments, env: Environment<'_>) -> Result<Self, ConfigError> {
        let origin = Origin::Argument("FROM");
        let from = match parse::store(&arguments.from) {
            Ok(StoreUrl::Sqlite(path)) => path,
            Ok(StoreUrl::Memory | StoreUrl::Postgres(_)) | Err(_) => {
                let problem =
                    "is not a SQLite store; write sqlite:PATH, such as sqlite:loopwright.db";
                return Err(ConfigError::invalid(origin, problem));
            }
        };
        let variable = source::variable("session-store");
        let (text, origin) = match (&arguments.to, env(&variable)) {
            (Some(text), _) => (text.clone(), Origin::Argument("TO")),
            (None, Some(text)) => (text, Origin::Variable(variable)),
            (None, None) => {
                let problem = "is missing; write postgres://USER:PASSWORD@HOST/DATABASE, or set LOOPWRIGHT_SESSION_STORE";
                return Err(ConfigError::invalid(Origin::Argument("TO"), problem));
            }
        };
        match parse::store(&text) {
            Ok(StoreUrl::Postgres(to)) => Ok(Self { from, to }),
            Ok(StoreUrl::Memory | StoreUrl::Sqlite(_)) => {
                let problem =
                    "is not a PostgreSQL database; write postgres://USER:PASSWORD@HOST/DATABASE";
                Err(ConfigError::invalid(origin, problem))
            }
            Err(problem) => Err(ConfigError::invalid(origin, problem)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(from: &str, to: Option<&str>, variable: Option<&str>) -> Result<CopyConfig, String> {
        let arguments = CopyArguments {
            from: from.to_owned(),
            to: to.map(ToOwned::to_owned),
        };
        let env = |name: &str| {
            let known = name == "LOOPWRIGHT_SESSION_STORE";
            variable.filter(|_| known).map(ToOwned::to_owned)
        };
        CopyConfig::load(&arguments, &env).map_err(|error| error.to_string())
    }

    #[test]
    fn the_target_is_an_argument_or_the_variable_of_the_store() {
        let (argument, variable) = ("postgres://a/one", "postgres://b/two");
        for (to, location) in [
            (Some(argument), "postgres://a:5432/one"),
            (None, "postgres://b:5432/two"),
        ] {
            let config = load("sqlite:x.db", to, Some(variable)).unwrap();
            assert_eq!(config.from, PathBuf::from("x.db"));
            assert_eq!(config.to.location(), location);
        }
    }

    #[test]
    fn other_kinds_of_stores_are_refused_without_their_secrets() {
        let database = Some("postgres://u:s3cret@h/d");
        for (from, to, part) in [
            ("memory:", database, "FROM: is not a SQLite store"),
            (
                "postgres://u:s3cret@h/d",
                Some("sqlite:x.db"),
                "FROM: is not a SQLite store",
            ),
            ("sqlite:x.db", None, "TO: is missing"),
            (
                "sqlite:x.db",
                Some("sqlite:y.db"),
                "TO: is not a PostgreSQL database",
            ),
            (
                "sqlite:x.db",
                Some("postgres://u:s3cret@h/d?sslmode=s3cret"),
                "TO: a part of the URL",
            ),
        ] {
            let error = load(from, to, None).unwrap_err();
            assert!(error.starts_with(part), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
