//! Working files of interpreters that have ended, kept until the workspace's next one or for a time.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::super::settings::Limits;
use super::super::worker::Worker;
use crate::ids::WorkspaceId;

/// Beside the kept files: the ids of the input files among them, as a JSON list.
const PLACED: &str = "placed.json";
/// The kept files.
const FILES: &str = "files";

/// The directory that holds them; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Saved(Arc<PathBuf>);

impl Saved {
    /// Opens the directory.
    pub(super) fn open(work_dir: &Path) -> io::Result<Self> {
        let make = |path: &Path, mode: u32| {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(path)
        };
        make(work_dir, 0o711)?;
        let saved = work_dir.join("saved");
        make(&saved, 0o700)?;
        Ok(Self(Arc::new(saved)))
    }

    /// Keeps the files of a workspace in place of what was kept before.
    pub(super) async fn keep(
        &self,
        id: &WorkspaceId,
        worker: &mut Worker,
        placed: &BTreeSet<String>,
        limits: &Limits,
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

    /// Puts kept files into a working directory; returns the input files among them, or none where nothing was kept.
    pub(super) async fn put_back(
        &self,
        id: &WorkspaceId,
        worker: &mut Worker,
    ) -> io::Result<Option<BTreeSet<String>>> {
        let directory = self.directory(id);
        let placed = match tokio::fs::read(directory.join(PLACED)).await {
            Ok(placed) => placed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        worker.restore_files(&directory.join(FILES)).await?;
        serde_json::from_slice(&placed)
            .map(Some)
            .map_err(io::Error::other)
    }

    /// Deletes what is kept of a workspace.
    pub(super) fn delete(&self, id: &WorkspaceId) -> io::Result<()> {
        match fs::remove_dir_all(self.directory(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes what was kept longer ago than this.
    pub(super) fn expire(&self, ttl: Option<Duration>) -> io::Result<()> {
        let Some(before) = ttl.and_then(|ttl| SystemTime::now().checked_sub(ttl)) else {
            return Ok(());
        };
        for entry in fs::read_dir(&*self.0)?.flatten() {
            let kept = entry.path().join(PLACED);
            let time = fs::metadata(kept)
                .or_else(|_| entry.metadata())?
                .modified()?;
            if time < before {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn directory(&self, id: &WorkspaceId) -> PathBuf {
        self.0.join(id.as_str())
    }
}
