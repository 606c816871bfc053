//! The proxies under test: child processes that end with the benchmark.
//!
//! Owns how nginx and loopwright are started. Both run in a directory of their own and on free ports of the loopback
//! interface, and are killed by their process id when dropped.

use std::{
    fs::{self, File},
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tokio::{net::TcpStream, time::sleep};

use crate::{
    database::Databases,
    process::{CpuTime, memory_kib},
};

/// How long a proxy may take to accept connections.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Between two looks at a proxy that starts.
const START_POLL: Duration = Duration::from_millis(10);

/// A free port may be taken by someone else before nginx binds it.
const PORT_ATTEMPTS: usize = 3;

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its configuration, log and data base.
    pub(crate) directory: PathBuf,
    child: Child,
}

/// How proxies are started.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// The loopwright binary.
    pub(crate) loopwright: PathBuf,
    /// Further arguments for `loopwright serve`.
    pub(crate) arguments: Vec<String>,
    /// The nginx program.
    pub(crate) nginx: PathBuf,
    /// The scripted upstream.
    pub(crate) upstream: SocketAddr,
    /// Where configurations, logs and data bases go.
    pub(crate) directory: PathBuf,
    /// The CPU that children are bound to.
    pub(crate) cpu: Option<String>,
    /// Databases for sessions.
    pub(crate) databases: Databases,
}

/// What loopwright is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// No tools.
    PassThrough,
    /// Tools behind the webhook.
    Loop(Store, Effect),
}

/// Where sessions are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    /// In memory.
    Memory,
    /// In a file.
    Sqlite,
    /// In a database of a PostgreSQL server on this machine.
    Postgres,
}

/// What a call of the tool may do, which decides when it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It may be made twice: stored with its result, in one write.
    Idempotent,
    /// It may not: stored before it runs.
    Once,
}

impl Proxy {
    /// CPU time used so far.
    pub(crate) fn cpu_time(&self) -> CpuTime {
        CpuTime::of(self.child.id())
    }

    /// How many files and sockets it has open, and how many threads.
    pub(crate) fn descriptors_and_threads(&self) -> [f64; 2] {
        ["fd", "task"].map(|kind| {
            let entries = fs::read_dir(format!("/proc/{}/{kind}", self.child.id()));
            entries.map_or(0.0, |entries| entries.count() as f64)
        })
    }

