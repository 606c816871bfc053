//! Access to a directory that hostile code writes to, never leaving it.
//!
//! Every open goes through the directory's descriptor. `openat2` resolves paths without links, beneath the directory
//! and on its mount. If the kernel does not support it, the path is opened one component at a time without following
//! links, and devices are compared. Entries may be exchanged between check and use, so checks are made on the
//! descriptor that is used.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::remove::LISTING_BUFFER;

/// Longest path that is opened, in bytes, which is the kernel's limit. A longer one is refused.
const MAX_PATH: usize = 4095;
/// Most bytes of the paths of directories that wait to be listed. Beyond it directories are left out.
const MAX_WAITING_PATHS: usize = 8 * 1024 * 1024;

/// Permissions of a created file: its owner only.
pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// Permissions of a created directory: its owner only.
pub(super) const DIRECTORY_MODE: Mode = Mode::RWXU;

/// The directory.
#[derive(Debug)]
pub(super) struct ConfinedDir {
    fd: OwnedFd,
    device: u64,
    resolution: PathResolution,
}

/// How paths are confined to the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathResolution {
    /// By the kernel, if it supports that.
    Kernel,
    /// One component at a time, even if the kernel supports more.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the tests ask for what older kernels need")
    )]
    Components,
}

/// A path below the directory: not empty, without `..` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RelativePath(Vec<u8>);

/// Metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileMeta {
    pub(super) kind: FileType,
    pub(super) device: u64,
    pub(super) inode: u64,
    /// It has no further hard link.
    pub(super) single: bool,
    pub(super) size: u64,
    /// Bytes that it occupies; fewer than its size if it is sparse.
    pub(super) stored: u64,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
}

/// Seconds and nanoseconds since 1970.
pub(super) type Timestamp = (i64, i64);

/// Limits of a walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkLimits {
    /// Most entries.
    pub(super) entries: usize,
    /// Most components of a path.
    pub(super) depth: usize,
}

/// Whether a walk descends into a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkStep {
    Enter,
    Pass,
}

/// The extent of a finished walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) entries: usize,
    /// Nothing was left out because of limits or errors.
    pub(super) complete: bool,
}

impl RelativePath {
    /// A path without `..`; links are handled when it is opened.
    pub(super) fn new(path: &[u8]) -> Option<Self> {
        if path.first() == Some(&b'/') || path.len() > MAX_PATH || path.contains(&0) {
            return None;
        }
        let parts: Vec<&[u8]> = path
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .collect();
        let leads_out = parts.iter().any(|part| *part == b"..");
        (!parts.is_empty() && !leads_out).then(|| Self(parts.join(&b'/')))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn join(&self, name: &[u8]) -> Option<Self> {
        let path = [self.bytes(), name].join(&b'/');
        (path.len() <= MAX_PATH).then_some(Self(path))
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// The parent directory, unless it is the root, and the name in it.
    fn split(&self) -> (Option<Self>, &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => {
                let (directory, name) = self.0.split_at(at);
                (Some(Self(directory.to_vec())), name.get(1..).unwrap_or(&[]))
            }
            None => (None, &self.0),
        }
    }
}

impl ConfinedDir {
    /// Takes a descriptor of the directory, which may be `O_PATH`.
    pub(super) fn new(fd: OwnedFd) -> Self {
        // If `fstat` fails, the device matches nothing and nothing will be found.
        let device = fs::fstat(&fd).map_or(0, |stat| stat.st_dev);
        Self {
            fd,
            device,
            resolution: PathResolution::Kernel,
        }
    }

    #[cfg(test)]
    pub(super) fn by(self, resolution: PathResolution) -> Self {
        Self { resolution, ..self }
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Opens a file of any type for reading; a pipe does not block.
    pub(super) fn open(&self, path: &RelativePath) -> io::Result<(File, FileMeta)> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.beneath(path, flags)?;
        let meta = FileMeta::of(&fs::fstat(&fd)?);
        Ok((File::from(fd), meta))
    }

    /// Creates a file; an existing one is never touched.
    pub(super) fn create(&self, path: &RelativePath) -> io::Result<File> {
        let (directory, name) = path.split();
        let directory = self.directory(directory.as_ref())?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(File::from(fs::openat(directory, name, flags, FILE_MODE)?))
    }

