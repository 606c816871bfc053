//! An interpreter that the launcher isolates; its channels are descriptors.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use super::{MAX_PIPE, ProcessEvent, ProcessExit, READ_SIZE, drain};
use crate::files::WorkDir;
use crate::launcher::ARGUMENT;
use crate::launcher::spec::{LauncherCommand, LauncherMessage, Spec};
use crate::launcher_socket::{KillHandle, LauncherSocket};
use crate::{OutputStream, START_LIMIT, SandboxError};

/// Longest time that a launcher has for killing and reaping all processes after its socket is closed. After it the
/// launcher is killed.
/// Tried by `reservation::a_place_is_kept_until_the_launcher_has_ended`.
pub(crate) const END_LIMIT: Duration = Duration::from_secs(10);

/// A launcher and its interpreter.
#[derive(Debug)]
pub(crate) struct LaunchedProcess {
    launcher: Child,
    socket: LauncherSocket,
    interpreter: OwnedFd,
    control: UnixStream,
    /// Bytes still to be written to the control socket.
    outgoing: BytesMut,
    read: Read,
    stdout: ChildStdout,
    stderr: ChildStderr,
    stdout_open: bool,
    stderr_open: bool,
    pub(crate) files: Arc<WorkDir>,
    /// The directory for temporary files.
    pub(crate) tmp: Arc<WorkDir>,
    /// Other writable directories, whose usage counts as memory.
    pub(crate) others: Arc<[OwnedFd]>,
    /// The version of the kernel's Landlock interface.
    pub(crate) landlock: i32,
    /// Whether the interpreter has a `/proc`.
    pub(crate) proc: bool,
}

/// Read buffers by channel.
#[derive(Debug, Default)]
struct Read {
    control: BytesMut,
    stdout: BytesMut,
    stderr: BytesMut,
}

impl LaunchedProcess {
    /// Starts a launcher, which starts the interpreter. The interpreter sees its working directory as `seen_as`.
    /// `began` receives a pidfd of the launcher, whose exit is the end of everything.
    pub(crate) async fn start(
        launcher: &Path,
        spec: &Spec,
        seen_as: String,
        began: impl FnOnce(OwnedFd),
    ) -> Result<Self, SandboxError> {
        let at = |step| move |source| SandboxError::Step { step, source };
        let (mut socket, theirs) =
            LauncherSocket::pair().map_err(at("making the launcher's socket"))?;
        let mut launcher = Command::new(launcher)
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(at("starting the launcher"))?;
        let pid = launcher
            .id()
            .and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let pid = pid.ok_or_else(|| at("starting the launcher")(io::ErrorKind::NotFound.into()))?;
        // The process is not reaped yet, so the id cannot have been reused.
        let opened = pidfd_open(pid, PidfdFlags::empty());
        began(opened.map_err(|error| at("watching the launcher")(error.into()))?);
        let (Some(stdout), Some(stderr)) = (launcher.stdout.take(), launcher.stderr.take()) else {
            let cause = io::ErrorKind::NotFound.into();
            return Err(at("making the output pipes")(cause));
        };
        let launched = timeout(START_LIMIT, async {
            socket.send(spec).await?;
            socket.receive().await
        });
        let (message, descriptors) = launched
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(at("launching the interpreter"))?;
        let (landlock, proc) = match message {
            LauncherMessage::Started { landlock, proc } => (landlock, proc),
            LauncherMessage::Failed { step, errno } => {
                let source = io::Error::from_raw_os_error(errno);
                return Err(SandboxError::Launch { step, source });
            }
            LauncherMessage::Ended { .. } => {
                let cause = io::ErrorKind::BrokenPipe.into();
                return Err(at("launching the interpreter")(cause));
            }
        };
        let mut descriptors = descriptors.into_iter();
        let mut descriptor = || {
            let cause = || at("launching the interpreter")(io::ErrorKind::InvalidData.into());
            descriptors.next().ok_or_else(cause)
        };
        let (control, interpreter) = (descriptor()?, descriptor()?);
        let (data, tmp) = (descriptor()?, descriptor()?);
        let control = StdStream::from(control);
        let control = control
            .set_nonblocking(true)
            .and_then(|()| UnixStream::from_std(control))
            .map_err(at("opening the control socket"))?;
        let private = spec.isolation.has_namespaces();
        Ok(Self {
            launcher,
            socket,
            interpreter,
            control,
            outgoing: BytesMut::new(),
            read: Read::default(),
            stdout,
            stderr,
            stdout_open: true,
            stderr_open: true,
            files: Arc::new(WorkDir::new(data, private).seen_as(seen_as)),
            tmp: Arc::new(WorkDir::new(tmp, private)),
            others: descriptors.collect(),
            landlock,
            proc,
        })
    }

