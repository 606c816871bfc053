//! Links, files that change while they are read, and names that lead out of the working directory.

use std::time::{Duration, Instant};

use protocol::ids::WorkspaceId;
use sandbox::CellEnd;
use sandbox::settings::InterpreterLimits;

use super::run;
use crate::bait::SERVER;
use crate::stage::play;
use crate::world::World;

/// How often a changing file must have been caught in either state.
const CATCHES: usize = 10;
/// Longest time for that; a look that catches neither shows nothing.
const RACE: Duration = Duration::from_secs(90);

pub(crate) fn links_are_not_followed(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        let code = format!(
            "import os
for number, target in enumerate(['{SERVER}/loopwright.db', '/etc/passwd', '/run/shadow', '/proc/self/environ',
                                 '../../../../..{SERVER}/loopwright.db', 'kept.txt', '/proc/self/fd/3']):
    os.symlink(target, 'link-%d.txt' % number)
open('kept.txt', 'w').write('inside')
os.symlink('{SERVER}', 'server')
os.symlink('/', 'top')
os.symlink('.', 'here')
os.mkdir('real')
os.symlink('..', 'real/up')"
        );
        let declared = [
            "link-0.txt",
            "link-1.txt",
            "link-2.txt",
            "link-3.txt",
            "link-4.txt",
            "link-5.txt",
            "link-6.txt",
            "server/loopwright.db",
            "top/etc/passwd",
            "here/here/kept.txt",
            "real/up/kept.txt",
            "top/run/server/open.txt",
        ];
        let outcome = run(stage, &workspace, &code, &declared).await;
        assert_eq!(outcome.error, None);
        let names: Vec<_> = outcome
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert_eq!(names, ["kept.txt"], "{:?}", outcome.notices);
        // 23: names that the request itself asks for.
        let long = "x".repeat(300);
        let declared = [
            "../../etc/passwd",
            "/etc/passwd",
            "/run/server/loopwright.db",
            "a\0b",
            "",
            ".",
            "..",
            "real/../../../etc/passwd",
            "/proc/self/environ",
            "//etc/passwd",
            "~/.ssh/id_ed25519",
            "kept.txt/..",
            "./kept.txt",
            &long,
        ];
        let outcome = run(stage, &workspace, "pass", &declared).await;
        assert!(
            outcome.files.iter().all(|file| file.name == "kept.txt"),
            "{:?}",
            outcome.files
        );
        for name in [
            "link-0.txt",
            "server/loopwright.db",
            "/etc/passwd",
            "../../run/server/open.txt",
        ] {
            let part = sandbox::FileRange {
                name,
                offset: 0,
                max_bytes: 1000,
            };
            let read = stage.sandbox.read_file(&workspace, &[], part).await;
            assert!(read.is_err(), "{name}: {read:?}");
        }
        let listed = stage.sandbox.list_files(&workspace, &[]).await.unwrap();
        let names: Vec<_> = listed.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["kept.txt"]);
    });
}

/// Waits until another process has swapped the name a few times.
const WATCH: &str = "
import os, random, time
def inode():
    return os.lstat('swapped').st_ino if os.path.lexists('swapped') else None
end = time.monotonic() + 1
for _ in range(random.randrange(1, 4)):
    seen = inode()
    while inode() == seen and time.monotonic() < end:
        time.sleep(0)
";

pub(crate) fn swapping_does_not_help(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let workspace = WorkspaceId::fresh();
        // Another process swaps, so that it goes on while files are taken.
        let code = format!(
            "import subprocess, sys
swapper = '''
import os, random, shutil
# What an interpreter before has left.
for name in ('a', 'b', 'swapped', 'parent', 'inside'):
    try:
        os.unlink(name)
    except OSError:
        shutil.rmtree(name, ignore_errors=True)
os.mkdir('inside')
open('inside/loopwright.db', 'w').write('inside')
def linger():
    # Long enough in either state for both to be caught, and never equally long.
    for _ in range(random.randrange(2000)):
        os.getpid()
while True:
    with open('a', 'w') as file:
        file.write('inside')
    os.rename('a', 'swapped')
    linger()
    os.symlink('{SERVER}/loopwright.db', 'a')
    os.rename('a', 'swapped')
    linger()
    os.symlink('{SERVER}', 'b')
    try:
        os.rename('b', 'parent')
        os.unlink('parent')
        os.rename('inside', 'parent')
        os.rename('parent', 'inside')
    except OSError:
        pass
'''
process = subprocess.Popen([sys.executable, '-I', '-S', '-c', swapper])"
        );
        run(stage, &workspace, &code, &[]).await;
        let (mut taken, mut refused) = (0, 0);
        let began = Instant::now();
        while (taken < CATCHES || refused < CATCHES) && began.elapsed() < RACE {
            let outcome = run(
                stage,
                &workspace,
                // Both stand still but for this: until the name was swapped once to three times, however busy the machine is.
                WATCH,
                &["swapped", "parent/loopwright.db"],
            )
            .await;
            for file in &outcome.files {
                // Caught while it is being written it may be empty.
                assert!(
                    ["inside", ""].contains(&&*String::from_utf8_lossy(&file.bytes)),
                    "{file:?}"
                );
            }
            // A directory that changes while its entries are counted can have too many of them: the interpreter ends, and
            // the other process with it.
            if !matches!(outcome.end, CellEnd::Completed) {
                run(stage, &workspace, &code, &[]).await;
            }
            taken += usize::from(outcome.files.iter().any(|file| file.name == "swapped"));
            refused += usize::from(!outcome.notices.is_empty());
        }
        // Otherwise this has shown nothing.
        assert!(
            taken >= CATCHES && refused >= CATCHES,
            "taken {taken}, refused {refused}"
        );
        run(stage, &workspace, "process.kill()\nprocess.wait()", &[]).await;
    });
}
