//! Many workspaces: at once, and one after another.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use protocol::ids::{Owner, WorkspaceId};
use sandbox::settings::Settings;
use sandbox::{Cell, InterpreterError};

use crate::bait::SERVER;
use crate::stage::{CELL_LIMIT, Stage, ignore, play_with, processes, settings};
use crate::world::World;

/// Workspaces of a crowd, fewer where the crowd is not what is tested; calls of each, and interpreters for all.
const CROWD: usize = 50;
const SMALL_CROWD: usize = 15;
const CALLS: usize = 3;
const WORKERS: usize = 6;
/// Workspaces that come and go, where that is what is tested and elsewhere.
const CYCLES: usize = 1000;
const SOME_CYCLES: usize = 60;
/// Longest time until a server is at rest again.
const REST: Duration = Duration::from_secs(20);

fn crowded(max_waiting: usize) -> Settings {
    Settings {
        spares: 1,
        max_workers: WORKERS,
        max_waiting,
        idle_ttl: Duration::from_secs(1),
        ..settings()
    }
}

/// All that a server could leak.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    processes: usize,
    mounts: usize,
    namespaces: BTreeSet<String>,
    run: usize,
    saved: usize,
}

impl Held {
    fn count() -> Self {
        let entries = |path: &str| fs::read_dir(path).map_or(0, Iterator::count);
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .count();
        let mut namespaces = BTreeSet::new();
        for pid in processes() {
            for entry in fs::read_dir(format!("/proc/{pid}/ns"))
                .into_iter()
                .flatten()
                .flatten()
            {
                namespaces
                    .extend(fs::read_link(entry.path()).map(|link| link.display().to_string()));
            }
        }
        Self {
            descriptors: entries("/proc/self/fd"),
            processes: processes().len(),
            mounts,
            namespaces,
            run: entries(&format!("{SERVER}/work/run")),
            saved: entries(&format!("{SERVER}/work/saved")),
        }
    }

    /// The names of namespaces differ from one interpreter to the next, but not how many there are.
    fn sizes(&self) -> [usize; 6] {
        [
            self.descriptors,
            self.processes,
            self.mounts,
            self.namespaces.len(),
            self.run,
            self.saved,
        ]
    }
}

