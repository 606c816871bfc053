//! 71 to 75: user code that speaks for its interpreter, or takes it apart.

use std::time::Duration;

use protocol::ids::WorkspaceId;
use sandbox::settings::InterpreterLimits;
use sandbox::{CellEnd, ResourceLimit};

use crate::stage::{Stage, play};
use crate::world::World;

/// Longest time of a cell that leaves its server waiting; the flood of frames takes a second of its own.
const FORGERY_LIMIT: Duration = Duration::from_secs(3);
/// Frames as an interpreter would write them, and a way to write what none would.
const FORGE: &str = r#"
import json, os, struct
def raw(data):
    while data:
        data = data[os.write(3, data):]
def frame(kind, payload):
    if not isinstance(payload, bytes):
        payload = json.dumps(payload).encode()
    raw(struct.pack("<I", len(payload) + 1) + kind + payload)
def image(call, mime, data):
    head = json.dumps({"id": call, "mime": mime, "kind": "image"}).encode()
    frame(b"I", struct.pack("<H", len(head)) + head + data)
"#;

/// Runs a forgery as a cell of its own workspace, whose next cell must be right whatever became of this one.
async fn forge(stage: &Stage, code: &str) -> sandbox::CellOutcome {
    let workspace = WorkspaceId::fresh();
    stage.run(&workspace, FORGE).await;
    let outcome = stage.run_within(&workspace, code, FORGERY_LIMIT).await;
    // What is left of the forgery may spoil the next cell of the same workspace, but not for ever.
    let mut answers = Vec::new();
    for _ in 0..3 {
        let outcome = stage.run_within(&workspace, "21 * 2", FORGERY_LIMIT).await;
        answers.push(outcome.value.map(|value| value.text));
        if answers.last().unwrap().as_deref() == Some("42") {
            break;
        }
    }
    assert_eq!(
        answers.last().unwrap().as_deref(),
        Some("42"),
        "after {code}: {answers:?}"
    );
    stage.sandbox.forget(&workspace);
    outcome
}

pub(crate) fn forgeries_fool_only_their_own_workspace(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let neighbour = WorkspaceId::fresh();
        stage.run(&neighbour, "kept = 71").await;
        let ended = |end| {
            matches!(
                end,
                CellEnd::LimitExceeded(ResourceLimit::Protocol) | CellEnd::Crashed
            )
        };
        for code in [
            "raw(b'\\xff' * 100_000)",
            "raw(b'\\xff\\xff\\xff\\xff' + b'V')",
            "raw(struct.pack('<I', 9 << 20) + b'I')",
            "raw(b'\\0\\0\\0\\0' * 100)",
            "for _ in range(10): frame(b'?', {})",
            "for _ in range(10): frame(b'V', b'{not json')",
            "for _ in range(10): frame(b'V', b'[' * 100_000)",
            "for _ in range(10): frame(b'V', {'id': 999, 'text': 'another call', 'type': 'str'})",
            "for _ in range(10): frame(b'D', {'id': 1 << 40, 'elapsed_ms': 1})",
            "for _ in range(10): frame(b'R', {'protocol': 1, 'python': '9.9', 'pid': 1})",
            "for _ in range(10): frame(b'I', b'\\xff\\xff{}')",
        ] {
            let outcome = forge(stage, code).await;
            assert!(
                ended(outcome.end),
                "{code}: {:?} {:?}",
                outcome.end,
                outcome.notices
            );
        }
        // A flood that is stopped by its number or, on a busy machine, by the deadline.
        let flood = "for _ in range(101_000): frame(b'N', {'id': 2, 'text': 'x'})";
        let outcome = forge(stage, flood).await;
        assert_ne!(outcome.end, CellEnd::Completed);
        assert!(outcome.notices.len() <= 30, "{}", outcome.notices.len());
        assert_eq!(stage.value(&neighbour, "kept").await, "71");
    });
}

