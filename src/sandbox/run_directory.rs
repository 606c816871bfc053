//! The directory for data of one server process: working directories without a private root.
//!
//! Each server has its own, locked while it runs, so servers may share a `work_dir`. A starting server deletes the
//! directories of servers that were killed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use super::remove::remove_tree;
use protocol::ids::WorkspaceId;

/// Prefix of the directories' names.
const PREFIX: &str = "run-";
/// The lock file in each.
const LOCK: &str = ".lock";

/// Most attempts to create a directory, which another server may delete as abandoned before it is locked. After them
/// the start fails.
const ATTEMPTS: usize = 10;

/// The directory; deleted when dropped.
#[derive(Debug)]
pub(super) struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

impl RunDirectory {
    /// Creates the directory and deletes the directories of ended servers.
    pub(super) fn open(work_dir: &Path) -> io::Result<Self> {
        Self::make(work_dir).map_err(|error| {
            let path = work_dir.display();
            let text =
                format!("{path}: {error}; let loopwright write there, or set sandbox.work_dir");
            io::Error::new(error.kind(), text)
        })
    }

    fn make(work_dir: &Path) -> io::Result<Self> {
        make(work_dir, 0o711)?;
        delete_abandoned(work_dir)?;
        for _ in 0..ATTEMPTS {
            let path = work_dir.join(format!("{PREFIX}{}", WorkspaceId::fresh().as_str()));
            // The users of interpreters may pass through it, but not list it.
            make(&path, 0o711)?;
            if let Some(lock) = lock(&path.join(LOCK))? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Stores a file of the server.
    pub(super) fn keep(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let directory = self.path.join("kept");
        make(&directory, 0o700)?;
        let path = directory.join(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// Creates a directory with `data` and `tmp`, owned by this user.
    pub(super) fn fresh(&self, uid: Option<u32>) -> io::Result<PathBuf> {
        let directory = self.path.join(WorkspaceId::fresh().as_str());
        let inner = ["data", "tmp"].map(|name| directory.join(name));
        // The interpreter's user may pass through it, but not create files beside the two that are measured.
        make(&directory, if uid.is_some() { 0o711 } else { 0o700 })?;
        for path in &inner {
            make(path, 0o700)?;
            if let Some(uid) = uid {
                chown(path, Some(uid), Some(uid))?;
            }
        }
        Ok(directory)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let _next_server_deletes_it = remove_tree(&self.path);
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
}

/// Locks a new directory; `None` if another server has deleted it before.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let lock = File::create(path)?;
    lock.lock()?;
    let (locked, there) = (lock.metadata()?, fs::metadata(path));
    let same = |there: fs::Metadata| (there.dev(), there.ino()) == (locked.dev(), locked.ino());
    match there {
        Ok(there) => Ok(same(there).then_some(lock)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// If the lock of a directory is free, its server has ended or is just creating it; in the latter case that server
/// notices ([`lock`]).
fn delete_abandoned(work_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(work_dir)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            // A failed deletion does not prevent the start.
            if let Err(error) = remove_tree(&entry.path()) {
                tracing::warn!(%error, "the directory of an ended server could not be deleted");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_on_a_directory_that_another_server_has_deleted_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("run-made");
        fs::create_dir(&made).unwrap();
        // Another server has locked the directory between its creation and its locking.
        File::create(made.join(LOCK)).unwrap();
        let other = File::open(made.join(LOCK)).unwrap();
        other.try_lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(&made.join(LOCK)).unwrap());
            // The thread either waits for the lock or finds no file.
            while !is_waited_for(&made.join(LOCK)) {
                std::thread::yield_now();
            }
            fs::remove_dir_all(&made).unwrap();
            drop(other);
            assert!(waiting.join().unwrap().is_none());
        });
    }

    /// Whether a process waits for the lock of this file.
    fn is_waited_for(path: &Path) -> bool {
        let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        locks
            .lines()
            .any(|line| line.contains("-> FLOCK") && line.contains(&inode))
    }

    #[test]
    fn what_a_dead_server_left_is_deleted_and_what_a_live_one_has_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let alive = RunDirectory::open(folder.path()).unwrap();
        let kept = alive.fresh(None).unwrap();
        let dead = folder.path().join("run-dead");
        fs::create_dir_all(dead.join("x/data")).unwrap();
        File::create(dead.join(LOCK)).unwrap();
        let second = RunDirectory::open(folder.path()).unwrap();
        assert!(kept.join("data").is_dir() && kept.join("tmp").is_dir());
        assert!(!dead.exists());
        drop((alive, second));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
