//! 40 and 41, and 76: what outlives a cell, and signals between cells.

use std::fs;
use std::time::Duration;

use protocol::ids::WorkspaceId;
use sandbox::settings::InterpreterLimits;
use sandbox::{Cell, CellEnd, CellOutcome, OutputStream};
use tokio::sync::Notify;

use crate::stage::{self, CELL_LIMIT, Stage, ignore, play, processes};
use crate::world::World;

/// Daemons that heed nothing, and chains of processes of which each lives only until it has started the next.
const STRAYS: &str = "
import ctypes, os, signal, time
def stray(action, ends=False):
    named, name = os.pipe()
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(name)
        os.read(named, 1)
        os.close(named)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    ctypes.CDLL(None).prctl(15, b'stray40')
    os.close(named)
    # One that ends by itself holds it until then, so that it is not stopped on the way.
    if not ends:
        os.close(name)
    try:
        action()
    finally:
        os._exit(0)
def stay():
    while True:
        time.sleep(100)
def hop():
    while True:
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            time.sleep(0.001)
for _ in range(8):
    stray(stay)
for _ in range(4):
    stray(hop)
";

pub(crate) fn nothing_outlives_its_interpreter(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let endings: [(&str, Duration, CellEnd); 4] = [
            ("", CELL_LIMIT, CellEnd::Completed),
            ("os._exit(0)", CELL_LIMIT, CellEnd::Crashed),
            ("os.kill(os.getpid(), 9)", CELL_LIMIT, CellEnd::Crashed),
            (
                "signal.signal(2, signal.SIG_IGN)\nstay()",
                Duration::from_secs(3),
                CellEnd::TimedOut,
            ),
        ];
        for (last, timeout, end) in endings {
            let workspace = WorkspaceId::fresh();
            let outcome = stage
                .run_within(&workspace, &format!("{STRAYS}\n{last}"), timeout)
                .await;
            assert_eq!(outcome.end, end, "{outcome:?}");
            if end == CellEnd::Completed {
                assert!(strays() >= 8, "{}", strays());
                stage.sandbox.forget(&workspace);
            }
            stage.no_process_is_called("stray40").await;
        }
        // Of those that end by themselves nothing is left either: many more than there may be at a time.
        let workspace = WorkspaceId::fresh();
        let code =
            format!("{STRAYS}\nfor _ in range(100):\n    stray(lambda: None, True)\nprint('all')");
        let code = code
            .replace("range(8)", "range(0)")
            .replace("range(4)", "range(0)");
        let outcome = stage.run(&workspace, &code).await;
        assert_eq!(outcome.stdout, "all\n", "{outcome:?}");
        stage.no_process_is_called("stray40").await;
        // A client that goes away, once the code no longer heeds an interrupt.
        let workspace = WorkspaceId::fresh();
        let code = format!(
            "{STRAYS}\nsignal.signal(2, signal.SIG_IGN)\nprint('stays', flush=True)\nstay()"
        );
        let cell = Cell {
            code: &code,
            outputs: &[],
            inputs: &[],
            timeout: CELL_LIMIT,
        };
        let stays = Notify::new();
        let listen = |_: OutputStream, text: &str| {
            if text.contains("stays") {
                stays.notify_one();
            }
        };
        tokio::select! {
            ended = stage.sandbox.run(&workspace, cell, &listen) => panic!("{ended:?}"),
            () = stays.notified() => {}
        }
        assert!(strays() >= 8, "{}", strays());
        stage.no_process_is_called("stray40").await;
        stage.is_untouched();
    });
}

fn strays() -> usize {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    processes()
        .iter()
        .filter(|pid| name(pid).trim() == "stray40")
        .count()
}

pub(crate) fn late_output_is_told_apart(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import os, threading, time
def late():
    for number in range(1000):
        os.write(1, b'late %d\\n' % number)
        time.sleep(0.005)
thread = threading.Thread(target=late, daemon=True)
thread.start()
print('in time')";
        let outcome = stage.run(&workspace, code).await;
        assert!(outcome.stdout.contains("in time"), "{outcome:?}");
        assert_eq!(outcome.end, CellEnd::Completed);
        let outcome: CellOutcome = stage
            .run(&workspace, "time.sleep(0.1); print('second')")
            .await;
        assert!(
            outcome.stdout.contains("late") && outcome.stdout.contains("second"),
            "{outcome:?}"
        );
        // A neighbour hears nothing of it.
        let neighbour = stage.run(&WorkspaceId::fresh(), "print('alone')").await;
        assert_eq!(
            (neighbour.stdout.as_str(), neighbour.notices.len()),
            ("alone\n", 0)
        );
    });
}

