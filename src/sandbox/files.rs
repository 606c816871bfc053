//! The working files of an interpreter, which its code may change at any moment, also while they are looked at.
//!
//! Every access goes through the directory's descriptor ([`confined`]); nothing follows a link, waits for a pipe, trusts
//! a size or overwrites. Names that are no UTF-8 or hold control characters are not handed back, which is said once.
//! Names that begin with a dash are, as they are. Blocks; every call is bounded.

mod capture;
mod confined;
mod copy;
pub(super) mod remote;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{FileType, Gid, Uid, fchown, fstatvfs};

use self::confined::{ConfinedDir, FileMeta, RelativePath, Timestamp, WalkLimits, WalkStep};
use super::{CapturedFile, FileContent, FileRange, InterpreterError, WorkingFile};

/// What is listed and compared: the first levels of a tree that people can survey.
const LISTED: WalkLimits = WalkLimits {
    entries: 5000,
    depth: 4,
};
/// What is counted where no file system counts. A tree that goes beyond is over any limit.
const COUNTED: WalkLimits = WalkLimits {
    entries: 65_536,
    depth: 128,
};
/// Directories that tools fill for themselves.
const CACHES: [&[u8]; 3] = [b"__pycache__", b"node_modules", b".ipynb_checkpoints"];

/// Longest name that a placed file gets before a number is added, in bytes.
const MAX_PLACED_NAME: usize = 200;
/// Numbers that are tried for a placed file.
const MAX_NUMBER: u32 = 1000;

/// A working directory.
#[derive(Debug)]
pub(super) struct WorkDir {
    root: ConfinedDir,
    private_mount: bool,
    /// Where the code sees it.
    seen_as: String,
}

/// The working files at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    files: BTreeMap<String, Stamp>,
    /// Entries whose names cannot be handed back.
    odd_names: usize,
    /// Entries that are neither files nor directories.
    special: usize,
    /// Everything was looked at.
    complete: bool,
}

/// What tells whether a file changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: Timestamp,
    changed: Timestamp,
}

/// What a cell produced.
#[derive(Debug, Default)]
pub(super) struct FileCapture {
    /// Files that were asked for, in that order, then those that are new or changed, by name.
    pub(super) files: Vec<CapturedFile>,
    /// Sentences for the model: what is not handed back and why.
    pub(super) notices: Vec<String>,
    /// Files that were asked for and are not there.
    pub(super) missing: Vec<String>,
}

/// What was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SaveCounts {
    /// Files that were copied.
    pub(super) files: usize,
    /// Entries that were not: links and special files, files beyond the limits, what could not be read.
    pub(super) skipped: usize,
}

/// What is used of a working directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskUsage {
    /// Bytes.
    pub(super) bytes: u64,
    /// Files and directories.
    pub(super) inodes: u64,
}

/// Why a file cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Missing,
    Reason(&'static str),
}

impl WorkDir {
    /// Takes a descriptor of the directory, which may be `O_PATH`. On a mount that is the interpreter's own, no name
    /// can be a further one of a file outside, so that such names are not refused.
    pub(super) fn new(fd: OwnedFd, private_mount: bool) -> Self {
        Self {
            root: ConfinedDir::new(fd),
            private_mount,
            seen_as: "/mnt/data".to_owned(),
        }
    }

    /// Says where the code sees the directory, so that names may be written with it; `/mnt/data` otherwise.
    pub(super) fn seen_as(mut self, path: impl Into<String>) -> Self {
        self.seen_as = path.into();
        self
    }

