//! The transport over a process's standard input and output: one JSON message a line.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::line::{Line, LineReader};
use super::message::{self, ServerMessage};
use super::process::{GuardedProcess, ServerPipes};
use super::read_rate::ReadRate;

/// How long a server may take to read a message. After it the connection is closed.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// Why a connection ended, once it has; empty until then.
pub(super) type Ending = Arc<Mutex<String>>;

/// Messages to and from a process. When this is dropped, the process is ended.
pub(super) struct StdioTransport {
    output: LineReader<ChildStdout>,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    process: Option<GuardedProcess>,
    max_bytes: usize,
    rate: ReadRate,
    /// A message could not be written whole, so that no further one can follow.
    broken: CancellationToken,
    ending: Ending,
    /// A line that is no message has been seen.
    noise: bool,
    /// There is no further message.
    at_end: bool,
}

impl StdioTransport {
    pub(super) fn new(
        process: GuardedProcess,
        pipes: ServerPipes,
        max_bytes: usize,
        ending: Ending,
        rate: ReadRate,
    ) -> Self {
        Self {
            output: LineReader::new(pipes.stdout, max_bytes, rate.clone()),
            input: Arc::new(tokio::sync::Mutex::new(Some(pipes.stdin))),
            process: Some(process),
            max_bytes,
            rate,
            broken: CancellationToken::new(),
            ending,
            noise: false,
            at_end: false,
        }
    }

    /// The message of a line; `None` if it is none, which servers print by mistake.
    fn message(&mut self) -> Option<ServerMessage> {
        let (noise, message) = match self.output.take() {
            Line::Whole(line) => match message::read(line) {
                Ok(message) => return Some(message),
                Err(problem) => {
                    let failed = message::unreadable(line, problem);
                    ("it is no JSON-RPC message", failed)
                }
            },
            Line::TooLong(id) => {
                let text = format!("the answer is larger than {} bytes", self.max_bytes);
                let id = id.and_then(|id| serde_json::from_str(&id).ok());
                ("it is too long", id.map(|id| message::error(&text, id)))
            }
        };
        if message.is_none() && !std::mem::replace(&mut self.noise, true) {
            let server = &**self.rate.server();
            tracing::warn!(
                server,
                "a line of an MCP server's standard output is left out, as further ones will be: {noise}"
            );
        }
        message
    }
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (input, broken) = (self.input.clone(), self.broken.clone());
        async move {
            let mut line = serde_json::to_vec(&item)?;
            line.push(b'\n');
            let write = async {
                let mut input = input.lock().await;
                let pipe = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
                let whole = broken.clone().drop_guard();
                pipe.write_all(&line).await?;
                whole.disarm();
                Ok(())
            };
            tokio::select! {
                biased;
                () = broken.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
                written = timeout(WRITE_LIMIT, write) => written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerMessage> {
        loop {
            if self.at_end {
                let _nothing_fails = self.close().await;
                return None;
            }
            let read = tokio::select! {
                biased;
                () = self.broken.cancelled() => return None,
                read = self.output.next() => read,
            };
            match read {
                Ok(Some(())) => {
                    if let Some(message) = self.message() {
                        return Some(message);
                    }
                }
                // Closed here, so that a handshake that fails can say how the process ended.
                Ok(None) | Err(_) => self.at_end = true,
            }
        }
    }

    /// Cancel safe.
    async fn close(&mut self) -> io::Result<()> {
        self.broken.cancel();
        *self.input.lock().await = None;
        if let Some(process) = &mut self.process {
            let ending = process.close().await;
            *self.ending.lock() = ending;
            self.process = None;
        }
        Ok(())
    }
}
