//! Tests of the settings as a whole: the shipped file, the order of precedence, and every refusal.

mod cluster;
mod hooks;
mod limits;
mod refusals;
mod sandbox;
mod search;
mod secrets;
mod shipped;
mod summary;
#[cfg(feature = "otlp")]
mod traces;

use std::time::Duration;

use clap::FromArgMatches;
use secrecy::ExposeSecret;
use shipped::{shipped_examples, without_short_forms};

use super::cli::{Cli, Command};
use super::*;

const UPSTREAM: &str = "upstream = \"http://h/v1\"\n";

/// Variables for the examples of the shipped file and for the cases below.
const VARIABLES: &[(&str, &str)] = &[
    ("UPSTREAM_API_KEY", "upstream-secret"),
    ("GPU_API_KEY", "gpu-secret"),
    ("BRAVE_API_KEY", "brave-secret"),
    ("DISPATCH_AUTHORIZATION", "Bearer dispatch-secret"),
    ("DISPATCH_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("TICKET_AUTHORIZATION", "Bearer ticket-secret"),
    ("FILES_TOKEN", "files-secret"),
    ("POLICY_AUTHORIZATION", "Bearer policy-secret"),
    ("POLICY_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("TICKET_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("ALICE_API_KEY", "  alice-0123456789abcdef \n"),
    ("CLUSTER_KEY", "cluster-secret-0123456789"),
    ("SHORT_KEY", "sesame"),
    ("SPACED_KEY", "open sesame open sesame"),
    ("EMPTY", ""),
    ("BLANK", "  "),
];

fn lookup(name: &str) -> Option<String> {
    let entry = VARIABLES.iter().find(|(other, _)| *other == name)?;
    Some(entry.1.to_owned())
}

/// Flags of `serve` from a command line.
fn flags(line: &[String]) -> ServeFlags {
    let words = ["loopwright", "serve"].map(str::to_owned);
    let matches = cli::command().get_matches_from(words.iter().chain(line));
    match Cli::from_arg_matches(&matches).unwrap().into_command() {
        Command::Serve(flags) => flags,
        Command::Demo(_)
        | Command::CheckConfig(_)
        | Command::Openapi
        | Command::Store(_)
        | Command::Approvals(_)
        | Command::Launch(_)
        | Command::Health(_)
        | Command::Manual { .. } => {
            panic!("`serve` was asked for")
        }
    }
}

struct TestFile(tempfile::NamedTempFile);

impl TestFile {
    fn new(text: &str) -> Self {
        let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file)
    }

    fn flags(&self) -> ServeFlags {
        ServeFlags {
            config: Some(self.0.path().to_owned()),
            ..ServeFlags::default()
        }
    }
}

fn load(text: &str) -> Result<Config, String> {
    let file = TestFile::new(text);
    let name = file.0.path().display().to_string();
    Config::load(&file.flags(), &lookup).map_err(|error| {
        let line = error.to_string();
        assert!(!line.contains('\n'), "one line: {line}");
        line.replace(&name, "FILE")
    })
}

/// Checks that `text` is refused with the file, a line, the key and a part of the remedy, and without secrets.
fn check(text: &str, key: &str, part: &str) {
    let refused = load(text).unwrap_err();
    let place = refused.strip_prefix("FILE, line ").unwrap_or_default();
    let (line, rest) = place.split_once(": ").unwrap_or_default();
    let last = text.lines().count();
    assert!(
        line.parse::<usize>().is_ok_and(|line| line <= last)
            && rest.starts_with(&format!("{key}: ")),
        "{refused}\nexpected {key}"
    );
    assert!(refused.contains(part), "{refused}\nexpected {part}");
    for secret in ["sesame", "sk-live", "hunter2"] {
        assert!(!refused.contains(secret), "{refused}");
    }
}

/// Flag, a value for flag and variable, the same in TOML, and a piece of the settings that shows it.
const SAMPLES: &[(&str, &str, &str, &str)] = &[
    (
        "listen",
        "127.0.0.1:9999",
        "\"127.0.0.1:9999\"",
        "listen = \"127.0.0.1:9999\"",
    ),
    (
        "upstream",
        "http://other/v1/",
        "\"http://other/v1/\"",
        "base_url = \"http://other/v1\"",
    ),
    (
        "upstream-api-key-env",
        "GPU_API_KEY",
        "\"GPU_API_KEY\"",
        "api_key_env = \"GPU_API_KEY\"",
    ),
    (
        "tool-dispatch-url",
        "http://t/run",
        "\"http://t/run\"",
        "url = \"http://t/run\"",
    ),
    (
        "dispatch-tools",
        "a_*, b_{x,y}",
        "[\"a_*\", \"b_{x,y}\"]",
        "[\"a_*\", \"b_{x,y}\"]",
    ),
    (
        "agent-permission",
        "deny",
        "\"deny\"",
        "agent_permission = \"deny\"",
    ),
    ("max-tool-rounds", "7", "7", "max_tool_rounds = 7"),
    (
        "session-store",
        "memory:",
        "\"memory:\"",
        "session_store = \"memory:\"",
    ),
    ("upstream-kind", "vllm", "\"vllm\"", "kind = \"vllm\""),
    (
        "files-dir",
        "/var/files",
        "\"/var/files\"",
        "files_dir = \"/var/files\"",
    ),
    (
        "replica-name",
        "gpu-1.a_b",
        "\"gpu-1.a_b\"",
        "replica_name = \"gpu-1.a_b\"",
    ),
    ("cluster-listen", "[::1]:1", "\"[::1]:1\"", "[::1]:1"),
    ("cluster-url", "http://h:1", "\"http://h:1\"", "http://h:1"),
    ("cluster-key-env", "K", "\"K\"", "cluster_key_env = \"K\""),
    ("insecure-no-auth", "true", "true", "0.0.0.0:1"),
    ("console", "false", "false", "console = false"),
    (
        "enable-code-execution",
        "true",
        "true",
        "enable_code_execution = true",
    ),
    ("code-exec-timeout", "90", "90", "code_exec_timeout = 90"),
    (
        "code-exec-python",
        "/opt/python/bin/python3",
        "\"/opt/python/bin/python3\"",
        "code_exec_python = \"/opt/python/bin/python3\"",
    ),
    ("enable-search", "true", "true", "enable_search = true"),
    ("search-provider", "brave", "\"brave\"", "name = \"brave\""),
    (
        "search-url",
        "http://s/x",
        "\"http://s/x\"",
        "url = \"http://s/x\"",
    ),
    (
        "otlp-endpoint",
        "http://h:4318",
        "\"http://h:4318\"",
        "otlp_endpoint = \"http://h:4318/\"",
    ),
    ("log-format", "json", "\"json\"", "log_format = \"json\""),
    ("log-level", "debug", "\"debug\"", "log_level = \"debug\""),
];

/// What a setting needs around it to show.
fn surroundings(flag: &str) -> Vec<(&'static str, &'static str)> {
    match flag {
        "upstream" => vec![],
        "dispatch-tools" => vec![
            ("upstream", "http://h/v1"),
            ("tool-dispatch-url", "http://t/run"),
        ],
        "code-exec-timeout" | "code-exec-python" => vec![
            ("upstream", "http://h/v1"),
            ("enable-code-execution", "true"),
        ],
        "search-provider" | "search-url" => {
            vec![("upstream", "http://h/v1"), ("enable-search", "true")]
        }
        "cluster-url" | "cluster-key-env" => {
            vec![("upstream", "http://h/v1"), ("cluster-listen", "[::1]:2")]
        }
        // Without it a note says where the URL was set.
        "tool-dispatch-url" => vec![("upstream", "http://h/v1"), ("dispatch-tools", "*")],
        "insecure-no-auth" => vec![("upstream", "http://h/v1"), ("listen", "0.0.0.0:1")],
        _ => vec![("upstream", "http://h/v1")],
    }
}

#[test]
fn every_flag_has_a_variable_and_a_key_that_mean_the_same() {
    let command = cli::command();
    let serve = command.find_subcommand("serve").unwrap();
    let given: Vec<_> = serve
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    let sampled: Vec<_> = SAMPLES.iter().map(|sample| sample.0).collect();
    for flag in &given {
        assert!(
            ["config", "help", "mcp-config"].contains(flag) || sampled.contains(flag),
            "{flag}"
        );
    }

    let lacks = |flag| flag == "otlp-endpoint" && !cfg!(feature = "otlp");
    let samples = SAMPLES.iter().filter(|sample| !lacks(sample.0));
    for (flag, value, in_toml, shown) in samples {
        let around: Vec<_> = surroundings(flag)
            .iter()
            .map(|(name, value)| format!("--{name}={value}"))
            .collect();
        let argument = serve
            .get_arguments()
            .find(|arg| arg.get_long() == Some(flag))
            .unwrap();
        let help = argument.get_help().unwrap().to_string();
        let variable = source::variable(flag);
        assert!(
            help.contains(&format!("[env: {variable}]")),
            "{flag}: {help}"
        );

        let mut line = around.clone();
        line.push(format!("--{flag}={value}"));
        let by_flag = Config::load(&flags(&line), &lookup).unwrap().summary();
        assert!(by_flag.contains(shown), "{flag}: {by_flag}");

        let env = |name: &str| {
            if name == variable {
                Some((*value).to_owned())
            } else {
                lookup(name)
            }
        };
        let by_variable = Config::load(&flags(&around), &env).unwrap().summary();
        assert_eq!(by_variable, by_flag, "{variable}");

        let file = TestFile::new(&format!("{} = {in_toml}\n", flag.replace('-', "_")));
        let mut with_file = flags(&around);
        with_file.config = file.flags().config;
        let by_key = Config::load(&with_file, &lookup).unwrap().summary();
        assert_eq!(by_key, by_flag, "key of {flag}");
    }
}

#[test]
fn a_flag_beats_a_variable_which_beats_the_file() {
    let file = TestFile::new(&format!("{UPSTREAM}max_tool_rounds = 1"));
    let nothing = |_: &str| None;
    let empty = |name: &str| (name == "LOOPWRIGHT_MAX_TOOL_ROUNDS").then(String::new);
    let two = |name: &str| (name == "LOOPWRIGHT_MAX_TOOL_ROUNDS").then(|| "2".to_owned());
    let rounds = |flags: &ServeFlags, env: Environment<'_>| {
        Config::load(flags, env).unwrap().agent.max_tool_rounds
    };
    assert_eq!(rounds(&file.flags(), &nothing), 1);
    assert_eq!(rounds(&file.flags(), &empty), 1);
    assert_eq!(rounds(&file.flags(), &two), 2);
    let flagged = ServeFlags {
        max_tool_rounds: Some("3".to_owned()),
        ..file.flags()
    };
    assert_eq!(rounds(&flagged, &two), 3);
}

