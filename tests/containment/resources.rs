//! 54 to 70: what code can use up.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use loopwright::ids::WorkspaceId;
use loopwright::sandbox::settings::{InterpreterLimits, Settings};
use loopwright::sandbox::{CellEnd, CellOutcome, ResourceLimit};

use crate::stage::{Stage, play, play_with, processes, settings};
use crate::world::World;

pub(crate) const MIB: u64 = 1024 * 1024;
/// How much more than allowed may be used before it is noticed.
pub(crate) const MEMORY_SLACK: u64 = 1024 * MIB;
const DISK_SLACK: u64 = 128 * MIB;
/// What may pass between a deadline and the answer: the grace for an interrupt, the end of a tree, a busy machine.
const GRACE: Duration = Duration::from_secs(6);
const SECOND: Duration = Duration::from_secs(1);

/// Small ones, so that they are reached soon.
pub(crate) fn limits() -> InterpreterLimits {
    InterpreterLimits {
        memory: 300 * MIB,
        disk: 64 * MIB,
        tmp: 32 * MIB,
        inodes: 1000,
        file_size: 24 * MIB,
        output: 2 * MIB,
        ..InterpreterLimits::default()
    }
}

/// Runs a cell and then another in the same workspace, which must work.
async fn survive(
    stage: &Stage,
    workspace: &WorkspaceId,
    code: &str,
    timeout: Duration,
) -> CellOutcome {
    let began = Instant::now();
    let outcome = stage.run_within(workspace, code, timeout).await;
    assert!(
        began.elapsed() < timeout + GRACE,
        "{:?} for {code}: {outcome:?}",
        began.elapsed()
    );
    assert_eq!(stage.value(workspace, "1 + 1").await, "2", "after {code}");
    outcome
}

pub(crate) fn bombs_of_processes_are_contained(world: World) {
    play(world, limits(), async |stage| {
        let [attacker, one, other] = [(); 3].map(|()| WorkspaceId::fresh());
        for workspace in [&one, &other] {
            stage.run(workspace, "1").await;
        }
        let bomb = "
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)";
        let attack = stage.run_within(&attacker, bomb, 3 * SECOND);
        let beside = async {
            let mut slowest = Duration::ZERO;
            for workspace in [&one, &other].iter().cycle().take(40) {
                let began = Instant::now();
                assert_eq!(stage.value(workspace, "6 * 7").await, "42");
                slowest = slowest.max(began.elapsed());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            slowest
        };
        let (outcome, slowest) = tokio::join!(attack, beside);
        println!(
            "fork bomb: {:?}, slowest call beside it {slowest:?}",
            outcome.end
        );
        assert!(slowest < 2 * SECOND, "{slowest:?}");
        assert_ne!(outcome.end, CellEnd::Completed);
        stage.sandbox.forget(&attacker);

        let workspace = WorkspaceId::fresh();
        let code = "
import threading
stop = threading.Event()
threads = []
try:
    for _ in range(10_000):
        thread = threading.Thread(target=stop.wait)
        thread.start()
        threads.append(thread)
except RuntimeError as error:
    print(error)
finally:
    stop.set()
print(len(threads))";
        let outcome = survive(stage, &workspace, code, 10 * SECOND).await;
        if outcome.end == CellEnd::Completed {
            assert!(
                outcome.stdout.contains("can't start new thread"),
                "{outcome:?}"
            );
            let count: u64 = outcome.stdout.lines().last().unwrap().parse().unwrap();
            // Where the user is the server's too, processes are counted every now and then, and not by the kernel.
            let most = limits().processes * if world == World::ContainerUser { 2 } else { 1 };
            assert!(count < most, "{count}");
        } else {
            assert_eq!(
                outcome.end,
                CellEnd::LimitExceeded(ResourceLimit::Processes),
                "{outcome:?}"
            );
        }
    });
}

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

