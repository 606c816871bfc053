//! Saves working files to a directory of the server and restores them.
//!
//! In both directions only regular files and directories are copied, through descriptors of both directories.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{
    CWD, FileType, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, futimens, renameat_with,
    seek,
};
use rustix::io::Errno;

use super::confined::{ConfinedDir, FileMeta, RelativePath, Timestamp, WalkLimits, WalkStep};
use super::{COUNTED, SaveCounts, WorkDir, own};
use crate::settings::InterpreterLimits;

/// Directories that are recreated when needed.
const REMADE: [&[u8]; 2] = [b"__pycache__", b".ipynb_checkpoints"];

impl WorkDir {
    /// Copies the files into a directory of the server, whose former content is replaced atomically or, on failure, not
    /// changed. Sparse files stay sparse; only stored bytes count.
    pub(crate) fn save_to(
        &self,
        directory: &Path,
        limits: &InterpreterLimits,
    ) -> io::Result<SaveCounts> {
        let staged = StagedDir::new(directory)?;
        let saved = copy_tree(&Copy {
            source: &self.root,
            target: &staged.root,
            owner: None,
            single: !self.private_mount,
            max_file: limits.file_size,
            max_bytes: limits.disk,
            max_entries: usize::try_from(limits.inodes).unwrap_or(COUNTED.entries),
        })?;
        staged.put_in_place(directory)?;
        Ok(saved)
    }

    /// Copies saved files into the working directory without overwriting; returns the number of files.
    pub(crate) fn restore_from(
        &self,
        directory: &Path,
        owner: Option<(u32, u32)>,
    ) -> io::Result<usize> {
        let source = ConfinedDir::new(open_directory(directory)?);
        let copied = copy_tree(&Copy {
            source: &source,
            target: &self.root,
            owner,
            single: false,
            max_file: u64::MAX,
            max_bytes: u64::MAX,
            max_entries: COUNTED.entries,
        })?;
        Ok(copied.files)
    }
}

/// A temporary directory that replaces another one when complete.
pub(super) struct StagedDir {
    pub(super) root: ConfinedDir,
    temporary: Unfinished,
}

impl StagedDir {
    /// Creates a temporary directory beside its destination.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        let name = directory.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{:016x}", rand::random::<u64>()));
        let temporary = Unfinished(directory.with_file_name(beside));
        if let Some(parent) = directory.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)?;
        }
        DirBuilder::new().mode(0o700).create(&temporary.0)?;
        let root = ConfinedDir::new(open_directory(&temporary.0)?);
        Ok(Self { root, temporary })
    }

    /// Replaces the destination atomically.
    pub(super) fn put_in_place(self, directory: &Path) -> io::Result<()> {
        put_in_place(&self.temporary.0, directory)
    }
}

/// A directory that is removed on drop.
struct Unfinished(std::path::PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After an exchange this removes the former content; after a plain rename there is nothing left.
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Copy<'a> {
    source: &'a ConfinedDir,
    target: &'a ConfinedDir,
    owner: Option<(u32, u32)>,
    /// Files with several hard links are skipped.
    single: bool,
    max_file: u64,
    max_bytes: u64,
    max_entries: usize,
}

fn copy_tree(copy: &Copy<'_>) -> io::Result<SaveCounts> {
    let mut saved = SaveCounts::default();
    let mut left = copy.max_bytes;
    let bounds = WalkLimits {
        entries: copy.max_entries.min(COUNTED.entries),
        depth: COUNTED.depth,
    };
    let walked = copy.source.walk(bounds, |path, meta| {
        let copied = match meta.kind {
            FileType::Directory => {
                let name = path.bytes().rsplit(|byte| *byte == b'/').next();
                if name.is_some_and(|name| REMADE.contains(&name)) {
                    return WalkStep::Pass;
                }
                directory(copy, path)
            }
            FileType::RegularFile => file(copy, path, &mut left).inspect(|()| saved.files += 1),
            _ => Err(io::ErrorKind::Unsupported.into()),
        };
        match copied {
            Ok(()) => WalkStep::Enter,
            Err(_) => {
                saved.skipped += 1;
                WalkStep::Pass
            }
        }
    })?;
    saved.skipped += usize::from(!walked.complete);
    Ok(saved)
}

fn directory(copy: &Copy<'_>, path: &RelativePath) -> io::Result<()> {
    match copy.target.create_directory(path)? {
        Some(created) => own(&created, copy.owner),
        None => Ok(()),
    }
}

fn file(copy: &Copy<'_>, path: &RelativePath, left: &mut u64) -> io::Result<()> {
    let (source, meta) = copy.source.open(path)?;
    let refused = meta.kind != FileType::RegularFile
        || (copy.single && !meta.single)
        || meta.size > copy.max_file;
    if refused {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let target = copy.target.create(path)?;
    let copied = content(&source, &target, &meta, left).and_then(|()| own(&target, copy.owner));
    if copied.is_err() {
        copy.target.remove(path)?;
    }
    // Cosmetic: listings show the time of the last change.
    let _ = futimens(&target, &times(meta.modified));
    copied
}

/// Copies the stored ranges of a file, up to its size when it was opened.
fn content(source: &File, target: &File, meta: &FileMeta, left: &mut u64) -> io::Result<()> {
    let mut at = 0;
    while at < meta.size {
        let data = match seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let hole = seek(source, SeekFrom::Hole(data))?.min(meta.size);
        let Some(length) = hole.checked_sub(data).filter(|length| *length > 0) else {
            break;
        };
        *left = left
            .checked_sub(length)
            .ok_or(io::ErrorKind::QuotaExceeded)?;
        seek(source, SeekFrom::Start(data))?;
        seek(target, SeekFrom::Start(data))?;
        let (mut from, mut to) = (source.take(length), target);
        io::copy(&mut from, &mut to)?;
        at = hole;
    }
    target.set_len(meta.size)
}

fn times((seconds, nanoseconds): Timestamp) -> Timestamps {
    let modified = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    Timestamps {
        last_access: modified,
        last_modification: modified,
    }
}

pub(super) fn open_directory(path: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    Ok(options.open(path)?.into())
}

/// Exchanges `new` and `place`, or renames `new` if `place` does not exist.
fn put_in_place(new: &Path, place: &Path) -> io::Result<()> {
    match renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => fs::rename(new, place),
        // The file system cannot exchange; for a moment neither exists.
        Err(Errno::INVAL | Errno::NOSYS) => {
            match fs::remove_dir_all(place) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(new, place)
        }
        Err(error) => Err(error.into()),
    }
}
