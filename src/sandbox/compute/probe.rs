//! Checks what a confined process cannot do.

use std::fs::File;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// What was attempted.
    pub what: String,
    /// The error number; `None` if it succeeded.
    pub errno: Option<i32>,
}

/// Attempts what a confined process must not be able to do. Call it only in such a process; elsewhere most attempts
/// would succeed, without harm.
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
        // A successful exec would replace this process, so any answer shows that it failed.
        attempt("execute a program", || {
            Err::<(), _>(Command::new("/bin/true").exec())
        }),
        attempt("start a thread", || {
            let started = thread::Builder::new().spawn(|| {});
            started.map(|thread| thread.join().is_ok())
        }),
        attempt("signal a process", || {
            let pid = Pid::from_raw(1).ok_or(io::ErrorKind::NotFound)?;
            // A window size signal, which has no effect.
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
