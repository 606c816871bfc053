//! What a confined process finds when it tries to do more than compute.

use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// At what.
    pub what: String,
    /// How it failed, as an error number; none where it succeeded.
    pub errno: Option<i32>,
}

/// Tries what a confined process must not be able to do. To be called in such a process only; elsewhere most of it would
/// work, which does no harm.
pub fn attempts() -> Vec<ProbeResult> {
    vec![
        attempt("read a file", || File::open("/etc/passwd")),
        attempt("list a directory", || std::fs::read_dir("/")),
        attempt("look at a file", || std::fs::metadata("/")),
        attempt("make a file", || File::create("/dev/shm/confined")),
        attempt("make a TCP socket", || TcpListener::bind("127.0.0.1:0")),
        attempt("make a UDP socket", || UdpSocket::bind("127.0.0.1:0")),
        attempt("make a pair of sockets", UnixStream::pair),
        attempt("start a process", || Command::new("/bin/true").spawn()),
        // It would take the place of this process: an answer at all shows that it did not.
        attempt("execute a program", || {
            Err::<(), _>(Command::new("/bin/true").exec())
        }),
        attempt("start a thread", || {
            let started = thread::Builder::new().spawn(|| {});
            started.map(|thread| thread.join().is_ok())
        }),
        attempt("signal a process", || {
            let pid = Pid::from_raw(1).ok_or(io::ErrorKind::NotFound)?;
            // The signal of a window that changed its size: it does nothing.
            rustix::process::kill_process(pid, Signal::WINCH).map_err(io::Error::from)
        }),
        attempt("make a pipe", io::pipe),
    ]
}

fn attempt<T>(what: &str, action: impl FnOnce() -> io::Result<T>) -> ProbeResult {
    let errno = action()
        .err()
        .map(|error| error.raw_os_error().unwrap_or(0));
    ProbeResult {
        what: what.to_owned(),
        errno,
    }
}
