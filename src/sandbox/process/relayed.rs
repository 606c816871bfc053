//! An interpreter that the operator's command isolates. The relay inside exchanges frames over the command's stdin and
//! stdout; they carry everything.
//!
//! Received data is as hostile as the code. It is bounded by the size of the buffers here, by the time limit of a
//! request, and by the deadline of the running call.

mod start;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::{MAX_PIPE, ProcessEvent, ProcessExit, READ_SIZE, drain};
use crate::OutputStream;
use crate::output::OutputBuffer;
use crate::relay_protocol::{self, FileReply, FileRequest, RelayDecoder, RelayMessage};

/// Longest time of a file request. After it the interpreter counts as lost.
const REPLY_LIMIT: Duration = Duration::from_secs(20);
/// Longest time for ending the interpreter. After it the interpreter counts as lost.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// How long the command has to end after its stdin is closed, then after SIGTERM, then after SIGKILL. Then it is given
/// up.
/// Tried by `ending::a_command_that_will_not_end_is_killed`.
const END_STEPS: [(Option<Signal>, Duration); 3] = [
    (None, Duration::from_secs(2)),
    (Some(Signal::TERM), Duration::from_secs(1)),
    (Some(Signal::KILL), Duration::from_secs(2)),
];
/// Most bytes of events that are queued while a reply is awaited; further output is dropped.
const MAX_QUEUED_BYTES: usize = 1024 * 1024;

/// A command and its relay.
#[derive(Debug)]
pub(crate) struct RelayedProcess {
    command: Child,
    /// Closing it ends everything.
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    stderr: ChildStderr,
    stderr_open: bool,
    outgoing: BytesMut,
    read: BytesMut,
    incoming: RelayDecoder,
    /// Events that arrived while a reply was awaited.
    queued: VecDeque<ProcessEvent>,
    queued_bytes: usize,
    stderr_text: OutputBuffer,
    last_request: u32,
    /// The working directory as the code sees it.
    pub(crate) directory: String,
    interpreter_ended: bool,
    /// Set when the connection is lost.
    lost: Option<Lost>,
}

#[derive(Debug, Clone, Copy)]
enum Lost {
    /// The command has ended.
    Ended,
    /// A protocol violation.
    Violation,
    /// A reply did not arrive in time.
    Timeout,
}

