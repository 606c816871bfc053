//! The stand-in server of a world: a sandbox, what attacks on it are after, and what became of that.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use loopwright::ids::WorkspaceId;
use loopwright::sandbox::settings::{Limits, Network, Settings, Tier};
use loopwright::sandbox::{Cell, CellEnd, CellOutcome, Live, OutputStream, Sandbox};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::world::{self, World};

/// The server's own directory.
pub(crate) const SERVER: &str = "/run/server";
const ABSTRACT: &str = "loopwright-canary";
/// Longest time of a cell that is not about time.
pub(crate) const CELL_LIMIT: Duration = Duration::from_secs(30);
/// Longest time until what was ended is gone.
const END_LIMIT: Duration = Duration::from_secs(10);

/// The server and everything around it.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) sandbox: Sandbox,
    /// What the probes know of the server.
    pub(crate) facts: Value,
    contacts: Arc<Mutex<Vec<String>>>,
    tasks: TaskTracker,
    /// The processes of the world before there were interpreters.
    processes: Vec<u32>,
    canaries: BTreeMap<PathBuf, String>,
    server: Vec<String>,
}

/// Hears nothing.
pub(crate) struct Deaf;

impl Live for Deaf {
    fn output(&self, _stream: OutputStream, _text: &str) {}
}

/// What a probe found, by its number and name.
pub(crate) type Found = BTreeMap<String, String>;

/// Plays a scene in a world: sets up the server, and looks at the end whether anything of it was touched.
pub(crate) fn play(world: World, limits: Limits, scene: impl AsyncFnOnce(&Stage)) {
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
        limits: Limits::default(),
        preload: Vec::new(),
        spares: 1,
        max_workers: 4,
        max_waiting: 10,
        idle_ttl: Duration::from_secs(600),
        max_age: Duration::from_secs(3600),
        work_dir: Path::new(SERVER).join("work"),
        saved_ttl: None,
        temporary: false,
        uids: (60_100, 60_999),
        launcher: world::launcher().into(),
    }
}

impl Stage {
    async fn set_up(world: World, settings: Settings) -> Self {
        let contacts = Arc::default();
        let ports = listen(&contacts);
        for (name, mode) in [
            ("loopwright.db", 0o600),
            ("loopwright.toml", 0o600),
            ("open.txt", 0o666),
        ] {
            let path = Path::new(SERVER).join(name);
            fs::write(&path, format!("CANARY {name}")).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        // A container has another /dev/shm than the world.
        fs::write("/dev/shm/canary", "CANARY").unwrap();
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
        let facts = json!({
            "strong": world.is_strong(),
            "server": std::process::id(),
            "server_directory": SERVER,
            "abstract": ABSTRACT,
            "tcp": ports.0,
            "udp": ports.1,
            "secret": world::SECRET.1,
            "python": world::python(),
            "python_home": sandbox.settings().python,
        });
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
        self.sandbox.run(workspace, cell, &Deaf).await.unwrap()
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
            *self.contacts.lock().unwrap(),
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
        self.sandbox.close().await;
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
        let run = Path::new(SERVER).join("work/run");
        let left: Vec<_> = fs::read_dir(run).into_iter().flatten().flatten().collect();
        assert!(left.is_empty(), "working directories are left: {left:?}");
        self.is_untouched();
    }
}

/// The cell that runs a file of probes.
pub(crate) fn probe_code(facts: &Value, probes: &str) -> String {
    let common = include_str!("probes/common.py");
    let facts = serde_json::to_string(&facts.to_string()).unwrap();
    format!("{common}\nfacts = json.loads({facts})\n{probes}\nprint(json.dumps(found))")
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
async fn until(what: &str, left: impl Fn() -> Vec<u32>) {
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

/// The files that attacks are after, with everything about them that an attack could change.
fn canaries() -> BTreeMap<PathBuf, String> {
    let files = [
        "/root/.ssh/id_ed25519",
        "/home/user/.ssh/id_ed25519",
        "/var/tmp/canary",
        "/tmp/canary",
        "/run/canary",
        "/run/shadow",
        "/run/server/loopwright.db",
        "/run/server/loopwright.toml",
        "/run/server/open.txt",
    ];
    let directories = ["/root", "/home", "/var/tmp", "/tmp", "/run", "/usr", "/etc"];
    let listing = |path: &Path| {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        format!("{names:?}")
    };
    let describe = |path: &str| {
        let path = PathBuf::from(path);
        let (about, content) = match fs::metadata(&path) {
            Ok(about) if about.is_dir() => (about, listing(&path)),
            Ok(about) => (about, fs::read_to_string(&path).unwrap_or_default()),
            Err(error) => return (path, error.to_string()),
        };
        let times = (
            about.mtime(),
            about.mtime_nsec(),
            about.ctime(),
            about.ctime_nsec(),
        );
        let rights = (about.mode(), about.uid(), about.gid(), about.nlink());
        (
            path,
            format!("{times:?} {rights:?} {} {content:?}", about.len()),
        )
    };
    files.into_iter().chain(directories).map(describe).collect()
}

/// What an attack on the server as a process could change.
fn server_state() -> Vec<String> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list"));
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name, which may hold anything: priority and niceness, then scheduling policy.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let scheduling = [15, 16, 37, 38].map(|number| fields[number]);
    vec![
        limits,
        allowed.unwrap().to_owned(),
        format!("{scheduling:?}"),
    ]
}

/// Listens on everything that an attack could call; returns the ports for TCP and UDP.
fn listen(contacts: &Arc<Mutex<Vec<String>>>) -> (u16, u16) {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let over_tcp = [
        tcp,
        TcpListener::bind(("::1", port)).unwrap(),
        TcpListener::bind("169.254.169.254:80").unwrap(),
    ];
    for listener in over_tcp {
        let name = format!("tcp {}", listener.local_addr().unwrap());
        watch(contacts, name, move || {
            listener
                .accept()
                .map(|(mut peer, _)| drop(peer.read(&mut [])))
        });
    }
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = udp.local_addr().unwrap().port();
    for socket in [udp, UdpSocket::bind("169.254.169.254:53").unwrap()] {
        let name = format!("udp {}", socket.local_addr().unwrap());
        watch(contacts, name, move || {
            socket.recv_from(&mut [0; 16]).map(drop)
        });
    }
    let paths = [
        format!("{SERVER}/admin.sock"),
        "/run/docker.sock".to_owned(),
    ];
    let by_path = paths.map(|path| {
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
        (path, listener)
    });
    let address = SocketAddr::from_abstract_name(ABSTRACT).unwrap();
    let by_name = (
        "abstract".to_owned(),
        UnixListener::bind_addr(&address).unwrap(),
    );
    for (name, listener) in by_path.into_iter().chain([by_name]) {
        watch(contacts, name, move || listener.accept().map(drop));
    }
    (port, udp_port)
}

/// Notes every contact, until the end of the process.
fn watch(
    contacts: &Arc<Mutex<Vec<String>>>,
    name: String,
    mut contact: impl FnMut() -> std::io::Result<()> + Send + 'static,
) {
    let contacts = contacts.clone();
    thread::spawn(move || {
        while contact().is_ok() {
            contacts.lock().unwrap().push(name.clone());
        }
    });
}
