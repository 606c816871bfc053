//! The worlds: namespaces in which an attack that succeeds does no harm, and the test run again inside one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use serde_json::{Value, json};

/// Says inside a world which one it is.
const INSIDE: &str = "LOOPWRIGHT_CONTAINMENT_WORLD";
/// The interpreter for the worlds, one with the usual packages; else the stock one is taken.
const CODE_PYTHON: &str = "LOOPWRIGHT_TEST_CODE_PYTHON";
/// What the server keeps secret in its environment.
pub(crate) const SECRET: (&str, &str) = ("LOOPWRIGHT_API_KEY", "CANARY-of-the-environment");
/// Longest time of one test in a world, in seconds.
const TIME_LIMIT: &str = "300";
/// Most processes and threads, and most memory, of a whole world.
const MAX_PROCESSES: &str = "1500";
const MAX_MEMORY: u64 = 6 * 1024 * 1024 * 1024;
/// Tells worlds that exist at the same time apart.
const NUMBER: &str = "LOOPWRIGHT_CONTAINMENT_NUMBER";
/// What is left to root in a container by Docker's defaults.
const CONTAINER_CAPABILITIES: [&str; 14] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_MKNOD",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
/// The user that a server without root's rights runs as.
const USER: u32 = 1000;

/// Who the server is and what it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// Root on a host.
    Root,
    /// A user on a host.
    User,
    /// Root in a container with Docker's defaults.
    ContainerRoot,
    /// A user in such a container.
    ContainerUser,
}

impl World {
    fn is_container(self) -> bool {
        matches!(self, Self::ContainerRoot | Self::ContainerUser)
    }

    pub(crate) fn is_root(self) -> bool {
        matches!(self, Self::Root | Self::ContainerRoot)
    }

    /// Whether interpreters have namespaces and a root of their own here.
    pub(crate) fn is_strong(self) -> bool {
        !self.is_container()
    }

    /// The server's user. Another for each world: the kernel counts a user's processes across them.
    fn uid(self, number: u32) -> u32 {
        if self.is_root() { 0 } else { USER + number }
    }
}

/// Runs `test` in a world of this kind: outside of one makes it and runs the test of this name again there.
pub(crate) fn inside(world: World, name: &str, test: impl FnOnce(World)) {
    if std::env::var_os(INSIDE).is_some() {
        test(world);
        // What the outer process waits for; an empty selection of tests would end well too.
        println!("held: {name}");
        return;
    }
    // Those that measure others' time or use up a machine have it to themselves.
    static TURN: RwLock<()> = RwLock::new(());
    let alone = ALONE.iter().any(|test| name.ends_with(test));
    let (_alone, _shared);
    if alone {
        _alone = TURN.write();
    } else {
        _shared = TURN.read();
    }
    let groups = Groups::make();
    let output = command(world, name, &groups)
        .stdin(Stdio::null())
        .output()
        .expect("unshare can be executed");
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = said.join("\n");
    assert!(
        output.status.success() && said.contains(&format!("held: {name}")),
        "{name} in {world:?}: {}\n{said}\n{REMEDY}",
        output.status
    );
    println!("{said}");
}

const ALONE: [&str; 6] = [
    "::process_bombs",
    "::memory",
    "::writers",
    "::measuring",
    "::churn",
    "::crowd",
];
const REMEDY: &str = "(If no world could be made: this suite needs root or sudo without a password, namespaces, and the \
                      programs unshare, setpriv, ip and crun: Debian packages util-linux, iproute2, crun.)";

fn command(world: World, name: &str, groups: &Groups) -> Command {
    let this = std::env::current_exe().expect("the test has a file");
    let python = Python::find();
    let keep: Vec<String> = [this.clone(), PathBuf::from(launcher())]
        .into_iter()
        .chain(python.trees)
        .map(|path| path.display().to_string())
        .collect();
    let inner_environment = [
        (INSIDE, format!("{world:?}")),
        (CODE_PYTHON, python.program.display().to_string()),
        ("HAS_PACKAGES", u8::from(python.has_packages).to_string()),
        ("RUST_BACKTRACE", "0".to_owned()),
        (NUMBER, groups.number.to_string()),
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
        (SECRET.0, SECRET.1.to_owned()),
    ];
    let inner: Vec<String> = [
        this.display().to_string().as_str(),
        "--exact",
        name,
        "--include-ignored",
        "--nocapture",
        "--test-threads=1",
    ]
    .map(str::to_owned)
    .into();
    let oci = match world.is_container() {
        true => container(world, groups.number, &inner, &inner_environment).to_string(),
        false => String::new(),
    };
    let mut command = as_root("env");
    command
        .arg("-i")
        .args(inner_environment.map(|(name, value)| format!("{name}={value}")))
        .arg(format!("WORLD_UID={}", world.uid(groups.number)))
        .arg(format!("WORLD_KEEP={}", keep.join("\n")))
        .arg(format!("WORLD_CGROUPS={}", groups.lines()))
        .arg(format!("WORLD_OCI={oci}"))
        .args(["timeout", "--kill-after=5", TIME_LIMIT, "unshare"])
        .args([
            "--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--fork",
        ])
        .arg("--kill-child=KILL")
        .args(["--", "bash", "-c", include_str!("world.sh"), "world.sh"])
        .args(inner);
    command
}