#[test]
fn values_are_read_in_every_form() {
    let config = load(
        "upstream = \"https://h/api/v1/\"\nlisten = \"localhost:0\"\nsession_ttl = 0\nnameless_session_ttl = \"2h\"\nkeep_alive = 2.5\nheader_timeout = \"1500ms\"\n\
         max_body_bytes = 4096\nmax_header_bytes = \"16 KiB\"\nfirst_byte_wait = 0\nallowed_hosts = [\"*.CORP\"]\n\
         cors_origins = [\"https://chat.corp\"]\nsession_headers = [\"X-Chat-Id\", \"x-session-id\"]\nsession_store = \"sqlite:///var/s.db\"",
    )
    .unwrap();
    assert_eq!(config.upstreams[0].base_url.as_str(), "https://h/api/v1");
    assert_eq!(config.http.listen.to_string(), "127.0.0.1:0");
    assert_eq!(config.session.ttl, None);
    let nameless_ttl = Some(Duration::from_secs(7200));
    assert_eq!(config.session.nameless_ttl, nameless_ttl);
    assert_eq!(config.http.keep_alive, Duration::from_millis(2500));
    assert_eq!(config.http.header_timeout, Duration::from_millis(1500));
    assert_eq!(config.http.max_body_bytes, 4096);
    assert_eq!(config.http.max_header_bytes, 16_384);
    assert_eq!(config.http.first_byte_wait, Duration::ZERO);
    assert_eq!(config.http.allowed_hosts, ["*.corp"]);
    assert_eq!(config.http.session_headers, ["x-chat-id"]);
    let path = std::path::Path::new("/var/s.db");
    assert_eq!(
        config.session.store,
        ::agent::session::settings::StoreUrl::Sqlite(path.into())
    );
    assert!(config.summary().contains("files_dir = \"/var/s-files\"\n"));
}

