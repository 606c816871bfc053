//! Opens a database file with private permissions, for exclusive use by this process.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::super::StoreError;
use super::super::clock::Clock;
use super::connections::{BUSY_WAIT, Connections, Database, SqliteConnector};
use super::expiry;
use super::migrate::migrate;
use super::reserve::DiskReserve;

/// Most connections for reads. Reads take well under a millisecond, so more connections would not increase throughput.
const READERS: u32 = 4;

/// Ends what belonged to the process that had the database open before: its runs are interrupted, the idempotency keys of runs
/// that it never recorded are free, and what it had reserved is too.
const INTERRUPT: &str = "
    UPDATE runs SET status = 'interrupted', ended_at = micros_1() WHERE status = 'running';
    DELETE FROM idempotency_keys WHERE recorded = 0;
    DELETE FROM reservations;";

/// An open database.
#[derive(Debug)]
pub(super) struct OpenDatabase {
    pub(super) writer: Arc<Connections>,
    /// The same as `writer` where the database is in memory.
    pub(super) reader: Arc<Connections>,
    /// The database file; `None` in memory.
    pub(super) path: Option<PathBuf>,
    /// Held while the database is open; the kernel releases it when the process ends.
    pub(super) lock: Option<File>,
    /// The clock of its functions.
    pub(super) clock: Arc<Clock>,
    /// Whether an older version of the program has made the database.
    pub(super) upgraded: bool,
}

/// Opens the database in a file or in memory, and migrates its schema. Blocks.
pub(super) fn open(file: Option<&Path>) -> Result<OpenDatabase, StoreError> {
    let (database, lock) = match file {
        None => (Database::Memory, None),
        Some(path) => {
            let (path, lock) = lock_file(path)?;
            // A process that cannot start cannot delete rows either.
            DiskReserve::beside(&path).give_up_if_full();
            let query_only = false;
            (Database::File { path, query_only }, Some(lock))
        }
    };
    let path = match &database {
        Database::File { path, .. } => Some(path.clone()),
        Database::Memory => None,
    };
    let clock: Arc<Clock> = Arc::default();
    let connector = |database| SqliteConnector {
        database,
        clock: Arc::clone(&clock),
    };
    let writer = connector(database);
    let mut first = writer.connect().map_err(StoreError::failed)?;
    let named = path.clone().unwrap_or_else(|| PathBuf::from(":memory:"));
    first.busy_timeout(BUSY_WAIT).map_err(StoreError::failed)?;
    let upgraded = migrate(&mut first, &named)?;
    clock.continue_from(expiry::kept(&first).map_err(StoreError::failed)?);
    first.execute_batch(INTERRUPT).map_err(StoreError::failed)?;
    let in_task = first.busy_timeout(Duration::ZERO);
    in_task.map_err(StoreError::failed)?;
    let writer = Connections::new(writer, 1);
    writer.add(first);
    let reader = match &path {
        Some(path) => {
            let (path, query_only) = (path.clone(), true);
            let database = Database::File { path, query_only };
            let reader = connector(database);
            let first = reader.connect().map_err(StoreError::failed)?;
            let reader = Connections::new(reader, READERS);
            reader.add(first);
            reader
        }
        // In memory every connection is a separate database, so there is only one connection.
        None => Arc::clone(&writer),
    };
    Ok(OpenDatabase {
        writer,
        reader,
        path,
        lock,
        clock,
        upgraded,
    })
}

/// Creates the file if necessary and locks it for this process. The returned path is absolute, so SQLite does not
/// interpret it as a `file:` URI or as `:memory:`.
fn lock_file(path: &Path) -> Result<(PathBuf, File), StoreError> {
    let path = std::path::absolute(path).map_err(StoreError::failed)?;
    create_private(&path).map_err(StoreError::failed)?;
    // The canonical path gives the same lock for all names of the file.
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

/// Creates a file that only its owner can access; SQLite gives the log the same permissions. The permissions of an
/// existing file are not changed.
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