    /// Memory in use, in KiB.
    pub(crate) fn memory_kib(&self) -> Result<f64> {
        memory_kib(self.child.id()).context("the kernel does not tell the proxy's memory")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Launcher {
    /// The version of nginx, when it is installed.
    pub(crate) fn nginx_version(&self) -> Option<String> {
        let output = Command::new(&self.nginx).arg("-v").output().ok()?;
        let text = String::from_utf8_lossy(&output.stderr);
        Some(text.trim().rsplit('/').next()?.to_owned())
    }

    /// Starts loopwright.
    pub(crate) async fn loopwright(&self, role: Role) -> Result<Proxy> {
        let directory = self.fresh_directory()?;
        let store = match role {
            Role::PassThrough | Role::Loop(Store::Memory, _) => "memory:".to_owned(),
            Role::Loop(Store::Sqlite, _) => {
                format!("sqlite:{}", directory.join("load.db").display())
            }
            Role::Loop(Store::Postgres, _) => {
                let url = self.databases.create().await;
                url.context("PostgreSQL is not installed")?
            }
        };
        let file = directory.join("load.toml");
        let settings = match role {
            Role::PassThrough => String::new(),
            Role::Loop(_, effect) => format!(
                "tool_dispatch_url = \"http://{}/tool\"\ndispatch_tools = [\"*\"]\ndispatch_idempotent = {}\n",
                self.upstream,
                effect == Effect::Idempotent
            ),
        };
        fs::write(&file, settings).context("writing a configuration file")?;
        let file = file.display().to_string();
        let files = directory.join("files").display().to_string();
        let arguments = [
            "--session-store",
            &store,
            "--files-dir",
            &files,
            "--config",
            &file,
        ];
        self.serve(&directory, &arguments).await
    }

    /// Starts loopwright with tools behind the webhook, and these lines in its file.
    pub(crate) async fn loopwright_with(&self, store: &str, lines: &str) -> Result<Proxy> {
        let directory = self.fresh_directory()?;
        let file = directory.join("load.toml");
        fs::write(&file, lines).context("writing a configuration file")?;
        let (file, tools) = (
            file.display().to_string(),
            format!("http://{}/tool", self.upstream),
        );
        let arguments = [
            "--session-store",
            store,
            "--tool-dispatch-url",
            &tools,
            "--dispatch-tools",
            "*",
            "--config",
            &file,
        ];
        self.serve(&directory, &arguments).await
    }

    /// Starts loopwright with code execution, sessions in memory; `sandbox` is what stands in that table of its file.
    pub(crate) async fn loopwright_with_code(&self, python: &Path, sandbox: &str) -> Result<Proxy> {
        let directory = self.fresh_directory()?;
        let file = directory.join("load.toml");
        let work = directory.join("work");
        let text =
            format!("code_exec_python = {python:?}\n[sandbox]\nwork_dir = {work:?}\n{sandbox}\n");
        fs::write(&file, text).context("writing a configuration file")?;
        let file = file.display().to_string();
        let arguments = [
            "--session-store",
            "memory:",
            "--enable-code-execution",
            "--config",
            &file,
        ];
        self.serve(&directory, &arguments).await
    }

    async fn serve(&self, directory: &Path, arguments: &[&str]) -> Result<Proxy> {
        let upstream = self.upstream;
        let log = directory.join("stderr");
        let child = self
            .command(&self.loopwright)
            .args(["serve", "--listen", "127.0.0.1:0", "--upstream"])
            .arg(format!("http://{upstream}/v1"))
            .args(arguments)
            .args(&self.arguments)
            .current_dir(directory)
            .env("NO_PROXY", "127.0.0.1")
            .stderr(File::create(&log).context("creating a log file")?)
            .spawn()
            .with_context(|| format!("starting {}", self.loopwright.display()))?;
        let mut proxy = Proxy {
            address: upstream,
            directory: directory.to_owned(),
            child,
        };
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let text = fs::read_to_string(&log).unwrap_or_default();
            if let Some(address) = ready_address(&text) {
                proxy.address = address;
                return Ok(proxy);
            }
            if let Some(status) = proxy.child.try_wait()? {
                bail!("loopwright ended with {status}: {}", tail(&text));
            }
            if Instant::now() > deadline {
                bail!("loopwright did not get ready: {}", tail(&text));
            }
            sleep(START_POLL).await;
        }
    }

    /// Starts nginx as a plain reverse proxy with one process.
    pub(crate) async fn nginx(&self) -> Result<Proxy> {
        let mut attempt = 1;
        loop {
            match self.nginx_on_a_free_port().await {
                Ok(proxy) => return Ok(proxy),
                Err(error) if attempt == PORT_ATTEMPTS => return Err(error),
                Err(_) => attempt += 1,
            }
        }
    }

    async fn nginx_on_a_free_port(&self) -> Result<Proxy> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let directory = self.fresh_directory()?;
        let configuration = directory.join("nginx.conf");
        let log = directory.join("error.log");
        fs::write(
            &configuration,
            nginx_configuration(address, self.upstream, &self.temporary_paths(&directory)),
        )
        .context("writing the configuration of nginx")?;
        let child = self
            .command(&self.nginx)
            .arg("-p")
            .arg(&directory)
            .arg("-e")
            .arg(&log)
            .arg("-c")
            .arg(&configuration)
            .stderr(Stdio::null())
            .spawn()
            .context("starting nginx")?;
        let mut proxy = Proxy {
            address,
            directory,
            child,
        };
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).await.is_err() {
            let ended = proxy.child.try_wait()?;
            if ended.is_some() || Instant::now() > deadline {
                let text = fs::read_to_string(&log).unwrap_or_default();
                bail!("nginx did not get ready: {}", tail(&text));
            }
            sleep(START_POLL).await;
        }
        Ok(proxy)
    }

    /// The settings that keep nginx out of the directories compiled into it. A build knows only those of its modules.
    fn temporary_paths(&self, directory: &Path) -> String {
        let build = Command::new(&self.nginx).arg("-V").output();
        let build = build.map_or_else(
            |_| String::new(),
            |output| String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .filter(|module| !build.contains(&format!("--without-http_{module}_module")))
            .map(|module| format!("  {module}_temp_path {}/{module};\n", directory.display()))
            .collect()
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = match &self.cpu {
            // `taskset` becomes the program it starts, so the child's id is the proxy's.
            Some(cpu) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cpu]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn fresh_directory(&self) -> Result<PathBuf> {
        let directory = tempfile::Builder::new()
            .prefix("proxy-")
            .tempdir_in(&self.directory)
            .context("creating a directory for a proxy")?;
        // It lies in the benchmark's own temporary directory and goes with it.
        Ok(directory.keep())
    }
}

/// `master_process off` keeps nginx to one process, whose end leaves nothing behind.
fn nginx_configuration(address: SocketAddr, upstream: SocketAddr, temporary_paths: &str) -> String {
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log error.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  tcp_nodelay on;
  keepalive_timeout 300s;
  keepalive_requests 1000000000;
  client_max_body_size 64m;
  client_body_buffer_size 4m;
{temporary_paths}  upstream script {{
    server {upstream};
    keepalive 64;
    keepalive_requests 1000000000;
  }}
  server {{
    listen {address};
    location / {{
      proxy_pass http://script;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
    }}
  }}
}}
"
    )
}

fn ready_address(log: &str) -> Option<SocketAddr> {
    let (_, rest) = log.split_once("ready on http://")?;
    // The line may still be in the writing; its end tells that the port is whole.
    let (address, _) = rest.split_once(['\n', ' ', '/'])?;
    address.trim().parse().ok()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}
