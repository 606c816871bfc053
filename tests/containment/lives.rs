//! 40 and 41, and 76: what outlives a cell, and signals between cells.

use std::fs;
use std::time::Duration;

use loopwright::ids::WorkspaceId;
use loopwright::sandbox::settings::Limits;
use loopwright::sandbox::{Cell, CellEnd, CellOutcome};

use crate::stage::{CELL_LIMIT, Deaf, Stage, play, processes};
use crate::world::World;

/// Daemons that heed nothing, and chains of processes of which each lives only until it has started the next.
const STRAYS: &str = "
import ctypes, os, signal, time
def stray(action):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
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
    play(world, Limits::default(), async |stage| {
        let endings: [(&str, Duration, CellEnd); 4] = [
            ("", CELL_LIMIT, CellEnd::Completed),
            ("os._exit(0)", CELL_LIMIT, CellEnd::Crashed),
            ("os.kill(os.getpid(), 9)", CELL_LIMIT, CellEnd::Crashed),
            (
                "signal.signal(2, signal.SIG_IGN)\nstay()",
                Duration::from_secs(1),
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
        let code = format!("{STRAYS}\nfor _ in range(100):\n    stray(lambda: None)\nprint('all')");
        let code = code
            .replace("range(8)", "range(0)")
            .replace("range(4)", "range(0)");
        let outcome = stage.run(&workspace, &code).await;
        assert_eq!(outcome.stdout, "all\n", "{outcome:?}");
        stage.no_process_is_called("stray40").await;
        // A client that goes away.
        let workspace = WorkspaceId::fresh();
        let code = format!("{STRAYS}\nsignal.signal(2, signal.SIG_IGN)\nstay()");
        let cell = Cell {
            code: &code,
            outputs: &[],
            inputs: &[],
            timeout: CELL_LIMIT,
        };
        let running = stage.sandbox.run(&workspace, cell, &Deaf);
        let dropped = tokio::time::timeout(Duration::from_secs(1), running).await;
        assert!(dropped.is_err(), "{dropped:?}");
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
    play(world, Limits::default(), async |stage| {
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
        // Enough for some of it to come between the cells.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let outcome: CellOutcome = stage.run(&workspace, "print('second')").await;
        assert!(
            outcome.stdout.contains("late") && outcome.stdout.contains("second"),
            "{outcome:?}"
        );
        assert!(
            outcome
                .notices
                .iter()
                .any(|notice| notice.contains("previous call")),
            "{:?}",
            outcome.notices
        );
        // A neighbour hears nothing of it.
        let neighbour = stage.run(&WorkspaceId::fresh(), "print('alone')").await;
        assert_eq!(
            (neighbour.stdout.as_str(), neighbour.notices.len()),
            ("alone\n", 0)
        );
    });
}

pub(crate) fn interrupts_between_cells_are_harmless(world: World) {
    play(world, Limits::default(), async |stage| {
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
