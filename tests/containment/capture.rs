//! 17 to 25: files and images as a way to have the server read or do what it should not.

pub(crate) mod links;

use std::time::{Duration, Instant};

use protocol::ids::WorkspaceId;
use sandbox::settings::InterpreterLimits;
use sandbox::{Cell, CellEnd, CellOutcome, ResourceLimit};

use crate::stage::{CELL_LIMIT, Stage, ignore, play};
use crate::world::World;

/// Longest time that the server may take for a cell that only leaves a trap behind.
const PROMPT: Duration = Duration::from_secs(5);

async fn run(stage: &Stage, workspace: &WorkspaceId, code: &str, outputs: &[&str]) -> CellOutcome {
    let outputs: Vec<String> = outputs.iter().map(|&name| name.to_owned()).collect();
    let cell = Cell {
        code,
        outputs: &outputs,
        inputs: &[],
        timeout: CELL_LIMIT,
    };
    let began = Instant::now();
    let outcome = stage.sandbox.run(workspace, cell, &ignore).await.unwrap();
    assert!(
        began.elapsed() < PROMPT,
        "{:?}: {outcome:?}",
        began.elapsed()
    );
    for file in &outcome.files {
        let text = String::from_utf8_lossy(&file.bytes);
        assert!(
            !text.contains("CANARY") && !text.contains("root:"),
            "{file:?}"
        );
        assert_is_plain(&file.name);
    }
    outcome
}

/// A name below the working directory that can be shown and stored.
fn assert_is_plain(name: &str) {
    assert!(!name.starts_with('/') && !name.is_empty(), "{name:?}");
    assert!(
        !name.split('/').any(|part| ["", ".", ".."].contains(&part)),
        "{name:?}"
    );
    assert!(!name.chars().any(char::is_control), "{name:?}");
}

pub(crate) fn odd_files_do_not_block(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import os, socket, stat
made = []
for name, make in (('fifo', lambda: os.mkfifo('fifo')), ('fifo-by-mknod', lambda: os.mknod('fifo-by-mknod', stat.S_IFIFO | 0o666)),
                   ('socket', lambda: socket.socket(socket.AF_UNIX).bind('socket')), ('device', lambda: os.mknod('device', stat.S_IFCHR | 0o666, os.makedev(1, 5)))):
    try:
        make()
        made.append(name)
    except OSError:
        pass
os.mkdir('directory')
made";
        let declared = ["fifo", "fifo-by-mknod", "socket", "device", "directory"];
        let outcome = run(stage, &workspace, code, &declared).await;
        assert!(outcome.files.is_empty(), "{:?}", outcome.files);
        let made = outcome.value.unwrap().text;
        assert_eq!(
            made,
            if world.is_strong() {
                "['socket']"
            } else {
                "[]"
            }
        );

        // 21: holes.
        let code = "
import os
open('huge.bin', 'wb').close()
try:
    os.truncate('huge.bin', 1 << 40)
except OSError as error:
    print(error.strerror)
with open('holes.bin', 'wb') as file:
    file.truncate(60 << 20)";
        let outcome = run(stage, &workspace, code, &["huge.bin", "holes.bin"]).await;
        assert!(outcome.stdout.contains("File too large"), "{outcome:?}");
        assert!(outcome.files.iter().all(|file| file.name != "holes.bin"));
        assert!(
            outcome
                .notices
                .iter()
                .any(|notice| notice.contains("holes.bin")),
            "{:?}",
            outcome.notices
        );

        // 24: a file that grows meanwhile.
        let code = "
import subprocess, sys
grower = '''
import time
end = time.monotonic() + 5
with open('growing.bin', 'ab', 0) as file:
    while time.monotonic() < end and file.tell() < (40 << 20):
        file.write(bytes(1 << 16))
'''
process = subprocess.Popen([sys.executable, '-I', '-S', '-c', grower])
import time
time.sleep(0.2)";
        run(stage, &workspace, "import os; os.unlink('holes.bin')", &[]).await;
        run(stage, &workspace, code, &["growing.bin"]).await;
        for _ in 0..10 {
            let outcome = run(stage, &workspace, "pass", &["growing.bin"]).await;
            for file in outcome.files {
                assert!(
                    file.bytes.len() as u64 <= InterpreterLimits::default().captured_file,
                    "{}",
                    file.bytes.len()
                );
            }
        }
        run(stage, &workspace, "process.kill(); process.wait()", &[]).await;
    });
}

