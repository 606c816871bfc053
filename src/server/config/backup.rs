//! The arguments of `store backup`.

use std::path::PathBuf;

use super::cli::BackupArguments;
use super::validation::Validation;
use super::{ConfigError, Environment, Origin, agent, source};
use ::agent::session::settings::{BlobLocation, StoreUrl, default_files_dir};

/// What `loopwright store backup` copies, and where to.
#[derive(Debug, Clone)]
pub struct BackupConfig {
    /// The store.
    pub store: StoreUrl,
    /// The contents of files, if they are copied, too.
    pub files: Option<BlobLocation>,
    /// The file of the backup.
    pub to: PathBuf,
}

impl BackupConfig {
    /// Reads the arguments, and the settings of the store as `serve` reads them.
    ///
    /// # Errors
    /// When the file of the settings is not readable, or one of these settings is impossible.
    pub fn load(arguments: &BackupArguments, env: Environment<'_>) -> Result<Self, ConfigError> {
        let (file, origins) =
            source::read(arguments.store.config.as_deref(), &arguments.store, env)?;
        let store = file.session_store.0.clone();
        if store == StoreUrl::Memory {
            let problem = "a store in memory is lost with its process and cannot be copied; name another store";
            return Err(ConfigError::invalid(origins.of("session_store"), problem));
        }
        let to = PathBuf::from(arguments.to.clone());
        if to.file_name().is_none() {
            let problem = "names no file; write the path of a file that does not exist";
            return Err(ConfigError::invalid(Origin::Argument("PATH"), problem));
        }
        let files = match arguments.files {
            true => {
                let checks = Validation::begin(&file, env, origins)?;
                let given = agent::files_dir(&file, &store, &checks)?;
                let default = |path| BlobLocation::Directory(default_files_dir(path));
                given.or_else(|| store.file().map(default))
            }
            false => None,
        };
        Ok(Self { store, files, to })
    }
}

#[cfg(test)]
mod tests {
    use super::super::cli::StoreFlags;
    use super::*;

    fn load(to: &str, files: bool, variables: &[(&str, &str)]) -> Result<BackupConfig, String> {
        let arguments = BackupArguments {
            to: to.to_owned(),
            files,
            store: StoreFlags::default(),
        };
        let env = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        BackupConfig::load(&arguments, &env).map_err(|error| error.to_string())
    }

    #[test]
    #[cfg_attr(not(feature = "s3"), ignore = "needs the feature")]
    fn the_store_is_that_of_the_server_and_its_files_are_copied_if_asked_for() {
        let config = load("b.db", false, &[]).unwrap();
        assert_eq!(config.store, StoreUrl::Sqlite("loopwright.db".into()));
        assert!(config.files.is_none());
        let files = |variables| {
            let config = load("b.db", true, variables).unwrap();
            config.files.map(|location| location.to_string())
        };
        let default = files(&[]);
        assert_eq!(default.as_deref(), Some("the directory loopwright-files"));
        let elsewhere = files(&[
            ("LOOPWRIGHT_SESSION_STORE", "postgres://u@h/d"),
            ("LOOPWRIGHT_FILES_DIR", "s3://files/a"),
        ]);
        assert_eq!(elsewhere.as_deref(), Some("s3://files/a"));
        // Without the files it does not matter where they are.
        let database = load(
            "b.db",
            false,
            &[("LOOPWRIGHT_SESSION_STORE", "postgres://u@h/d")],
        );
        assert!(database.unwrap().store.is_shared());
    }

    #[test]
    fn what_cannot_be_copied_is_refused_by_name() {
        for (to, files, store, part) in [
            (
                "b.db",
                false,
                "memory:",
                "LOOPWRIGHT_SESSION_STORE: a store in memory",
            ),
            (
                "b.db",
                true,
                "postgres://u:s3cret@h/d",
                "files_dir: is missing",
            ),
            ("..", false, "sqlite:x.db", "PATH: names no file"),
        ] {
            let error = load(to, files, &[("LOOPWRIGHT_SESSION_STORE", store)]).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
