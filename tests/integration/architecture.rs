//! Holds the walls that the manifests of the members do not: between the modules of a member, and for outside crates that
//! only some of them may use.

mod cycles;
pub(crate) mod modules;
pub(crate) mod product;
mod sizes;
pub(crate) mod test_items;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use modules::{is_shared, named_modules, names_of_member, place};
use test_items::without_tests;

/// Which modules a module may name, where its member holds several. Of a member of one module the manifest says it.
const IMPORTS: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("sse", &[]),
    ("media", &[]),
    ("polling", &[]),
    ("net", &["polling"]),
    ("cluster", &["ids", "net"]),
    ("blobs", &["ids", "net"]),
    ("segments", &["blobs"]),
    ("ranking", &[]),
    ("redact", &[]),
    ("rules", &[]),
    ("manual", &[]),
    ("shutdown", &[]),
    ("telemetry", &[]),
    ("traces", &["net"]),
    ("openai", &["ids"]),
    ("web", &["quota", "ids", "net", "ranking", "sandbox"]),
    ("hooks", &["ids", "net", "openai"]),
    ("session", &["blobs", "openai", "ids", "media", "store"]),
    // Reads the counts and the enums that are label values; the modules that own them do not know of metrics.
    ("metrics", &["hooks", "sandbox", "tools", "web"]),
    (
        "agent",
        &[
            "blobs", "hooks", "ids", "metrics", "openai", "segments", "polling", "redact", "rules",
            "session", "tools", "traces", "upstream", "web",
        ],
    ),
    (
        "runs",
        &[
            "agent", "quota", "ids", "metrics", "segments", "polling", "store",
        ],
    ),
    // A dialect reads a request alone: no source of tools, no store, no upstream, and no other dialect.
    ("fields", &["agent", "openai", "ids"]),
    (
        "chat",
        &["agent", "end", "fields", "openai", "ids", "segments"],
    ),
    // Answers have loopwright's own members in one form. Items are made of what a session holds.
    (
        "responses",
        &[
            "agent", "chat", "end", "fields", "ids", "openai", "polling", "session",
        ],
    ),
    ("end", &["segments"]),
    // The one place that tells dialects apart.
    (
        "answer",
        &["agent", "chat", "end", "ids", "segments", "responses"],
    ),
    (
        "http",
        &[
            "agent",
            "answer",
            "chat",
            "cluster",
            "end",
            "fields",
            "quota",
            "openai",
            "ids",
            "upstream",
            "tools",
            "session",
            "metrics",
            "segments",
            "polling",
            "responses",
            "rules",
            "runs",
            "traces",
        ],
    ),
    (
        "config",
        &[
            "agent",
            "cluster",
            "hooks",
            "http",
            "upstream",
            "tools",
            "redact",
            "rules",
            "runs",
            "sandbox",
            "session",
            "telemetry",
            "traces",
            "ids",
            "web",
        ],
    ),
    (
        "app",
        &[
            "agent", "cluster", "config", "hooks", "http", "ids", "metrics", "redact", "rules",
            "runs", "sandbox", "session", "store", "tools", "traces", "upstream", "web",
        ],
    ),
    // Asks a running server, as any client does.
    ("client", &["config", "ids", "net"]),
    ("approvals", &["client", "config", "ids"]),
    ("health", &["client", "config"]),
    ("launch", &["client", "config"]),
    ("copies", &["config", "session", "store"]),
    (
        "demo",
        &[
            "app", "config", "ids", "net", "rules", "sandbox", "session", "tools",
        ],
    ),
];

/// Modules of another part that `config` may name: settings and the plain values that they hold.
const CONFIG_MAY_NAME: &[&str] = &["settings", "retry", "set", "schema"];

/// Which outside crates only some modules use, where a manifest cannot say so.
const CRATES: &[(&str, &[&str])] = &[
    ("axum", &["http", "app", "demo"]),
    ("hyper", &["http", "net"]),
    ("hyper_util", &["http", "net"]),
    // Object storage is given the client of `net`.
    ("reqwest", &["blobs", "net", "tools", "web", "demo"]),
    ("infer", &["media", "web"]),
    // The server's limit of file descriptors; the free space of the store's disk; the guard of MCP servers; the width of a
    // terminal; signals for an agent.
    (
        "rustix",
        &["sandbox", "http", "store", "tools", "approvals", "launch"],
    ),
    // A client of MCP servers, and the server of the tools.
    ("rmcp", &["http", "tools"]),
    ("socket2", &["http"]),
    ("clap", &["config"]),
    ("toml", &["config"]),
    ("prometheus_client", &["metrics"]),
    ("opentelemetry", &["traces"]),
    ("opentelemetry_http", &["traces"]),
    ("opentelemetry_otlp", &["traces"]),
    ("opentelemetry_sdk", &["traces"]),
    ("anyhow", &["main", "demo"]),
];

