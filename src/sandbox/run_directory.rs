//! The directory for what lives as long as the server: working directories where no private root holds them.
//!
//! Each server has one of its own, locked while it lives, so that servers may share a `work_dir`; what one that was
//! killed left behind is deleted by the next that starts.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use super::remove::remove_tree;
use crate::ids::WorkspaceId;

/// What the names of these directories begin with.
const PREFIX: &str = "run-";
/// The locked file in each.
const LOCK: &str = ".lock";

/// How often a directory is made anew that another server takes for abandoned before it is locked.
const ATTEMPTS: usize = 10;

/// The directory; deleted when dropped.
#[derive(Debug)]
pub(super) struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

impl RunDirectory {
    /// Makes the directory and deletes those of servers that are gone.
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
            // An interpreter's user passes through it; nobody can list it.
            make(&path, 0o711)?;
            if let Some(lock) = lock(&path.join(LOCK))? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Keeps a file of the server's own.
    pub(super) fn keep(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let directory = self.path.join("kept");
        make(&directory, 0o700)?;
        let path = directory.join(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// A fresh directory with `data` and `tmp`, which are for this user only.
    pub(super) fn fresh(&self, uid: Option<u32>) -> io::Result<PathBuf> {
        let directory = self.path.join(WorkspaceId::fresh().as_str());
        let inner = ["data", "tmp"].map(|name| directory.join(name));
        // An interpreter's user passes through it too, and can put nothing beside what is counted.
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

/// Locks a directory that was just made; none where another server has deleted it before that.
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

/// A directory whose lock can be had has no server any more, or is being made: that server notices ([`lock`]).
fn delete_abandoned(work_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(work_dir)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            // One that cannot be deleted is no reason not to start.
            if let Err(error) = remove_tree(&entry.path()) {
                tracing::warn!(%error, "a directory that a former server left could not be deleted");
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
        // Another server takes it for abandoned between its making and its locking, and has it locked meanwhile.
        File::create(made.join(LOCK)).unwrap();
        let other = File::open(made.join(LOCK)).unwrap();
        other.try_lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(&made.join(LOCK)).unwrap());
            // It waits for the lock of the file that is there, or comes later and finds none at all.
            while !is_waited_for(&made.join(LOCK)) {
                std::thread::yield_now();
            }
            fs::remove_dir_all(&made).unwrap();
            drop(other);
            assert!(waiting.join().unwrap().is_none());
        });
    }

    /// Whether somebody waits for the lock of this file.
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
