//! Working files of interpreters that have ended, kept until the workspace's next one, for a time, and within a budget.
//!
//! Where the budget is passed, what was kept longest ago is deleted. A note beside the kept files remembers what became of
//! them, so that the workspace's next call can be told.

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
use super::super::settings::InterpreterLimits;
use super::super::worker::Worker;
use crate::ids::WorkspaceId;

/// Beside the kept files: the ids of the input files among them, as a JSON list.
const PLACED: &str = "placed.json";
/// The kept files.
const FILES: &str = "files";
/// What the name of a note ends with; what it begins with is the workspace's.
const NOTE: &str = ".note";
/// How long a note is kept where files are kept for ever.
const NOTE_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Bytes of a block, as the system counts them.
const BLOCK: u64 = 512;

/// The directory that holds them; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct SavedFiles(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    /// Most bytes.
    budget: u64,
    index: Mutex<Index>,
}

/// What became of a workspace's files, where they are not as its last interpreter left them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum FileLoss {
    /// Deleted, as all that is kept was too much.
    Evicted,
    /// They could not be kept; what there is is older.
    NotSaved,
}

/// What was found of an earlier interpreter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RestoredFiles {
    /// The input files among the files that were put back.
    pub(super) placed: BTreeSet<String>,
    pub(super) note: Option<FileLoss>,
}

impl SavedFiles {
    /// Opens the directory and takes stock of what is in it.
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
                let time = kept_at(&path).unwrap_or(SystemTime::UNIX_EPOCH);
                index.kept(&name, size(&path), time);
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

    /// Keeps the files of a workspace in place of what was kept before. Where that fails, what was kept before stays, and
    /// the workspace's next call is told.
    pub(super) async fn keep(
        &self,
        id: &WorkspaceId,
        worker: &mut Worker,
        placed: &BTreeSet<String>,
        limits: &InterpreterLimits,
    ) -> io::Result<()> {
        let busy = self.busy(id);
        let kept = self.write(id, worker, placed, limits).await;
        let (saved, workspace) = (self.clone(), id.clone());
        let note = kept.is_err().then_some(FileLoss::NotSaved);
        let counting = spawn_blocking(move || {
            saved.note(workspace.as_str(), note);
            let path = saved.directory(&workspace);
            saved
                .0
                .index
                .lock()
                .kept(workspace.as_str(), size(&path), SystemTime::now());
            drop(busy);
            saved.shrink();
        });
        counting.await.map_err(io::Error::other)?;
        kept
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
        let saved = worker.save_files(&directory.join(FILES), limits).await?;
        if saved.skipped > 0 {
            tracing::warn!(
                skipped = saved.skipped,
                "some working files could not be kept"
            );
        }
        let placed = serde_json::to_vec(placed).map_err(io::Error::other)?;
        tokio::fs::write(directory.join(PLACED), placed).await
    }

    /// Puts kept files into a working directory; none where the workspace had no interpreter before.
    pub(super) async fn put_back(
        &self,
        id: &WorkspaceId,
        worker: &mut Worker,
    ) -> io::Result<Option<RestoredFiles>> {
        let _busy = self.busy(id);
        let note = self.0.index.lock().noted(id.as_str());
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

    /// Deletes what is kept of a workspace.
    pub(super) fn delete(&self, id: &WorkspaceId) -> io::Result<()> {
        self.0.index.lock().gone(id.as_str());
        self.note(id.as_str(), None);
        absent_is_fine(fs::remove_dir_all(self.directory(id)))
    }

    /// Deletes what was kept longer ago than this. What cannot be deleted is logged, and no reason to stop.
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
        if kept_at(path)? < before && self.0.index.lock().take(name) {
            fs::remove_dir_all(path)?;
        }
        Ok(())
    }

    /// Deletes what was kept longest ago until the rest is within the budget.
    fn shrink(&self) {
        loop {
            let Some(oldest) = self.0.index.lock().take_oldest(self.0.budget) else {
                return;
            };
            self.note(&oldest, Some(FileLoss::Evicted));
            let deleted = fs::remove_dir_all(self.0.directory.join(&oldest));
            match absent_is_fine(deleted) {
                Ok(()) => tracing::warn!(
                    budget = self.0.budget,
                    "working files that were kept longest were deleted to keep within sandbox.saved_size"
                ),
                Err(error) => tracing::error!(%error, "kept working files could not be deleted"),
            }
        }
    }

    /// Remembers what became of a workspace's files, or that there is nothing to be said of them.
    fn note(&self, workspace: &str, note: Option<FileLoss>) {
        self.0.index.lock().note(workspace, note);
        let path = self.0.directory.join(format!("{workspace}{NOTE}"));
        let written = match note {
            Some(note) => fs::write(path, note.text()),
            None => absent_is_fine(fs::remove_file(path)),
        };
        if let Err(error) = written {
            // Until the server ends it is remembered all the same.
            tracing::warn!(%error, "a note on kept working files could not be written");
        }
    }

