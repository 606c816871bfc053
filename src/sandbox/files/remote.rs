//! The working files of an interpreter behind a relay, which lists, reads and writes them on request.
//!
//! The relay's replies are hostile: names are checked like requested names, sizes are counted, and saved files are
//! written to a directory that only this process can write to.

mod copy;

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;

use super::capture::CaptureBuilder;
use super::confined::{RelativePath, WalkLimits};
use super::placed_name::{MAX_NUMBER, numbered, placeable};
use super::{FileCapture, LISTED, Listed, Refusal, Snapshot, Stamp, listed, relative};
use crate::process::relayed::RelayedProcess;
use crate::relay_protocol::{FileErrorKind, FileReply, FileRequest, MAX_CONTENT};
use crate::settings::InterpreterLimits;
use crate::{FileContent, FileRange, InterpreterError, WorkingFile};

/// A working directory behind a relay.
pub(crate) struct RemoteDir<'r> {
    relayed: &'r mut RelayedProcess,
}

#[derive(Deserialize)]
struct Listing {
    files: Vec<Entry>,
    odd_names: usize,
    special: usize,
    complete: bool,
}

/// Name, whether it is a directory, size, inode, times.
#[derive(Deserialize)]
struct Entry(String, bool, u64, u64, (i64, i64, i64, i64));

impl<'r> RemoteDir<'r> {
    pub(crate) fn new(relayed: &'r mut RelayedProcess) -> Self {
        Self { relayed }
    }

    /// The files that can be returned.
    pub(crate) async fn snapshot(&mut self) -> io::Result<Snapshot> {
        let listing = self.listing(LISTED, false).await?;
        let mut snapshot = Snapshot {
            odd_names: listing.odd_names,
            special: listing.special,
            complete: listing.complete,
            ..Snapshot::default()
        };
        for Entry(name, directory, size, inode, times) in listing.files {
            let Some(path) = own_name(&name, LISTED.depth) else {
                snapshot.complete = false;
                continue;
            };
            match listed(&path) {
                Listed::Hidden => {}
                Listed::Odd => snapshot.odd_names += 1,
                Listed::Named(_) if directory => {}
                Listed::Named(_) => {
                    let stamp = Stamp {
                        inode,
                        size,
                        modified: (times.0, times.1),
                        changed: (times.2, times.3),
                    };
                    snapshot.files.insert(name, stamp);
                }
            }
        }
        Ok(snapshot)
    }

    /// The files that can be returned, by name.
    pub(crate) async fn list(&mut self) -> Result<Vec<WorkingFile>, InterpreterError> {
        let snapshot = self.snapshot().await.map_err(|_| InterpreterError::File {
            name: self.relayed.directory.clone(),
            problem: "the isolated interpreter does not answer",
        })?;
        Ok(snapshot.listing())
    }

    pub(crate) async fn read(
        &mut self,
        part: FileRange<'_>,
    ) -> Result<FileContent, InterpreterError> {
        let refused = |refusal| super::refused(part.name, refusal);
        let path = relative(part.name, &self.relayed.directory).map_err(refused)?;
        let name = String::from_utf8_lossy(path.bytes());
        let most = usize::try_from(part.max_bytes).unwrap_or(usize::MAX);
        let (bytes, reply) = self
            .content(&name, part.offset, most)
            .await
            .map_err(refused)?;
        Ok(FileContent {
            bytes,
            // The size that the relay reports.
            size: reply.size,
        })
    }

