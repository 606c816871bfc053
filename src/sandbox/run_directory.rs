//! The directory for what lives as long as the server: working directories where no private root holds them.
//!
//! Each server has one of its own, locked while it lives, so that servers may share a `work_dir`; what one that was
//! killed left behind is deleted by the next that starts.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use super::remove::remove_tree;
use crate::ids::WorkspaceId;

/// What the names of these directories begin with.
const PREFIX: &str = "run-";
/// The locked file in each.
const LOCK: &str = ".lock";

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
        let path = work_dir.join(format!("{PREFIX}{}", WorkspaceId::fresh().as_str()));
        // An interpreter's user passes through it; nobody can list it.
        make(&path, 0o711)?;
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        Ok(Self { path, _lock: lock })
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

/// A directory whose lock can be had has no server any more, or not yet: one that is being made is younger than its lock.
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