/// Parts of the loop that only decide, besides every policy.
const PURE: &[&str] = &[
    "agent/machine.rs",
    "agent/policy.rs",
    "agent/turn.rs",
    "agent/event.rs",
    "agent/stop.rs",
    "agent/options.rs",
    "agent/draft.rs",
    "agent/draft/tools.rs",
    "agent/admit/asked.rs",
    "agent/admit/defaults.rs",
    "agent/transcript.rs",
];

fn sources() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let code: Vec<&str> = text
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("//"))
                    .collect();
                found.insert(
                    path.strip_prefix(&root).unwrap().to_owned(),
                    code.join("\n"),
                );
            }
        }
    }
    assert!(
        found.len() > 40,
        "only {} source files were found",
        found.len()
    );
    found
}

fn module_of(path: &Path) -> String {
    place(path.to_str().unwrap()).0.to_owned()
}

/// The identifiers that follow `prefix::` in the code, brace lists included.
fn names_after(code: &str, prefix: &str) -> Vec<String> {
    names_where(code, prefix, |before| !before.ends_with(is_of_word))
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The same where the code before the prefix allows it.
fn names_where(code: &str, prefix: &str, may_follow: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if !may_follow(&code[..at]) {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let take = |text: &str| {
            text.chars()
                .take_while(|c| is_of_word(*c))
                .collect::<String>()
        };
        match rest.strip_prefix('{') {
            Some(list) => {
                let mut depth = 0;
                let mut item = String::new();
                for character in list.chars() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => names.push(take(std::mem::take(&mut item).trim())),
                        _ if depth == 0 => item.push(character),
                        _ => {}
                    }
                }
                names.push(take(item.trim()));
            }
            None => names.push(take(rest)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        let module = module_of(&path);
        let member = path.iter().next().unwrap().to_str().unwrap();
        // What only tests compile may name every module, in a file of its own as well.
        let is_test = path.components().any(|part| part.as_os_str() == "tests");
        if !is_shared(member) || is_test {
            continue;
        }
        let row = IMPORTS.iter().find(|(name, _)| *name == module);
        let allowed = row.map_or(&[][..], |(_, allowed)| allowed);
        for name in named_modules(member, &without_tests(&code)) {
            if name != module && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{}: names {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn settings_are_all_that_config_takes_from_the_parts() {
    let mut wrong = Vec::new();
    for (path, code) in sources()
        .into_iter()
        .filter(|(path, _)| module_of(path) == "config")
    {
        let code = without_tests(&code);
        for part in [
            "agent",
            "agent::session",
            "crate::http",
            "net::cluster",
            "policy::hooks",
            "sandbox",
            "tools",
            "upstream",
        ] {
            let names = match part.contains("::") {
                true => names_after(&code, &format!("{part}::")),
                false => names_of_member(&code, part),
            };
            for name in names {
                // Another module of the member is a part of its own.
                let is_part = place(&format!("{part}/{name}")).0 == name;
                if !is_part && !CONFIG_MAY_NAME.contains(&name.as_str()) {
                    wrong.push(format!("{}: names {part}::{name}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn outside_crates_stay_in_their_modules() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        let module = module_of(&path);
        let code = without_tests(&code);
        for (name, users) in CRATES {
            let named = !names_after(&code, &format!("{name}::")).is_empty();
            if named && !users.contains(&module.as_str()) {
                wrong.push(format!("{}: uses {name}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn http_clients_are_built_in_one_place() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        let file = path.to_str().unwrap();
        let is_test = file.contains("/tests/") || file.ends_with("/tests.rs");
        if is_test || file == "net/client.rs" {
            continue;
        }
        let code = without_tests(&code);
        for word in [
            "Client::builder(",
            " Client::new(",
            "reqwest::Client::new(",
            "ClientBuilder",
            "reqwest::get(",
        ] {
            if code.contains("reqwest::") && code.contains(word) {
                wrong.push(format!("{file}: builds an HTTP client with {word}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_environment_and_child_processes_have_one_place() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        let code = without_tests(&code);
        let file = path.to_str().unwrap();
        if code.contains("env::var") && file != "main.rs" {
            wrong.push(format!("{file}: reads the environment"));
        }
        let starts =
            ["sandbox", "launch"].contains(&&*module_of(&path)) || file.starts_with("tools/mcp/");
        if code.contains("process::Command") && !starts {
            wrong.push(format!("{file}: starts a process"));
        }
        if code.contains("tokio::spawn(") {
            wrong.push(format!("{file}: spawns a task that nobody owns"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn decisions_do_not_await() {
    let sources = sources();
    let policies: Vec<&Path> = sources
        .keys()
        .map(PathBuf::as_path)
        .filter(|path| path.starts_with("agent/policy"))
        .collect();
    assert!(policies.len() >= 2, "the policies are {policies:?}");
    for file in PURE.iter().map(Path::new).chain(policies) {
        let code = without_tests(&sources[file]);
        for word in [
            "async ",
            ".await",
            "Instant",
            "SystemTime",
            "unix_seconds(",
            "rand::",
            "tokio",
        ] {
            assert!(!code.contains(word), "{} contains {word}", file.display());
        }
    }
}

/// Words of the chat dialect's wire format, in requests and in answers.
const CHAT_WORDS: &[&str] = &[
    "chat.completion",
    "agentic_",
    "\"choices\"",
    "\"delta\"",
    "\"tool_choice\"",
    "\"enable_code_execution\"",
    "include_usage",
];

#[test]
fn below_the_dialects_nobody_knows_a_wire_format() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        if !matches!(
            module_of(&path).as_str(),
            "agent" | "tools" | "session" | "store"
        ) {
            continue;
        }
        // The errors of admission name the fields of requests.
        if path.starts_with("agent/admit") {
            continue;
        }
        let code = without_tests(&code);
        for word in CHAT_WORDS.iter().filter(|word| code.contains(**word)) {
            wrong.push(format!("{}: {word}", path.display()));
        }
    }
    // Drafts and events of a turn that waits are stored, in a form that no client sees.
    for (file, forbidden) in [
        ("agent/turn.rs", "serde"),
        ("agent/event.rs", "rename"),
        ("agent/event.rs", "JsonSchema"),
        ("agent/draft.rs", "rename"),
        ("agent/draft.rs", "JsonSchema"),
        ("agent/draft/tools.rs", "rename"),
        ("agent/options.rs", "rename"),
        ("agent/options.rs", "JsonSchema"),
    ] {
        let code = &sources()[Path::new(file)];
        if without_tests(code).contains(forbidden) {
            wrong.push(format!(
                "{file}: is plain data, which a dialect reads and writes"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_dialect_reads_the_requests_of_another() {
    for (path, code) in sources() {
        let reads = |dialect: &str, other: &str| {
            path.starts_with(format!("server/dialects/{dialect}"))
                && code.contains(&format!("{other}::decode"))
        };
        let wrong = reads("responses", "chat") || reads("chat", "responses");
        assert!(!wrong, "{}", path.display());
    }
}

#[test]
fn retries_and_fail_over_have_one_driver() {
    let may_use: &[(&str, &[&str])] = &[
        (
            "Attempts::new",
            &["upstream/fail_over.rs", "upstream/retry.rs"],
        ),
        (
            "FailOver::new",
            &["upstream/router.rs", "upstream/fail_over.rs"],
        ),
        (
            ".fail_over(",
            &["agent/model_call/attempts.rs", "server/http/forward.rs"],
        ),
        (
            "fail_over.recover(",
            &["agent/model_call/attempts.rs", "server/http/forward.rs"],
        ),
    ];
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        let code = without_tests(&code);
        for (call, files) in may_use {
            let known = files.contains(&path.to_str().unwrap());
            if code.contains(call) && !known {
                wrong.push(format!("{}: calls {call}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Type names that may stand for the one subject of several modules.
const SUBJECTS: &[&str] = &["Settings", "Error"];

/// The types of a file that other files can name.
fn visible_types(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines() {
        let line = line.trim_start();
        let Some(rest) = line.strip_prefix("pub") else {
            continue;
        };
        let rest = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
            None => rest,
        };
        let mut words = rest.split_whitespace();
        if matches!(
            words.next(),
            Some("struct" | "enum" | "trait" | "type" | "union")
        ) && let Some(name) = words.next()
        {
            let end = name
                .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                .unwrap_or(name.len());
            // A macro names its types where it is used.
            if end > 0 {
                found.push(name[..end].to_owned());
            }
        }
    }
    found
}

#[test]
fn a_type_name_means_one_thing_in_the_whole_workspace() {
    let mut owners: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, code) in sources() {
        let path = path.to_str().unwrap();
        // A stand-in for a part that is left out has the names of the part.
        if path.contains("tests") || path.contains("/suite") || path.contains("/no_") {
            continue;
        }
        for name in visible_types(&without_tests(&code)) {
            owners.entry(name).or_default().push(path.to_owned());
        }
    }
    assert!(owners.len() > 400, "only {} types were found", owners.len());
    let shared: Vec<String> = owners
        .into_iter()
        .filter(|(name, files)| files.len() > 1 && !SUBJECTS.contains(&name.as_str()))
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect();
    assert!(shared.is_empty(), "{}", shared.join("\n"));
}

#[test]
fn sql_is_written_in_the_store_alone() {
    let mut wrong = Vec::new();
    for (path, code) in sources() {
        if module_of(&path) == "store" {
            continue;
        }
        let code = without_tests(&code);
        for word in ["SELECT ", "INSERT INTO", "UPDATE sessions", "DELETE FROM"] {
            if code.contains(word) {
                wrong.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