pub(crate) fn floods_and_names_are_bounded(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = "
import os
for name in (b'new\\nline', b'..hidden', b'-rf', b'x' * 255, b'\\xff\\xfe', b'back\\\\slash', b'a b', b'\\xe2\\x80\\xaetxt', b'esc\\x1b[31m', b'%s%n', b'con', b'...'):
    open(name, 'w').write('inside')
os.chmod('a b', 0)";
        let outcome = run(stage, &workspace, code, &["new\nline", "-rf"]).await;
        let names: Vec<_> = outcome
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert!(
            names.contains(&"-rf") && !names.contains(&"new\nline"),
            "{names:?}"
        );
        assert!(
            outcome
                .notices
                .iter()
                .all(|notice| !notice.contains(['\n', '\x1b'])),
            "{:?}",
            outcome.notices
        );

        let deep = WorkspaceId::fresh();
        let code = "
import os
home = os.open('.', os.O_RDONLY)
for _ in range(1000):
    os.mkdir('d'), os.chdir('d')
open('bottom.txt', 'w').write('inside')
os.fchdir(home), os.close(home)";
        let outcome = run(stage, &deep, code, &["d/d/d/bottom.txt"]).await;
        // Where no file system counts, a tree that deep is over any limit, if somebody looks in time.
        let too_deep =
            !world.is_strong() && outcome.end == CellEnd::LimitExceeded(ResourceLimit::Disk);
        assert!(outcome.end == CellEnd::Completed || too_deep, "{outcome:?}");
        assert!(outcome.files.is_empty(), "{outcome:?}");

        let many = WorkspaceId::fresh();
        let code = "
count = 0
try:
    for count in range(100_000):
        open('file-%d.txt' % count, 'w').close()
except OSError as error:
    print(error.strerror)
count";
        let outcome = run(stage, &many, code, &[]).await;
        if world.is_strong() {
            assert!(outcome.stdout.contains("No space left"), "{outcome:?}");
            assert_eq!(outcome.end, CellEnd::Completed);
        } else {
            assert_eq!(
                outcome.end,
                CellEnd::LimitExceeded(ResourceLimit::Disk),
                "{:?}",
                outcome.notices
            );
        }
        assert!(outcome.files.len() <= InterpreterLimits::default().files);
        assert_eq!(stage.value(&many, "1 + 1").await, "2");
        for workspace in [&deep, &many] {
            stage.sandbox.forget(workspace);
        }
    });
}

pub(crate) fn images_are_checked(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = r#"
import struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(width, height, end=True):
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return head + chunk(b"IDAT", zlib.compress(b"\0\0")) + (chunk(b"IEND", b"") if end else b"")
class Shown:
    def __init__(self, mime, data):
        self.bundle = {mime: data}
    def _repr_mimebundle_(self, **_):
        return self.bundle
    def __repr__(self):
        return "text instead"
script = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>'
"#;
        run(stage, &workspace, code, &[]).await;
        let good = run(
            stage,
            &workspace,
            "display(Shown('image/png', png(1, 1)))",
            &[],
        )
        .await;
        assert_eq!(good.images.len(), 1, "{good:?}");
        for shown in [
            "Shown('image/png', png(100_000, 100_000))",
            "Shown('image/png', png(0, 0))",
            "Shown('image/png', png(1, 1, end=False))",
            "Shown('image/png', png(1, 1)[:20])",
            "Shown('image/png', b'<script>alert(1)</script>')",
            "Shown('image/jpeg', b'\\xff\\xd8\\xff\\xd9')",
            "Shown('image/svg+xml', script)",
            "Shown('text/html', '<script>alert(1)</script>')",
            "Shown('image/gif', b'GIF89a')",
            "Shown('image/png', png(1, 1) * 200_000)",
        ] {
            let outcome = run(stage, &workspace, &format!("display({shown})"), &[]).await;
            assert!(
                outcome.images.is_empty() && outcome.frames.is_empty(),
                "{shown}: {outcome:?}"
            );
            assert_eq!(outcome.end, CellEnd::Completed);
        }
        // As files they are what they are: bytes that nobody interprets.
        let outcome = run(
            stage,
            &workspace,
            "open('page.svg', 'w').write(script)",
            &[],
        )
        .await;
        assert_eq!(outcome.files.len(), 1);
    });
}