    /// Creates and opens a directory; an existing one stays as it is.
    pub(super) fn create_directory(&self, path: &RelativePath) -> io::Result<Option<OwnedFd>> {
        let (parent, name) = path.split();
        let parent = self.directory(parent.as_ref())?;
        match fs::mkdirat(parent, name, DIRECTORY_MODE) {
            Ok(()) => self.directory(Some(path)).map(Some),
            Err(Errno::EXIST) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file.
    pub(super) fn remove(&self, path: &RelativePath) -> io::Result<()> {
        let (directory, name) = path.split();
        let directory = self.directory(directory.as_ref())?;
        Ok(fs::unlinkat(directory, name, AtFlags::empty())?)
    }

    /// Calls `visit` for every entry, breadth first: each directory before its contents.
    pub(super) fn walk(
        &self,
        bounds: WalkLimits,
        mut visit: impl FnMut(&RelativePath, &FileMeta) -> WalkStep,
    ) -> io::Result<Walked> {
        let mut walk = Walk {
            bounds,
            walked: Walked {
                entries: 0,
                complete: true,
            },
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        };
        let mut buffer = Vec::with_capacity(LISTING_BUFFER);
        let mut next = Some((None, 1));
        while let Some((path, depth)) = next {
            let mut list = || {
                let directory = self.directory(path.as_ref())?;
                let mut listing = RawDir::new(&directory, buffer.spare_capacity_mut());
                while let Some(entry) = listing.next() {
                    let entry = entry?;
                    let name = entry.file_name().to_owned();
                    if matches!(name.as_bytes(), b"." | b"..") {
                        continue;
                    }
                    if !walk.counts_one_more() {
                        break;
                    }
                    let child = match &path {
                        Some(path) => path.join(name.as_bytes()),
                        None => Some(RelativePath(name.as_bytes().to_vec())),
                    };
                    let stat = fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
                    let (Some(child), Ok(stat)) = (child, stat) else {
                        // The path is too long, or an entry that may be a directory was removed. A file that was
                        // renamed meanwhile is found under its new name, or at the next walk.
                        let may_enter =
                            matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
                        let is_gone = matches!(stat, Err(Errno::NOENT));
                        walk.walked.complete &= is_gone && !may_enter;
                        continue;
                    };
                    let meta = FileMeta::of(&stat);
                    let next = visit(&child, &meta);
                    if next == WalkStep::Enter && meta.kind == FileType::Directory {
                        walk.wait(child, depth);
                    }
                }
                Ok(())
            };
            match list() {
                Ok(()) => {}
                // The directory was deleted, exchanged or made unreadable meanwhile.
                Err(_) if path.is_some() => walk.walked.complete = false,
                Err(error) => return Err(error),
            }
            next = walk.next();
        }
        Ok(walk.walked)
    }

    /// Opens a directory to list it or to change its entries.
    fn directory(&self, path: Option<&RelativePath>) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match path {
            Some(path) => Ok(self.beneath(path, flags)?),
            None => Ok(fs::openat(
                &self.fd,
                c".",
                flags | OFlags::CLOEXEC,
                Mode::empty(),
            )?),
        }
    }

    fn beneath(&self, path: &RelativePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if self.resolution == PathResolution::Kernel {
            let resolve = ResolveFlags::BENEATH
                | ResolveFlags::NO_SYMLINKS
                | ResolveFlags::NO_MAGICLINKS
                | ResolveFlags::NO_XDEV;
            match fs::openat2(&self.fd, path.bytes(), flags, Mode::empty(), resolve) {
                // Seccomp filters that are older than `openat2` answer EPERM.
                Err(Errno::NOSYS | Errno::PERM) => {}
                other => return other,
            }
        }
        self.by_components(path, flags)
    }

    fn by_components(&self, path: &RelativePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut current = None;
        let mut parts = path.parts().peekable();
        while let Some(part) = parts.next() {
            let directory = current
                .as_ref()
                .map_or_else(|| self.fd.as_fd(), OwnedFd::as_fd);
            let last = parts.peek().is_none();
            let flags = if last { flags } else { step };
            let opened = fs::openat(
                directory,
                CString::new(part).map_err(|_| Errno::INVAL)?,
                flags,
                Mode::empty(),
            )?;
            if fs::fstat(&opened)?.st_dev != self.device {
                return Err(Errno::XDEV);
            }
            if last {
                return Ok(opened);
            }
            current = Some(opened);
        }
        Err(Errno::NOENT)
    }
}

/// The state of a walk.
struct Walk {
    bounds: WalkLimits,
    walked: Walked,
    /// Directories to list, with the depth of their entries.
    waiting: VecDeque<(RelativePath, usize)>,
    waiting_bytes: usize,
}

impl Walk {
    /// Counts an entry, unless the limit is reached.
    fn counts_one_more(&mut self) -> bool {
        let more = self.walked.entries < self.bounds.entries;
        if more {
            self.walked.entries += 1;
        } else {
            self.walked.complete = false;
        }
        more
    }

    fn wait(&mut self, directory: RelativePath, depth: usize) {
        let bytes = self.waiting_bytes + directory.0.len();
        if depth < self.bounds.depth && bytes <= MAX_WAITING_PATHS {
            self.waiting_bytes = bytes;
            self.waiting.push_back((directory, depth + 1));
        } else {
            self.walked.complete = false;
        }
    }

    /// The next directory, unless the limit of entries is exhausted.
    fn next(&mut self) -> Option<(Option<RelativePath>, usize)> {
        if self.walked.entries == self.bounds.entries && !self.walked.complete {
            return None;
        }
        let (directory, depth) = self.waiting.pop_front()?;
        self.waiting_bytes -= directory.0.len();
        Some((Some(directory), depth))
    }
}

impl FileMeta {
    pub(super) fn of(stat: &Stat) -> Self {
        let nanoseconds = |count| i64::try_from(count).unwrap_or(0);
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            device: stat.st_dev,
            inode: stat.st_ino,
            single: stat.st_nlink == 1,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            stored: u64::try_from(stat.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512),
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }
}
