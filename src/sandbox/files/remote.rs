//! The working files of an interpreter behind a relay, which lists, reads and writes them on order.
//!
//! What the relay says of them is the word of hostile code: names are taken apart and checked as if somebody had asked
//! for them, sizes are counted, and what is saved is written beneath a directory that nobody else can write to.

mod copy;

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;

use super::beneath::{Bounds, Relative};
use super::capture::Taking;
use super::{
    Capture, LISTED, Listed, MAX_NUMBER, Refusal, Snapshot, Stamp, listed, numbered, placeable,
    relative,
};
use crate::sandbox::process::relayed::Relayed;
use crate::sandbox::relay::{Answer, MAX_CONTENT, Order, Problem};
use crate::sandbox::settings::Limits;
use crate::sandbox::{FileContent, FilePart, RunError, WorkingFile};

/// A working directory behind a relay.
pub(in crate::sandbox) struct Remote<'r> {
    relayed: &'r mut Relayed,
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

impl<'r> Remote<'r> {
    pub(in crate::sandbox) fn new(relayed: &'r mut Relayed) -> Self {
        Self { relayed }
    }

    /// The files that could be handed back.
    pub(in crate::sandbox) async fn snapshot(&mut self) -> io::Result<Snapshot> {
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

    /// The files that could be handed back, by name.
    pub(in crate::sandbox) async fn list(&mut self) -> Result<Vec<WorkingFile>, RunError> {
        let snapshot = self.snapshot().await.map_err(|_| RunError::File {
            name: self.relayed.directory.clone(),
            problem: "the isolated interpreter does not answer",
        })?;
        Ok(snapshot.listing())
    }

    /// Part of a file.
    pub(in crate::sandbox) async fn read(
        &mut self,
        part: FilePart<'_>,
    ) -> Result<FileContent, RunError> {
        let refused = |refusal| super::refused(part.name, refusal);
        let path = relative(part.name, &self.relayed.directory).map_err(refused)?;
        let name = String::from_utf8_lossy(path.bytes());
        let most = usize::try_from(part.max_bytes).unwrap_or(usize::MAX);
        let (bytes, answer) = self
            .content(&name, part.offset, most)
            .await
            .map_err(refused)?;
        Ok(FileContent {
            bytes,
            // As it was said; never less than what came.
            size: answer.size,
        })
    }

    /// Copies a file of the server's into the directory and gives back the name that it got.
    pub(in crate::sandbox) async fn place(
        &mut self,
        name: &str,
        source: &Path,
    ) -> io::Result<String> {
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

    /// The files that are new or changed since `before`, those asked for even if they are not, and how it is now.
    pub(in crate::sandbox) async fn capture(
        &mut self,
        before: &Snapshot,
        declared: &[String],
        limits: &Limits,
    ) -> io::Result<(Capture, Snapshot)> {
        let after = self.snapshot().await?;
        let mut taking = Taking::new(limits);
        for name in Taking::bounded(declared) {
            match relative(name, &self.relayed.directory) {
                Ok(path) => {
                    let name = String::from_utf8_lossy(path.bytes()).into_owned();
                    self.take(&name, &mut taking, true).await;
                }
                Err(refusal) => taking.refused(name, refusal),
            }
        }
        for name in after.changed_since(before) {
            self.take(name, &mut taking, false).await;
        }
        Ok((taking.finish(before, &after), after))
    }

    /// Takes one file of a cell.
    async fn take(&mut self, name: &str, taking: &mut Taking<'_>, declared: bool) {
        if taking.has(name) {
            return;
        }
        let asked = Order::Get {
            name,
            offset: 0,
            most: 0,
        };
        let answer = match self.ask(asked).await {
            Ok(answer) => answer,
            // Deleted between look and use.
            Err(Failure::Refused(Refusal::Missing)) if !declared => return,
            Err(failure) => return taking.refused(name, failure.refusal()),
        };
        let Some(most) = taking.room(name, answer.size, answer.stored) else {
            return;
        };
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        match self.content(name, 0, limit.saturating_add(1)).await {
            Ok((mut bytes, _)) => {
                let whole = bytes.len() <= limit;
                bytes.truncate(limit);
                taking.taken(name, bytes, whole);
            }
            Err(refusal) => taking.refused(name, refusal),
        }
    }

    /// Up to `most` bytes of a file from an offset on, and the last answer.
    async fn content(
        &mut self,
        name: &str,
        offset: u64,
        most: usize,
    ) -> Result<(Bytes, Answer), Refusal> {
        let mut bytes = BytesMut::new();
        loop {
            let asked = (most - bytes.len()).min(MAX_CONTENT);
            let order = Order::Get {
                name,
                offset: offset.saturating_add(bytes.len() as u64),
                most: asked,
            };
            let answer = self.ask(order).await.map_err(Failure::refusal)?;
            let came = answer.body.get(..asked).unwrap_or(&answer.body);
            bytes.extend_from_slice(came);
            if came.len() < asked || bytes.len() >= most {
                return Ok((bytes.freeze(), answer));
            }
        }
    }

    async fn listing(&mut self, bounds: Bounds, everything: bool) -> io::Result<Listing> {
        let order = Order::List {
            depth: bounds.depth,
            entries: bounds.entries,
            everything,
        };
        let answer = self.ask(order).await.map_err(Failure::into_io)?;
        let mut listing: Listing =
            serde_json::from_slice(&answer.body).map_err(|_| io::ErrorKind::InvalidData)?;
        if listing.files.len() > bounds.entries {
            listing.files.truncate(bounds.entries);
            listing.complete = false;
        }
        Ok(listing)
    }

    async fn ask(&mut self, order: Order<'_>) -> Result<Answer, Failure> {
        let answer = self.relayed.ask(order).await.map_err(Failure::Other)?;
        let problem = match answer.problem {
            None => return Ok(answer),
            Some(Problem::Exists) => {
                return Err(Failure::Other(io::ErrorKind::AlreadyExists.into()));
            }
            Some(Problem::Missing) => return Err(Failure::Refused(Refusal::Missing)),
            Some(Problem::Link) => "it is a symbolic link, or behind one",
            Some(Problem::Access) => "its permissions do not let it be read",
            Some(Problem::Special) => "it is no regular file",
            Some(Problem::Directory) => "it is a directory",
            Some(Problem::Long) => "its name is too long",
            Some(Problem::Full) => "there is no room for it",
            Some(Problem::Failed) => "opening it failed",
        };
        Err(Failure::Refused(Refusal::Problem(problem)))
    }
}

/// Why an order was not done.
enum Failure {
    /// The file.
    Refused(Refusal),
    /// Anything else.
    Other(io::Error),
}

impl Failure {
    fn refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Other(_) => Refusal::Problem("the isolated interpreter does not answer"),
        }
    }

    fn into_io(self) -> io::Error {
        match self {
            Self::Refused(Refusal::Missing) => io::ErrorKind::NotFound.into(),
            Self::Refused(Refusal::Problem(problem)) => io::Error::other(problem),
            Self::Other(error) => error,
        }
    }
}

/// A path as the relay says it, which must be as it is said here.
fn own_name(name: &str, depth: usize) -> Option<Relative> {
    let path = Relative::new(name.as_bytes())?;
    let levels = name.split('/').count();
    (path.bytes() == name.as_bytes() && levels <= depth).then_some(path)
}
