//! What code uses up where a look at its directories or its memory does not show it, or when no cell runs.

use std::time::Duration;

use protocol::ids::WorkspaceId;
use sandbox::settings::InterpreterLimits;
use sandbox::{CellEnd, ResourceLimit};

use crate::resources::memory::{MEMORY_SLACK, Peak};
use crate::resources::{MIB, limits};
use crate::stage::play;
use crate::world::World;

const TIME: Duration = Duration::from_secs(20);

/// Who keeps a file that has lost its name.
const KEEPERS: [&str; 4] = [
    "held.append(file)",
    "held.append(subprocess.Popen(['sleep', '60'], stdin=file)); os.close(file)",
    "keep_mapped(file)",
    "one.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [file]))]); os.close(file)",
];

pub(crate) fn files_without_names_are_counted(world: World) {
    play(world, limits(), async |stage| {
        for keep in KEEPERS {
            let workspace = WorkspaceId::fresh();
            let code = format!(
                "
import array, mmap, os, socket, subprocess, time
held = []
one, other = socket.socketpair()
def keep_mapped(file):
    about = os.fstat(file)
    held.append(mmap.mmap(file, 4096))
    # Python's mapping has a descriptor of its own.
    for number in range(3, 200):
        try:
            if os.fstat(number).st_ino == about.st_ino:
                os.close(number)
        except OSError:
            pass
try:
    for number in range(10):
        file = os.open('f', os.O_CREAT | os.O_RDWR)
        os.unlink('f')
        os.write(file, bytes(20 << 20))
        {keep}
except OSError as error:
    print(error.strerror)
else:
    time.sleep(15)"
            );
            let outcome = stage.run_within(&workspace, &code, TIME).await;
            if world.is_strong() {
                assert!(outcome.stdout.contains("No space left"), "{outcome:?}");
            } else {
                assert_eq!(
                    outcome.end,
                    CellEnd::LimitExceeded(ResourceLimit::Disk),
                    "{keep}: {outcome:?}"
                );
            }
            assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
            stage.sandbox.forget(&workspace);
        }
        // A few of them are fine.
        let workspace = WorkspaceId::fresh();
        let code = "
import tempfile, time
kept = [tempfile.TemporaryFile() for _ in range(20)]
for file in kept:
    file.write(bytes(1 << 20))
    file.flush()
time.sleep(1)
len(kept)";
        let outcome = stage.run_within(&workspace, code, TIME).await;
        assert_eq!(outcome.value.map(|value| value.text).as_deref(), Some("20"));
    });
}

pub(crate) fn sockets_count_as_memory(world: World) {
    play(world, limits(), async |stage| {
        let workspace = WorkspaceId::fresh();
        // None of them is filled: they might be at any moment.
        let code = "
import os, socket, time
for _ in range(16):
    if os.fork() == 0:
        held = [socket.socketpair() for _ in range(100)]
        time.sleep(60)
        os._exit(0)
time.sleep(60)";
        let outcome = stage.run_within(&workspace, code, TIME).await;
        assert_eq!(
            outcome.end,
            CellEnd::LimitExceeded(ResourceLimit::Memory),
            "{outcome:?}"
        );
    });
}

pub(crate) fn limits_hold_when_no_cell_runs(world: World) {
    let limits = InterpreterLimits {
        memory: 300 * MIB,
        ..InterpreterLimits::default()
    };
    play(world, limits.clone(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import time
class Last:
    def __del__(self):
        kept = []
        for _ in range(2000):
            kept.append(bytearray(b'x') * (1 << 20))
        time.sleep(60)
last = Last()";
        let outcome = stage.run(&workspace, code).await;
        assert_eq!(outcome.end, CellEnd::Completed, "{outcome:?}");
        let peak = Peak::watch();
        stage.sandbox.reset(&workspace).await.unwrap();
        let most = peak.end();
        assert!(most < limits.memory + MEMORY_SLACK, "{} MiB", most / MIB);
        assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
    });
}
