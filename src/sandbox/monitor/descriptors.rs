//! Measures memory that open descriptors hold and that neither a directory walk nor a sum of memory shows: deleted
//! files, and data in sockets.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Pid, Uid, getegid, geteuid, getgid, getuid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};

use super::kernel::MAX_MAPPINGS;
use super::resident;

/// Most descriptors that are examined, more than the default limits allow; others are left out.
const MAX_DESCRIPTORS: usize = 32 * 1024;
/// Longest list of mapped files that is read, in bytes; honest programs have shorter ones. With a longer one the
/// measurement fails.
const MAX_MAPS: u64 = 8 * 1024 * 1024;
/// Unit of `st_blocks`, in bytes.
pub(crate) const BLOCK: u64 = 512;

/// How descriptors of other processes are read.
#[derive(Debug)]
pub(crate) struct DescriptorAccess {
    /// The user and group to become, if the server is root: root without all its capabilities may not read other users'
    /// descriptors.
    pub(crate) owner: Option<(u32, u32)>,
    /// The directory on the host's disk whose deleted mapped files count, if any.
    pub(crate) beneath: Option<PathBuf>,
}

/// What descriptors hold.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorUsage {
    /// Bytes of deleted open files.
    pub(crate) bytes: u64,
    /// Number of deleted open files.
    pub(crate) files: u64,
    /// Deleted files without a descriptor that are mapped or in transit through a socket; their size is unknown.
    pub(crate) unsized_files: u64,
    pub(crate) sockets: u64,
    pub(crate) mappings: u64,
    /// Processes whose descriptors cannot be read.
    pub(crate) hidden: u64,
}

/// Examines the descriptors of all threads of these processes.
pub(crate) fn descriptor_usage(processes: &[Pid], access: &DescriptorAccess) -> DescriptorUsage {
    // If the user cannot be changed, unreadable processes count as hidden.
    let _user = access
        .owner
        .map(|(uid, gid)| ThreadUser::become_for_now(uid, gid));
    let mut scan = DescriptorScan::default();
    for &process in processes {
        if scan.mappings > MAX_MAPPINGS {
            break;
        }
        // A process without memory has ended.
        if scan.process(process, access).is_err() && resident(process).0 > 0 {
            scan.hidden += 1;
        }
    }
    scan.sum()
}

/// The findings so far.
#[derive(Debug, Default)]
struct DescriptorScan {
    /// Sizes by device and inode.
    files: HashMap<(u64, u64), u64>,
    sockets: HashMap<u64, u64>,
    mapped: HashSet<u64>,
    mappings: u64,
    hidden: u64,
    descriptors: usize,
}

impl DescriptorScan {
    fn process(&mut self, process: Pid, access: &DescriptorAccess) -> io::Result<()> {
        let path = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
        // Threads may have their own descriptor tables.
        for thread in fs::read_dir(path.join("task"))?.flatten() {
            self.thread(&thread.path())?;
        }
        self.maps(&path, access.beneath.as_deref())
    }

    fn thread(&mut self, path: &Path) -> io::Result<()> {
        for descriptor in present(fs::read_dir(path.join("fd")))?
            .into_iter()
            .flatten()
            .flatten()
        {
            self.descriptors += 1;
            if self.descriptors > MAX_DESCRIPTORS {
                return Ok(());
            }
            let Some(about) = present(fs::metadata(descriptor.path()))? else {
                continue;
            };
            if about.file_type().is_socket() {
                let info = path.join("fdinfo").join(descriptor.file_name());
                self.sockets
                    .entry(about.ino())
                    .or_insert_with(|| in_transit(&info));
            } else if is_nameless(&about) {
                let size = about.blocks().saturating_mul(BLOCK);
                self.files.insert((about.dev(), about.ino()), size);
            }
        }
        Ok(())
    }

    /// Counts the mappings, and finds deleted files of the directory that are still mapped; most of them are open, too.
    fn maps(&mut self, process: &Path, directory: Option<&Path>) -> io::Result<()> {
        let Some(file) = present(File::open(process.join("maps")))? else {
            return Ok(());
        };
        let mut text = Vec::new();
        let read = file.take(MAX_MAPS).read_to_end(&mut text);
        if present(read)?.is_some_and(|read| read as u64 >= MAX_MAPS) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let lines = || text.split(|&byte| byte == b'\n');
        self.mappings += lines().count() as u64;
        if let Some(directory) = directory {
            let directory = directory.as_os_str().as_bytes();
            let mapped = lines().filter_map(|line| deleted(line, directory));
            self.mapped.extend(mapped);
        }
        Ok(())
    }

    fn sum(self) -> DescriptorUsage {
        let open: HashSet<u64> = self.files.keys().map(|(_, inode)| *inode).collect();
        let mapped = self.mapped.difference(&open).count() as u64;
        DescriptorUsage {
            bytes: self
                .files
                .values()
                .fold(0, |sum, size| sum.saturating_add(*size)),
            files: self.files.len() as u64,
            unsized_files: self.sockets.values().sum::<u64>() + mapped,
            sockets: self.sockets.len() as u64,
            mappings: self.mappings,
            hidden: self.hidden,
        }
    }
}

fn is_nameless(about: &Metadata) -> bool {
    about.is_file() && about.nlink() == 0
}