impl RelayedProcess {
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.outgoing
            .extend_from_slice(&relay_protocol::control(bytes));
    }

    pub(super) fn interrupt(&mut self) {
        self.outgoing
            .extend_from_slice(&relay_protocol::interrupt());
    }

    pub(super) async fn next(&mut self) -> ProcessEvent {
        if let Some(event) = self.queued.pop_front() {
            self.queued_bytes = self.queued_bytes.saturating_sub(event.size());
            return event;
        }
        loop {
            let message = self.message().await;
            if let Some(event) = self.event(message) {
                return event;
            }
        }
    }

    pub(super) async fn ended(&mut self) -> ProcessExit {
        loop {
            let message = self.message().await;
            match self.event(message) {
                Some(ProcessEvent::Ended(ended)) => return ended,
                // Nothing more will arrive; the caller has a time limit.
                Some(ProcessEvent::Violation) => std::future::pending().await,
                Some(event) => self.queue(event),
                None => {}
            }
        }
    }

    pub(super) fn take_output(&mut self, mut take: impl FnMut(OutputStream, &[u8])) {
        let incoming = &mut self.incoming;
        let mut messages = Vec::new();
        drain(&self.stdout, MAX_PIPE, |bytes| {
            incoming.push(bytes);
            messages.extend(std::iter::from_fn(|| incoming.next()));
        });
        for message in messages {
            let message = self.checked(message);
            if let Some(event) = self.event(message) {
                self.queue_unbounded(event);
            }
        }
        for event in std::mem::take(&mut self.queued) {
            match event {
                ProcessEvent::Output(stream, bytes) => take(stream, &bytes),
                other => self.queued.push_back(other),
            }
        }
        self.queued_bytes = self.queued.iter().map(ProcessEvent::size).sum();
    }

    /// Executes a file request.
    ///
    /// # Cancel safety
    /// If the future is dropped, the request may still be executed; its reply is ignored.
    pub(crate) async fn ask(&mut self, request: FileRequest<'_>) -> io::Result<FileReply> {
        if self.is_lost() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.last_request = self.last_request.wrapping_add(1);
        let id = self.last_request;
        self.outgoing.extend_from_slice(&request.encode(id));
        let reply = timeout(REPLY_LIMIT, async {
            loop {
                match self.message().await {
                    Ok(RelayMessage::File(reply)) if reply.id == id => return Ok(reply),
                    message => {
                        if let Some(event) = self.event(message) {
                            let over =
                                matches!(event, ProcessEvent::Violation) || self.lost.is_some();
                            self.queue(event);
                            if over {
                                return Err(io::ErrorKind::BrokenPipe.into());
                            }
                        }
                    }
                }
            }
        });
        match reply.await {
            Ok(reply) => reply,
            Err(_) => {
                self.lost = Some(Lost::Timeout);
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    /// Whether the connection is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Ends the interpreter, but not the relay.
    pub(super) async fn stop(&mut self) {
        if self.interpreter_ended || self.lost.is_some() {
            return;
        }
        self.outgoing.extend_from_slice(&relay_protocol::kill());
        if timeout(STOP_LIMIT, self.ended()).await.is_err() {
            self.lost = Some(Lost::Timeout);
        }
    }

    /// Closes stdin, which makes the relay end everything, and makes sure that the command ends.
    pub(super) async fn kill(&mut self) {
        self.stdin = None;
        let group = self
            .command
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().ok()?));
        for (signal, time) in END_STEPS {
            if let (Some(signal), Some(group)) = (signal, group) {
                let _may_have_ended = kill_process_group(group, signal);
            }
            // Its output must be read, or it could block.
            let reading = discard(&mut self.stdout, &mut self.stderr, &mut self.stderr_text);
            let ended = async {
                tokio::select! {
                    ended = self.command.wait() => drop(ended),
                    () = reading => {}
                }
            };
            if timeout(time, ended).await.is_ok() {
                return;
            }
        }
        tracing::error!("a command of sandbox.command did not end");
    }

    /// What the command itself wrote to stderr.
    pub(super) fn command_stderr(&mut self) -> String {
        let stderr_text = &mut self.stderr_text;
        drain(&self.stderr, MAX_PIPE, |bytes| {
            drop(stderr_text.push(bytes));
        });
        stderr_text.take().text
    }

    /// Waits for the next message and writes queued bytes meanwhile.
    ///
    /// # Cancel safety
    /// A dropped future loses no message.
    async fn message(&mut self) -> Result<RelayMessage, Lost> {
        loop {
            if let Some(message) = self.incoming.next() {
                return self.checked(message);
            }
            if let Some(lost) = self.lost {
                return Err(lost);
            }
            self.read.reserve(READ_SIZE);
            let mut chunk = [0; 1024];
            let writing = !self.outgoing.is_empty();
            tokio::select! {
                sent = write(&mut self.stdin, &self.outgoing), if writing => match sent {
                    Some(sent) => self.outgoing.advance(sent),
                    None => {
                        self.stdin = None;
                        self.outgoing.clear();
                    }
                },
                read = self.stdout.read_buf(&mut self.read) => match read {
                    Ok(read) if read > 0 => {
                        self.incoming.push(&self.read);
                        self.read.clear();
                    }
                    _ => self.lost = Some(Lost::Ended),
                },
                read = self.stderr.read(&mut chunk), if self.stderr_open => match read {
                    Ok(read) if read > 0 => drop(self.stderr_text.push(chunk.get(..read).unwrap_or_default())),
                    _ => self.stderr_open = false,
                },
            }
        }
    }

    fn checked(
        &mut self,
        message: Result<RelayMessage, crate::worker_protocol::Violation>,
    ) -> Result<RelayMessage, Lost> {
        message.map_err(|violation| {
            tracing::warn!(%violation, "sandbox.command wrote something that the relay does not send");
            self.lost = Some(Lost::Violation);
            Lost::Violation
        })
    }

    /// Converts a message to an event.
    fn event(&mut self, message: Result<RelayMessage, Lost>) -> Option<ProcessEvent> {
        Some(match message {
            Ok(RelayMessage::Control(bytes)) => ProcessEvent::Control(bytes),
            Ok(RelayMessage::Output(stream, bytes)) => ProcessEvent::Output(stream, bytes),
            Ok(RelayMessage::Closed) => ProcessEvent::Closed,
            Ok(RelayMessage::Ended { code, signal }) => {
                self.interpreter_ended = true;
                ProcessEvent::Ended(match (code, signal) {
                    (Some(code), _) => ProcessExit::Code(code),
                    (None, Some(signal)) => ProcessExit::Signal(signal),
                    (None, None) => ProcessExit::Unknown,
                })
            }
            // A reply to an abandoned request.
            Ok(RelayMessage::File(_)) => return None,
            Ok(RelayMessage::Hello(_)) => {
                self.lost = Some(Lost::Violation);
                ProcessEvent::Violation
            }
            Err(Lost::Violation | Lost::Timeout) => ProcessEvent::Violation,
            Err(Lost::Ended) => {
                if !self.interpreter_ended {
                    self.interpreter_ended = true;
                    let stderr = self.command_stderr();
                    tracing::warn!(stderr, "sandbox.command has ended by itself");
                }
                ProcessEvent::Ended(ProcessExit::Command)
            }
        })
    }

    /// Queues an event, unless the queue is full.
    fn queue(&mut self, event: ProcessEvent) {
        if self.queued_bytes + event.size() <= MAX_QUEUED_BYTES {
            self.queue_unbounded(event);
        }
    }

    fn queue_unbounded(&mut self, event: ProcessEvent) {
        self.queued_bytes += event.size();
        self.queued.push_back(event);
    }
}

impl ProcessEvent {
    /// Bytes that a queued event counts for.
    fn size(&self) -> usize {
        let content = match self {
            Self::Control(bytes) | Self::Output(_, bytes) => bytes.len(),
            Self::Closed | Self::Violation | Self::Ended(_) => 0,
        };
        content + size_of::<Self>()
    }
}

async fn write(stdin: &mut Option<ChildStdin>, bytes: &[u8]) -> Option<usize> {
    stdin.as_mut()?.write(bytes).await.ok()
}

/// Reads and discards output, except stderr, which is for the operator.
async fn discard(
    stdout: &mut ChildStdout,
    stderr: &mut ChildStderr,
    stderr_text: &mut OutputBuffer,
) {
    let out = async {
        let mut buffer = vec![0; READ_SIZE];
        while stdout.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    let err = async {
        let mut buffer = vec![0; 1024];
        while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
            let _live = stderr_text.push(buffer.get(..read).unwrap_or_default());
        }
    };
    tokio::join!(out, err);
    std::future::pending::<()>().await;
}
