//! The pool with real interpreters, started by a command that isolates nothing, because that needs no privileges.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::join_all;

use super::start::REFILL_PAUSE;
use super::*;
use crate::settings::{InterpreterLimits, Network, Settings, Tier};
use crate::{Cell, CellOutcome, FileRange, Sandbox, WorkFile};
use blobs::Blob;
use protocol::ids::{Owner, SessionId};

const PATIENCE: Duration = Duration::from_secs(60);

struct Stage {
    sandbox: Sandbox,
    folder: tempfile::TempDir,
    tasks: TaskTracker,
}

fn python() -> PathBuf {
    let system = Path::new("/usr/bin/python3");
    match system.exists() {
        true => system.to_owned(),
        false => "python3".into(),
    }
}

fn cell(code: &str) -> Cell<'_> {
    Cell {
        code,
        outputs: &[],
        inputs: &[],
        timeout: PATIENCE,
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Stage {
    async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings {
            python: python(),
            search_path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
            timeout: PATIENCE,
            require: Tier::Basic,
            network: Network::None,
            command: vec!["/usr/bin/env".to_owned()],
            limits: InterpreterLimits::default(),
            preload: Vec::new(),
            spares: 0,
            max_workers: 1,
            max_waiting: 64,
            idle_ttl: Duration::from_secs(600),
            max_age: Duration::from_secs(3600),
            work_dir: folder.path().join("work"),
            temporary: false,
            saved_ttl: None,
            saved_size: 1 << 30,
            uids: (60_100, 60_999),
            launcher: "/nonexistent/launcher".into(),
        };
        change(&mut settings);
        let tasks = TaskTracker::new();
        let sandbox = Sandbox::start(settings, &tasks).await.unwrap();
        Self {
            sandbox,
            folder,
            tasks,
        }
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.sandbox.0.pool
    }

    async fn run(&self, workspace: &WorkspaceId, code: &str) -> CellOutcome {
        let outcome = self.sandbox.run(workspace, cell(code), &|_, _| ()).await;
        outcome.unwrap()
    }

    async fn value(&self, workspace: &WorkspaceId, code: &str) -> String {
        let outcome = self.run(workspace, code).await;
        outcome
            .value
            .map_or_else(|| panic!("{:?}", outcome.error), |value| value.text)
    }

    async fn end(self) {
        self.sandbox.close(PATIENCE).await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn an_owner_with_fifty_sessions_does_not_starve_another() {
    let stage = Stage::with(|settings| settings.max_workers = 2).await;
    let (many, few) = (Owner::key("many"), Owner::key("few"));
    let served = AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    let crowd = join_all((0..50).map(async |number: usize| {
        let workspace = WorkspaceId::of(&many, &SessionId::parse(&number.to_string()).unwrap());
        assert_eq!(
            stage.value(&workspace, &format!("{number} + 1")).await,
            (number + 1).to_string()
        );
        served.fetch_add(1, Ordering::Relaxed);
    }));
    let other = async {
        until("a crowd waits", || stage.sandbox.stats().waiting >= 40).await;
        for _ in 0..3 {
            let workspace = WorkspaceId::fresh_of(&few);
            let before = served.load(Ordering::Relaxed);
            assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
            let passed = served.load(Ordering::Relaxed) - before;
            // Calls that ran when it arrived, and calls that began while its interpreter was started.
            assert!(passed <= 6, "{passed} of the other owner's came first");
        }
        assert!(served.load(Ordering::Relaxed) < 50);
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(crowd, other);
    assert!(done.into_inner());
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn calls_that_follow_each_other_do_not_keep_the_only_interpreter_from_others() {
    let stage = Stage::with(|_| {}).await;
    let (greedy, other) = (
        WorkspaceId::fresh_of(&Owner::key("greedy")),
        WorkspaceId::fresh_of(&Owner::key("other")),
    );
    let done = AtomicBool::new(false);
    let follow = async || {
        while !done.load(Ordering::Relaxed) {
            stage.run(&greedy, "1").await;
        }
    };
    let late = async {
        until("it is taken", || stage.sandbox.stats().busy == 1).await;
        assert_eq!(stage.value(&other, "1 + 1").await, "2");
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(follow(), follow(), follow(), late);
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn the_idle_interpreter_of_the_owner_with_most_is_ended_first() {
    let stage = Stage::with(|settings| settings.max_workers = 3).await;
    let (many, few) = (Owner::key("many"), Owner::key("few"));
    let kept = WorkspaceId::fresh_of(&few);
    stage.run(&kept, "here = 1").await;
    for _ in 0..3 {
        stage.run(&WorkspaceId::fresh_of(&many), "1").await;
    }
    assert_eq!(stage.value(&kept, "here").await, "1");
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn files_that_were_deleted_to_evict_idle_are_told_of() {
    let stage = Stage::with(|settings| settings.saved_size = 1 << 20).await;
    let folder = stage.folder.path();
    fs::write(folder.join("input"), "sent").unwrap();
    let inputs = [WorkFile {
        id: "file-1".to_owned(),
        name: "input.txt".to_owned(),
        content: Blob::file(folder.join("input"), 4),
        is_produced: false,
    }];
    let (first, second) = (WorkspaceId::fresh(), WorkspaceId::fresh());
    let make = "import os; _ = open('made', 'wb').write(os.urandom(700_000))";
    let with_inputs = |code| Cell {
        inputs: &inputs,
        ..cell(code)
    };
    let ignore = |_, _: &str| ();
    for workspace in [&first, &second, &WorkspaceId::fresh()] {
        let made = stage.sandbox.run(workspace, with_inputs(make), &ignore);
        assert_eq!(made.await.unwrap().error, None);
    }
    let list = "import os; sorted(os.listdir())";
    let found = stage.sandbox.run(&first, with_inputs(list), &ignore).await;
    let found = found.unwrap();
    assert_eq!(found.value.unwrap().text, "['input.txt']");
    assert!(
        found.notices[0].contains("deleted to free space"),
        "{:?}",
        found.notices
    );
    let next = stage.run(&first, "1").await;
    assert_eq!(next.notices, Vec::<String>::new());
    // Files saved later are kept.
    stage.run(&second, "1").await;
    let found = stage.run(&first, list).await;
    assert!(
        found.notices[0].contains("files are kept"),
        "{:?}",
        found.notices
    );
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn files_that_could_not_be_kept_are_not_told_to_be_kept() {
    let stage = Stage::with(|_| {}).await;
    let (first, second) = (WorkspaceId::fresh(), WorkspaceId::fresh());
    stage.run(&first, "_ = open('made', 'w').write('x')").await;
    // A file in place of the directory makes saving fail.
    let saved = stage.folder.path().join("work/saved").join(first.as_str());
    fs::write(&saved, "").unwrap();
    stage.run(&second, "1").await;
    fs::remove_file(&saved).unwrap();
    let outcome = stage.run(&first, "import os; os.listdir()").await;
    assert_eq!(outcome.value.unwrap().text, "[]");
    assert!(
        outcome.notices[0].contains("could not be saved"),
        "{:?}",
        outcome.notices
    );
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_call_that_waits_for_a_workspace_that_is_deleted_starts_nothing() {
    let stage = Stage::with(|settings| settings.max_workers = 2).await;
    let workspace = WorkspaceId::fresh();
    let ignore = |_, _: &str| ();
    let running = stage.run(
        &workspace,
        "open('made', 'w').close(); import time; time.sleep(1)",
    );
    let queued = async {
        until("it runs", || stage.sandbox.stats().busy == 1).await;
        let waiting = stage.sandbox.run(&workspace, cell("1"), &ignore);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        stage.sandbox.forget(&workspace);
        let refused = waiting.await.unwrap_err();
        assert!(matches!(refused, InterpreterError::Forgotten), "{refused}");
        // A later call starts afresh, after the deletion is complete.
        stage.value(&workspace, "import os; os.listdir()").await
    };
    let (_, listed) = tokio::join!(running, queued);
    assert_eq!(listed, "[]");
    stage.sandbox.forget(&workspace);
    until("nothing is left", || stage.sandbox.stats().workers == 0).await;
    until("no entry is left", || {
        stage.pool().workspaces.lock().is_empty()
    })
    .await;
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn calls_that_fail_or_are_given_up_leave_no_entry() {
    let stage = Stage::with(|settings| settings.max_waiting = 1).await;
    let first = WorkspaceId::fresh();
    let ignore = |_, _: &str| ();
    let running = stage.run(&first, "import time; time.sleep(0.5)");
    let others = async {
        until("it runs", || stage.sandbox.stats().busy == 1).await;
        let given_up = WorkspaceId::fresh();
        let mut waiting = Box::pin(stage.sandbox.run(&given_up, cell("1"), &ignore));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let too_many = WorkspaceId::fresh();
        let refused = stage.sandbox.run(&too_many, cell("1"), &ignore);
        assert!(matches!(refused.await, Err(InterpreterError::Overloaded)));
        drop(waiting);
        assert_eq!(stage.sandbox.stats().waiting, 0);
    };
    tokio::join!(running, others);
    until("one entry is left", || {
        stage.pool().workspaces.lock().len() <= 1
    })
    .await;
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn the_next_spare_is_started_after_the_first_call_or_when_that_takes_long() {
    let stage = Stage::with(|settings| (settings.spares, settings.max_workers) = (1, 4)).await;
    let started = || stage.sandbox.stats().started;
    let spare = || stage.sandbox.stats().spares == 1;
    until("there is a spare", spare).await;
    let began = Instant::now();
    let seen = Mutex::new(Vec::new());
    let heard = |_, _: &str| seen.lock().push((began.elapsed(), started()));
    let code = "print('now', flush=True)";
    let workspace = WorkspaceId::fresh();
    let ran = stage.sandbox.run(&workspace, cell(code), &heard).await;
    assert_eq!(ran.unwrap().error, None);
    let (elapsed, count) = seen.lock()[0];
    assert!(
        count == 1 || elapsed > REFILL_PAUSE,
        "{count} after {elapsed:?}"
    );
    until("there is one again", spare).await;
    // The next spare does not wait for a long call.
    let long = WorkspaceId::fresh();
    let running = stage.run(&long, "import time; time.sleep(8)");
    let again = until("there is one meanwhile", || {
        started() == 3 && stage.sandbox.stats().busy == 1 && spare()
    });
    tokio::select! {
        _ = running => panic!("the spare came too late"),
        () = again => {}
    }
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_file_that_got_another_name_is_told_whatever_call_placed_it() {
    let stage = Stage::with(|_| {}).await;
    let input = |number: usize| {
        let path = stage.folder.path().join(format!("input{number}"));
        fs::write(&path, "sent").unwrap();
        [WorkFile {
            id: format!("file-{number}"),
            name: "a.txt".to_owned(),
            content: Blob::file(path, 4),
            is_produced: false,
        }]
    };
    let (first, second, third) = (input(1), input(2), input(3));
    let workspace = WorkspaceId::fresh();
    let listed = stage.sandbox.list_files(&workspace, &first).await.unwrap();
    assert_eq!((listed.len(), listed.notices.len()), (1, 0));
    let listed = stage.sandbox.list_files(&workspace, &second).await.unwrap();
    assert!(listed.notices[0].starts_with("the file 'a.txt' is called"));
    // If the call fails, the next one reports the notice.
    let part = FileRange {
        name: "missing",
        offset: 0,
        max_bytes: 1,
    };
    let read = stage.sandbox.read_file(&workspace, &third, part).await;
    assert!(matches!(read, Err(InterpreterError::File { .. })));
    let next = stage.run(&workspace, "1").await;
    assert!(next.notices[0].starts_with("the file 'a.txt' is called"));
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn closing_saves_every_workspace_and_waits_for_no_call_beyond_its_limit() {
    let stage = Stage::with(|settings| settings.max_workers = 3).await;
    let all = [(); 3].map(|()| WorkspaceId::fresh());
    for workspace in &all {
        stage
            .run(workspace, "print(open('made', 'w').write('kept'))")
            .await;
    }
    let [first, second, held] = &all;
    // A call that does not end.
    let guard = stage.pool().acquire_worker(held).await.unwrap();
    let began = Instant::now();
    stage.sandbox.close(Duration::from_secs(2)).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    let directory = stage.folder.path().join("work/saved");
    let saved = |id: &WorkspaceId| {
        let file = directory.join(id.as_str()).join("files/made");
        fs::read_to_string(file).ok()
    };
    let noted = |id: &WorkspaceId| directory.join(format!("{}.note", id.as_str())).exists();
    for workspace in [first, second] {
        assert_eq!(saved(workspace).as_deref(), Some("kept"));
        assert!(!noted(workspace));
    }
    assert_eq!((saved(held), noted(held)), (None, true));
    // The call ends before the process does.
    drop(guard);
    stage.tasks.close();
    stage.tasks.wait().await;
    assert_eq!(saved(held).as_deref(), Some("kept"));
    assert!(!noted(held));
}
