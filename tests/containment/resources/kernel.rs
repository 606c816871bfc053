//! Memory of the kernel that is part of no process's own.

use protocol::ids::WorkspaceId;
use sandbox::{CellEnd, ResourceLimit};

use super::{SECOND, limits, survive};
use crate::stage::play;
use crate::world::World;

/// Locks of parts of a file, each of which costs memory.
const LOCKS: &str = "
import fcntl, time
held = open('locked', 'wb')
try:
    for at in range(0, 2_000_000_000, 2):
        fcntl.lockf(held, fcntl.LOCK_EX, 1, at)
except OSError as error:
    print(error)
time.sleep(60)";

/// As many mappings as each of several processes may have.
const MAPPINGS: &str = "
import os, time
for _ in range(8):
    if os.fork() == 0:
        break
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for number in range(80_000):
    # Neighbours with different rights are not joined.
    if libc.mmap(None, 4096, number % 2, 0x22, -1, 0) is None:
        break
time.sleep(60)";

/// Pages far from each other, each of which needs page tables of its own and is no memory itself.
const PAGE_TABLES: &str = "
import time
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for number in range(1, 60_000):
    at = libc.mmap((1 << 44) + (number << 30), 4096, 1, 0x22, -1, 0)
    ctypes.string_at(at, 1)
time.sleep(60)";

pub(crate) fn kernel_memory_is_bounded(world: World) {
    play(world, limits(), async |stage| {
        let workspace = WorkspaceId::fresh();
        for code in [LOCKS, MAPPINGS, PAGE_TABLES] {
            let code = format!("import ctypes\nlibc = ctypes.CDLL(None)\n{code}");
            let outcome = survive(stage, &workspace, &code, 30 * SECOND).await;
            let end = CellEnd::LimitExceeded(ResourceLimit::Memory);
            assert_eq!(outcome.end, end, "{code}: {outcome:?}");
        }
        let unowned = "
import fcntl, struct
held = open('locked', 'wb')
refused = []
for command in (37, 38):
    try:
        fcntl.fcntl(held, command, struct.pack('hhqqi4x', 1, 0, 0, 1, 0))
    except PermissionError:
        refused.append(command)
fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
refused";
        assert_eq!(stage.value(&workspace, unowned).await, "[37, 38]");
    });
}
