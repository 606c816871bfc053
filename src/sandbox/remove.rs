//! Deletes directories that hostile code has filled: deeper than any stack, without permissions, or huge.
//!
//! The standard library needs a descriptor and a stack frame per level and stops at the first directory it may not
//! list. Here the entries of a directory are moved up to the top before the directory is deleted, so two descriptors
//! suffice for any depth. No link is followed. Blocks until everything is deleted.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RawDir, RenameFlags, openat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// Most names that are read from a directory at a time; the others follow.
const BATCH: usize = 1024;
/// Size of the buffer for reading directories, in bytes.
pub(super) const LISTING_BUFFER: usize = 32 * 1024;

/// Deletes a directory and its contents; a missing directory is no error.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match open(CWD, path) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let mut moved = 0_u64;
    loop {
        let names = names(&top)?;
        if names.is_empty() {
            return fs::remove_dir(path);
        }
        for name in &names {
            remove(&top, name, &mut moved)?;
        }
    }
}

/// Deletes an entry of the top directory; the entries of a subdirectory are moved up first.
fn remove(top: &OwnedFd, name: &CString, moved: &mut u64) -> io::Result<()> {
    if is_gone(unlinkat(top, name, AtFlags::empty()))
        || is_gone(unlinkat(top, name, AtFlags::REMOVEDIR))
    {
        return Ok(());
    }
    let directory = open(top.as_fd(), name.as_c_str())?;
    loop {
        let names = names(&directory)?;
        if names.is_empty() {
            break;
        }
        for name in &names {
            if !is_gone(unlinkat(&directory, name, AtFlags::empty())) {
                lift(&directory, name, top, moved)?;
            }
        }
    }
    Ok(unlinkat(top, name, AtFlags::REMOVEDIR)?)
}

/// Moves a directory to the top, under an unused name.
fn lift(from: &OwnedFd, name: &CString, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    if is_gone(unlinkat(from, name, AtFlags::REMOVEDIR)) {
        return Ok(());
    }
    // Moving a directory writes to its `..` entry, so it must be writable.
    drop(open(from.as_fd(), name.as_c_str())?);
    loop {
        *moved += 1;
        let place = format!("{moved}");
        match renameat_with(from, name, top, place, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            other => return Ok(other?),
        }
    }
}

/// Opens a directory after granting its owner all permissions.
fn open<P: rustix::path::Arg>(
    parent: std::os::fd::BorrowedFd<'_>,
    path: P,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(parent, path, flags | OFlags::PATH, Mode::empty())?;
    let own = format!("/proc/self/fd/{}", found.as_raw_fd());
    // If this fails, so does the next step, unless the permissions were sufficient.
    let _seen_next = fs::set_permissions(own, fs::Permissions::from_mode(0o700));
    openat(&found, c".", flags | OFlags::RDONLY, Mode::empty())
}

/// The first names in a directory.
fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    // A fresh descriptor starts at the first entry.
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = openat(directory, c".", flags, Mode::empty())?;
    let mut buffer = Vec::with_capacity(LISTING_BUFFER);
    let mut listing = RawDir::new(&listed, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = listing.next() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() == BATCH {
            break;
        }
    }
    Ok(names)
}

fn is_gone(result: Result<(), Errno>) -> bool {
    matches!(result, Ok(()) | Err(Errno::NOENT))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{mkdirat, openat};

    use super::*;

    #[test]
    fn a_tree_deeper_than_a_stack_and_than_there_are_descriptors_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, &tree, flags, Mode::empty()).unwrap();
        for _ in 0..25_000 {
            mkdirat(&at, "1", Mode::RWXU).unwrap();
            at = openat(&at, "1", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn nothing_keeps_its_directory_there_and_nothing_outside_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, outside) = (folder.path().join("tree"), folder.path().join("outside"));
        fs::create_dir_all(outside.join("kept")).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o750)).unwrap();
        for mode in [0o000, 0o300, 0o500] {
            let closed = tree.join(format!("closed{mode}"));
            fs::create_dir_all(closed.join("inner/1")).unwrap();
            fs::write(closed.join("inner/file"), "").unwrap();
            symlink(&outside, closed.join("inner/link")).unwrap();
            fs::set_permissions(closed.join("inner"), fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        }
        for number in 0..3000 {
            fs::write(tree.join(number.to_string()), "").unwrap();
        }
        symlink(&outside, tree.join("link")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert!(outside.join("kept").is_dir());
        let mode = fs::metadata(&outside).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
    }
}
