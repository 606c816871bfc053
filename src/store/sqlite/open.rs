//! Opens a database: which file, with which rights, for this process alone.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::super::{StoreError, StoreUrl};
use super::connections::{BUSY_WAIT, Connections, Database};
use super::migrate::migrate;
use super::write;

/// Reads take well under a millisecond; more connections than this would only wait for the disk.
const READERS: u32 = 4;

/// An open database.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) writer: Arc<Connections>,
    /// The same as `writer` where the database is in memory.
    pub(super) reader: Arc<Connections>,
    /// The file, where there is one.
    pub(super) path: Option<PathBuf>,
    /// Held for as long as the database is open; the kernel gives it up when the process dies.
    pub(super) lock: Option<File>,
    /// There are hidden sessions to be removed.
    pub(super) leftovers: bool,
}

/// Opens the database and brings its schema up to date. Blocks.
pub(super) fn open(url: &StoreUrl) -> Result<Opened, StoreError> {
    let (database, lock) = match url {
        StoreUrl::Memory => (Database::Memory, None),
        StoreUrl::Sqlite(path) => {
            let (path, lock) = claim(path)?;
            let query_only = false;
            (Database::File { path, query_only }, Some(lock))
        }
    };
    let mut first = database.connect().map_err(StoreError::failed)?;
    let path = match &database {
        Database::File { path, .. } => Some(path.clone()),
        Database::Memory => None,
    };
    let named = path.clone().unwrap_or_else(|| PathBuf::from(":memory:"));
    first.busy_timeout(BUSY_WAIT).map_err(StoreError::failed)?;
    migrate(&mut first, &named)?;
    let leftovers = write::abandon_drafts(&first).map_err(StoreError::failed)?;
    let in_task = first.busy_timeout(Duration::ZERO);
    in_task.map_err(StoreError::failed)?;
    let writer = Connections::new(database, 1);
    writer.add(first);
    let reader = match &path {
        Some(path) => {
            let (path, query_only) = (path.clone(), true);
            let database = Database::File { path, query_only };
            let first = database.connect().map_err(StoreError::failed)?;
            let reader = Connections::new(database, READERS);
            reader.add(first);
            reader
        }
        // Every connection would be a database of its own, so there is one for all.
        None => Arc::clone(&writer),
    };
    Ok(Opened {
        writer,
        reader,
        path,
        lock,
        leftovers,
    })
}

/// Makes the file if need be and takes it for this process. An absolute path is never read as a `file:` URI or as
/// `:memory:`.
fn claim(path: &Path) -> Result<(PathBuf, File), StoreError> {
    let path = std::path::absolute(path).map_err(StoreError::failed)?;
    create_private(&path).map_err(StoreError::failed)?;
    // One lock for all names of the file.
    let path = path.canonicalize().map_err(StoreError::failed)?;
    let mut name = path.clone().into_os_string();
    name.push(".lock");
    let lock = create_private(Path::new(&name)).map_err(StoreError::failed)?;
    match lock.try_lock() {
        Ok(()) => Ok((path, lock)),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path }),
        Err(TryLockError::Error(error)) => Err(StoreError::failed(error)),
    }
}

/// Conversations are private: a new file is for its owner only, and SQLite makes the log beside it alike. The rights of
/// a file that is there are the operator's choice.
fn create_private(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}
