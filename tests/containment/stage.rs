//! The stand-in server of a world: a sandbox, what attacks on it are after, and what became of that.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use protocol::ids::WorkspaceId;
use sandbox::settings::{InterpreterLimits, Network, Settings, Tier};
use sandbox::{Cell, CellEnd, CellOutcome, OutputStream, Sandbox};
use serde_json::Value;
use tokio_util::task::TaskTracker;

use crate::bait::{Contacts, SERVER, canaries, server_state, set_out};
use crate::world::{self, World};

/// Longest time of a cell that is not about time.
pub(crate) const CELL_LIMIT: Duration = Duration::from_secs(100);
/// Longest time until what was ended is gone.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The server and everything around it.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) sandbox: Sandbox,
    /// What the probes know of the server.
    pub(crate) facts: Value,
    contacts: Contacts,
    tasks: TaskTracker,
    /// The processes of the world before there were interpreters.
    processes: Vec<u32>,
    canaries: BTreeMap<PathBuf, String>,
    server: Vec<String>,
}

/// Ignores the output of a cell.
pub(crate) fn ignore(_: OutputStream, _: &str) {}

/// What a probe found, by its number and name.
pub(crate) type Found = BTreeMap<String, String>;

/// Plays a scene in a world: sets up the server, and looks at the end whether anything of it was touched.
pub(crate) fn play(world: World, limits: InterpreterLimits, scene: impl AsyncFnOnce(&Stage)) {
    let settings = Settings {
        limits,
        ..settings()
    };
    play_with(world, settings, scene);
}

/// The same with all settings given.
pub(crate) fn play_with(world: World, settings: Settings, scene: impl AsyncFnOnce(&Stage)) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stage = Stage::set_up(world, settings).await;
        scene(&stage).await;
        stage.tear_down().await;
    });
}

/// Settings of a small server.
pub(crate) fn settings() -> Settings {
    Settings {
        python: world::python(),
        search_path: String::new(),
        timeout: CELL_LIMIT,
        require: Tier::Basic,
        network: Network::None,
        command: Vec::new(),
        limits: InterpreterLimits::default(),
        preload: Vec::new(),
        spares: 1,
        max_workers: 8,
        max_waiting: 10,
        idle_ttl: Duration::from_secs(600),
        max_age: Duration::from_secs(3600),
        work_dir: Path::new(SERVER).join("work"),
        saved_ttl: None,
        saved_size: 1 << 30,
        temporary: false,
        uids: world::uids(),
        launcher: world::launcher().into(),
    }
}

impl Stage {
    async fn set_up(world: World, settings: Settings) -> Self {
        let contacts = Contacts::default();
        let facts = set_out(world, &contacts);
        let processes = processes();
        let tasks = TaskTracker::new();
        let sandbox = match Sandbox::start(settings, &tasks).await {
            Ok(sandbox) => sandbox,
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        };
        let expected = match world {
            World::Root | World::User => Tier::Strong,
            World::ContainerRoot => Tier::Medium,
            World::ContainerUser => Tier::Basic,
        };
        println!("{}", sandbox.report());
        assert_eq!(
            sandbox.report().level,
            expected,
            "{:?}",
            sandbox.report().missing
        );
        let mut stage = Self {
            world,
            sandbox,
            facts,
            contacts,
            tasks,
            processes,
            canaries: canaries(),
            server: Vec::new(),
        };
        // After the start: the runtime's threads are there by now.
        stage.server = server_state();
        stage
    }

    /// One cell.
    pub(crate) async fn run(&self, workspace: &WorkspaceId, code: &str) -> CellOutcome {
        self.run_within(workspace, code, CELL_LIMIT).await
    }

