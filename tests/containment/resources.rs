//! 54 to 70: what code can use up.

pub(crate) mod disk;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod time;

use std::time::{Duration, Instant};

use protocol::ids::WorkspaceId;
use sandbox::settings::InterpreterLimits;
use sandbox::{CellEnd, CellOutcome, ResourceLimit};

use crate::stage::{Stage, play};
use crate::world::World;

pub(crate) const MIB: u64 = 1024 * 1024;
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
