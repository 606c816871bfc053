//! The working files of a live interpreter, behind a descriptor or a relay.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Worker;
use crate::files::remote::RemoteDir;
use crate::files::{FileCapture, SaveCounts, Snapshot, WorkDir};
use crate::process::Process;
use crate::settings::InterpreterLimits;
use crate::{FileContent, FileRange, InterpreterError, WorkFile, WorkingFile};

/// Longest time for exchanging files with a relay. After it the exchange fails.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(60);

/// How the working files are accessed.
enum Files<'w> {
    /// Through a descriptor of the directory.
    Descriptor(Arc<WorkDir>),
    /// Through a relay.
    Frames(RemoteDir<'w>),
}

impl Worker {
    fn files(&mut self) -> Files<'_> {
        match &mut self.process {
            Process::Launched(process) => Files::Descriptor(process.files.clone()),
            Process::Relayed(process) => Files::Frames(RemoteDir::new(process)),
        }
    }

    /// Takes a snapshot of the working directory, so that existing files do not count as produced by the next cell.
    pub(crate) async fn refresh_snapshot(&mut self) {
        self.before = match self.files() {
            Files::Descriptor(files) => {
                let looking = spawn_blocking(move || files.snapshot());
                looking.await.unwrap_or_default()
            }
            // If the relay does not answer, the next cell will fail.
            Files::Frames(mut remote) => remote.snapshot().await.unwrap_or_default(),
        };
    }

    /// The working files, by name.
    pub(crate) async fn list_files(&mut self) -> Result<Vec<WorkingFile>, InterpreterError> {
        match self.files() {
            Files::Descriptor(files) => spawn_blocking(move || files.list())
                .await
                .map_err(|_| InterpreterError::Closed),
            Files::Frames(mut remote) => remote.list().await,
        }
    }

    /// Reads part of a working file.
    pub(crate) async fn read_file(
        &mut self,
        part: FileRange<'_>,
    ) -> Result<FileContent, InterpreterError> {
        match self.files() {
            Files::Descriptor(files) => {
                let name = part.name.to_owned();
                let FileRange {
                    offset, max_bytes, ..
                } = part;
                let reading = spawn_blocking(move || {
                    files.read(FileRange {
                        name: &name,
                        offset,
                        max_bytes,
                    })
                });
                reading.await.map_err(|_| InterpreterError::Closed)?
            }
            Files::Frames(mut remote) => remote.read(part).await,
        }
    }

    /// Copies files into the working directory; returns their new names.
    pub(crate) async fn place_files(
        &mut self,
        new: Vec<WorkFile>,
    ) -> Vec<(WorkFile, io::Result<String>)> {
        let owner = self.reservation.owner();
        let placed = match self.files() {
            Files::Descriptor(files) => {
                let mut placed = Vec::with_capacity(new.len());
                for file in new {
                    let result = place(&files, &file, owner).await;
                    placed.push((file, result));
                }
                placed
            }
            Files::Frames(mut remote) => {
                let mut placed = Vec::with_capacity(new.len());
                for file in new {
                    let result = match file.content.local().await {
                        Ok(content) => within(remote.place(&file.name, content.path())).await,
                        Err(error) => Err(error),
                    };
                    placed.push((file, result));
                }
                placed
            }
        };
        self.refresh_snapshot().await;
        placed
    }

    /// Copies the font list to the interpreter, because matplotlib needs long to build it.
    pub(crate) async fn give_fonts(&self) {
        let (Process::Launched(process), Some(list)) = (&self.process, self.plan.fonts.get())
        else {
            return;
        };
        let (tmp, owner, list) = (process.tmp.clone(), self.reservation.owner(), list.clone());
        let name = list
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let giving = spawn_blocking(move || tmp.place(&name, &list, owner));
        if let Ok(Err(error)) = giving.await {
            tracing::warn!(%error, "the font list could not be copied to an interpreter");
        }
    }

    /// Reads the files that the last cell produced.
    pub(super) async fn capture_files(&mut self, declared: &[String]) -> Option<FileCapture> {
        let before = std::mem::take(&mut self.before);
        let limits = self.plan.settings.limits.clone();
        let captured: Option<(FileCapture, Snapshot)> = match self.files() {
            Files::Descriptor(files) => {
                let declared = declared.to_vec();
                let taking = spawn_blocking(move || {
                    let captured = files.capture(&before, &declared, &limits);
                    (captured, files.snapshot())
                });
                taking.await.ok()
            }
            Files::Frames(mut remote) => {
                let taking = remote.capture(&before, declared, &limits);
                within(taking).await.ok()
            }
        };
        let (captured, status) = captured?;
        self.before = status;
        Some(captured)
    }

    /// Copies the working files into a directory of the server.
    pub(crate) async fn save_files(
        &mut self,
        directory: &Path,
        limits: &InterpreterLimits,
    ) -> io::Result<SaveCounts> {
        match self.files() {
            Files::Descriptor(files) => {
                let (directory, limits) = (directory.to_owned(), limits.clone());
                spawn_blocking(move || files.save_to(&directory, &limits))
                    .await
                    .map_err(io::Error::other)?
            }
            Files::Frames(mut remote) => within(remote.save_to(directory, limits)).await,
        }
    }

    /// Restores saved files to the working directory.
    pub(crate) async fn restore_files(&mut self, directory: &Path) -> io::Result<()> {
        let owner = self.reservation.owner();
        match self.files() {
            Files::Descriptor(files) => {
                let directory = directory.to_owned();
                spawn_blocking(move || files.restore_from(&directory, owner))
                    .await
                    .map_err(io::Error::other)??;
            }
            Files::Frames(mut remote) => within(remote.restore_from(directory)).await?,
        }
        self.refresh_snapshot().await;
        Ok(())
    }
}

async fn place(
    files: &Arc<WorkDir>,
    file: &WorkFile,
    owner: Option<(u32, u32)>,
) -> io::Result<String> {
    let content = file.content.local().await?;
    let (files, name) = (files.clone(), file.name.clone());
    let placing = spawn_blocking(move || files.place(&name, content.path(), owner));
    placing.await.map_err(io::Error::other)?
}

async fn within<T>(exchange: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(EXCHANGE_LIMIT, exchange)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
