//! Time.

use futures_util::future::join_all;
use protocol::ids::WorkspaceId;
use sandbox::CellEnd;
use sandbox::settings::Settings;

use super::{SECOND, limits, survive};
use crate::stage::{play_with, settings};
use crate::world::World;

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
