//! Disk space, names and the size of one file.

use std::fs;

use protocol::ids::WorkspaceId;
use sandbox::{CellEnd, ResourceLimit};

use super::{MIB, SECOND, limits, survive};
use crate::stage::play;
use crate::world::World;

const DISK_SLACK: u64 = 128 * MIB;

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
