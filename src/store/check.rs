//! Whether a store could be opened. Nothing is created, locked, migrated or written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::postgres::Postgres;
use super::{StoreError, StoreUrl};

/// How a SQLite database begins.
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Checks that a store could be opened.
///
/// # Errors
/// What is in the way.
pub async fn check(url: &StoreUrl) -> Result<(), StoreError> {
    match url {
        StoreUrl::Memory => Ok(()),
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let checked = tokio::task::spawn_blocking(move || file(&path)).await;
            checked
                .map_err(StoreError::failed)?
                .map_err(StoreError::failed)
        }
        StoreUrl::Postgres(url) => Box::pin(Postgres::check(url)).await,
    }
}

/// Checks that files can be made in a directory, which may have to be made first. Blocks.
///
/// # Errors
/// Which directory cannot be written.
pub fn check_directory(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let is_there = |path: &&Path| path.symlink_metadata().is_ok();
    let there = path.ancestors().find(is_there).unwrap_or(&path);
    let named = |error: io::Error| named(there, &error);
    if !there.metadata().map_err(named)?.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is not a directory", there.display()),
        ));
    }
    let writable = access(there, Access::WRITE_OK | Access::EXEC_OK);
    writable.map_err(|error| named(error.into()))
}

fn file(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let parent: PathBuf = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    // Beside the file there are its log and its lock.
    check_directory(&parent)?;
    if !parent.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("the directory {} does not exist", parent.display()),
        ));
    }
    let mut options = OpenOptions::new();
    let opened = options.read(true).write(true).open(&path);
    match opened.and_then(|mut file: File| {
        let mut start = Vec::new();
        file.by_ref().take(16).read_to_end(&mut start)?;
        Ok(start)
    }) {
        Ok(start) if start.is_empty() || start == SQLITE_MAGIC => Ok(()),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} is not a SQLite database", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(named(&path, &error)),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_made_and_what_is_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("empty.db"), "").unwrap();
        std::fs::write(path("text.db"), "this is no database").unwrap();
        std::fs::create_dir(path("folder.db")).unwrap();
        for (name, problem) in [
            ("new.db", None),
            ("empty.db", None),
            ("text.db", Some("text.db is not a SQLite database")),
            ("folder.db", Some("folder.db")),
            ("none/new.db", Some("none does not exist")),
            ("text.db/new.db", Some("text.db is not a directory")),
        ] {
            let checked = check(&StoreUrl::Sqlite(path(name))).await;
            let found = checked.err().map(|error| {
                std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
            });
            match (&found, problem) {
                (None, None) => {}
                (Some(found), Some(part)) if found.contains(part) => {}
                _ => panic!("{name}: {found:?}"),
            }
        }
        assert!(check_directory(&path("a/b/c")).is_ok());
        assert!(check_directory(&path("text.db/files")).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
