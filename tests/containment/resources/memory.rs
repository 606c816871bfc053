//! Memory, in whatever form code takes it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use protocol::ids::WorkspaceId;
use sandbox::{CellEnd, ResourceLimit};

use super::{MIB, SECOND, limits, survive};
use crate::stage::{play, processes};
use crate::world::World;

/// How much more than allowed may be used before it is noticed.
pub(crate) const MEMORY_SLACK: u64 = 1024 * MIB;

pub(crate) fn memory_is_bounded(world: World) {
    play(world, limits(), async |stage| {
        let peak = Peak::watch();
        let workspace = WorkspaceId::fresh();
        let outcome = survive(stage, &workspace, "bytearray(8 << 30)", 10 * SECOND).await;
        assert_eq!(outcome.error.unwrap().name, "MemoryError");
        for (code, end) in [
            // 56: touched little by little.
            ("kept = []\nwhile True:\n    kept.append(bytearray(1 << 20))", Some(CellEnd::LimitExceeded(ResourceLimit::Memory))),
            // 57: by many, none of which has much.
            (
                "import os, time\nfor _ in range(40):\n    if os.fork() == 0:\n        kept = bytearray(b'x') * (300 << 20)\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)",
                Some(CellEnd::LimitExceeded(ResourceLimit::Memory)),
            ),
            // 58 and 59: in files without a name and in segments that nobody is attached to.
            (
                "import os\nkept = []\ntry:\n    while True:\n        kept.append(os.memfd_create('x'))\n        os.write(kept[-1], bytes(16 << 20))\nexcept OSError as error:\n    refused = error",
                Some(CellEnd::Completed),
            ),
            (
                "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.shmget(0, 64 << 20, 0o1600) == -1",
                Some(CellEnd::Completed),
            ),
            // 60: in files that are memory, together with memory.
            (
                "kept = bytearray(b'x') * (200 << 20)\ntry:\n    for place in (tempfile.gettempdir(), '/dev/shm', '.'):\n        for number in range(10):\n            open(place + '/fill-%d' % number, 'wb').write(bytes(20 << 20))\nexcept OSError:\n    pass\nimport time; time.sleep(1)".trim_start(),
                None,
            ),
            // 66: a repr that is too long for anybody.
            ("class R:\n    def __repr__(self):\n        return 'x' * (1 << 30)\nR()", None),
        ] {
            let code = format!("import tempfile\n{code}");
            let outcome = survive(stage, &workspace, &code, 20 * SECOND).await;
            if let Some(end) = end {
                assert_eq!(outcome.end, end, "{code}: {outcome:?}");
            }
            if let Some(value) = outcome.value {
                assert!(value.text.len() < 20_000, "{}", value.text.len());
            }
        }
        let most = peak.end();
        println!(
            "most memory of interpreters at one time: {} MiB",
            most / MIB
        );
        assert!(most < limits().memory + MEMORY_SLACK, "{} MiB", most / MIB);
    });
}

/// Watches how much memory the interpreters have together.
pub(crate) struct Peak {
    over: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    watcher: thread::JoinHandle<()>,
}

impl Peak {
    pub(crate) fn watch() -> Self {
        let (over, most) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (ended, highest) = (over.clone(), most.clone());
        let watcher = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let own = std::process::id();
                let sizes = processes()
                    .into_iter()
                    .filter(|&pid| pid != own)
                    .filter_map(anonymous);
                highest.fetch_max(sizes.sum(), Ordering::Relaxed);
                // A pause that the end can cut short.
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        Self {
            over,
            most,
            watcher,
        }
    }

    pub(crate) fn end(self) -> u64 {
        self.over.store(true, Ordering::Relaxed);
        self.watcher.join().unwrap();
        self.most.load(Ordering::Relaxed)
    }
}

/// Memory of a process that no other process shares by a file, in bytes.
fn anonymous(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
