//! The built binary, started with a configuration of the test's own.

use std::path::{Path, PathBuf};
use std::process::{self, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{Answer, Client};
use super::described;
use super::events::EventReader;
use super::postgres::PostgresServer;
use super::upstream::ScriptedUpstream;
use super::webhook::Webhook;
use super::within;

/// What the binary finds its own programs with; nothing else of the environment reaches it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The variable with the URL of the session store.
const SESSION_STORE: &str = "LOOPWRIGHT_SESSION_STORE";

/// How the binary is started.
#[derive(Debug)]
pub(crate) struct Builder {
    program: PathBuf,
    program_args: Vec<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    upstream: Option<String>,
    dispatch: Option<String>,
    toml: String,
    dir: Option<TempDir>,
}

/// A running loopwright; it is killed with this handle.
#[derive(Debug)]
pub(crate) struct TestApp {
    builder: Builder,
    process: Process,
    client: Client,
}

/// Runs a command of the binary with these words and variables, and no others, until it ends.
pub(crate) async fn run_command(name: &str, words: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loopwright"));
    command
        .arg(name)
        .args(words)
        .env_clear()
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = within("the command", command.output()).await.unwrap();
    Ended::from(output)
}

impl From<process::Output> for Ended {
    fn from(output: process::Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// A process that has ended by itself.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The exit status.
    pub(crate) code: Option<i32>,
    /// What it printed to standard output.
    pub(crate) stdout: String,
    /// What it printed to standard error.
    pub(crate) stderr: String,
}

#[derive(Debug)]
struct Process {
    child: Child,
    stdout: Output,
    stderr: Output,
    readers: JoinSet<()>,
}

/// What a pipe has said so far.
#[derive(Debug, Clone, Default)]
struct Output(Arc<watch::Sender<String>>);

impl Builder {
    /// Uses a scripted model server.
    pub(crate) fn upstream(self, upstream: &ScriptedUpstream) -> Self {
        self.upstream_url(&upstream.base_url())
    }

    /// Uses the model server at a base URL.
    pub(crate) fn upstream_url(mut self, url: &str) -> Self {
        self.upstream = Some(url.to_owned());
        self
    }

    /// Sends tool calls to a scripted webhook.
    pub(crate) fn dispatch(self, webhook: &Webhook) -> Self {
        self.dispatch_url(&webhook.url())
    }

    /// Sends tool calls to a URL.
    pub(crate) fn dispatch_url(mut self, url: &str) -> Self {
        self.dispatch = Some(url.to_owned());
        self
    }

    /// Adds lines to the configuration file; top-level keys before tables.
    pub(crate) fn toml(mut self, lines: &str) -> Self {
        self.toml.push_str(lines);
        self.toml.push('\n');
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds arguments after `serve --config FILE`.
    pub(crate) fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.args.extend(args.map(ToOwned::to_owned));
        self
    }

    /// Starts another program in the binary's place.
    pub(crate) fn program<const N: usize>(mut self, program: &str, args: [&str; N]) -> Self {
        self.program = program.into();
        self.program_args = args.map(ToOwned::to_owned).to_vec();
        self
    }

    /// The directory that the process runs in, made now if need be; the configuration is its `loopwright.toml`.
    pub(crate) fn dir(&mut self) -> &Path {
        self.dir
            .get_or_insert_with(|| tempfile::tempdir().unwrap())
            .path()
    }

    /// Starts `serve` and waits until it is ready.
    ///
    /// With `LOOPWRIGHT_TEST_STORE=postgres` its store is a new PostgreSQL database, unless the test names a store.
    pub(crate) async fn start(mut self) -> TestApp {
        let wanted = std::env::var("LOOPWRIGHT_TEST_STORE");
        let is_named = self.env.iter().any(|(name, _)| name == SESSION_STORE)
            || self.args.iter().any(|arg| arg.contains("session-store"))
            || self.toml.contains("session_store");
        if wanted.is_ok_and(|store| store == "postgres") && !is_named {
            let database = PostgresServer::shared().create_database().await;
            // Short, as after a restart a session is free only when the lease of the process before has expired.
            self = self.env(SESSION_STORE, &format!("{database}&lease_seconds=3"));
        }
        let mut process = self.spawn("serve");
        let origin = process.ready().await;
        described::started(&origin);
        TestApp {
            builder: self,
            process,
            client: Client::new(&origin),
        }
    }

    /// Starts `serve` and kills it after this time as `kill -9` does, ready or not.
    pub(crate) async fn kill9_after(&mut self, life: Duration) {
        let mut process = self.spawn("serve");
        let ended = tokio::time::timeout(life, process.child.wait()).await;
        assert!(ended.is_err(), "{ended:?}: {}", process.stderr.text());
        process.child.start_kill().unwrap();
        process.wait().await;
    }

    /// Runs a subcommand with the configuration until it ends by itself.
    pub(crate) async fn run(mut self, subcommand: &str) -> Ended {
        let mut process = self.spawn(subcommand);
        let status = process.wait().await;
        Ended {
            code: status.code(),
            stdout: process.stdout.text(),
            stderr: process.stderr.text(),
        }
    }

    /// The text of the configuration file.
    fn config(&self) -> String {
        let own = |key: &str| {
            let mut lines = self.toml.lines().map(str::trim_start);
            lines.any(|line| line.split(['=', ' ']).next() == Some(key))
        };
        let mut config = String::new();
        let mut set = |key: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|_| !own(key)) {
                config.push_str(&format!("{key} = {}\n", Value::from(value)));
            }
        };
        set("listen", Some("127.0.0.1:0"));
        set("session_store", Some("sqlite:sessions.db"));
        // What it is beside that file.
        let is_postgres = self.env.iter().any(|(name, _)| name == SESSION_STORE);
        set("files_dir", is_postgres.then_some("sessions-files"));
        set("upstream", self.upstream.as_deref());
        set("tool_dispatch_url", self.dispatch.as_deref());
        if self.dispatch.is_some() && !own("dispatch_tools") {
            config.push_str("dispatch_tools = [\"*\"]\n");
        }
        config + &self.toml
    }

    fn spawn(&mut self, subcommand: &str) -> Process {
        let config = self.config();
        let dir = self.dir().to_owned();
        let file = dir.join("loopwright.toml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(&self.program);
        command
            .args(&self.program_args)
            .arg(subcommand)
            .arg("--config")
            .arg(&file)
            .args(&self.args)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", &dir)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut readers = JoinSet::new();
        let stdout = Output::default();
        let stderr = Output::default();
        readers.spawn(stdout.clone().read(child.stdout.take().unwrap()));
        readers.spawn(stderr.clone().read(child.stderr.take().unwrap()));
        Process {
            child,
            stdout,
            stderr,
            readers,
        }
    }
}

impl TestApp {
    /// How to start one.
    pub(crate) fn builder() -> Builder {
        Builder {
            program: env!("CARGO_BIN_EXE_loopwright").into(),
            program_args: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            upstream: None,
            dispatch: None,
            toml: String::new(),
            dir: None,
        }
    }

    /// Starts one with a scripted model server and nothing else.
    pub(crate) async fn with_upstream(upstream: &ScriptedUpstream) -> Self {
        Self::builder().upstream(upstream).start().await
    }

    /// Starts one with a scripted model server and a scripted webhook.
    pub(crate) async fn with_tools(upstream: &ScriptedUpstream, webhook: &Webhook) -> Self {
        let builder = Self::builder().upstream(upstream).dispatch(webhook);
        builder.start().await
    }

    /// The client of this server.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Where it listens, such as `http://127.0.0.1:8080`.
    pub(crate) fn origin(&self) -> &str {
        self.client.origin()
    }

    /// The directory that the process runs in.
    pub(crate) fn dir(&mut self) -> &Path {
        self.builder.dir()
    }

    /// See [`Client::post_chat`].
    pub(crate) async fn post_chat(&self, body: Value) -> Answer {
        self.client.post_chat(body).await
    }

    /// See [`Client::stream_chat`].
    pub(crate) async fn stream_chat(&self, body: Value) -> EventReader {
        self.client.stream_chat(body).await
    }

    /// See [`Client::get`].
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.client.get(path).await
    }

    /// See [`Client::post`].
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.client.post(path, body).await
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id().expect("a running process")
    }

    /// How many descriptors the process has open.
    pub(crate) fn descriptors(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid()));
        open.unwrap().count()
    }

    /// What it has printed to standard error.
    pub(crate) fn logs(&self) -> String {
        self.process.stderr.text()
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    pub(crate) async fn kill9(&mut self) {
        self.process.child.start_kill().unwrap();
        self.process.wait().await;
    }

    /// Asks it to end (SIGTERM).
    pub(crate) async fn terminate(&self) {
        self.signal("TERM").await;
    }

    /// Sends a signal by name, such as `INT`.
    pub(crate) async fn signal(&self, name: &str) {
        // The shell's own `kill` is there even where no such program is installed.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("kill -{name} {}", self.pid())]);
        let status = within("kill", command.status()).await.unwrap();
        assert!(status.success(), "kill said {status}");
    }

    /// Waits until it has ended, and gives its exit status.
    pub(crate) async fn wait_exit(&mut self) -> ExitStatus {
        self.process.wait().await
    }

    /// Starts it again with the same directory and configuration, killing it first if it still runs.
    pub(crate) async fn restart(&mut self) {
        if self.process.child.id().is_some() {
            self.kill9().await;
        }
        self.process = self.builder.spawn("serve");
        described::ended(self.client.origin());
        self.client = Client::new(&self.process.ready().await);
        described::started(self.client.origin());
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        described::ended(self.client.origin());
    }
}