    /// The files that could be handed back. Empty where the directory cannot be listed.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let walked = self.root.walk(LISTED, |path, meta| {
            let name = match listed(path) {
                Listed::Hidden => return WalkStep::Pass,
                Listed::Odd => {
                    snapshot.odd_names += 1;
                    return WalkStep::Pass;
                }
                Listed::Named(name) => name,
            };
            match meta.kind {
                FileType::RegularFile => {
                    snapshot.files.insert(name.to_owned(), Stamp::of(meta));
                }
                FileType::Directory => {}
                _ => snapshot.special += 1,
            }
            WalkStep::Enter
        });
        snapshot.complete = walked.is_ok_and(|walked| walked.complete);
        snapshot
    }

    /// The files that could be handed back, by name.
    pub(super) fn list(&self) -> Vec<WorkingFile> {
        self.snapshot().listing()
    }

    /// Part of a file.
    pub(super) fn read(&self, part: FileRange<'_>) -> Result<FileContent, InterpreterError> {
        let refused = |refusal| refused(part.name, refusal);
        let (_, file, meta) = self.open(part.name).map_err(refused)?;
        // No more is held than there is, whatever was asked for.
        let rest = meta.size.saturating_sub(part.offset).min(part.max_bytes);
        let bytes = usize::try_from(rest)
            .map_err(io::Error::other)
            .and_then(|length| read_at(&file, part.offset, length))
            .map_err(|_| refused(Refusal::Reason("reading it failed")))?;
        Ok(FileContent {
            bytes,
            size: meta.size,
        })
    }

    /// Copies a file of the server's into the directory and gives back the name that it got: the last part of `name`
    /// without control characters and leading dots and dashes, with a number where that name is taken.
    pub(super) fn place(
        &self,
        name: &str,
        source: &Path,
        owner: Option<(u32, u32)>,
    ) -> io::Result<String> {
        let mut source = File::open(source)?;
        let name = placeable(name);
        for number in 1..=MAX_NUMBER {
            let name = numbered(&name, number);
            let path = RelativePath::new(name.as_bytes()).ok_or(io::ErrorKind::InvalidInput)?;
            let mut target = match self.root.create(&path) {
                Ok(target) => target,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            let filled = io::copy(&mut source, &mut target).and_then(|_| own(&target, owner));
            return match filled {
                Ok(()) => Ok(name),
                Err(error) => {
                    self.root.remove(&path)?;
                    Err(error)
                }
            };
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// What the directory uses: all of its file system where that is its own, else what a walk finds. A tree too deep
    /// or too large to be walked uses everything.
    pub(super) fn usage(&self) -> io::Result<DiskUsage> {
        if self.private_mount {
            let system = fstatvfs(self.root.fd())?;
            let blocks = system.f_blocks.saturating_sub(system.f_bfree);
            return Ok(DiskUsage {
                bytes: blocks.saturating_mul(system.f_frsize),
                inodes: system.f_files.saturating_sub(system.f_ffree),
            });
        }
        let mut bytes = 0_u64;
        let walked = self.root.walk(COUNTED, |_, meta| {
            bytes = bytes.saturating_add(meta.stored);
            WalkStep::Enter
        })?;
        Ok(DiskUsage {
            bytes,
            inodes: if walked.complete {
                walked.entries as u64
            } else {
                u64::MAX
            },
        })
    }

    /// Opens a regular file by the name that somebody gave, and says what name it has here.
    fn open(&self, name: &str) -> Result<(String, File, FileMeta), Refusal> {
        let path = relative(name, &self.seen_as)?;
        let (file, meta) = self.root.open(&path).map_err(|error| Refusal::of(&error))?;
        match meta.kind {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Refusal::Reason("it is a directory")),
            _ => return Err(Refusal::Reason("it is no regular file")),
        }
        if !meta.single && !self.private_mount {
            return Err(Refusal::Reason("it has more than one name (hard links)"));
        }
        let name = String::from_utf8_lossy(path.bytes()).into_owned();
        Ok((name, file, meta))
    }
}

impl Snapshot {
    fn listing(self) -> Vec<WorkingFile> {
        let files = self.files.into_iter();
        files
            .map(|(name, stamp)| WorkingFile {
                name,
                size: stamp.size,
                modified: stamp.modified.0,
            })
            .collect()
    }

    /// The files that are new or changed, by name.
    fn changed_since<'s>(&'s self, before: &'s Self) -> impl Iterator<Item = &'s str> {
        let files = self.files.iter();
        files
            .filter(|(name, stamp)| before.files.get(*name) != Some(stamp))
            .map(|(name, _)| name.as_str())
    }
}

/// The path that a name stands for that somebody gave, in a directory that is seen as this.
fn relative(name: &str, seen_as: &str) -> Result<RelativePath, Refusal> {
    if name.chars().any(char::is_control) {
        return Err(Refusal::Reason("its name has control characters"));
    }
    let name = name
        .strip_prefix(seen_as)
        .and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or(name);
    RelativePath::new(name.as_bytes()).ok_or(Refusal::Reason("it is not in the working directory"))
}

/// A file that cannot be read, in words.
fn refused(name: &str, refusal: Refusal) -> InterpreterError {
    InterpreterError::File {
        name: super::output::clean(name, MAX_PLACED_NAME),
        problem: match refusal {
            Refusal::Missing => "there is no such file in the working directory",
            Refusal::Reason(problem) => problem,
        },
    }
}

enum Listed<'a> {
    Hidden,
    Odd,
    Named(&'a str),
}

/// Whether an entry belongs into a listing.
fn listed(path: &RelativePath) -> Listed<'_> {
    let bytes = path.bytes();
    let name = bytes.rsplit(|byte| *byte == b'/').next().unwrap_or(bytes);
    if name.first() == Some(&b'.') || CACHES.contains(&name) {
        return Listed::Hidden;
    }
    match std::str::from_utf8(bytes) {
        Ok(name) if !name.chars().any(char::is_control) => Listed::Named(name),
        _ => Listed::Odd,
    }
}

