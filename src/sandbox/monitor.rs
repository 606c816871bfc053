//! Measures the memory of a process tree, for hosts where no control group limits it.
//!
//! Reads `/proc`, which the processes cannot falsify but which changes meanwhile: an ended process counts as zero, a
//! new one is counted next time. First a quick sum counts shared pages once per process. Only if that exceeds the
//! limit, each page is counted by its share, if the kernel permits reading it. Blocks for as long as `/proc` takes.

pub(super) mod descriptors;
mod kernel;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::LazyLock;

use rustix::fs::fstatvfs;
use rustix::param::page_size;
use rustix::process::Pid;

pub(super) use self::descriptors::{DescriptorAccess, DescriptorUsage, descriptor_usage};
use self::kernel::kilobytes;
pub(super) use self::kernel::{KernelObjects, locks};

/// Most processes and threads that are examined; others are left out.
const MAX_TASKS: usize = 4096;
/// Most bytes that are read of one file of `/proc`; the rest is left out.
const MAX_FILE: u64 = 256 * 1024;

/// Memory of a tree of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryUse {
    /// Bytes, files in memory included.
    pub(super) bytes: u64,
    /// The limit is exceeded.
    pub(super) over: bool,
}

/// A process and all its descendants that have not been reaped, the process itself first. A process whose parent has
/// ended belongs to the tree of the process that adopts orphans.
pub(super) fn tree(root: Pid) -> Vec<Pid> {
    walk_tree(root, |_| {})
}

/// Like [`tree`]; calls `on_found` for each descendant as soon as it is found, before its children are read.
pub(super) fn walk_tree(root: Pid, on_found: impl FnMut(Pid)) -> Vec<Pid> {
    /// Kernels without `CONFIG_PROC_CHILDREN` have no such lists.
    static LISTED: LazyLock<bool> =
        LazyLock::new(|| Path::new("/proc/thread-self/children").exists());
    if *LISTED {
        let mut tasks_left = MAX_TASKS;
        descend(root, |process| children(process, &mut tasks_left), on_found)
    } else {
        tree_by_parents(root, on_found)
    }
}

/// Builds the tree from the parent ids of all processes of the machine, which takes longer.
fn tree_by_parents(root: Pid, on_found: impl FnMut(Pid)) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            continue;
        };
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    descend(
        root,
        |process| children.remove(&process).unwrap_or_default(),
        on_found,
    )
}

fn descend(
    root: Pid,
    mut children: impl FnMut(Pid) -> Vec<Pid>,
    mut on_found: impl FnMut(Pid),
) -> Vec<Pid> {
    let mut found = vec![root];
    let mut known = HashSet::from([root]);
    let mut next = 0;
    while let Some(process) = found.get(next).copied() {
        next += 1;
        for child in children(process) {
            if found.len() < MAX_TASKS && known.insert(child) {
                on_found(child);
                found.push(child);
            }
        }
    }
    found
}

/// The parent of a process.
fn parent(process: Pid) -> Option<Pid> {
    let parent = status(process, |fields| {
        fields.split_ascii_whitespace().nth(1)?.parse().ok()
    });
    parent.and_then(Pid::from_raw)
}

/// The state of a process as `/proc/PID/stat` has it: `R` runs or is about to, `T` is stopped, `Z` has ended.
pub(super) fn state(process: Pid) -> Option<char> {
    status(process, |fields| fields.trim_start().chars().next())
}

/// Reads the fields of `/proc/PID/stat` after the name.
fn status<T>(process: Pid, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let stat = read(format!("/proc/{}/stat", process.as_raw_nonzero()))?;
    // The name, in parentheses, may contain any character.
    parse(stat.rsplit_once(')')?.1)
}