/// Waits until only the spares are left.
async fn rest(stage: &Stage) {
    let spares = stage.sandbox.settings().spares;
    let deadline = Instant::now() + REST;
    loop {
        let stats = stage.sandbox.stats();
        if (stats.workers, stats.spares, stats.busy, stats.waiting) == (spares, spares, 0, 0) {
            return;
        }
        assert!(Instant::now() < deadline, "{stats:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the count is this one: what has ended takes a moment to be gone.
async fn settle(expected: [usize; 6]) {
    let deadline = Instant::now() + REST;
    while Held::count().sizes() != expected {
        assert!(
            Instant::now() < deadline,
            "{:?} instead of {expected:?}",
            Held::count()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn coming_and_going_leaks_nothing(world: World) {
    let cycles = if world == World::Root {
        CYCLES
    } else {
        SOME_CYCLES
    };
    play_with(world, crowded(10), async |stage| {
        let cycle = async |number: usize| {
            let workspace = WorkspaceId::fresh();
            let code = format!("open('kept.txt', 'w').write('x')\n{number} + 1");
            assert_eq!(
                stage.value(&workspace, &code).await,
                (number + 1).to_string()
            );
            stage.sandbox.forget(&workspace);
        };
        stream::iter(0..10).for_each_concurrent(2, cycle).await;
        rest(stage).await;
        // One more, alone: from here on the count does not depend on which came last.
        cycle(0).await;
        rest(stage).await;
        let before = Held::count().sizes();
        let began = Instant::now();
        stream::iter(0..cycles).for_each_concurrent(3, cycle).await;
        rest(stage).await;
        println!("{cycles} cycles in {:?}: {before:?}", began.elapsed());
        settle(before).await;
    });
}

pub(crate) fn a_crowd_is_served_in_turn(world: World) {
    let crowd = if world == World::Root {
        CROWD
    } else {
        SMALL_CROWD
    };
    play_with(world, crowded(crowd), async |stage| {
        rest(stage).await;
        let before = Held::count().sizes();
        let began = Instant::now();
        let one = async |number: usize| {
            let workspace = WorkspaceId::fresh();
            let mut waits = Vec::new();
            for call in 0..CALLS {
                let asked = Instant::now();
                let code = format!(
                    "with open('count.txt', 'a') as file: file.write('{call}')\nsum(range({number}00_000)), open('count.txt').read()"
                );
                let said = stage.value(&workspace, &code).await;
                waits.push(asked.elapsed());
                let wanted: String = (0..=call).map(|call| call.to_string()).collect();
                assert!(said.ends_with(&format!("'{wanted}')")), "{said}");
            }
            stage.sandbox.forget(&workspace);
            waits
        };
        let watch = async {
            loop {
                let stats = stage.sandbox.stats();
                assert!(
                    stats.workers <= WORKERS && stats.waiting <= crowd,
                    "{stats:?}"
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // One of another owner comes when all of them are there, and need not wait for all of them.
        let alone = async {
            while stage.sandbox.stats().waiting == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let workspace = WorkspaceId::fresh_of(&Owner::key("alone"));
            let asked = Instant::now();
            assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
            let waited = asked.elapsed();
            stage.sandbox.forget(&workspace);
            waited
        };
        let all = async {
            let (waits, alone) = tokio::join!(join_all((0..crowd).map(one)), alone);
            println!("alone {alone:?}");
            let mut sorted: Vec<Duration> = waits.iter().flatten().copied().collect();
            sorted.sort();
            assert!(
                alone < sorted[sorted.len() / 2] + Duration::from_secs(1),
                "{alone:?}"
            );
            waits
        };
        let waits: Vec<Vec<Duration>> = tokio::select! {
            waits = all => waits,
            () = watch => Vec::new(),
        };
        let mut waits: Vec<Duration> = waits.into_iter().flatten().collect();
        waits.sort();
        let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        println!(
            "{crowd} workspaces in {:?}: median {median:?}, longest {longest:?}, {:?}",
            began.elapsed(),
            stage.sandbox.stats()
        );
        assert_eq!(waits.len(), crowd * CALLS);
        // In the order of asking, nobody waits for more than about one turn of all others.
        assert!(
            longest < median * 4 + Duration::from_secs(1),
            "median {median:?}, longest {longest:?}"
        );
        rest(stage).await;
        settle(before).await;
    });
}

pub(crate) fn too_many_are_told_so(world: World) {
    play_with(world, crowded(5), async |stage| {
        let one = async |number: usize| {
            let workspace = WorkspaceId::fresh();
            let code = format!("import time; time.sleep(0.5)\n{number}");
            let cell = Cell {
                code: &code,
                outputs: &[],
                inputs: &[],
                timeout: CELL_LIMIT,
            };
            let began = Instant::now();
            match stage.sandbox.run(&workspace, cell, &ignore).await {
                Ok(outcome) => {
                    assert_eq!(outcome.value.unwrap().text, number.to_string());
                    true
                }
                Err(InterpreterError::Overloaded) => {
                    assert!(
                        began.elapsed() < Duration::from_secs(5),
                        "{:?}",
                        began.elapsed()
                    );
                    false
                }
                Err(error) => panic!("{error}"),
            }
        };
        let served = join_all((0..CROWD).map(one)).await;
        let served = served.into_iter().filter(|&served| served).count();
        assert!((WORKERS..=WORKERS + 6).contains(&served), "{served}");
        // An interpreter that nobody uses is ended, and its memory returns; the files stay.
        let workspace = WorkspaceId::fresh();
        let code = "open('kept.txt', 'w').write('kept'); kept = bytearray(b'x') * (200 << 20)";
        rest(stage).await;
        stage.run(&workspace, code).await;
        assert!(stage.sandbox.stats().workers > 1);
        rest(stage).await;
        let saved = fs::read_dir(Path::new(SERVER).join("work/saved"))
            .unwrap()
            .count();
        assert!(saved >= 1, "{saved}");
        let outcome = stage
            .run(&workspace, "open('kept.txt').read(), 'kept' in globals()")
            .await;
        assert_eq!(outcome.value.unwrap().text, "('kept', False)");
        assert!(
            outcome
                .notices
                .iter()
                .any(|notice| notice.contains("restarted")),
            "{:?}",
            outcome.notices
        );
    });
}