    /// Copies a file into the directory and returns its new name.
    pub(crate) async fn place(&mut self, name: &str, source: &Path) -> io::Result<String> {
        let name = placeable(name);
        for number in 1..=MAX_NUMBER {
            let name = numbered(&name, number);
            match self.put(&name, File::open(source)?).await {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                placed => return placed.map(|()| name),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Reads the files that are new or changed since `before` and the requested ones, and returns the new snapshot,
    /// too.
    pub(crate) async fn capture(
        &mut self,
        before: &Snapshot,
        declared: &[String],
        limits: &InterpreterLimits,
    ) -> io::Result<(FileCapture, Snapshot)> {
        let after = self.snapshot().await?;
        let mut builder = CaptureBuilder::new(limits);
        for name in declared {
            match relative(name, &self.relayed.directory) {
                Ok(path) => {
                    let name = String::from_utf8_lossy(path.bytes()).into_owned();
                    self.take(&name, &mut builder, true).await;
                }
                Err(refusal) => builder.reject(name, refusal),
            }
        }
        for name in after.changed_since(before) {
            self.take(name, &mut builder, false).await;
        }
        Ok((builder.finish(before, &after), after))
    }

    /// Adds one file of a cell.
    async fn take(&mut self, name: &str, builder: &mut CaptureBuilder<'_>, declared: bool) {
        if builder.has(name) {
            return;
        }
        let asked = FileRequest::Get {
            name,
            offset: 0,
            most: 0,
        };
        let reply = match self.ask(asked).await {
            Ok(reply) => reply,
            // Deleted since the snapshot.
            Err(RequestFailure::Refused(Refusal::Missing)) if !declared => return,
            Err(failure) => return builder.reject(name, failure.refusal()),
        };
        let Some(most) = builder.byte_limit(name, reply.size, reply.stored) else {
            return;
        };
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        match self.content(name, 0, limit.saturating_add(1)).await {
            Ok((mut bytes, _)) => {
                let whole = bytes.len() <= limit;
                bytes.truncate(limit);
                builder.add(name, bytes, whole);
            }
            Err(refusal) => builder.reject(name, refusal),
        }
    }

    /// Reads up to `most` bytes from an offset; returns the last reply, too.
    async fn content(
        &mut self,
        name: &str,
        offset: u64,
        most: usize,
    ) -> Result<(Bytes, FileReply), Refusal> {
        let mut bytes = BytesMut::new();
        loop {
            let asked = (most - bytes.len()).min(MAX_CONTENT);
            let request = FileRequest::Get {
                name,
                offset: offset.saturating_add(bytes.len() as u64),
                most: asked,
            };
            let reply = self.ask(request).await.map_err(RequestFailure::refusal)?;
            let received = reply.body.get(..asked).unwrap_or(&reply.body);
            bytes.extend_from_slice(received);
            if received.len() < asked || bytes.len() >= most {
                return Ok((bytes.freeze(), reply));
            }
        }
    }

    async fn listing(&mut self, bounds: WalkLimits, everything: bool) -> io::Result<Listing> {
        let request = FileRequest::List {
            depth: bounds.depth,
            entries: bounds.entries,
            everything,
        };
        let reply = self.ask(request).await.map_err(RequestFailure::into_io)?;
        let mut listing: Listing =
            serde_json::from_slice(&reply.body).map_err(|_| io::ErrorKind::InvalidData)?;
        if listing.files.len() > bounds.entries {
            listing.files.truncate(bounds.entries);
            listing.complete = false;
        }
        Ok(listing)
    }

    async fn ask(&mut self, request: FileRequest<'_>) -> Result<FileReply, RequestFailure> {
        let reply = self
            .relayed
            .ask(request)
            .await
            .map_err(RequestFailure::Other)?;
        let problem = match reply.problem {
            None => return Ok(reply),
            Some(FileErrorKind::Exists) => {
                return Err(RequestFailure::Other(io::ErrorKind::AlreadyExists.into()));
            }
            Some(FileErrorKind::Missing) => return Err(RequestFailure::Refused(Refusal::Missing)),
            Some(FileErrorKind::Link) => "it is a symbolic link, or behind one",
            Some(FileErrorKind::Access) => "its permissions do not allow reading",
            Some(FileErrorKind::Special) => "it is not a regular file",
            Some(FileErrorKind::Directory) => "it is a directory",
            Some(FileErrorKind::Long) => "its name is too long",
            Some(FileErrorKind::Full) => "there is no room for it",
            Some(FileErrorKind::Failed) => "opening it failed",
        };
        Err(RequestFailure::Refused(Refusal::Reason(problem)))
    }
}

/// Why a request failed.
enum RequestFailure {
    /// The file cannot be read.
    Refused(Refusal),
    /// Anything else.
    Other(io::Error),
}

impl RequestFailure {
    fn refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Other(_) => Refusal::Reason("the isolated interpreter does not answer"),
        }
    }

    fn into_io(self) -> io::Error {
        match self {
            Self::Refused(Refusal::Missing) => io::ErrorKind::NotFound.into(),
            Self::Refused(Refusal::Reason(problem)) => io::Error::other(problem),
            Self::Other(error) => error,
        }
    }
}

/// Accepts a relay's path only if it is in normal form.
fn own_name(name: &str, depth: usize) -> Option<RelativePath> {
    let path = RelativePath::new(name.as_bytes())?;
    let levels = name.split('/').count();
    (path.bytes() == name.as_bytes() && levels <= depth).then_some(path)
}