/// Its own results code can forge, as it could print anything; they are as bounded as real ones.
pub(crate) fn own_results_stay_bounded(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let neighbour = WorkspaceId::fresh();
        stage.run(&neighbour, "kept = 71").await;
        // Half a frame: what follows is read as its rest, and the end never comes or is nonsense.
        let outcome = forge(stage, "raw(struct.pack('<I', 1000) + b'V')").await;
        assert_ne!(outcome.end, CellEnd::Completed, "{outcome:?}");
        let outcome = forge(
            stage,
            "frame(b'V', {'id': 2, 'text': 'forged', 'type': 'str'})",
        )
        .await;
        assert_eq!(
            (outcome.end, outcome.value.unwrap().text.as_str()),
            (CellEnd::Completed, "forged")
        );
        let outcome = forge(
            stage,
            "frame(b'D', {'id': 2, 'elapsed_ms': 1})\nimport time; time.sleep(0.5)\n'late'",
        )
        .await;
        assert_eq!((outcome.end, outcome.value), (CellEnd::Completed, None));
        let outcome = forge(
            stage,
            "frame(b'V', {'id': 2, 'text': 'x' * (4 << 20), 'type': '\\0\\x1b[31m'})",
        )
        .await;
        assert!(
            outcome
                .value
                .is_none_or(|value| value.text.len() < 20_000 && !value.kind.contains('\x1b'))
        );
        let outcome = forge(
            stage,
            "for mime in ('image/svg+xml', 'text/html', 'image/png', '../../x'):
    image(2, mime, b'<svg onload=alert(1)>')
png = b'\\x89PNG\\r\\n\\x1a\\n' + struct.pack('>I4sIIBBBBBI', 13, b'IHDR', 100_000, 100_000, 8, 0, 0, 0, 0, 0)
image(2, 'image/png', png)
image(2, 'image/png', png + bytes(7 << 20))",
        )
        .await;
        assert!(outcome.images.is_empty(), "{outcome:?}");
        // A thread that goes on forging.
        let code = "
import threading
def forging():
    try:
        for call in range(200):
            frame(b'V', {'id': call, 'text': 'forged', 'type': 'str'})
            frame(b'D', {'id': call, 'elapsed_ms': 1})
    except OSError:
        pass
threading.Thread(target=forging, daemon=True).start()";
        forge(stage, code).await;
        assert_eq!(stage.value(&neighbour, "kept").await, "71");
    });
}

pub(crate) fn closed_descriptors_are_noticed(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        for (code, completes) in [
            ("import os; os.close(3)", false),
            (
                "import os; os.close(3); print('partial', flush=True); import time; time.sleep(100)",
                false,
            ),
            (
                "import os; os.dup2(os.open('/dev/null', os.O_RDWR), 3)",
                false,
            ),
            ("import os; os.closerange(3, 1024)", false),
            (
                "import socket; socket.socket(fileno=os.dup(3)).shutdown(socket.SHUT_RDWR)",
                false,
            ),
            ("import os; os.close(0); os.close(1); os.close(2)", true),
            ("import os; os.dup2(0, 1); os.dup2(0, 2)", true),
            (
                "import sys; sys.stdout.close(); sys.stderr.close(); sys.stdin.close()",
                true,
            ),
            ("import sys; sys.stdout = sys.stderr = None", true),
        ] {
            let workspace = WorkspaceId::fresh();
            stage.run(&workspace, "import os; kept = 72").await;
            let outcome = stage
                .run_within(&workspace, code, Duration::from_secs(5))
                .await;
            assert_eq!(
                outcome.end == CellEnd::Completed,
                completes,
                "{code}: {outcome:?}"
            );
            let kept = stage.value(&workspace, "globals().get('kept', 0)").await;
            assert_eq!(kept, if completes { "72" } else { "0" }, "{code}");
            stage.sandbox.forget(&workspace);
        }
    });
}

