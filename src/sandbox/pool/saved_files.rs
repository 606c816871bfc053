//! The saved working files of ended interpreters. They are stored for the workspace's next interpreter, for a limited
//! time and within a budget.
//!
//! If the budget is exceeded, the oldest files of the owner with most bytes are deleted. A note file records what
//! happened to a workspace's files, for the notice in its next call.

mod index;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use self::index::Index;
use crate::monitor::descriptors::BLOCK;
use crate::settings::InterpreterLimits;
use crate::worker::Worker;
use protocol::ids::{Owner, WorkspaceId};

/// Beside the saved files: the ids of the input files among them, as a JSON list.
const PLACED: &str = "placed.json";
/// Beside the saved files: the name of their owner. Directories of earlier versions have none.
const OWNER: &str = "owner";
/// The saved files.
const FILES: &str = "files";
/// Suffix of a note file; the rest of its name is the workspace's.
const NOTE: &str = ".note";
/// How long notes are kept if files are kept for ever.
const NOTE_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The directory of saved files. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct SavedFiles(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    /// Most bytes.
    budget: u64,
    index: Mutex<Index>,
}

/// Why a workspace's saved files are not as its last interpreter left them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileLoss {
    /// Deleted to stay within the budget.
    Evicted,
    /// Saving failed; an older copy may remain.
    NotSaved,
}

/// The result of restoring files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RestoredFiles {
    /// Ids of the input files among the restored files.
    pub(super) placed: BTreeSet<String>,
    pub(super) note: Option<FileLoss>,
}

