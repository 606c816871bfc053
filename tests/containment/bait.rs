//! What attacks are after: secrets, listeners, the server itself; and what can be seen of whether they got there.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::world::{self, World};

/// The server's own directory.
pub(crate) const SERVER: &str = "/run/server";
const ABSTRACT: &str = "loopwright-canary";

/// Who has called on what.
pub(crate) type Contacts = Arc<Mutex<Vec<String>>>;

/// Puts out the bait; what probes know of it.
pub(crate) fn set_out(world: World, contacts: &Contacts) -> Value {
    let ports = listen(contacts);
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
    json!({
        "strong": world.is_strong(),
        "server": std::process::id(),
        "server_directory": SERVER,
        "abstract": ABSTRACT,
        "tcp": ports.0,
        "udp": ports.1,
        "secret": world::SECRET.1,
        "others": [],
    })
}

/// The files that attacks are after, with everything about them that an attack could change.
pub(crate) fn canaries() -> BTreeMap<PathBuf, String> {
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
    // Of the machine itself nothing: others change it meanwhile.
    let directories = ["/root", "/home", "/var/tmp", "/tmp", "/run"];
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
pub(crate) fn server_state() -> Vec<String> {
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
fn listen(contacts: &Contacts) -> (u16, u16) {
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
    contacts: &Contacts,
    name: String,
    mut contact: impl FnMut() -> std::io::Result<()> + Send + 'static,
) {
    let contacts = contacts.clone();
    thread::spawn(move || {
        while contact().is_ok() {
            contacts.lock().push(name.clone());
        }
    });
}
