//! What a bound must hold against besides plain use: memory and disk that nobody's count includes, directories that
//! cannot be deleted, code that keeps the server itself busy, and calls that are given up at the wrong moment.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::ids::WorkspaceId;
use sandbox::settings::{InterpreterLimits, Settings};
use sandbox::{Cell, CellEnd, CellOutcome};

use crate::bait::SERVER;
use crate::stage::{CELL_LIMIT, Stage, ignore, play, play_with, settings};
use crate::world::World;

const MIB: u64 = 1024 * 1024;
/// Longest pause of the runtime that a crowded machine may be the cause of; without bounds these attacks held it for
/// six seconds and more.
const HELD_UP: Duration = Duration::from_secs(4);

fn cell(code: &str) -> Cell<'_> {
    Cell {
        code,
        outputs: &[],
        inputs: &[],
        timeout: CELL_LIMIT,
    }
}

/// Runs a cell and measures how long it held up its own thread of the server at a time.
async fn run_and_measure(
    stage: &Stage,
    workspace: &WorkspaceId,
    code: &str,
) -> (CellOutcome, Duration) {
    let mut longest = Duration::ZERO;
    let mut running = std::pin::pin!(stage.sandbox.run(workspace, cell(code), &ignore));
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    let outcome = loop {
        let from = Instant::now();
        let polled = futures_util::poll!(running.as_mut());
        longest = longest.max(from.elapsed());
        if let std::task::Poll::Ready(outcome) = polled {
            break outcome.unwrap();
        }
        ticks.tick().await;
    };
    (outcome, longest)
}

/// Memory that is shared with nobody and mapped nowhere: what was written stays for as long as one page is mapped.
pub(crate) fn unmapped_memory_does_not_escape(world: World) {
    let limits = InterpreterLimits {
        memory: 256 * MIB,
        ..InterpreterLimits::default()
    };
    play(world, limits, async |stage| {
        let code = "
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
size, held = 32 << 20, 0
for kind in (0x21, 0x23):
    for _ in range(12):
        at = libc.mmap(None, size, 3, kind, -1, 0)
        if at in (None, ctypes.c_void_p(-1).value):
            break
        ctypes.memset(at, 1, size)
        libc.munmap(at + 4096, size - 4096)
        held += size
        time.sleep(0.06)
held";
        let outcome = stage.run(&WorkspaceId::fresh(), code).await;
        let held = outcome.value.as_ref().map(|value| value.text.as_str());
        assert_eq!(held, Some("0"), "{outcome:?}");
        // What people use instead goes on working.
        let code = "
import mmap, tempfile
with tempfile.TemporaryFile() as file:
    file.truncate(4096)
    with mmap.mmap(file.fileno(), 4096) as shared:
        shared[:4] = b'used'
        seen = bytes(shared[:4])
seen, len(mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))";
        assert_eq!(
            stage.value(&WorkspaceId::fresh(), code).await,
            "(b'used', 4096)"
        );
    });
}

/// The working directory and the temporary one are counted; what lies beside them is nobody's.
pub(crate) fn nothing_is_writable_beside_what_is_counted(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let code = "
import os
home, done = os.getcwd(), []
def attempt(name, action):
    try:
        action()
        done.append(name)
    except OSError:
        pass
for base in (os.path.dirname(home), os.path.dirname(os.environ['TMPDIR']) or '/'):
    attempt('create', lambda: open(base + '/beside', 'x').close())
    attempt('mkdir', lambda: os.mkdir(base + '/beside.d'))
    attempt('symlink', lambda: os.symlink('/etc', base + '/beside.l'))
    attempt('rename', lambda: os.rename(home, base + '/moved'))
open('inside', 'x').close()
os.rename('inside', os.environ['TMPDIR'] + '/inside') if os.stat('.').st_dev == os.stat(os.environ['TMPDIR']).st_dev else None
done";
        assert_eq!(stage.value(&WorkspaceId::fresh(), code).await, "[]");
    });
}

/// Processes that write without end hold up neither the end of a cell nor the beginning of the next.
pub(crate) fn endless_writers_hold_nobody_up(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import os, time
for _ in range(24):
    if os.fork() == 0:
        end = time.time() + 12
        piece = b'x' * 65536
        try:
            while time.time() < end:
                os.write(1, piece)
        finally:
            os._exit(0)
'done'";
        let from = Instant::now();
        let (outcome, longest) = run_and_measure(stage, &workspace, code).await;
        println!(
            "writers: {:?} {longest:?} {:?}",
            from.elapsed(),
            outcome.end
        );
        assert!(longest < HELD_UP, "{longest:?}");
        let (outcome, longest) = run_and_measure(stage, &workspace, "'next'").await;
        println!(
            "writers, next: {:?} {longest:?} {:?}",
            from.elapsed(),
            outcome.end
        );
        assert!(longest < HELD_UP, "{longest:?}");
        stage.sandbox.forget(&workspace);
    });
}

/// Looking at the memory of many processes that share a lot of it takes long, and must not take the server's threads.
pub(crate) fn measuring_holds_nobody_up(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import os, time
data = bytearray(600 << 20)
for at in range(0, len(data), 4096):
    data[at] = 1
children = []
for _ in range(40):
    child = os.fork()
    if child == 0:
        time.sleep(6)
        os._exit(0)
    children.append(child)
time.sleep(4)
for child in children:
    os.kill(child, 9)
'done'";
        let (outcome, longest) = run_and_measure(stage, &workspace, code).await;
        println!("measuring: {longest:?} {:?}", outcome.end);
        assert!(longest < HELD_UP, "{longest:?}");
    });
}