impl SavedFiles {
    /// Opens the directory and indexes its contents.
    pub(super) fn open(work_dir: &Path, budget: u64) -> io::Result<Self> {
        make(work_dir, 0o711)?;
        let directory = work_dir.join("saved");
        make(&directory, 0o700)?;
        let mut index = Index::default();
        for entry in fs::read_dir(&directory)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(workspace) = name.strip_suffix(NOTE) {
                let note = match fs::read(entry.path()) {
                    Ok(text) if text == FileLoss::NotSaved.text().as_bytes() => FileLoss::NotSaved,
                    _ => FileLoss::Evicted,
                };
                index.note(workspace, Some(note));
            } else {
                let path = entry.path();
                let time = saved_at(&path).unwrap_or(SystemTime::UNIX_EPOCH);
                let owner = fs::read_to_string(path.join(OWNER)).unwrap_or_default();
                index.record(&name, Owner::key(&owner), size(&path), time);
            }
        }
        let saved = Self(Arc::new(Inner {
            directory,
            budget,
            index: Mutex::new(index),
        }));
        saved.shrink();
        Ok(saved)
    }

    /// Saves the files of a workspace in place of an older copy. If that fails, the older copy stays, and a note
    /// records it.
    pub(super) async fn keep(
        &self,
        id: &WorkspaceId,
        worker: &mut Worker,
        placed: &BTreeSet<String>,
        limits: &InterpreterLimits,
    ) -> io::Result<()> {
        let in_use = self.mark_used(id);
        let result = self.write(id, worker, placed, limits).await;
        let (saved, workspace) = (self.clone(), id.clone());
        let note = result.is_err().then_some(FileLoss::NotSaved);
        let counting = spawn_blocking(move || {
            saved.note(workspace.as_str(), note);
            let path = saved.directory(&workspace);
            let (owner, size) = (workspace.owner().clone(), size(&path));
            let now = SystemTime::now();
            saved
                .0
                .index
                .lock()
                .record(workspace.as_str(), owner, size, now);
            drop(in_use);
            saved.shrink();
        });
        counting.await.map_err(io::Error::other)?;
        result
    }

    async fn write(
        &self,
        id: &WorkspaceId,
        worker: &mut Worker,
        placed: &BTreeSet<String>,
        limits: &InterpreterLimits,
    ) -> io::Result<()> {
        let directory = self.directory(id);
        tokio::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .await?;
        tokio::fs::write(directory.join(OWNER), id.owner().as_str()).await?;
        let saved = worker.save_files(&directory.join(FILES), limits).await?;
        if saved.skipped > 0 {
            tracing::warn!(
                skipped = saved.skipped,
                "some working files could not be saved"
            );
        }
        let placed = serde_json::to_vec(placed).map_err(io::Error::other)?;
        tokio::fs::write(directory.join(PLACED), placed).await
    }

    /// Restores saved files to a working directory; `None` if the workspace had no interpreter before.
    pub(super) async fn put_back(
        &self,
        id: &WorkspaceId,
        worker: &mut Worker,
    ) -> io::Result<Option<RestoredFiles>> {
        let _in_use = self.mark_used(id);
        let note = self.0.index.lock().note_of(id.as_str());
        let directory = self.directory(id);
        let placed = match tokio::fs::read(directory.join(PLACED)).await {
            Ok(placed) => placed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(note.map(|note| RestoredFiles {
                    placed: BTreeSet::new(),
                    note: Some(note),
                }));
            }
            Err(error) => return Err(error),
        };
        worker.restore_files(&directory.join(FILES)).await?;
        let placed = serde_json::from_slice(&placed).map_err(io::Error::other)?;
        Ok(Some(RestoredFiles { placed, note }))
    }

    /// Whether there are saved files of a workspace, or a note of what happened to them.
    pub(super) fn knows(&self, id: &WorkspaceId) -> bool {
        self.0.index.lock().knows(id.as_str())
    }

    /// Deletes the saved files of a workspace.
    pub(super) fn delete(&self, id: &WorkspaceId) -> io::Result<()> {
        self.0.index.lock().remove(id.as_str());
        self.note(id.as_str(), None);
        absent_is_fine(fs::remove_dir_all(self.directory(id)))
    }

    /// Deletes saved files older than `ttl`. Failures are logged and do not stop the sweep.
    pub(super) fn expire(&self, ttl: Option<Duration>) -> io::Result<()> {
        let before = |ttl: Duration| SystemTime::now().checked_sub(ttl);
        for entry in fs::read_dir(&self.0.directory)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_note = name.ends_with(NOTE);
            let ttl = match is_note {
                true => ttl.or(Some(NOTE_TTL)),
                false => ttl,
            };
            let Some(before) = ttl.and_then(before) else {
                continue;
            };
            let expired = match is_note {
                true => self.expire_note(&name, &entry.path(), before),
                false => self.expire_files(&name, &entry.path(), before),
            };
            if let Err(error) = expired {
                tracing::error!(%error, "old working files could not be deleted");
            }
        }
        Ok(())
    }

    fn expire_note(&self, name: &str, path: &Path, before: SystemTime) -> io::Result<()> {
        if fs::metadata(path)?.modified()? < before {
            let workspace = name.strip_suffix(NOTE).unwrap_or(name);
            self.0.index.lock().note(workspace, None);
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn expire_files(&self, name: &str, path: &Path, before: SystemTime) -> io::Result<()> {
        if saved_at(path)? < before && self.0.index.lock().remove_unless_used(name) {
            fs::remove_dir_all(path)?;
        }
        Ok(())
    }

    /// Deletes the oldest saved files until the rest is within the budget.
    fn shrink(&self) {
        loop {
            let Some(oldest) = self.0.index.lock().remove_oldest(self.0.budget) else {
                return;
            };
            self.note(&oldest, Some(FileLoss::Evicted));
            let deleted = fs::remove_dir_all(self.0.directory.join(&oldest));
            match absent_is_fine(deleted) {
                Ok(()) => tracing::warn!(
                    budget = self.0.budget,
                    "old saved working files were deleted to stay within sandbox.saved_size"
                ),
                Err(error) => tracing::error!(%error, "saved working files could not be deleted"),
            }
        }
    }

    /// Records or clears the note of what happened to a workspace's files.
    pub(super) fn note(&self, workspace: &str, note: Option<FileLoss>) {
        self.0.index.lock().note(workspace, note);
        let path = self.0.directory.join(format!("{workspace}{NOTE}"));
        let written = match note {
            Some(note) => fs::write(path, note.text()),
            None => absent_is_fine(fs::remove_file(path)),
        };
        if let Err(error) = written {
            // The index in memory still has it.
            tracing::warn!(%error, "a note about saved working files could not be written");
        }
    }

    /// Protects a workspace's files from eviction and expiry while it is held.
    fn mark_used(&self, id: &WorkspaceId) -> InUse {
        self.0.index.lock().begin_use(id.as_str());
        InUse {
            saved: self.clone(),
            workspace: id.clone(),
        }
    }

    fn directory(&self, id: &WorkspaceId) -> PathBuf {
        self.0.directory.join(id.as_str())
    }
}

struct InUse {
    saved: SavedFiles,
    workspace: WorkspaceId,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.saved.0.index.lock().end_use(self.workspace.as_str());
    }
}

impl FileLoss {
    fn text(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::NotSaved => "not kept",
        }
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// When the files in a workspace's directory were saved.
fn saved_at(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path.join(PLACED))
        .or_else(|_| fs::symlink_metadata(path))?
        .modified()
}

/// Disk usage of a file or tree. The server has created the tree, so its depth is bounded.
fn size(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return 0;
    };
    let own = metadata.blocks() * BLOCK;
    if !metadata.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|entry| size(&entry.path())).sum::<u64>()
}

#[cfg(test)]
mod tests;
