//! Measures kernel memory of processes that is part of no resident set: page tables, file locks and mappings.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use rustix::process::Pid;

use super::read;

/// Memory of a lock in the kernel, rounded up, in bytes.
const LOCK_BYTES: u64 = 256;
/// Memory of a mapping in the kernel, rounded up, in bytes.
const MAPPING_BYTES: u64 = 320;
/// Most locks of an interpreter, whatever its memory limit. With more it is ended. An interpreter with the usual
/// packages has none.
/// Tried by `kernel::kernel_memory_is_bounded`.
const MAX_LOCKS: u64 = 16 * 1024;
/// Most mappings of an interpreter, whatever its memory limit. With more it is ended. An interpreter with the usual
/// packages has some 1,500.
/// Tried by `kernel::kernel_memory_is_bounded`.
pub(super) const MAX_MAPPINGS: u64 = 256 * 1024;
/// Most bytes that are read of the list of locks, which holds those of the whole machine; the rest is left out.
const MAX_LOCK_LIST: u64 = 64 * 1024 * 1024;

/// What the kernel holds for processes besides their memory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelObjects {
    /// Locks of parts of files.
    pub(crate) locks: u64,
    pub(crate) mappings: u64,
}

impl KernelObjects {
    /// Their memory in bytes.
    pub(crate) fn bytes(self) -> u64 {
        let mappings = self.mappings.saturating_mul(MAPPING_BYTES);
        mappings.saturating_add(self.locks.saturating_mul(LOCK_BYTES))
    }

    /// Whether there are more than any interpreter needs.
    pub(crate) fn too_many(self) -> bool {
        self.locks > MAX_LOCKS || self.mappings > MAX_MAPPINGS
    }
}

/// Memory of the page tables of a process in bytes. Code can make them larger than what they map.
pub(super) fn page_tables(process: Pid) -> u64 {
    let status = read(format!("/proc/{}/status", process.as_raw_nonzero()));
    kilobytes(&status.unwrap_or_default(), "VmPTE:").saturating_mul(1024)
}

/// A field of `status` or `smaps_rollup`.
pub(super) fn kilobytes(text: &str, field: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_ascii_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// Locks that these processes hold or wait for. Counting ends once there are too many.
pub(crate) fn locks(processes: &[Pid]) -> u64 {
    let Ok(file) = File::open("/proc/locks") else {
        return 0;
    };
    let owners: HashSet<Pid> = processes.iter().copied().collect();
    let lines = BufReader::new(file.take(MAX_LOCK_LIST)).split(b'\n');
    let owned = lines.map_while(Result::ok).filter(|line| {
        let line = String::from_utf8_lossy(line);
        owner(&line).is_some_and(|owner| owners.contains(&owner))
    });
    let counted = usize::try_from(MAX_LOCKS).unwrap_or(usize::MAX);
    owned.take(counted.saturating_add(1)).count() as u64
}

/// The process in a line of `/proc/locks`, such as `1: POSIX  ADVISORY  WRITE 4711 00:2a:13 0 EOF`; a lock that is waited for
/// has `->` after the number.
fn owner(line: &str) -> Option<Pid> {
    let fields = line.split_ascii_whitespace().skip(1);
    let pid = fields.filter(|field| *field != "->").nth(3)?;
    Pid::from_raw(pid.parse().ok().filter(|pid| *pid > 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::tests::Python;
    use crate::monitor::tree;

    #[test]
    fn the_owner_of_a_lock_is_found() {
        for (line, expected) in [
            ("1: POSIX  ADVISORY  WRITE 4711 00:2a:13 0 EOF", Some(4711)),
            ("1: -> POSIX  ADVISORY  WRITE 4712 00:2a:13 0 0", Some(4712)),
            ("12: FLOCK  ADVISORY  READ  9 fd:00:1 0 EOF", Some(9)),
            ("3: OFDLCK ADVISORY  READ  -1 fd:00:1 0 EOF", None),
            ("", None),
        ] {
            let found = owner(line).map(Pid::as_raw_pid);
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    #[ignore = "needs Python"]
    fn locks_and_page_tables_are_counted() {
        let python = Python::run(
            "
import fcntl, mmap, tempfile
held = tempfile.TemporaryFile()
for number in range(1000):
    fcntl.lockf(held, fcntl.LOCK_EX, 1, 2 * number)
space = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, 1 << 30, 2 << 20):
    space[at]",
        );
        assert_eq!(locks(&tree(python.pid())), 1000);
        let tables = page_tables(python.pid());
        assert!(tables >= 512 * 4096, "{tables}");
        let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(locks(&[own]) < 1000);
    }

    #[test]
    fn fields_are_found() {
        let rollup = "0-1 ---p [rollup]\nRss: 4068 kB\nPss:     1097 kB\nSwapPss:  3 kB\n";
        assert_eq!(kilobytes(rollup, "Pss:"), 1097);
        assert_eq!(kilobytes(rollup, "SwapPss:"), 3);
        assert_eq!(kilobytes(rollup, "Pss_Anon:"), 0);
    }
}