/// The memory of processes, of their page tables and of their in-memory file systems; `besides` is added.
pub(super) fn memory(
    processes: &[Pid],
    tmpfs: &[BorrowedFd<'_>],
    besides: u64,
    limit: u64,
) -> MemoryUse {
    let files = tmpfs.iter().map(|&fd| stored(fd)).sum::<u64>();
    let tables = processes
        .iter()
        .map(|process| kernel::page_tables(*process));
    let files = files.saturating_add(besides).saturating_add(tables.sum());
    let quick: u64 = processes.iter().map(|process| resident(*process).0).sum();
    let mut bytes = files.saturating_add(quick);
    if bytes > limit {
        let exact = proportional(processes).unwrap_or_else(|| unshared(processes));
        bytes = files.saturating_add(exact);
    }
    MemoryUse {
        bytes,
        over: bytes > limit,
    }
}

/// The children of all threads of a process.
fn children(process: Pid, tasks_left: &mut usize) -> Vec<Pid> {
    let mut found = Vec::new();
    let tasks = format!("/proc/{}/task", process.as_raw_nonzero());
    for task in fs::read_dir(tasks).into_iter().flatten().flatten() {
        let Some(left) = tasks_left.checked_sub(1) else {
            break;
        };
        *tasks_left = left;
        let Some(list) = read(task.path().join("children")) else {
            continue;
        };
        let pids = list.split_ascii_whitespace();
        found.extend(pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    found
}

/// Resident memory of a process, and the part that may be shared, in bytes.
fn resident(process: Pid) -> (u64, u64) {
    let path = format!("/proc/{}/statm", process.as_raw_nonzero());
    let pages: Vec<u64> = read(path)
        .unwrap_or_default()
        .split_ascii_whitespace()
        .filter_map(|pages| pages.parse().ok())
        .collect();
    match *pages {
        [_, resident, shared, ..] => (
            resident.saturating_mul(page_size() as u64),
            shared.saturating_mul(page_size() as u64),
        ),
        _ => (0, 0),
    }
}

/// The proportional set size of all processes, including swap; `None` if the kernel does not permit reading it.
fn proportional(processes: &[Pid]) -> Option<u64> {
    let mut sum = 0_u64;
    for process in processes {
        let path = format!("/proc/{}/smaps_rollup", process.as_raw_nonzero());
        match read(path) {
            Some(rollup) => {
                let bytes =
                    kilobytes(&rollup, "Pss:").saturating_add(kilobytes(&rollup, "SwapPss:"));
                sum = sum.saturating_add(bytes.saturating_mul(1024));
            }
            // A process without memory has ended.
            None if resident(*process).0 == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

/// The sum of unshared memory, plus the largest shared part of one process. Memory shared since a fork and not written
/// to counts for each process; it cannot be told apart here.
fn unshared(processes: &[Pid]) -> u64 {
    let mut sum = 0_u64;
    let mut most_shared = 0;
    for process in processes {
        let (resident, shared) = resident(*process);
        sum = sum.saturating_add(resident.saturating_sub(shared));
        most_shared = most_shared.max(shared);
    }
    sum.saturating_add(most_shared)
}

/// Bytes used in a file system.
fn stored(fd: BorrowedFd<'_>) -> u64 {
    fstatvfs(fd).map_or(0, |system| {
        let blocks = system.f_blocks.saturating_sub(system.f_bfree);
        blocks.saturating_mul(system.f_frsize)
    })
}

/// A file of `/proc`; `None` if the process has ended or may not be read.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use std::os::fd::AsFd;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// A Python process that ends when dropped, with its children.
    pub(super) struct Python(Child);

    impl Python {
        /// Runs the code until it prints `ready`; then it waits for the end of its stdin.
        pub(super) fn run(code: &str) -> Self {
            let wait = "import sys, os, time\n";
            let mut child = Command::new("python3")
                .args([
                    "-c",
                    &format!("{wait}{code}\nprint('ready', flush=True)\nsys.stdin.read()"),
                ])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            assert_eq!(line, "ready\n");
            Self(child)
        }

        pub(super) fn pid(&self) -> Pid {
            Pid::from_child(&self.0)
        }
    }

    impl Drop for Python {
        fn drop(&mut self) {
            // The children wait for the same end of file.
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    const CHILDREN: &str = "
r, w = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        os.write(w, b'x')
        sys.stdin.read()
        os._exit(0)
for _ in range(4):
    os.read(r, 1)
";

    #[test]
    #[ignore = "needs Python"]
    fn a_tree_holds_children_of_children_and_of_threads() {
        let python = Python::run(
            "
import subprocess, threading
started = []
def child():
    code = 'import subprocess, sys; p = subprocess.Popen([sys.executable, \"-c\", \"import sys; print(1, flush=True); sys.stdin.read()\"], stdout=1); p.wait()'
    p = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE)
    p.stdout.readline()
    started.append(p)
    sys.stdin.read()
for _ in range(2):
    threading.Thread(target=child, daemon=True).start()
while len(started) < 2:
    time.sleep(0.01)
",
        );
        let tree = tree(python.pid());
        assert_eq!(tree.len(), 5, "{tree:?}");
        assert_eq!(tree[0], python.pid());
        let by_parents = HashSet::<Pid>::from_iter(tree_by_parents(python.pid(), |_| {}));
        assert_eq!(by_parents, HashSet::from_iter(tree.clone()));
        let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(super::tree(own).contains(&tree[4]));
    }

    #[test]
    fn a_process_that_has_gone_uses_nothing() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_child(&child);
        child.wait().unwrap();
        assert_eq!(tree(pid), [pid]);
        assert_eq!(tree_by_parents(pid, |_| {}), [pid]);
        let used = memory(&tree(pid), &[], 0, 0);
        assert_eq!((used.bytes, used.over), (0, false));
    }

    #[test]
    #[ignore = "needs Python"]
    fn memory_that_is_written_to_counts() {
        let python = Python::run("data = bytearray(os.urandom(1)) * (200 << 20)");
        let used = memory(&tree(python.pid()), &[], 0, 150 * MIB);
        assert!(used.over && used.bytes > 200 * MIB, "{used:?}");
        let used = memory(&tree(python.pid()), &[], 0, 400 * MIB);
        assert!(!used.over && used.bytes > 200 * MIB, "{used:?}");
    }

    #[test]
    #[ignore = "needs Python"]
    fn memory_shared_since_a_fork_counts_once() {
        let code = format!("data = bytearray(os.urandom(1)) * (200 << 20)\n{CHILDREN}");
        let python = Python::run(&code);
        let processes = tree(python.pid());
        assert_eq!(processes.len(), 5);
        let quick: u64 = processes.iter().map(|pid| resident(*pid).0).sum();
        assert!(quick > 1000 * MIB, "{quick}");
        let used = memory(&tree(python.pid()), &[], 0, 400 * MIB);
        assert!(!used.over, "{used:?}");
        assert!((200 * MIB..300 * MIB).contains(&used.bytes), "{used:?}");
    }

    #[test]
    #[ignore = "needs Python"]
    fn memory_of_many_children_adds_up() {
        let own = CHILDREN.replace(
            "        os.write",
            "        data = bytearray(os.urandom(1)) * (60 << 20)\n        os.write",
        );
        let python = Python::run(&own);
        let used = memory(&tree(python.pid()), &[], 0, 200 * MIB);
        assert!(used.over && used.bytes > 240 * MIB, "{used:?}");
    }

    #[test]
    #[ignore = "needs Python"]
    fn memory_mapped_by_many_counts_once_without_shares_too() {
        let code = format!(
            "import mmap\ndata = mmap.mmap(-1, 100 << 20)\ndata.write(bytes(100 << 20))\n{}",
            CHILDREN.replace(
                "        os.write",
                "        sum(data[::4096])\n        os.write"
            )
        );
        let python = Python::run(&code);
        let processes = tree(python.pid());
        let quick: u64 = processes.iter().map(|pid| resident(*pid).0).sum();
        let unshared = unshared(&processes);
        assert!(quick > 500 * MIB, "{quick}");
        assert!((100 * MIB..300 * MIB).contains(&unshared), "{unshared}");
    }

    #[test]
    #[ignore = "needs Python"]
    fn files_in_memory_count() {
        let python = Python::run("");
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        let folder = rustix::fs::open("/", flags, rustix::fs::Mode::empty()).unwrap();
        let held = stored(folder.as_fd());
        assert!(held > 0);
        let without = memory(&tree(python.pid()), &[], 0, u64::MAX).bytes;
        let with = memory(&tree(python.pid()), &[folder.as_fd()], 0, u64::MAX).bytes;
        let difference = (with - without).abs_diff(held);
        assert!(difference < 512 * MIB, "{held} {with} {without}");
    }
}