/// What code leaves running stands still until the next call, and so does the interpreter itself.
pub(crate) fn nothing_runs_between_calls(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import ctypes, os, threading, time
ctypes.CDLL(None).prctl(15, b'marked3')
def spin():
    while True:
        pass
threading.Thread(target=spin, daemon=True).start()
def leave(action):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        action()
leave(spin)
def hop():
    while True:
        try:
            if os.fork():
                os._exit(0)
        except OSError:
            time.sleep(0.001)
if STRONG:
    leave(hop)
def write():
    while True:
        os.write(1, b'.')
        time.sleep(0.01)
leave(write)";
        // Without a namespace such a chain is stopped too, but not surely at once.
        let code = code.replace("STRONG", if world.is_strong() { "True" } else { "False" });
        stage.run(&workspace, &code).await;
        // How many stand still, once none moves.
        let all_stand_still = async || {
            let mut seen = 0;
            stage::until("processes that run on between calls", || {
                let (still, moving): (Vec<u32>, Vec<u32>) = marked("marked3")
                    .into_iter()
                    .partition(|&pid| state(pid) == Some('T'));
                seen = still.len();
                moving
            })
            .await;
            seen
        };
        assert!(all_stand_still().await >= 3, "after a call");
        let outcome = stage.run(&workspace, "time.sleep(0.2); 6 * 7").await;
        assert_eq!(outcome.value.map(|value| value.text).as_deref(), Some("42"));
        // It has gone on meanwhile.
        assert!(outcome.stdout.contains('.'), "{:?}", outcome.stdout);
        assert!(all_stand_still().await >= 3, "after a second call");
        // Files can be had of one that stands still; it goes on for a reset, and after a call that was given up.
        stage.sandbox.list_files(&workspace, &[]).await.unwrap();
        stage.sandbox.reset(&workspace).await.unwrap();
        // A reset that fails ends the interpreter, and everything with it.
        let still = all_stand_still().await;
        assert!(still == 0 || still >= 3, "after a reset: {still}");
        let cell = Cell {
            code: "import time; time.sleep(60)",
            outputs: &[],
            inputs: &[],
            timeout: CELL_LIMIT,
        };
        let running = stage.sandbox.run(&workspace, cell, &ignore);
        let dropped = tokio::time::timeout(Duration::from_millis(500), running).await;
        assert!(dropped.is_err(), "{dropped:?}");
        // On a busy machine the code may not come to heed the interrupt in time; then everything is ended instead.
        let still = all_stand_still().await;
        assert!(
            still == 0 || still >= 3,
            "after a call that was given up: {still}"
        );
        assert_eq!(stage.value(&workspace, "6 * 7").await, "42");
        stage.sandbox.forget(&workspace);
        stage.no_process_is_called("marked3").await;
    });
}

fn marked(name: &str) -> Vec<u32> {
    let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut marked = processes();
    marked.retain(|pid| comm(pid).trim() == name && state(*pid) != Some('Z'));
    marked
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

pub(crate) fn interrupts_between_cells_are_harmless(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let marked = "import ctypes; _ = ctypes.CDLL(None).prctl(15, b'marked76'); kept = 76";
        stage.run(&workspace, marked).await;
        for _ in 0..50 {
            interrupt(stage).await;
        }
        assert_eq!(stage.value(&workspace, "kept").await, "76");
        for _ in 0..5 {
            interrupt(stage).await;
            assert_eq!(stage.value(&workspace, "kept + 1").await, "77");
        }
        assert_eq!(stage.sandbox.stats().killed, 0);
    });
}

async fn interrupt(stage: &Stage) {
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let marked: Vec<_> = processes()
        .into_iter()
        .filter(|pid| name(pid).trim() == "marked76")
        .collect();
    let [pid] = marked[..] else {
        panic!("{marked:?} in {:?}", stage.world)
    };
    let kill = format!("kill -INT {pid}");
    let status = tokio::process::Command::new("bash")
        .args(["-c", &kill])
        .status()
        .await
        .unwrap();
    assert!(status.success());
}