pub(crate) fn disk_is_bounded(world: World) {
    play(world, limits(), async |stage| {
        let before = used();
        let workspace = WorkspaceId::fresh();
        for place in ["'.'", "tempfile.gettempdir()", "'/dev/shm'"] {
            let code = format!(
                "import itertools, os, tempfile
place = {place}
written = 0
try:
    for number in itertools.count():
        with open(os.path.join(place, 'fill-%d' % number), 'wb', 0) as file:
            for _ in range(16):
                written += file.write(bytes(1 << 20))
except OSError as error:
    print(error.strerror)
print(written)"
            );
            let outcome = survive(stage, &workspace, &code, 20 * SECOND).await;
            let most = used().saturating_sub(before);
            println!("{place}: {:?}, {} MiB", outcome.end, most / MIB);
            if world.is_strong() {
                assert!(
                    outcome.stdout.contains("No space left on device"),
                    "{outcome:?}"
                );
            } else if place.contains("shm") {
                assert!(outcome.stdout.contains("Permission denied"), "{outcome:?}");
            } else {
                assert_eq!(
                    outcome.end,
                    CellEnd::LimitExceeded(ResourceLimit::Disk),
                    "{outcome:?}"
                );
                assert!(
                    most < limits().disk + limits().tmp + DISK_SLACK,
                    "{} MiB",
                    most / MIB
                );
            }
        }
        stage.sandbox.forget(&workspace);

        // 61: names instead of bytes.
        for make in [
            "os.mkdir(name)",
            "open(name, 'w').close()",
            "os.symlink('x', name)",
        ] {
            let workspace = WorkspaceId::fresh();
            let code = format!(
                "import itertools, os
try:
    for number in itertools.count():
        name = 'n%d' % number
        {make}
except OSError as error:
    print(error.strerror)
print(number)"
            );
            let outcome = survive(stage, &workspace, &code, 20 * SECOND).await;
            if world.is_strong() {
                assert!(outcome.stdout.contains("No space left"), "{outcome:?}");
            } else {
                assert_eq!(
                    outcome.end,
                    CellEnd::LimitExceeded(ResourceLimit::Disk),
                    "{outcome:?}"
                );
            }
            stage.sandbox.forget(&workspace);
        }

        // 62: one file.
        let workspace = WorkspaceId::fresh();
        let code = "kept = 62\nwith open('large.bin', 'wb', 0) as file:\n    for _ in range(200):\n        file.write(bytes(1 << 20))";
        let outcome = survive(stage, &workspace, code, 20 * SECOND).await;
        assert!(outcome.error.unwrap().message.contains("File too large"));
        assert_eq!(stage.value(&workspace, "kept").await, "62");
    });
}

/// What heeds an interrupt, though some of it not soon enough.
const LOOPS: [&str; 7] = [
    "while True:\n    pass",
    "import time; time.sleep(1000)",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "import re; re.match('(a+)+$', 'a' * 40 + 'b')",
    "x = 3 ** 3 ** 16 % 7; x = 7 ** (10 ** 9)",
    "class R:\n    def __repr__(self):\n        while True: pass\nR()",
    "import threading; threading.Lock().acquire() and threading.Event().wait()",
];
/// What does not.
const DEAF_LOOPS: [&str; 3] = [
    "import signal, time; signal.signal(2, signal.SIG_IGN)\nwhile True: time.sleep(100)",
    "import signal, ctypes; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); ctypes.CDLL(None).pause()",
    "import signal, time; signal.signal(2, lambda *_: None)\nwhile True: time.sleep(100)",
];
/// What ends by itself in one way or another.
const EXCESSES: [&str; 6] = [
    "import sys; sys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
    "def f(): return f()\nf()",
    "import sys; sys.set_int_max_str_digits(0) if hasattr(sys, 'set_int_max_str_digits') else 0; str(10 ** 3_000_000)",
    "eval('(' * 100_000)",
    "x = []\nfor _ in range(10 ** 6): x = [x]\nx",
    "import json; json.loads('[' * 10 ** 6)",
];

pub(crate) fn time_is_bounded(world: World) {
    // An interpreter for each, so that none has to make room.
    let settings = Settings {
        limits: limits(),
        max_workers: LOOPS.len() + DEAF_LOOPS.len() + 2,
        ..settings()
    };
    play_with(world, settings, async |stage| {
        let one = async |code: &'static str, deaf: bool| {
            let workspace = WorkspaceId::fresh();
            let begun = format!("print('begun', flush=True); kept = 63\n{code}");
            let outcome = survive(stage, &workspace, &begun, SECOND).await;
            let kept = stage.value(&workspace, "globals().get('kept', 0)").await;
            stage.sandbox.forget(&workspace);
            let ends = match (deaf, code.contains("**") || code.contains("Base")) {
                (true, _) => [CellEnd::TimedOut; 2],
                (false, false) => [CellEnd::Interrupted; 2],
                (false, true) => [CellEnd::Interrupted, CellEnd::TimedOut],
            };
            assert!(ends.contains(&outcome.end), "{code}: {outcome:?}");
            assert_eq!(outcome.stdout, "begun\n");
            assert_eq!(
                kept,
                if outcome.end == CellEnd::Interrupted {
                    "63"
                } else {
                    "0"
                }
            );
        };
        let cells = LOOPS
            .map(|code| (code, false))
            .into_iter()
            .chain(DEAF_LOOPS.map(|code| (code, true)));
        join_all(cells.map(|(code, deaf)| one(code, deaf))).await;
        let workspace = WorkspaceId::fresh();
        for code in EXCESSES {
            survive(stage, &workspace, code, 2 * SECOND).await;
        }
    });
}