    /// One cell with this much time.
    pub(crate) async fn run_within(
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

    /// The value of an expression, or panics.
    pub(crate) async fn value(&self, workspace: &WorkspaceId, expression: &str) -> String {
        let outcome = self.run(workspace, expression).await;
        match outcome.value {
            Some(value) => value.text,
            None => panic!("{expression} has no value: {outcome:#?}"),
        }
    }

    /// Runs a file of probes; what each of them found.
    pub(crate) async fn probe(&self, workspace: &WorkspaceId, probes: &str) -> Found {
        self.probe_with(workspace, &self.facts, probes).await
    }

    /// The same with facts that only these probes need.
    pub(crate) async fn probe_with(
        &self,
        workspace: &WorkspaceId,
        facts: &Value,
        probes: &str,
    ) -> Found {
        let outcome = self.run(workspace, &probe_code(facts, probes)).await;
        assert_eq!(outcome.end, CellEnd::Completed, "{outcome:#?}");
        let line = outcome.stdout.lines().last().unwrap_or_default();
        match serde_json::from_str(line) {
            Ok(found) => found,
            Err(error) => panic!("the probes give no account: {error}: {outcome:#?}"),
        }
    }

    /// Nothing of the server has changed and nobody has called on it.
    pub(crate) fn is_untouched(&self) {
        assert_eq!(
            *self.contacts.lock(),
            Vec::<String>::new(),
            "listeners were reached"
        );
        assert_eq!(canaries(), self.canaries, "files outside were changed");
        assert_eq!(server_state(), self.server, "the server was changed");
    }

    /// Waits until no process of this name is left in the world.
    pub(crate) async fn no_process_is_called(&self, name: &str) {
        until(&format!("processes called {name}"), || {
            let named = processes().into_iter().filter(|pid| {
                fs::read_to_string(format!("/proc/{pid}/comm"))
                    .is_ok_and(|comm| comm.trim() == name)
            });
            named.collect()
        })
        .await;
    }

    /// Ends everything; no process, file or mount may be left of it.
    async fn tear_down(self) {
        self.is_untouched();
        self.sandbox.close(Duration::from_secs(60)).await;
        self.tasks.close();
        self.tasks.wait().await;
        until("processes", || {
            let known = &self.processes;
            processes()
                .into_iter()
                .filter(|pid| !known.contains(pid))
                .collect()
        })
        .await;
        let left = working_directories();
        assert!(left.is_empty(), "working directories are left: {left:?}");
        self.is_untouched();
    }
}

/// The working directories in the directory of the server that lives, which must be there for them to be looked for.
fn working_directories() -> Vec<PathBuf> {
    let entries = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    };
    let named =
        |path: &PathBuf, test: fn(&str) -> bool| test(&path.file_name().unwrap().to_string_lossy());
    let mut run = entries(&Path::new(SERVER).join("work"));
    run.retain(|path| named(path, |name| name.starts_with("run-")));
    assert_eq!(run.len(), 1, "{run:?}");
    let mut left = entries(&run[0]);
    // The server's own.
    left.retain(|path| !named(path, |name| name == ".lock" || name == "kept"));
    left
}

/// The cell that runs a file of probes.
pub(crate) fn probe_code(facts: &Value, probes: &str) -> String {
    let common = include_str!("probes/common.py");
    let facts = serde_json::to_string(&facts.to_string()).unwrap();
    format!("{common}\nfacts = json.loads({facts})\n{probes}\nprint(json.dumps(found))")
}

/// Runs probes as the server itself, without any isolation: what they find and whom they reach, to show that they
/// would.
pub(crate) fn unprotected(world: World, probes: &str) -> (Found, Vec<String>) {
    let contacts = Contacts::default();
    let mut facts = set_out(world, &contacts);
    facts["strong"] = false.into();
    let python = Command::new(world::python())
        .args(["-I", "-c", &probe_code(&facts, probes)])
        .current_dir(SERVER)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&python.stdout);
    let found = serde_json::from_str(said.lines().last().unwrap_or_default());
    let found = found.unwrap_or_else(|error| panic!("{error}: {python:?}"));
    let contacts = contacts.lock().clone();
    (found, contacts)
}

/// Every probe was refused, or found nothing to attack, except for those that begin like one of `allowed`, which all
/// did what they tried.
pub(crate) fn judge(found: &Found, allowed: &[&str]) {
    let held = |what: &str| what.starts_with("refused") || what.starts_with("absent");
    let is_allowed = |name: &str| allowed.iter().any(|allowed| name.starts_with(allowed));
    let wrong: Vec<_> = found
        .iter()
        .filter(|(name, what)| match is_allowed(name) {
            true => !what.starts_with("done"),
            false => !held(what),
        })
        .collect();
    assert!(wrong.is_empty(), "unexpected: {wrong:#?}");
    for allowed in allowed {
        assert!(
            found.keys().any(|name| name.starts_with(allowed)),
            "there is no probe '{allowed}'"
        );
    }
}

/// Waits until there are none, or panics with those that are left.
pub(crate) async fn until(what: &str, mut left: impl FnMut() -> Vec<u32>) {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let pids = left();
        if pids.is_empty() {
            return;
        }
        if Instant::now() > deadline {
            let described: Vec<_> = pids.into_iter().map(describe).collect();
            panic!("{what} are left: {described:#?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn describe(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = read("status");
    let fields = status.lines().filter(|line| {
        ["Name", "State", "PPid", "Uid"]
            .iter()
            .any(|field| line.starts_with(field))
    });
    format!("{pid}: {:?}", fields.collect::<Vec<_>>())
}

/// The processes of the world.
pub(crate) fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}