    /// While this is held, nobody evicts or expires the workspace's files.
    fn busy(&self, id: &WorkspaceId) -> Busy {
        self.0.index.lock().begin(id.as_str());
        Busy {
            saved: self.clone(),
            workspace: id.clone(),
        }
    }

    fn directory(&self, id: &WorkspaceId) -> PathBuf {
        self.0.directory.join(id.as_str())
    }
}

struct Busy {
    saved: SavedFiles,
    workspace: WorkspaceId,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.saved.0.index.lock().end(self.workspace.as_str());
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

/// When the files in a workspace's directory were kept.
fn kept_at(path: &Path) -> io::Result<SystemTime> {
    fs::metadata(path.join(PLACED))
        .or_else(|_| fs::symlink_metadata(path))?
        .modified()
}

/// What a file, or a directory with everything in it, takes on the disk. The server has made the tree, so it is of
/// bounded depth.
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
mod tests {
    use super::*;

    const BUDGET: u64 = 1024 * 1024;

    fn put(folder: &Path, id: &WorkspaceId, bytes: usize, age: Duration) {
        let directory = folder.join("saved").join(id.as_str());
        fs::create_dir_all(directory.join(FILES).join("inner")).unwrap();
        fs::write(directory.join(FILES).join("inner/a"), vec![1; bytes]).unwrap();
        fs::write(directory.join(PLACED), "[]").unwrap();
        let placed = fs::File::open(directory.join(PLACED)).unwrap();
        placed.set_modified(SystemTime::now() - age).unwrap();
    }

    fn there(folder: &Path, ids: &[WorkspaceId]) -> Vec<bool> {
        let saved = folder.join("saved");
        ids.iter()
            .map(|id| saved.join(id.as_str()).exists())
            .collect()
    }

    #[test]
    fn what_was_kept_longest_ago_is_deleted_where_all_is_too_much_and_that_is_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let ids = [(); 3].map(|()| WorkspaceId::fresh());
        for (id, age) in ids.iter().zip([20, 30, 10]) {
            put(folder.path(), id, 400 * 1024, Duration::from_secs(age));
        }
        let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
        assert_eq!(there(folder.path(), &ids), [true, false, true]);
        let notes = |saved: &SavedFiles| {
            ids.each_ref()
                .map(|id| saved.0.index.lock().noted(id.as_str()))
        };
        assert_eq!(notes(&saved), [None, Some(FileLoss::Evicted), None]);
        drop(saved);
        // A server that starts anew knows it still, and what is deleted is forgotten.
        let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
        assert_eq!(notes(&saved), [None, Some(FileLoss::Evicted), None]);
        ids.iter().for_each(|id| saved.delete(id).unwrap());
        assert_eq!(notes(&saved), [None; 3]);
        assert_eq!(
            fs::read_dir(folder.path().join("saved")).unwrap().count(),
            0
        );
    }

    #[test]
    fn what_is_being_used_is_not_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let ids = [(); 2].map(|()| WorkspaceId::fresh());
        put(folder.path(), &ids[0], 400 * 1024, Duration::from_secs(30));
        let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
        let busy = saved.busy(&ids[0]);
        put(folder.path(), &ids[1], 800 * 1024, Duration::ZERO);
        let much = size(&saved.directory(&ids[1]));
        saved
            .0
            .index
            .lock()
            .kept(ids[1].as_str(), much, SystemTime::now());
        saved.shrink();
        assert_eq!(there(folder.path(), &ids), [true, false]);
        saved.expire(Some(Duration::from_secs(1))).unwrap();
        assert_eq!(there(folder.path(), &ids), [true, false]);
        drop(busy);
        saved.expire(Some(Duration::from_secs(1))).unwrap();
        assert_eq!(there(folder.path(), &ids), [false, false]);
    }

    #[test]
    fn one_that_cannot_be_deleted_does_not_keep_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let ids = [(); 8].map(|()| WorkspaceId::fresh());
        for id in &ids {
            put(folder.path(), id, 1, Duration::from_secs(30));
        }
        // A file where a directory belongs cannot be deleted as one.
        for number in 0..8 {
            let stray = folder.path().join("saved").join(format!("stray{number}"));
            fs::write(&stray, "").unwrap();
            let stray = fs::File::open(stray).unwrap();
            stray.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }
        let saved = SavedFiles::open(folder.path(), BUDGET).unwrap();
        saved.expire(Some(Duration::from_secs(1))).unwrap();
        assert_eq!(there(folder.path(), &ids), [false; 8]);
    }
}