/// Number of descriptors queued in a socket.
fn in_transit(info: &Path) -> u64 {
    let text = super::read(info).unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// The inode in a line of `maps`, if it is a deleted file of this directory.
fn deleted(line: &[u8], directory: &[u8]) -> Option<u64> {
    let mut fields = line
        .strip_suffix(b" (deleted)")?
        .splitn(6, |&byte| byte == b' ');
    let inode = fields.nth(4)?;
    let path = fields.next()?.trim_ascii_start();
    path.strip_prefix(directory)?.strip_prefix(b"/")?;
    std::str::from_utf8(inode).ok()?.parse().ok()
}

/// `None` if a process, thread or descriptor has vanished; an error if access is denied.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(None),
    }
}

/// Changes the user of this thread until dropped. Other threads are not affected.
struct ThreadUser {
    uid: (Uid, Uid),
    gid: (Gid, Gid),
}

impl ThreadUser {
    fn become_for_now(uid: u32, gid: u32) -> io::Result<Self> {
        let before = Self {
            uid: (getuid(), geteuid()),
            gid: (getgid(), getegid()),
        };
        // The saved ids stay and allow changing back; dropping also undoes a partial change.
        set_thread_res_gid(before.gid.0, Gid::from_raw(gid), before.gid.1)?;
        set_thread_res_uid(before.uid.0, Uid::from_raw(uid), before.uid.1)?;
        Ok(before)
    }
}

impl Drop for ThreadUser {
    fn drop(&mut self) {
        let user = set_thread_res_uid(self.uid.0, self.uid.1, self.uid.1);
        let back = user.and_then(|()| set_thread_res_gid(self.gid.0, self.gid.1, self.gid.1));
        if let Err(error) = back {
            tracing::error!(%error, "a thread could not change back to the server's user");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::tests::Python;
    use crate::monitor::tree;

    const MIB: u64 = 1024 * 1024;

    fn access(beneath: &Path) -> DescriptorAccess {
        DescriptorAccess {
            owner: None,
            beneath: Some(beneath.canonicalize().unwrap()),
        }
    }

    /// The usage of a Python process that has run this code in a temporary folder.
    fn usage_after(code: &str) -> DescriptorUsage {
        let folder = tempfile::tempdir().unwrap();
        let python = Python::run(&format!("os.chdir({:?})\n{code}", folder.path()));
        descriptor_usage(&tree(python.pid()), &access(folder.path()))
    }

    #[test]
    #[ignore = "needs Python"]
    fn files_without_a_name_count_once_whoever_has_them_open() {
        let code = "
held = []
for number in range(3):
    held.append(open('f', 'wb', 0))
    held[-1].write(os.urandom(1 << 20))
    os.unlink('f')
held.append(os.open('.', os.O_TMPFILE | os.O_RDWR))
os.write(held[-1], os.urandom(1 << 20))
named = open('named', 'wb', 0)
named.write(os.urandom(1 << 20))
import subprocess
child = subprocess.Popen(['cat'], stdin=sys.stdin, stdout=subprocess.DEVNULL, close_fds=False)";
        let descriptor_usage = usage_after(code);
        assert_eq!(
            (descriptor_usage.files, descriptor_usage.hidden),
            (4, 0),
            "{descriptor_usage:?}"
        );
        assert!(
            (4 * MIB..5 * MIB).contains(&descriptor_usage.bytes),
            "{descriptor_usage:?}"
        );
        assert_eq!(descriptor_usage.unsized_files, 0);
    }

    #[test]
    #[ignore = "needs Python"]
    fn files_that_only_a_thread_a_mapping_or_a_socket_has_are_seen() {
        let descriptor_usage = usage_after(
            "
import array, mmap, socket
def fresh(name):
    file = os.open(name, os.O_CREAT | os.O_RDWR)
    os.write(file, os.urandom(1 << 20))
    os.unlink(name)
    return file
mapped = fresh('mapped (deleted)')
memory = mmap.mmap(mapped, 1 << 12)
os.close(mapped)
# Python's mapping has a descriptor of its own.
for number in range(3, 100):
    try:
        if 'mapped' in os.readlink('/proc/self/fd/%d' % number):
            os.close(number)
    except OSError:
        pass
one, other = socket.socketpair()
sent = fresh('sent')
one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [sent]))])
os.close(sent)",
        );
        assert!(descriptor_usage.mappings > 20, "{descriptor_usage:?}");
        assert_eq!(
            descriptor_usage,
            DescriptorUsage {
                unsized_files: 2,
                sockets: 2,
                mappings: descriptor_usage.mappings,
                ..DescriptorUsage::default()
            }
        );
    }

    #[test]
    fn lines_of_maps_are_told_apart() {
        let line = |path: &str| format!("7f0-7f1 rw-s 00000000 fe:00 4711                {path}");
        for (path, expected) in [
            ("/run/x/data/f (deleted)", Some(4711)),
            ("/run/x/data/f (deleted) (deleted)", Some(4711)),
            ("/run/x/data/f", None),
            ("/run/xy/f (deleted)", None),
            ("/usr/lib/a.so (deleted)", None),
        ] {
            assert_eq!(
                deleted(line(path).as_bytes(), b"/run/x"),
                expected,
                "{path}"
            );
        }
        assert_eq!(deleted(b" (deleted)", b"/run/x"), None);
    }
}
