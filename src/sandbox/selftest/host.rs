//! Targets for the probe: a secret file and sockets of every kind, all harmless.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Longest path of a socket, in bytes, which is the kernel's limit. Another directory is used where the path would be
/// longer.
/// Tried by `host::the_socket_can_be_reached_however_long_the_path_of_the_directory_is`.
const MAX_SOCKET_PATH: usize = 107;
/// The directory of the socket if its path would be too long.
const SHORT_DIRECTORY: &str = "/tmp";

/// Stand-ins for the server's resources; removed when dropped.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) secret: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) abstract_name: String,
    pub(super) port: u16,
    _listeners: (TcpListener, UnixListener, UnixListener),
}

impl Host {
    pub(super) fn set_up(work_dir: &Path) -> io::Result<Self> {
        let directory = std::path::absolute(work_dir)?;
        fs::create_dir_all(&directory)?;
        let name = Uuid::now_v7().simple().to_string();
        let secret = directory.join(format!(".selftest-{name}"));
        let mut socket = secret.with_extension("sock");
        if socket.as_os_str().len() > MAX_SOCKET_PATH {
            socket = Path::new(SHORT_DIRECTORY).join(format!(".selftest-{name}.sock"));
        }
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            // Readable for everybody, so that only the isolation can keep the probe out.
            .mode(0o644)
            .open(&secret)?;
        file.write_all(b"secret")?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let port = tcp.local_addr()?.port();
        let address = SocketAddr::from_abstract_name(&name)?;
        let listeners = (
            tcp,
            UnixListener::bind_addr(&address)?,
            UnixListener::bind(&socket)?,
        );
        fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
        Ok(Self {
            secret,
            socket,
            abstract_name: name,
            port,
            _listeners: listeners,
        })
    }
}

/// Identifies the PID namespace of this server.
pub(super) fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.display().to_string()
}

impl Drop for Host {
    fn drop(&mut self) {
        for path in [&self.secret, &self.socket] {
            let _may_be_gone = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_socket_can_be_reached_however_long_the_path_of_the_directory_is() {
        let folder = tempfile::tempdir().unwrap();
        for directory in [
            folder.path().to_owned(),
            folder.path().join("d".repeat(200)),
        ] {
            let host = Host::set_up(&directory).unwrap();
            assert!(host.secret.starts_with(&directory));
            UnixStream::connect(&host.socket).unwrap();
            let socket = host.socket.clone();
            drop(host);
            assert!(!socket.exists() && fs::read_dir(&directory).unwrap().next().is_none());
        }
    }
}