pub(crate) fn output_is_bounded(world: World) {
    play(world, limits(), async |stage| {
        let workspace = WorkspaceId::fresh();
        for code in [
            "while True:\n    print('x' * 100_000)",
            "import os\nwhile True:\n    os.write(2, b'x' * 65536)",
            "import subprocess\nsubprocess.run(['yes'])",
        ] {
            let outcome = survive(
                stage,
                &workspace,
                &format!("print('begun', flush=True)\n{code}"),
                20 * SECOND,
            )
            .await;
            assert_eq!(
                outcome.end,
                CellEnd::LimitExceeded(ResourceLimit::Output),
                "{code}: {:?}",
                outcome.notices
            );
            assert!(
                outcome.stdout.starts_with("begun"),
                "{}",
                outcome.stdout.len()
            );
            assert!(outcome.stdout.len() + outcome.stderr.len() < 2 * 40_000);
        }
    });
}

pub(crate) fn descriptors_are_bounded(world: World) {
    play(world, limits(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let open_all = "
import os
held = []
try:
    while True:
        held.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error:
    print(error.strerror)
for number in held:
    os.close(number)
print(len(held))";
        let outcome = survive(stage, &workspace, open_all, 10 * SECOND).await;
        assert!(
            outcome.stdout.starts_with("Too many open files"),
            "{outcome:?}"
        );
    });
}

/// 69: what the kernel holds for one process.
pub(crate) fn buffers_are_bounded(world: World) {
    play(world, limits(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import fcntl, os, socket
held, buffered = [], 0
def fill(write):
    global buffered
    try:
        while True:
            buffered += write(bytes(4096))
    except BlockingIOError:
        pass
try:
    while True:
        one, other = socket.socketpair()
        one.setblocking(False)
        other.setblocking(False)
        held.append((one, other))
        for end in held[-1]:
            for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                try:
                    end.setsockopt(socket.SOL_SOCKET, option, 1 << 30)
                except PermissionError:
                    pass
            fill(end.send)
except OSError as error:
    print(error.strerror)
held.clear()
sockets, buffered = buffered, 0
pipes = []
try:
    while True:
        pipes.extend(os.pipe())
        os.set_blocking(pipes[-1], False)
        try:
            fcntl.fcntl(pipes[-1], 1031, 1 << 20)
        except OSError:
            pass
        fill(lambda data: os.write(pipes[-1], data))
except OSError as error:
    print(error.strerror)
for number in pipes:
    os.close(number)
print(sockets >> 20, buffered >> 20)";
        let outcome = survive(stage, &workspace, code, 10 * SECOND).await;
        println!(
            "MiB in sockets and pipes of one process: {}",
            outcome.stdout
        );
        let last = outcome.stdout.lines().last().unwrap();
        let held: Vec<u64> = last
            .split(' ')
            .map(|count| count.parse().unwrap())
            .collect();
        assert!(held.iter().all(|&mib| mib < 150), "{outcome:?}");
    });
}

/// 70: limits stay.
pub(crate) fn limits_cannot_be_raised(world: World) {
    play(world, limits(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import os, resource
for name in dir(resource):
    if name.startswith('RLIMIT_'):
        soft, hard = resource.getrlimit(getattr(resource, name))
        if hard == resource.RLIM_INFINITY:
            continue
        for wanted in ((hard + 1, hard + 1), (-1, -1), (hard, -1)):
            try:
                resource.setrlimit(getattr(resource, name), wanted)
                print('raised', name)
            except (ValueError, OSError):
                pass
before = os.sched_getaffinity(0)
for cpus in (range(64), {0}, {1}):
    try:
        os.sched_setaffinity(0, cpus)
        print('moved')
    except OSError:
        pass
assert os.sched_getaffinity(0) == before and len(before) == 1
try:
    os.nice(-5)
    print('hurried')
except OSError:
    pass
print(os.getpriority(os.PRIO_PROCESS, 0))
try:
    os.setpriority(os.PRIO_PROCESS, 0, 0)
    print('hurried')
except OSError:
    pass";
        let outcome = survive(stage, &workspace, code, 10 * SECOND).await;
        // An interpreter is 10 nicer than the server, and 19 is the most.
        let server = rustix::process::getpriority_process(None).unwrap();
        let expected = format!("{}\n", (server + 10).min(19));
        assert_eq!((outcome.error, outcome.stdout), (None, expected));
    });
}

/// What the server's own disk has in use, in bytes.
fn used() -> u64 {
    fn below(path: &std::path::Path) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let sizes = entries.map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => below(&entry.path()),
            Ok(about) => about.blocks() * 512,
            Err(_) => 0,
        });
        sizes.sum()
    }
    below(std::path::Path::new("/run"))
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