#[test]
fn secrets_and_schemas_come_from_files_too() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "from-a-file\n").unwrap();
    let schema = folder.path().join("schema.json");
    std::fs::write(&schema, "{\n  \"type\": \"object\",\n  \"properties\": {\"b\": {\"const\": \"x \\\" y\"}, \"a\": {}}\n}\n").unwrap();
    let config = load(&format!(
        "[[upstreams]]\nname = \"u\"\nbase_url = \"http://u/v1\"\napi_key_file = {secret:?}\nheaders = {{ x-key = {{ file = {secret:?} }} }}\n\
         [[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t/\"\nmethod = \"get\"\nparameters_file = {schema:?}"
    ))
    .unwrap();
    let upstream = &config.upstreams[0];
    assert_eq!(
        upstream.api_key.as_ref().unwrap().expose_secret(),
        "from-a-file"
    );
    assert_eq!(upstream.headers["x-key"], "from-a-file");
    assert!(upstream.headers["x-key"].is_sensitive());
    let tool = &config.tools.http_tools[0];
    assert_eq!(
        tool.parameters_json,
        r#"{"type":"object","properties":{"b":{"const":"x \" y"},"a":{}}}"#
    );
    assert_eq!(tool.endpoint.method, "GET");
}

#[test]
fn keys_are_held_as_digests_and_open_a_public_address() {
    let digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let config = load(&format!(
        "{UPSTREAM}listen = \"0.0.0.0:80\"\n[[api_keys]]\nname = \"alice\"\nenv = \"ALICE_API_KEY\"\n[[api_keys]]\nname = \"bob\"\nsha256 = \"{digest}\""
    ))
    .unwrap();
    let trimmed: [u8; 32] =
        <sha2::Sha256 as sha2::Digest>::digest(b"alice-0123456789abcdef").into();
    assert_eq!(config.http.api_keys[0].sha256, trimmed);
    assert_eq!(config.http.api_keys[1].sha256[..2], [0x9f, 0x86]);
}