/// Directories that are deeper than a stack, closed to their owner, or full.
pub(crate) fn hostile_directories_are_deleted(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        for code in [
            "
import os, time
if os.fork() == 0:
    end = time.time() + 1.5
    for _ in range(18000):
        if time.time() > end:
            break
        os.mkdir('d')
        os.chdir('d')
    os._exit(0)
'begun'",
            "
import os
for mode in (0o000, 0o300, 0o500):
    os.mkdir('m%o' % mode)
    open('m%o/file' % mode, 'w').close()
    os.mkdir('m%o/inner' % mode)
    os.fchmod(os.open('m%o' % mode, os.O_RDONLY), mode)
os.mkdir('made', 0o300)
open('made/file', 'w').close()
'made'",
        ] {
            let workspace = WorkspaceId::fresh();
            let outcome = stage.run(&workspace, code).await;
            println!("directories: {:?}", outcome.end);
            tokio::time::sleep(Duration::from_millis(2500)).await;
            stage.sandbox.forget(&workspace);
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while directories() > usize::from(!world.is_strong()) {
            assert!(Instant::now() < deadline, "{} are left", directories());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// Working directories of interpreters.
fn directories() -> usize {
    let list = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    list(&Path::new(SERVER).join("work"))
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("run-"))
        .flat_map(|run| list(&run.path()).collect::<Vec<_>>())
        .filter(|entry| entry.path().join("data").is_dir())
        .count()
}

/// A call that is given up while its files are being put back loses none of them and keeps nobody else waiting.
pub(crate) fn calls_given_up_early_lose_nothing(world: World) {
    let settings = Settings {
        spares: 0,
        max_workers: 1,
        ..settings()
    };
    play_with(world, settings, async |stage| {
        let workspace = WorkspaceId::fresh();
        let make = "
for number in range(3000):
    with open('f%d' % number, 'w') as file:
        file.write('x' * 20000)
import os; os._exit(0)";
        stage.run(&workspace, make).await;
        let began = Instant::now();
        stage.run(&workspace, "1").await;
        let whole = began.elapsed();
        stage.run(&workspace, "os._exit(0)").await;
        let mut pinned = 0;
        for step in 8..22 {
            let delay = (whole * step / 20).as_millis() as u64;
            let running = stage.sandbox.run(&workspace, cell("1"), &ignore);
            let _given_up = tokio::time::timeout(Duration::from_millis(delay), running).await;
            // Somebody else gets the only interpreter.
            let other = WorkspaceId::fresh();
            let waited = stage.sandbox.run(&other, cell("'other'"), &ignore);
            match tokio::time::timeout(Duration::from_secs(10), waited).await {
                Ok(outcome) => assert_eq!(outcome.unwrap().end, CellEnd::Completed),
                Err(_) => pinned += 1,
            }
            stage.sandbox.forget(&other);
            let count = stage
                .value(&workspace, "import os; len(os.listdir())")
                .await;
            assert_eq!(count, "3000", "given up after {delay} ms; pinned {pinned}");
            stage.run(&workspace, "os._exit(0)").await;
            assert_eq!(pinned, 0, "given up after {delay} ms");
        }
        stage.sandbox.forget(&workspace);
    });
}

/// The host's files are in sight without namespaces: what changes or watches them in ways that Landlock does not know.
/// Watching is refused everywhere, as its queues are memory of the kernel.
pub(crate) fn files_in_sight_are_not_watched_or_changed(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let code = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
watching = libc.inotify_init1(0)
seen = [libc.inotify_add_watch(watching, path, 0x100) for path in (b'/', b'/etc', b'/usr')] if watching >= 0 else []
seen = [number for number in seen if number >= 0]
with open('mode', 'w') as file:
    os.fchmod(file.fileno(), 0o640)
    os.utime(file.fileno(), (1, 1))
    about = os.fstat(file.fileno())
len(seen), oct(about.st_mode & 0o777), about.st_mtime == 1";
        let value = stage.value(&WorkspaceId::fresh(), code).await;
        match world {
            World::Root | World::User | World::ContainerRoot => {
                assert_eq!(value, "(0, '0o640', True)");
            }
            World::ContainerUser => assert_eq!(value, "(0, '0o600', False)"),
        }
    });
}

/// When a host runs out of memory, interpreters end before anything else; one that crashes starts no handler of dumps.
pub(crate) fn interpreters_go_first(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let code = "import ctypes; _ = ctypes.CDLL(None).prctl(15, b'goes-first'); import resource; resource.getrlimit(resource.RLIMIT_CORE)";
        let value = stage.value(&WorkspaceId::fresh(), code).await;
        // With 0 a handler of dumps is still started, as root and outside; 1 means none.
        assert_eq!(value, "(1, 1)");
        let score = crate::stage::processes().into_iter().find_map(|pid| {
            let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
            (read("comm")?.trim() == "goes-first").then(|| read("oom_score_adj"))?
        });
        assert_eq!(score.as_deref(), Some("1000\n"));
    });
}