impl Process {
    /// Waits for the ready line and gives the origin that it names.
    async fn ready(&mut self) -> String {
        let ready = self.stderr.clone();
        tokio::select! {
            origin = tokio::time::timeout(super::PATIENCE, ready.origin()) => match origin {
                Ok(origin) => origin,
                Err(_) => panic!("not ready in time; it said:\n{}", self.stderr.text()),
            },
            status = self.child.wait() => {
                while self.readers.join_next().await.is_some() {}
                panic!("ended with {status:?} before it was ready; it said:\n{}", self.stderr.text())
            }
        }
    }

    async fn wait(&mut self) -> ExitStatus {
        let Ok(status) = tokio::time::timeout(super::PATIENCE, self.child.wait()).await else {
            panic!("still running; it said:\n{}", self.stderr.text());
        };
        // A grandchild may hold the pipes open, so that their end is no condition.
        let drained = async { while self.readers.join_next().await.is_some() {} };
        let _held_open = tokio::time::timeout(super::DRAIN, drained).await;
        status.unwrap()
    }
}

impl Output {
    fn text(&self) -> String {
        self.0.borrow().clone()
    }

    async fn read(self, pipe: impl AsyncRead + Unpin) {
        let mut lines = BufReader::new(pipe).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            self.0.send_modify(|text| {
                text.push_str(&line);
                text.push('\n');
            });
        }
    }

    /// Waits for the ready line, in its text or its JSON form.
    async fn origin(&self) -> String {
        let mut text = self.0.subscribe();
        loop {
            if let Some(origin) = text.borrow_and_update().lines().find_map(origin_of) {
                return origin;
            }
            text.changed().await.unwrap();
        }
    }
}

fn origin_of(line: &str) -> Option<String> {
    let url = match line.strip_prefix("loopwright ready on ") {
        Some(url) => url.to_owned(),
        None => {
            let record: Value = serde_json::from_str(line).ok()?;
            let named = |name: &str| {
                let field = record.get(name).or_else(|| record["fields"].get(name));
                field.and_then(Value::as_str).map(ToOwned::to_owned)
            };
            named("message").filter(|message| message == "ready")?;
            named("url")?
        }
    };
    let url = url.trim();
    url.starts_with("http://127.0.0.1:").then(|| url.to_owned())
}