/// A command that is run as root.
fn as_root(program: &str) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    if is_root {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    command
}

/// The interpreter of the worlds.
struct Python {
    program: PathBuf,
    trees: Vec<PathBuf>,
    has_packages: bool,
}

impl Python {
    fn find() -> Self {
        let configured = std::env::var_os(CODE_PYTHON);
        let program = configured.clone().unwrap_or_else(|| "python3".into());
        let question = "import os, sys; print(sys.executable, sys.prefix, sys.base_prefix, \
                        os.path.dirname(os.path.dirname(os.path.realpath(sys.executable))), sep='\\n')";
        let output = Command::new(&program)
            .args(["-I", "-c", question])
            .output()
            .expect("there is a python3");
        let said = String::from_utf8(output.stdout).expect("paths are text");
        let mut lines = said.lines().map(PathBuf::from);
        Self {
            program: lines.next().expect("Python says where it is"),
            trees: lines.collect(),
            has_packages: configured.is_some(),
        }
    }
}

/// The binary under test, which is its own launcher.
pub(crate) fn launcher() -> &'static str {
    env!("CARGO_BIN_EXE_loopwright")
}

/// The interpreter, inside a world.
pub(crate) fn python() -> PathBuf {
    std::env::var_os(CODE_PYTHON)
        .map(PathBuf::from)
        .expect("the world names its interpreter")
}

/// User ids for interpreters that no other world gives out, as the kernel counts a user's processes across worlds.
pub(crate) fn uids() -> (u32, u32) {
    const COUNT: u32 = 100;
    let number = std::env::var_os(NUMBER).and_then(|number| number.to_str()?.parse::<u32>().ok());
    let first = 60_100 + number.expect("worlds have numbers") * COUNT;
    (first, first + COUNT - 1)
}

/// Whether the interpreter has numpy and the others.
pub(crate) fn has_packages() -> bool {
    std::env::var_os("HAS_PACKAGES").is_some_and(|has| has == "1")
}

/// Control groups that bound a world, removed when dropped; none where the machine does not let us make them.
struct Groups {
    number: u32,
    made: Vec<PathBuf>,
}

impl Groups {
    fn make() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("loopwright-containment-{}-{number}", std::process::id());
        let memory = MAX_MEMORY.to_string();
        let limits: [(&str, &str, &str); 4] = [
            ("/sys/fs/cgroup/pids", "pids.max", MAX_PROCESSES),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", &memory),
            ("/sys/fs/cgroup", "pids.max", MAX_PROCESSES),
            ("/sys/fs/cgroup", "memory.max", &memory),
        ];
        let mut made: Vec<PathBuf> = Vec::new();
        for (parent, file, value) in limits {
            let group = Path::new(parent).join(&name);
            let _there_already = fs::create_dir(&group);
            if group.join(file).is_file() && fs::write(group.join(file), value).is_ok() {
                made.push(group);
            } else {
                let _not_made = fs::remove_dir(&group);
            }
        }
        Self { number, made }
    }

    fn lines(&self) -> String {
        let lines: Vec<String> = self
            .made
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        lines.join("\n")
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for group in &self.made {
            // The last process of the world may be a moment away from its end.
            let removed = (0..200).any(|_| {
                let removed = fs::remove_dir(group).is_ok();
                if !removed {
                    std::thread::park_timeout(std::time::Duration::from_millis(5));
                }
                removed
            });
            if !removed {
                eprintln!("the control group {} is still there", group.display());
            }
        }
    }
}

/// What Docker makes of `docker run` without options, as configuration of an OCI runtime.
fn container(
    world: World,
    number: u32,
    arguments: &[String],
    environment: &[(&str, String)],
) -> Value {
    let environment: Vec<String> = environment
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let none: [&str; 0] = [];
    let held = if world.is_root() {
        &CONTAINER_CAPABILITIES[..]
    } else {
        &none[..]
    };
    let seccomp: Value =
        serde_json::from_str(include_str!("docker-seccomp.json")).expect("the profile is JSON");
    // The null device under the names of those that must not be reached.
    let devices = ["kmsg", "mem", "vda", "kvm", "fuse"].map(|name| json!({"path": format!("/dev/{name}"), "type": "c", "major": 1, "minor": 3, "fileMode": 0o666}));
    let mount = |place: &str, kind: &str, options: &[&str]| json!({"destination": place, "type": kind, "source": kind, "options": options});
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": world.uid(number), "gid": world.uid(number)},
            "args": arguments,
            "env": environment,
            "cwd": "/",
            "capabilities": {
                "bounding": CONTAINER_CAPABILITIES,
                "effective": held,
                "permitted": held,
                "inheritable": none,
                "ambient": none,
            },
        },
        "root": {"path": "rootfs", "readonly": true},
        "hostname": "container",
        "mounts": [
            mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
            mount("/dev/pts", "devpts", &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
            mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
            mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        ],
        "linux": {
            // The network is the world's.
            "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "cgroup"}],
            "devices": devices,
            "seccomp": seccomp,
            "maskedPaths": [
                "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
                "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
                "/sys/firmware",
            ],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    })
}
