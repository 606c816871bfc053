//! Code execution behind a command of the operator's: plain `env`, which isolates nothing, and `unshare`, which makes
//! namespaces, where the host lets it.

mod ending;
mod files;
mod hostile;
mod output;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use protocol::ids::WorkspaceId;
use sandbox::settings::{InterpreterLimits, Network, Settings, Tier};
use sandbox::{
    Cell, CellEnd, CellOutcome, FileRange, OutputStream, ResourceLimit, Sandbox, WorkFile,
};
use tempfile::TempDir;
use tokio_util::task::TaskTracker;

const PATIENCE: Duration = Duration::from_secs(120);

const UNSHARE: &[&str] = &["unshare", "-r", "-n", "-p", "-f", "--mount-proc"];

const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A sandbox, and a folder where commands may leave traces.
struct Stage {
    sandbox: Sandbox,
    folder: TempDir,
    tasks: TaskTracker,
}

/// Ignores the output of a cell.
fn ignore(_: OutputStream, _: &str) {}

/// The interpreter: one with packages where it is named, as for the other tests of code execution.
fn python() -> PathBuf {
    let named = std::env::var_os("LOOPWRIGHT_TEST_CODE_PYTHON").map(PathBuf::from);
    let system = Path::new("/usr/bin/python3");
    named.unwrap_or_else(|| match system.exists() {
        true => system.to_owned(),
        false => "python3".into(),
    })
}

/// The commands that this host can run: where nobody may make namespaces, it is `env` alone.
fn commands() -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let mut commands = vec![words(&["/usr/bin/env"])];
    let tried = Command::new(UNSHARE[0])
        .args(&UNSHARE[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    if tried.is_ok_and(|status| status.success()) {
        commands.push(words(UNSHARE));
    }
    commands
}

fn settings(folder: &Path, command: &[String]) -> Settings {
    Settings {
        python: python(),
        // By the folder in it, all processes of a test are known.
        search_path: format!("{SEARCH_PATH}:{}", folder.display()),
        timeout: PATIENCE,
        require: Tier::Strong,
        network: Network::None,
        command: command.to_vec(),
        limits: InterpreterLimits::default(),
        preload: Vec::new(),
        spares: 0,
        max_workers: 2,
        max_waiting: 4,
        idle_ttl: Duration::from_secs(600),
        max_age: Duration::from_secs(3600),
        work_dir: folder.join("work"),
        temporary: false,
        saved_ttl: None,
        saved_size: 1 << 30,
        uids: (60_100, 60_999),
        launcher: "/nonexistent/launcher".into(),
    }
}

impl Stage {
    async fn new(command: &[String]) -> Self {
        Self::with(command, |_| {}).await
    }

    async fn with(command: &[String], change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path(), command);
        change(&mut settings);
        let tasks = TaskTracker::new();
        let sandbox = match Sandbox::start(settings, &tasks).await {
            Ok(sandbox) => sandbox,
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        };
        Self {
            sandbox,
            folder,
            tasks,
        }
    }

    async fn run(&self, workspace: &WorkspaceId, code: &str) -> CellOutcome {
        self.run_within(workspace, code, PATIENCE).await
    }

    async fn run_within(
        &self,
        workspace: &WorkspaceId,
        code: &str,
        timeout: Duration,
    ) -> CellOutcome {
        let cell = Cell {
            code,
            outputs: &[],
            inputs: &[],
            timeout,
        };
        self.sandbox.run(workspace, cell, &ignore).await.unwrap()
    }

    /// The text of the value of a cell that must not fail.
    async fn value(&self, workspace: &WorkspaceId, code: &str) -> String {
        let outcome = self.run(workspace, code).await;
        assert_eq!(outcome.error, None, "{outcome:?}");
        outcome.value.expect("a value").text
    }

    /// Ends it; no process of it may be left.
    async fn end(self) {
        self.sandbox.close(PATIENCE).await;
        self.tasks.close();
        self.tasks.wait().await;
        let mine = self.folder.path().display().to_string();
        assert_eq!(processes_that_know(&mine), Vec::<String>::new());
    }
}

/// The command lines of live processes whose environment has this text.
fn processes_that_know(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let known = String::from_utf8_lossy(&environment).contains(text);
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            known.then(|| String::from_utf8_lossy(&line).into_owned())
        })
        .collect()
}
