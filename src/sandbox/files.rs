//! The working files of an interpreter. Its code may change them at any moment, even during an access.
//!
//! Every access goes through the directory's descriptor ([`confined`]); no access follows a link, blocks on a pipe,
//! trusts a size or overwrites a file. Files whose names are not UTF-8 or contain control characters are not returned,
//! which one notice reports. Names that begin with a dash are returned unchanged. Functions block; every call is
//! bounded.

mod capture;
mod confined;
mod copy;
mod placed_name;
pub(super) mod remote;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{FileType, Gid, Uid, fchown, fstatvfs};

use self::confined::{ConfinedDir, FileMeta, RelativePath, Timestamp, WalkLimits, WalkStep};
use self::placed_name::{MAX_NUMBER, MAX_PLACED_NAME, numbered, placeable};
use super::{CapturedFile, FileContent, FileRange, InterpreterError, WorkingFile};

/// Most entries and deepest directories that are listed and compared: the first levels of a tree. Others are left out.
/// Tried by `files::produced::a_hundred_thousand_files_are_not_all_looked_at`.
const LISTED: WalkLimits = WalkLimits {
    entries: 5000,
    depth: 4,
};
/// Most entries and deepest directories that are copied, and that are measured without a file system of its own: deeper
/// than listings, so that programs find their own trees again. What is beyond is not copied, and exceeds any limit.
const COUNTED: WalkLimits = WalkLimits {
    entries: 65_536,
    depth: 128,
};
/// Directories that tools create for themselves.
const CACHES: [&[u8]; 3] = [b"__pycache__", b"node_modules", b".ipynb_checkpoints"];

/// A working directory.
#[derive(Debug)]
pub(super) struct WorkDir {
    root: ConfinedDir,
    private_mount: bool,
    /// The directory's path as the code sees it.
    seen_as: String,
}

/// The state of the working files at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    files: BTreeMap<String, Stamp>,
    /// Entries whose names cannot be returned.
    odd_names: usize,
    /// Entries that are neither files nor directories.
    special: usize,
    /// All entries were examined.
    complete: bool,
}

/// Metadata that changes with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: Timestamp,
    changed: Timestamp,
}

/// The files that a cell produced.
#[derive(Debug, Default)]
pub(super) struct FileCapture {
    /// The requested files in that order, then new and changed ones by name.
    pub(super) files: Vec<CapturedFile>,
    /// Notices for the model: which files are not returned and why.
    pub(super) notices: Vec<String>,
    /// Requested files that do not exist.
    pub(super) missing: Vec<String>,
}

/// The result of saving or restoring files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SaveCounts {
    /// Copied files.
    pub(super) files: usize,
    /// Entries that were not copied: links, special files, files beyond the limits, unreadable files.
    pub(super) skipped: usize,
}

/// The disk usage of a working directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskUsage {
    pub(super) bytes: u64,
    /// Files and directories.
    pub(super) inodes: u64,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Missing,
    Reason(&'static str),
}

impl WorkDir {
    /// Takes a descriptor of the directory, which may be `O_PATH`. On a private mount no file can have a hard link
    /// outside, so hard-linked files are allowed.
    pub(super) fn new(fd: OwnedFd, private_mount: bool) -> Self {
        Self {
            root: ConfinedDir::new(fd),
            private_mount,
            seen_as: "/mnt/data".to_owned(),
        }
    }

    /// Sets the directory's path as the code sees it, which names may start with; `/mnt/data` by default.
    pub(super) fn seen_as(mut self, path: impl Into<String>) -> Self {
        self.seen_as = path.into();
        self
    }

    /// The files that can be returned. Empty if the directory cannot be listed.
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

    /// The files that can be returned, by name.
    pub(super) fn list(&self) -> Vec<WorkingFile> {
        self.snapshot().listing()
    }

    pub(super) fn read(&self, part: FileRange<'_>) -> Result<FileContent, InterpreterError> {
        let refused = |refusal| refused(part.name, refusal);
        let (_, file, meta) = self.open(part.name).map_err(refused)?;
        // Never allocates more than the file's size, whatever was asked for.
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

    /// Copies a file into the directory and returns its new name: the last component of `name` without control
    /// characters and without leading dots and dashes, with a number if that name is taken.
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

    /// The directory's usage: the usage of its own file system, or the sum of a walk. A tree too deep or too large for
    /// a walk counts as using everything.
    pub(super) fn usage(&self) -> io::Result<DiskUsage> {
        if self.private_mount {
            let system = fstatvfs(self.root.fd())?;
            let blocks = system.f_blocks.saturating_sub(system.f_bfree);
            return Ok(DiskUsage {
                bytes: blocks.saturating_mul(system.f_frsize),
                inodes: system.f_files.saturating_sub(system.f_ffree),
            });
        }
        // An entry that is renamed during the walk is met several times, and so is one with several names.
        let mut counted = HashSet::new();
        let mut bytes = 0_u64;
        let walked = self.root.walk(COUNTED, |_, meta| {
            if counted.insert(meta.inode) {
                bytes = bytes.saturating_add(meta.stored);
            }
            WalkStep::Enter
        })?;
        Ok(DiskUsage {
            bytes,
            inodes: if walked.complete {
                counted.len() as u64
            } else {
                u64::MAX
            },
        })
    }

    /// Opens a regular file by a requested name; returns its relative name, too.
    fn open(&self, name: &str) -> Result<(String, File, FileMeta), Refusal> {
        let path = relative(name, &self.seen_as)?;
        let (file, meta) = self.root.open(&path).map_err(|error| Refusal::of(&error))?;
        match meta.kind {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Refusal::Reason("it is a directory")),
            _ => return Err(Refusal::Reason("it is not a regular file")),
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

    /// The new and changed files, by name.
    fn changed_since<'s>(&'s self, before: &'s Self) -> impl Iterator<Item = &'s str> {
        let files = self.files.iter();
        files
            .filter(|(name, stamp)| before.files.get(*name) != Some(stamp))
            .map(|(name, _)| name.as_str())
    }
}

/// Resolves a requested name to a relative path, in a directory that the code sees as `seen_as`.
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

/// The error for a file that cannot be read.
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

/// Whether an entry is listed.
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
            Some(Errno::ACCESS) => Self::Reason("its permissions do not allow reading"),
            Some(Errno::NXIO) => Self::Reason("it is not a regular file"),
            Some(Errno::NAMETOOLONG) => Self::Reason("its name is too long"),
            _ => Self::Reason("opening it failed"),
        }
    }
}

/// Reads up to `length` bytes from an offset; fewer at the end of the file.
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

/// Gives a new file to the user of the interpreter.
fn own(file: impl AsFd, owner: Option<(u32, u32)>) -> io::Result<()> {
    if let Some((user, group)) = owner {
        fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    }
    Ok(())
}

impl AsFd for WorkDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.fd().as_fd()
    }
}

#[cfg(test)]
mod tests;
