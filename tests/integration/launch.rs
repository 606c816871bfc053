//! `loopwright launch`, with small scripts in the places of the coding agents.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncBufReadExt;
use tokio::process::Command;

use super::support::app::{Ended, TestApp};
use super::support::server::{Arrived, HttpReply, Outgoing, Server};
use super::support::within;

const KEY: &str = "alice-key-0123456789";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"";
const AGENTS: [&str; 3] = ["codex", "claude", "aider"];

/// A user's machine: a home directory, a directory for temporary files, and programs.
struct Machine {
    root: TempDir,
}

impl Machine {
    /// A machine on which every agent is this script.
    fn with_agents(script: &str) -> Self {
        let machine = Self {
            root: tempfile::tempdir().unwrap(),
        };
        for name in ["home/.codex", "home/.claude", "home/.aider", "tmp", "bin"] {
            fs::create_dir_all(machine.root.path().join(name)).unwrap();
        }
        for file in [
            "home/.codex/config.toml",
            "home/.claude.json",
            "home/.aider.conf.yml",
            "home/.gitconfig",
        ] {
            fs::write(machine.root.path().join(file), "the user's own").unwrap();
        }
        for agent in AGENTS {
            let program = machine.root.path().join("bin").join(agent);
            fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn command(&self, words: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loopwright"));
        command
            .arg("launch")
            .args(words)
            .env_clear()
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.path("bin").display()),
            )
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn launch(&self, words: &[&str], variables: &[(&str, &str)]) -> Ended {
        let before = contents(&self.path("home"));
        let mut command = self.command(words, variables);
        let ended = within("the launch", command.output()).await.unwrap();
        assert_eq!(contents(&self.path("home")), before, "{words:?}");
        assert_eq!(contents(&self.path("tmp")).len(), 0, "{words:?}");
        ended.into()
    }
}

/// The files below a directory.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(contents(&path)),
            false => {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The variables of a text such as `env` prints.
fn variables(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.split_once('='))
        .collect()
}

/// A model server that only lists models, and its status for messages.
struct ListingServer {
    server: Server,
    said: Arc<Mutex<(Value, u16)>>,
}

impl ListingServer {
    /// One model with a window, and a Messages API.
    async fn start() -> Self {
        let model = json!({"id": "small", "object": "model", "max_model_len": 40960});
        let said = Arc::new(Mutex::new((json!([model]), 400)));
        let shared = Arc::clone(&said);
        let server = Server::start(Arc::new(move |arrived: Arrived| {
            let (models, status) = shared.lock().clone();
            let reply = match arrived.request.uri().path() {
                "/v1/models" => (200, json!({"object": "list", "data": models})),
                _ => (status, json!({"error": {"message": "no"}})),
            };
            let reply = HttpReply::whole(reply.0, "application/json", reply.1.to_string());
            async move { Outgoing::Scripted(reply) }.boxed()
        }));
        Self {
            server: server.await,
            said,
        }
    }

    async fn app(&self, keys: &str) -> TestApp {
        let url = format!("http://{}/v1", self.server.addr());
        let builder = TestApp::builder().upstream_url(&url).env("ALICE", KEY);
        builder.toml(keys).start().await
    }
}

/// Says everything that the agent got, and writes where it may.
const TELL: &str = r#"env
echo "--- arguments: $*"
for dir in "$CODEX_HOME" "$CLAUDE_CONFIG_DIR" "$HOME"; do
  case $dir in *loopwright-launch-*) for file in "$dir"/* "$dir"/.[a-z]*; do [ -f "$file" ] && echo "--- ${file##*/}" && cat "$file"; done; echo used >"$dir/history" ;; esac
done
exit 7"#;