impl Stamp {
    fn of(meta: &FileMeta) -> Self {
        Self {
            inode: meta.inode,
            size: meta.size,
            modified: meta.modified,
            changed: meta.changed,
        }
    }
}

impl Refusal {
    fn of(error: &io::Error) -> Self {
        use rustix::io::Errno;
        match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::NOTDIR) => Self::Missing,
            Some(Errno::LOOP) => Self::Reason("it is a symbolic link, or behind one"),
            Some(Errno::XDEV) => Self::Reason("it is not in the working directory"),
            Some(Errno::ACCESS) => Self::Reason("its permissions do not let it be read"),
            Some(Errno::NXIO) => Self::Reason("it is no regular file"),
            Some(Errno::NAMETOOLONG) => Self::Reason("its name is too long"),
            _ => Self::Reason("opening it failed"),
        }
    }
}

/// Up to `length` bytes from an offset on; fewer where the file ends.
fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}

/// Gives a file that was just created to the user of the interpreter.
fn own(file: impl AsFd, owner: Option<(u32, u32)>) -> io::Result<()> {
    if let Some((user, group)) = owner {
        fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    }
    Ok(())
}

/// A name that a file may get: one component that is neither hidden nor taken for an option of a command.
fn placeable(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let visible: String = last.chars().filter(|c| !c.is_control()).collect();
    let visible = visible.trim().trim_start_matches(['.', '-']);
    let (stem, extension) = split_extension(visible);
    let room = MAX_PLACED_NAME.saturating_sub(extension.len());
    let (stem, _) = stem.split_at(stem.floor_char_boundary(room));
    match format!("{stem}{extension}") {
        empty if empty.is_empty() => "file".to_owned(),
        name => name,
    }
}

fn numbered(name: &str, number: u32) -> String {
    if number == 1 {
        return name.to_owned();
    }
    let (stem, extension) = split_extension(name);
    format!("{stem}-{number}{extension}")
}

/// The extension with its dot; one that is longer than extensions are belongs to the name.
fn split_extension(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 && name.len() - at <= 16 => name.split_at(at),
        _ => (name, ""),
    }
}

impl AsFd for WorkDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.fd().as_fd()
    }
}

#[cfg(test)]
mod tests;