    /// The launcher's process id while it lives.
    pub(crate) fn id(&self) -> Option<u32> {
        self.launcher.id()
    }

    /// A handle that ends everything from anywhere.
    pub(crate) fn kill_handle(&self) -> io::Result<KillHandle> {
        self.socket.kill_handle()
    }

    /// Suspends or resumes the interpreter. A launcher that has ended has ended the interpreter too.
    pub(super) fn send_command(&self, command: LauncherCommand) {
        if let Err(error) = self.socket.send_command(command) {
            tracing::debug!(%error, "a code launcher accepts no commands any more");
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.outgoing.extend_from_slice(bytes);
    }

    pub(super) async fn next(&mut self) -> ProcessEvent {
        loop {
            let Read {
                control,
                stdout,
                stderr,
            } = &mut self.read;
            for (buffer, size) in [
                (&mut *control, READ_SIZE),
                // Smaller, because text takes longer to process; endless output must not block other tasks.
                (&mut *stdout, READ_SIZE / 4),
                (&mut *stderr, READ_SIZE / 4),
            ] {
                buffer.reserve(size);
            }
            let (mut from_worker, mut to_worker) = self.control.split();
            tokio::select! {
                sent = to_worker.write(&self.outgoing), if !self.outgoing.is_empty() => match sent {
                    Ok(sent) => self.outgoing.advance(sent),
                    Err(_) => {
                        self.outgoing.clear();
                        return ProcessEvent::Closed;
                    }
                },
                read = from_worker.read_buf(control) => return match read {
                    Ok(read) if read > 0 => ProcessEvent::Control(control.split()),
                    _ => ProcessEvent::Closed,
                },
                read = self.stdout.read_buf(stdout), if self.stdout_open => match read {
                    Ok(read) if read > 0 => return ProcessEvent::Output(OutputStream::Stdout, stdout.split()),
                    _ => self.stdout_open = false,
                },
                read = self.stderr.read_buf(stderr), if self.stderr_open => match read {
                    Ok(read) if read > 0 => return ProcessEvent::Output(OutputStream::Stderr, stderr.split()),
                    _ => self.stderr_open = false,
                },
                ended = ended(&mut self.socket) => return ProcessEvent::Ended(ended),
            }
        }
    }

    pub(super) async fn ended(&mut self) -> ProcessExit {
        ended(&mut self.socket).await
    }

    pub(super) fn take_output(&mut self, mut take: impl FnMut(OutputStream, &[u8])) {
        drain(&self.stdout, MAX_PIPE, |bytes| {
            take(OutputStream::Stdout, bytes);
        });
        drain(&self.stderr, MAX_PIPE, |bytes| {
            take(OutputStream::Stderr, bytes);
        });
    }

    pub(super) fn interrupt(&self) -> io::Result<()> {
        rustix::process::pidfd_send_signal(&self.interpreter, Signal::INT).map_err(Into::into)
    }

    /// Closes the socket, which makes the launcher end everything, and waits for that.
    pub(super) async fn kill(&mut self) {
        self.socket.close();
        if timeout(END_LIMIT, self.launcher.wait()).await.is_err() {
            tracing::error!("a code launcher did not end in time and is killed");
            let _may_have_ended = self.launcher.start_kill();
        }
    }
}

/// Waits until the interpreter has exited by itself.
async fn ended(socket: &mut LauncherSocket) -> ProcessExit {
    match socket.receive().await {
        Ok((LauncherMessage::Failed { step, errno }, _)) => {
            ProcessExit::Failed(step, io::Error::from_raw_os_error(errno))
        }
        Ok((LauncherMessage::Ended { code, signal }, _)) => match (code, signal) {
            (Some(code), _) => ProcessExit::Code(code),
            (None, Some(signal)) => ProcessExit::Signal(signal),
            (None, None) => ProcessExit::Unknown,
        },
        Ok((LauncherMessage::Started { .. }, _)) | Err(_) => ProcessExit::Unknown,
    }
}
