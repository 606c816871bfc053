//! What the probe tries to reach: a secret file, sockets of every kind, all harmless to reach.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::super::settings::Settings;

/// Stand-ins for what the server has; gone when dropped.
#[derive(Debug)]
pub(super) struct Host {
    secret: PathBuf,
    socket: PathBuf,
    abstract_name: String,
    port: u16,
    _listeners: (TcpListener, UnixListener, UnixListener),
}

impl Host {
    pub(super) fn set_up(settings: &Settings) -> io::Result<Self> {
        let directory = std::path::absolute(&settings.work_dir)?;
        fs::create_dir_all(&directory)?;
        let name = Uuid::now_v7().simple().to_string();
        let (secret, socket) = (
            directory.join(format!(".selftest-{name}")),
            directory.join(format!(".selftest-{name}.sock")),
        );
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            // For everybody: what keeps the probe out must be the isolation.
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

    pub(super) fn secret(&self) -> &Path {
        &self.secret
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn abstract_name(&self) -> &str {
        &self.abstract_name
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for path in [&self.secret, &self.socket] {
            let _may_be_gone = fs::remove_file(path);
        }
    }
}
