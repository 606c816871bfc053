//! Starts an isolating command and waits for its relay.

use std::collections::VecDeque;
use std::io;
use std::process::Stdio;

use bytes::BytesMut;
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Lost, RelayedProcess};
use crate::output::OutputBuffer;
use crate::relay_protocol::{self, RelayDecoder, RelayMessage};
use crate::settings::Settings;
use crate::worker;
use crate::{KEPT_STDERR, START_LIMIT, SandboxError};

impl RelayedProcess {
    /// Runs the command and waits for the relay.
    pub(crate) async fn start(settings: &Settings) -> Result<Self, SandboxError> {
        let at = |step| move |source| SandboxError::Step { step, source };
        let none = || io::ErrorKind::NotFound.into();
        let (program, arguments) = settings
            .command
            .split_first()
            .ok_or_else(|| at("reading sandbox.command")(none()))?;
        let mut command = Command::new(program)
            .args(arguments)
            .arg(&settings.python)
            .args(["-I", "-B", "-u", "-c", relay_protocol::PROGRAM])
            .arg(options(settings))
            .arg(worker::PROGRAM)
            // Some isolations pass their environment on, and the server's contains secrets.
            .env_clear()
            .env("PATH", &settings.search_path)
            .env("LANG", "C.UTF-8")
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal of the terminal is for the server, which then ends this process in an orderly way.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(at("starting sandbox.command"))?;
        let ends = (
            command.stdin.take(),
            command.stdout.take(),
            command.stderr.take(),
        );
        let (Some(stdin), Some(stdout), Some(stderr)) = ends else {
            return Err(at("making the pipes of sandbox.command")(none()));
        };
        let mut relayed = Self {
            command,
            stdin: Some(stdin),
            stdout,
            stderr,
            stderr_open: true,
            outgoing: BytesMut::new(),
            read: BytesMut::new(),
            incoming: RelayDecoder::default(),
            queued: VecDeque::new(),
            queued_bytes: 0,
            stderr_text: OutputBuffer::new(KEPT_STDERR),
            last_request: 0,
            directory: String::new(),
            interpreter_ended: false,
            lost: None,
        };
        let hello = timeout(START_LIMIT, relayed.message()).await;
        let cause = match hello {
            Ok(Ok(RelayMessage::Hello(directory))) => {
                relayed.directory = directory;
                return Ok(relayed);
            }
            Ok(Ok(_) | Err(Lost::Violation | Lost::Timeout)) => {
                "the output is not from the relay; nothing else may write to the command's stdout"
            }
            Ok(Err(Lost::Ended)) => "sandbox.command has ended",
            Err(_) => "sandbox.command does not answer",
        };
        relayed.kill().await;
        Err(SandboxError::Python {
            stderr: relayed.command_stderr(),
            source: io::Error::other(cause),
        })
    }
}

/// The options of the relay.
fn options(settings: &Settings) -> String {
    let threads = settings.limits.cpus.max(1).to_string();
    let mut environment = serde_json::Map::new();
    environment.insert("MPLBACKEND".to_owned(), json!("Agg"));
    environment.insert("LANG".to_owned(), json!("C.UTF-8"));
    for name in worker::THREAD_VARIABLES {
        environment.insert(name.to_owned(), json!(threads));
    }
    json!({"preload": settings.preload, "environment": environment}).to_string()
}