#[test]
fn what_is_possible_but_hardly_meant_is_noted() {
    let config = load("upstream = \"http://h\"\nlisten = \"0.0.0.0:80\"\ninsecure_no_auth = true\ndispatch_tools = [\"a\"]").unwrap();
    let notices = config.notices.join("\n");
    for part in ["/v1", "allowed_hosts", "dispatch URL"] {
        assert!(notices.contains(part), "{notices}");
    }
    assert!(config.summary().contains("# note: "));
}

#[test]
fn keys_without_an_operator_are_noted() {
    let keys = "upstream = \"http://h/v1\"\n[[api_keys]]\nname = \"a\"\nenv = \"ALICE_API_KEY\"";
    let marked = load(&format!("{keys}\noperator = true")).unwrap();
    assert_eq!(marked.notices, Vec::<String>::new());
    let notices = load(keys).unwrap().notices.join("\n");
    assert!(notices.contains("operator = true"), "{notices}");
}

#[test]
fn the_demo_reads_flags_and_variables() {
    let env = |name: &str| match name {
        "LOOPWRIGHT_LISTEN" => Some("127.0.0.1:1".to_owned()),
        "LOOPWRIGHT_LOG_LEVEL" => Some("warn".to_owned()),
        "PATH" => Some("/opt/bin".to_owned()),
        "TMPDIR" => Some("/scratch".to_owned()),
        _ => None,
    };
    let demo = DemoConfig::load(&DemoFlags::default(), &env).unwrap();
    assert_eq!(demo.listen.port(), 1);
    assert_eq!(demo.log.level, "warn");
    assert_eq!(demo.search_path.as_deref(), Some("/opt/bin"));
    assert_eq!(demo.temporary.as_deref(), Some("/scratch"));
    let defaults = DemoConfig::load(&DemoFlags::default(), &|_| None).unwrap();
    assert_eq!(defaults.listen.to_string(), "127.0.0.1:8080");
}
