//! The arguments of `store copy`.

use super::cli::CopyArguments;
use super::{ConfigError, Environment, Origin, parse, source};
use agent::session::settings::StoreUrl;

/// The argument that selects the variable of the session store.
const VARIABLE: &str = "-";

/// What `loopwright store copy` copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyConfig {
    /// The store to copy.
    pub from: StoreUrl,
    /// The store that becomes the copy.
    pub to: StoreUrl,
}

impl CopyConfig {
    /// Reads the arguments. One of the stores may be in the variable of the session store.
    ///
    /// # Errors
    /// When a store is missing or in memory, or both are the same; no part of a URL is repeated.
    pub fn load(arguments: &CopyArguments, env: Environment<'_>) -> Result<Self, ConfigError> {
        let from = store(Some(&*arguments.from), "FROM", env)?;
        let to = store(arguments.to.as_deref(), "TO", env)?;
        if from == to {
            let problem = "is the store to copy itself; name another one";
            return Err(ConfigError::invalid(Origin::Argument("TO"), problem));
        }
        Ok(Self { from, to })
    }
}

fn store(
    argument: Option<&str>,
    name: &'static str,
    env: Environment<'_>,
) -> Result<StoreUrl, ConfigError> {
    let variable = source::variable("session-store");
    let argument = argument.filter(|argument| *argument != VARIABLE);
    let (text, origin) = match (argument, env(&variable)) {
        (Some(text), _) => (text.to_owned(), Origin::Argument(name)),
        (None, Some(text)) => (text, Origin::Variable(variable)),
        (None, None) => {
            let problem = "is missing; write sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE, or set \
                           LOOPWRIGHT_SESSION_STORE";
            return Err(ConfigError::invalid(Origin::Argument(name), problem));
        }
    };
    match parse::store(&text) {
        Ok(StoreUrl::Memory) => {
            let problem = "is in the memory of a process; write sqlite:PATH, such as sqlite:loopwright.db, or \
                           postgres://USER:PASSWORD@HOST/DATABASE";
            Err(ConfigError::invalid(origin, problem))
        }
        Ok(store) => Ok(store),
        Err(problem) => Err(ConfigError::invalid(origin, problem)),
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
    fn one_of_the_stores_may_be_in_the_variable_of_the_store() {
        let (argument, variable) = ("postgres://a/one", "postgres://b/two");
        let file = StoreUrl::Sqlite("x.db".into());
        let database = |location: &str| parse::store(location).unwrap();
        for (from, to, expected) in [
            (
                "sqlite:x.db",
                Some(argument),
                (file.clone(), database(argument)),
            ),
            ("sqlite:x.db", None, (file.clone(), database(variable))),
            ("-", Some("sqlite:x.db"), (database(variable), file.clone())),
            (
                argument,
                Some("sqlite:x.db"),
                (database(argument), file.clone()),
            ),
        ] {
            let config = load(from, to, Some(variable)).unwrap();
            assert_eq!((config.from, config.to), expected);
        }
    }

    #[test]
    fn other_stores_are_refused_without_their_secrets() {
        let database = "postgres://u:s3cret@h/d";
        let broken = "postgres://u:s3cret@h/d?sslmode=s3cret";
        for (from, to, part) in [
            ("memory:", Some(database), "FROM: is in the memory"),
            ("sqlite:x.db", Some("memory:"), "TO: is in the memory"),
            ("sqlite:x.db", None, "TO: is missing"),
            ("-", Some(database), "FROM: is missing"),
            (
                "sqlite:x.db",
                Some("sqlite:x.db"),
                "TO: is the store to copy",
            ),
            (database, Some(database), "TO: is the store to copy"),
            ("sqlite:x.db", Some(broken), "TO: a part of the URL"),
            (broken, Some("sqlite:x.db"), "FROM: a part of the URL"),
        ] {
            let error = load(from, to, None).unwrap_err();
            assert!(error.starts_with(part), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