#[tokio::test]
async fn an_agent_gets_the_server_the_key_the_model_and_its_window() {
    let upstream = ListingServer::start().await;
    let app = upstream.app(KEYS).await;
    let machine = Machine::with_agents(TELL);
    let user = [
        ("LOOPWRIGHT_API_KEY", KEY),
        ("ANTHROPIC_API_KEY", "the-users-own"),
        ("CLAUDE_CODE_USE_BEDROCK", "1"),
        ("OPENAI_API_BASE", "http://elsewhere.test"),
        ("AIDER_MODEL", "elsewhere"),
        ("CODEX_HOME", "/elsewhere"),
        ("EDITOR", "vi"),
    ];
    let url = app.origin();
    for agent in AGENTS {
        let words = ["--url", url, agent, "do", "--this", "-p", "x y"];
        let ended = machine.launch(&words, &user).await;
        assert_eq!(ended.code, Some(7), "{ended:?}");
        let said = &*ended.stdout;
        assert!(said.contains("--- arguments: do --this -p x y\n"), "{said}");
        let set = variables(said);
        assert_eq!(set["EDITOR"], "vi");
        match agent {
            "codex" => {
                assert_eq!(set["LOOPWRIGHT_API_KEY"], KEY);
                for line in [
                    "model = \"small\"",
                    "model_context_window = 40960",
                    "wire_api = \"responses\"",
                    "env_key = \"LOOPWRIGHT_API_KEY\"",
                    "web_search = \"disabled\"",
                    &format!("base_url = \"{url}/v1\""),
                ] {
                    assert!(said.contains(line), "{line}: {said}");
                }
                assert_eq!(set["HOME"], machine.path("home").to_str().unwrap());
            }
            "claude" => {
                assert_eq!(set["ANTHROPIC_BASE_URL"], url);
                assert_eq!(set["ANTHROPIC_AUTH_TOKEN"], KEY);
                assert_eq!(set["ANTHROPIC_MODEL"], "small");
                assert_eq!(set["ANTHROPIC_DEFAULT_HAIKU_MODEL"], "small");
                assert_eq!(set["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], "40960");
                assert_eq!(set["CLAUDE_CODE_MAX_OUTPUT_TOKENS"], "20480");
                assert_eq!(set["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"], "1");
                for gone in ["ANTHROPIC_API_KEY", "CLAUDE_CODE_USE_BEDROCK"] {
                    assert!(!set.contains_key(gone), "{gone}");
                }
                assert!(said.contains("hasCompletedOnboarding"), "{said}");
            }
            _ => {
                assert_eq!(set["OPENAI_API_BASE"], format!("{url}/v1"));
                assert_eq!(set["OPENAI_API_KEY"], KEY);
                assert_eq!(set["AIDER_MODEL"], "openai/small");
                assert!(said.contains("\"max_input_tokens\": 40960"), "{said}");
                let git = machine.path("home/.gitconfig");
                assert_eq!(set["GIT_CONFIG_GLOBAL"], git.to_str().unwrap());
            }
        }
    }
}

#[tokio::test]
async fn what_would_be_set_is_shown_without_the_key_and_nothing_starts() {
    let upstream = ListingServer::start().await;
    let app = upstream.app("").await;
    let machine = Machine::with_agents("echo started");
    let key = [("MY_KEY", KEY), ("CLAUDE_CODE_USE_VERTEX", "1")];
    for (agent, parts) in [
        (
            "codex",
            [
                "CODEX_HOME=$DIRECTORY/home",
                "# $DIRECTORY/home/config.toml",
            ],
        ),
        (
            "claude",
            [
                "ANTHROPIC_AUTH_TOKEN=(hidden)",
                "unset CLAUDE_CODE_USE_VERTEX",
            ],
        ),
        ("aider", ["OPENAI_API_KEY=(hidden)", "\naider --version"]),
    ] {
        let words = [
            "--url",
            app.origin(),
            "--api-key-env",
            "MY_KEY",
            agent,
            "--print",
        ];
        let words = [&words[..], &["--", "--version"]].concat();
        let ended = machine.launch(&words, &key).await;
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
        let shown = &ended.stdout;
        assert!(
            !shown.contains(KEY) && !shown.contains("started"),
            "{shown}"
        );
        assert!(shown.contains(app.origin()), "{shown}");
        for part in parts {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[tokio::test]
async fn a_model_with_an_odd_name_writes_no_line_and_no_control_character() {
    let upstream = ListingServer::start().await;
    let odd = json!({"id": "m\u{1b}]52;c;eA==\u{7}\nHOME=/tmp/x\u{202e}", "object": "model"});
    upstream.said.lock().0 = json!([odd]);
    let app = upstream.app(KEYS).await;
    let machine = Machine::with_agents("echo started");
    for agent in ["codex", "claude", "aider"] {
        let words = ["--url", app.origin(), agent, "--print"];
        let ended = machine.launch(&words, &[("LOOPWRIGHT_API_KEY", KEY)]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let shown = &ended.stdout;
        let is_odd = |one: char| (one.is_control() && one != '\n') || one == '\u{202e}';
        assert!(!shown.contains(is_odd), "{shown:?}");
        assert!(!shown.contains("\nHOME=/tmp/x"), "{shown}");
    }
}

#[tokio::test]
async fn what_stands_in_the_way_is_said_before_the_start() {
    let upstream = ListingServer::start().await;
    let app = upstream.app(KEYS).await;
    let url = app.origin();
    let machine = Machine::with_agents("echo started");
    fs::remove_file(machine.path("bin/codex")).unwrap();
    let key = ("LOOPWRIGHT_API_KEY", KEY);
    for (words, variables, part) in [
        (
            &["--url", "http://127.0.0.1:1", "codex"][..],
            &[][..],
            "cannot reach http://127.0.0.1:1",
        ),
        (
            &["--url", url, "aider"],
            &[],
            "set the environment variable LOOPWRIGHT_API_KEY",
        ),
        (
            &["--url", url, "aider"],
            &[("LOOPWRIGHT_API_KEY", "wrong")],
            "refuses the API key in the environment variable LOOPWRIGHT_API_KEY",
        ),
        (
            &["--url", url, "codex"],
            &[key],
            "install it with `npm install -g @openai/codex`",
        ),
        (
            &["--url", url, "--api-key-env", "X", "aider"],
            &[key],
            "variable X is not set",
        ),
    ] {
        let ended = machine.launch(words, variables).await;
        assert_ne!(ended.code, Some(0), "{words:?}");
        assert_eq!(ended.stderr.lines().count(), 1, "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
        assert_eq!(ended.stdout, "");
    }
    let two = json!([{"id": "a", "object": "model"}, {"id": "b", "object": "model"}]);
    upstream.said.lock().0 = two;
    let ended = machine.launch(&["--url", url, "aider"], &[key]).await;
    assert!(
        ended.stderr.contains("choose one with --model: a, b"),
        "{ended:?}"
    );
    let ended = machine
        .launch(&["--url", url, "--model", "b", "aider"], &[key])
        .await;
    assert_eq!(
        (ended.code, &*ended.stdout),
        (Some(0), "started\n"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn claude_needs_a_model_server_with_messages() {
    let upstream = ListingServer::start().await;
    let app = upstream.app("").await;
    let machine = Machine::with_agents("echo started");
    upstream.said.lock().1 = 404;
    let ended = machine
        .launch(&["--url", app.origin(), "claude"], &[])
        .await;
    assert_eq!((ended.code, &*ended.stdout), (Some(1), ""), "{ended:?}");
    for part in [
        "has no Messages API (status 404",
        "use a model server that has one",
    ] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    upstream.said.lock().1 = 400;
    let ended = machine
        .launch(&["--url", app.origin(), "claude"], &[])
        .await;
    assert_eq!(
        (ended.code, &*ended.stdout),
        (Some(0), "started\n"),
        "{ended:?}"
    );
}

#[tokio::test]
async fn signals_reach_the_agent_and_its_end_is_that_of_the_command() {
    let upstream = ListingServer::start().await;
    let app = upstream.app("").await;
    for (signal, script, expected) in [
        ("TERM", "trap 'echo got it; exit 5' TERM", 5),
        ("INT", "trap 'echo got it; exit 6' INT", 6),
        ("HUP", "true", 129),
    ] {
        let wait = "echo ready; while :; do sleep 0.05; done";
        let machine = Machine::with_agents(&format!("{script}; {wait}"));
        let mut command = machine.command(&["--url", app.origin(), "codex"], &[]);
        let mut child = command.spawn().unwrap();
        let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within("the agent", lines.next_line()).await.unwrap();
        assert_eq!(line.as_deref(), Some("ready"));
        let kill = format!("kill -{signal} {}", child.id().unwrap());
        let killed = Command::new("/bin/sh").args(["-c", &kill]).status();
        assert!(killed.await.unwrap().success());
        let status = within("the end", child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(expected), "{signal}");
        assert_eq!(contents(&machine.path("tmp")).len(), 0, "{signal}");
    }
}