pub(crate) fn output_is_no_protocol(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = format!(
            "{FORGE}
import subprocess, sys
text = struct.pack('<I', 100) + b'D' + json.dumps({{'id': 1}}).encode()
sys.stdout.buffer.write(text + b'\\n')
sys.stdout.flush()
subprocess.run(['echo', 'from a child'])
os.write(1, b'raw\\n')
sys.stderr.write('E\\x00{{\"id\": 1}}\\n')
'value'"
        );
        let outcome = stage.run(&workspace, &code).await;
        assert_eq!(
            (outcome.end, outcome.value.unwrap().text.as_str()),
            (CellEnd::Completed, "'value'")
        );
        assert!(
            outcome.stdout.contains("from a child\n") && outcome.stdout.contains("raw\n"),
            "{:?}",
            outcome.stdout
        );
        assert!(!outcome.stdout.contains('\0') && !outcome.stderr.contains('\0'));
    });
}

pub(crate) fn crashes_are_clean(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        for code in [
            "os._exit(3)",
            "os.kill(os.getpid(), 9)",
            "os.kill(os.getpid(), 15)",
            "os.abort()",
            "ctypes.string_at(0)",
            "ctypes.memset(ctypes.addressof(ctypes.pythonapi.Py_DecRef), 0, 1 << 20)",
            "os.killpg(os.getpgid(0), 9)",
            "os.execv('/bin/true', ['true'])",
            "threading.Thread(target=os._exit, args=(0,)).start(); time.sleep(10)",
        ] {
            let code = format!(
                "import ctypes, os, threading, time\nopen('kept.txt', 'w').write('kept')\nprint('partial', flush=True)\n{code}"
            );
            let outcome = stage.run(&workspace, &code).await;
            assert_eq!(
                (outcome.end, outcome.stdout.as_str()),
                (CellEnd::Crashed, "partial\n"),
                "{code}: {outcome:?}"
            );
            assert!(!outcome.notices.is_empty());
            assert_eq!(
                stage.value(&workspace, "open('kept.txt').read()").await,
                "'kept'"
            );
        }
    });
}

pub(crate) fn patched_interpreters_stay_alone(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let (workspace, neighbour) = (WorkspaceId::fresh(), WorkspaceId::fresh());
        for patch in [
            "import json; json.dumps = json.loads = lambda *a, **k: '{}'",
            "import sys; sys.stdout = sys.stderr = 7",
            "import builtins; builtins.repr = builtins.print = builtins.len = lambda *a: 'patched'",
            "import builtins; builtins.compile = builtins.exec = builtins.eval = None",
            "import os, struct; os.write = os.read = struct.pack = None",
            "import gc\nfor o in gc.get_objects():\n    if type(o) is dict and o.get('__name__') == '__main__' and 'serve' in o:\n        o.clear()",
            "import sys\nframe = sys._getframe()\nwhile frame.f_back:\n    frame = frame.f_back\n    for name in list(frame.f_globals):\n        if name not in ('__builtins__',):\n            frame.f_globals[name] = None",
            "import sys; sys.modules.clear()",
            "import sys; sys.settrace(lambda *a: 1 / 0); sys.setprofile(lambda *a: 1 / 0)",
            "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass",
            "import site, os; open(os.path.join(os.getcwd(), 'sitecustomize.py'), 'w').write('raise SystemExit'); open('json.py', 'w').write('raise SystemExit'); open('re.py', 'w').write('1/0')",
        ] {
            stage
                .run_within(&workspace, patch, Duration::from_secs(2))
                .await;
            // Its own next cell may fail, even at length, but it gets an answer.
            stage
                .run_within(&workspace, "repr(1)", Duration::from_secs(2))
                .await;
            assert_eq!(
                stage
                    .value(&neighbour, "import json; repr(len(json.dumps([1])))")
                    .await,
                "'3'",
                "{patch}"
            );
            stage.sandbox.forget(&workspace);
            assert_eq!(
                stage
                    .value(&workspace, "import json; repr(len(json.dumps([1])))")
                    .await,
                "'3'",
                "{patch}"
            );
        }
    });
}
