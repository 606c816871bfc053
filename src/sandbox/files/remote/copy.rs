//! Saves and restores working files through a relay.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FileType;
use tokio::task::spawn_blocking;

use super::{Entry, RemoteDir, RequestFailure, own_name};
use crate::files::confined::{ConfinedDir, RelativePath, WalkLimits, WalkStep};
use crate::files::copy::{StagedDir, open_directory};
use crate::files::{COUNTED, SaveCounts};
use crate::relay_protocol::{FileRequest, MAX_CONTENT};
use crate::settings::InterpreterLimits;

impl RemoteDir<'_> {
    /// Copies the files into a directory of the server, whose former content is replaced atomically or, on failure, not
    /// changed.
    pub(crate) async fn save_to(
        &mut self,
        directory: &Path,
        limits: &InterpreterLimits,
    ) -> io::Result<SaveCounts> {
        let entries = usize::try_from(limits.inodes).unwrap_or(COUNTED.entries);
        let bounds = WalkLimits {
            entries: entries.min(COUNTED.entries),
            depth: COUNTED.depth,
        };
        let listing = self.listing(bounds, true).await?;
        let staged = StagedDir::new(directory)?;
        let mut saved = SaveCounts {
            files: 0,
            skipped: usize::from(!listing.complete) + listing.special + listing.odd_names,
        };
        let mut left = limits.disk;
        for Entry(name, is_directory, size, ..) in listing.files {
            let most = limits.file_size.min(left);
            let copied = match own_name(&name, COUNTED.depth) {
                None => Err(io::ErrorKind::InvalidInput.into()),
                Some(path) if is_directory => staged.root.create_directory(&path).map(|_| 0),
                Some(_) if size > most => Err(io::ErrorKind::QuotaExceeded.into()),
                Some(path) => self.fetch(&name, &path, &staged.root, most).await,
            };
            match copied {
                Ok(bytes) => {
                    left = left.saturating_sub(bytes);
                    saved.files += usize::from(!is_directory);
                }
                Err(error) if self.relayed.is_lost() => return Err(error),
                Err(_) => saved.skipped += 1,
            }
        }
        staged.put_in_place(directory)?;
        Ok(saved)
    }

    /// Copies saved files into the working directory without overwriting.
    pub(crate) async fn restore_from(&mut self, directory: &Path) -> io::Result<()> {
        let source = ConfinedDir::new(open_directory(directory)?);
        let walking = spawn_blocking(move || {
            let mut found = Vec::new();
            source.walk(COUNTED, |path, meta| {
                found.push((path.clone(), meta.kind));
                WalkStep::Enter
            })?;
            Ok::<_, io::Error>((source, found))
        });
        let (source, found) = walking.await.map_err(io::Error::other)??;
        for (path, kind) in found {
            let name = String::from_utf8_lossy(path.bytes());
            let put = match kind {
                FileType::Directory => {
                    let made = self.ask(FileRequest::Make { name: &name }).await;
                    made.map(drop).map_err(RequestFailure::into_io)
                }
                FileType::RegularFile => {
                    let (file, _) = source.open(&path)?;
                    self.put(&name, file).await
                }
                _ => Ok(()),
            };
            match put {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Copies a file out of the working directory; returns its size.
    async fn fetch(
        &mut self,
        name: &str,
        path: &RelativePath,
        target: &ConfinedDir,
        most: u64,
    ) -> io::Result<u64> {
        let mut file = target.create(path)?;
        let mut offset = 0;
        let copied = loop {
            let request = FileRequest::Get {
                name,
                offset,
                most: MAX_CONTENT,
            };
            let reply = match self.ask(request).await {
                Ok(reply) => reply,
                Err(failure) => break Err(failure.into_io()),
            };
            let received = reply.body.len();
            if offset + received as u64 > most || received > MAX_CONTENT {
                break Err(io::ErrorKind::QuotaExceeded.into());
            }
            let body = reply.body;
            let writing = spawn_blocking(move || file.write_all(&body).map(|()| file));
            file = writing.await.map_err(io::Error::other)??;
            offset += received as u64;
            if received < MAX_CONTENT {
                break Ok(offset);
            }
        };
        if copied.is_err() {
            target.remove(path)?;
        }
        copied
    }

    /// Copies a file into the working directory, under an unused name.
    pub(super) async fn put(&mut self, name: &str, file: File) -> io::Result<()> {
        let file = Arc::new(file);
        let mut offset = 0;
        loop {
            let source = file.clone();
            let reading = spawn_blocking(move || {
                let mut piece = vec![0; MAX_CONTENT];
                let read = source.read_at(&mut piece, offset)?;
                piece.truncate(read);
                Ok::<_, io::Error>(piece)
            });
            let piece = reading.await.map_err(io::Error::other)??;
            if piece.is_empty() && offset > 0 {
                return Ok(());
            }
            let request = FileRequest::Put {
                name,
                offset,
                content: &piece,
            };
            self.ask(request).await.map_err(RequestFailure::into_io)?;
            if piece.is_empty() {
                return Ok(());
            }
            offset += piece.len() as u64;
        }
    }
}
