//! The mistakes of the first hour, one row each: at the start, in the settings that are taken all the same, and in requests.

use http::Method;
use serde_json::{Value, json};

use crate::support::app::{Builder, TestApp};
use crate::support::upstream::ScriptedUpstream;

/// What is wrong at the start: the command line without `serve`, the file, and the parts of the message.
type Start = (
    &'static [&'static str],
    &'static str,
    &'static [&'static str],
);

const UP: &[&str] = &["--upstream", "http://127.0.0.1:9/v1"];
const UPSTREAM: &str = "[[upstreams]]\nname = \"u\"\nbase_url = \"http://127.0.0.1:9/v1\"\n";

const STARTS: &[Start] = &[
    // The model server.
    (&[], "", &["--upstream"]),
    (
        &["--upstream", "localhost:8000"],
        "",
        &["--upstream", "http://"],
    ),
    (
        &["--upstream", "ftp://h/v1"],
        "",
        &["--upstream", "http://"],
    ),
    (
        &["--upstream", "http://h/v1/chat/completions"],
        "",
        &["--upstream", "/chat/completions"],
    ),
    (UP, UPSTREAM, &["upstreams", "--upstream"]),
    (
        &["--upstream-kind", "lmstudio", "--upstream", "http://h/v1"],
        "",
        &["--upstream-kind", "vllm"],
    ),
    (
        &[
            "--upstream-api-key-env",
            "NO_SUCH_VARIABLE",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["NO_SUCH_VARIABLE", "set"],
    ),
    (
        &[
            "--upstream-api-key-env",
            "sk-12345",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--upstream-api-key-env", "name"],
    ),
    (
        &[],
        "[upstreams]\nname = \"u\"\nbase_url = \"http://h/v1\"",
        &["line ", "[[upstreams]]"],
    ),
    (
        &[],
        "[[upstreams]]\nname = \"u\"\nurl = \"http://h/v1\"",
        &["line ", "write `base_url`"],
    ),
    (&[], "[[upstreams]]\nname = \"u\"", &["base_url", "missing"]),
    (
        &[],
        "[[upstreams]]\nname = \"u\"\nbase_url = \"http://h/v1\"\napi_key = \"x\"",
        &["line ", "api_key_env"],
    ),
    // Addresses and keys.
    (
        &["--listen", "8090", "--upstream", "http://h/v1"],
        "",
        &["--listen", "127.0.0.1:8080"],
    ),
    (
        &["--listen", "0.0.0.0:0", "--upstream", "http://h/v1"],
        "",
        &["--listen", "[[api_keys]]", "--insecure-no-auth"],
    ),
    (
        UP,
        "[[api_keys]]\nname = \"a\"\nkey = \"k\"",
        &["line ", "`env = \"NAME\"`"],
    ),
    (
        UP,
        "[[api_keys]]\nname = \"a\"\nenv = \"SHORT\"",
        &["SHORT", "16"],
    ),
    (
        UP,
        "[[api_keys]]\nname = \"a\"\nenv = \"NOT_SET\"",
        &["NOT_SET"],
    ),
    (
        UP,
        "[api_keys]\nname = \"a\"\nenv = \"LONG\"",
        &["[[api_keys]]"],
    ),
    // Names of flags and keys.
    (&["--upstraem", "http://h/v1"], "", &["--upstream"]),
    (
        &["--enable-search", "true", "--upstream", "http://h/v1"],
        "",
        &["--enable-search=true"],
    ),
    (&["frobnicate"], "", &["frobnicate"]),
    (
        UP,
        "upstraem = \"http://h/v1\"",
        &["line ", "did you mean `upstream`?"],
    ),
    (
        UP,
        "[search]\nenable_search = true",
        &["line ", "above the first table"],
    ),
    (UP, "max_attempts = 1", &["line ", "[retry]"]),
    (UP, "[retry]\nmax = 1", &["line ", "max_attempts"]),
    (UP, "[[retry]]\nmax_attempts = 1", &["line ", "[retry]"]),
    (UP, "zzz = 1", &["line ", "check-config --template"]),
    (UP, "listen = ", &["line "]),
    (UP, "max_messages = \"many\"", &["line ", "max_messages"]),
    (
        UP,
        "session_ttl = \"5 parsecs\"",
        &["line ", "session_ttl", "`5 parsecs` is not a time"],
    ),
    (
        UP,
        "max_body_bytes = \"3 apples\"",
        &["line ", "max_body_bytes", "is not a size"],
    ),
    (
        &["--log-level", "loud", "--upstream", "http://h/v1"],
        "",
        &["--log-level", "debug"],
    ),
    (
        &["--log-format", "xml", "--upstream", "http://h/v1"],
        "",
        &["--log-format", "json"],
    ),
    // Tools.
    (
        &[
            "--tool-dispatch-url",
            "localhost:9000/run",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--tool-dispatch-url", "http://"],
    ),
    (
        &[
            "--dispatch-tools",
            "a[",
            "--tool-dispatch-url",
            "http://h/r",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--dispatch-tools", "`a[`"],
    ),
    (
        &[
            "--dispatch-tools",
            "",
            "--tool-dispatch-url",
            "http://h/r",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--dispatch-tools", "`*`"],
    ),
    (
        UP,
        "tool_dispatch_url = \"http://h/r\"\ndispatch_secret_env = \"WHSEC\"",
        &["dispatch_secret_env", "whsec_"],
    ),
    (
        UP,
        "[[tools]]\nname = \"t\"\ndescription = \"d\"",
        &["tools[0]", "url", "--tool-dispatch-url"],
    ),
    (
        UP,
        "[[tools]]\nname = \"a b\"\ndescription = \"d\"\nurl = \"http://h/r\"",
        &["tools[0].name"],
    ),
    (
        UP,
        "[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://h/r\"\nparameters = { type = \"strin\" }",
        &["tools[0].parameters"],
    ),
    (
        &["--agent-permission", "maybe", "--upstream", "http://h/v1"],
        "",
        &["--agent-permission"],
    ),
    (
        &["--max-tool-rounds", "many", "--upstream", "http://h/v1"],
        "",
        &["--max-tool-rounds"],
    ),
    (
        &["--mcp-config", "/no/such.json", "--upstream", "http://h/v1"],
        "",
        &["--mcp-config", "/no/such.json"],
    ),
    (
        &[
            "--enable-code-execution",
            "--code-exec-python",
            "/no/python3",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["/no/python3"],
    ),
    (
        &[
            "--enable-code-execution",
            "--code-exec-timeout",
            "301",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--code-exec-timeout", "300"],
    ),
    // Search.
    (
        &[
            "--enable-search",
            "--search-provider",
            "google",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--search-provider", "brave"],
    ),
    (
        &[
            "--enable-search",
            "--search-provider",
            "brave",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["BRAVE_API_KEY"],
    ),
    (
        &[
            "--enable-search",
            "--search-provider",
            "searxng",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--search-url"],
    ),
    (
        &[
            "--enable-search",
            "--search-url",
            "localhost:8888",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--search-url", "http://"],
    ),
    // Store, files and certificates.
    (
        &[
            "--session-store",
            "mysql://h/db",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["--session-store", "sqlite:", "postgres://"],
    ),
    (
        &[
            "--session-store",
            "sqlite:/proc/none/x.db",
            "--upstream",
            "http://h/v1",
        ],
        "",
        &["/proc/none/x.db", "--session-store"],
    ),
    (
        &["--files-dir", "/proc/none", "--upstream", "http://h/v1"],
        "",
        &["/proc/none"],
    ),
    (UP, "ca_file = \"/no/ca.pem\"", &["ca_file", "/no/ca.pem"]),
];

fn builder(args: &'static [&'static str], toml: &str) -> Builder {
    let secrets = [
        ("SHORT", "too-short"),
        ("WHSEC", "no-such-form"),
        ("LONG", "long-long-long-long"),
    ];
    let builder = TestApp::builder().toml(toml);
    let builder = secrets
        .iter()
        .fold(builder, |builder, (name, value)| builder.env(name, value));
    args.iter()
        .fold(builder, |builder, argument| builder.args([*argument]))
}

#[tokio::test]
async fn a_mistake_at_the_start_is_named_with_its_remedy() {
    let mut unclear = Vec::new();
    for (args, toml, parts) in STARTS {
        let ended = builder(args, toml).run("serve").await;
        let said = &ended.stderr;
        let missing: Vec<_> = parts.iter().filter(|part| !said.contains(*part)).collect();
        if !matches!(ended.code, Some(1 | 2)) || !missing.is_empty() {
            unclear.push(format!("{args:?} {toml}: {missing:?} not in {said}"));
        }
        for secret in ["sk-12345", "too-short", "no-such-form"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
    assert!(unclear.is_empty(), "{}", unclear.join("\n"));
}

#[tokio::test]
async fn settings_that_have_no_effect_or_are_risky_get_a_note() {
    for (args, toml, parts) in [
        (
            UP,
            "dispatch_tools = [\"crm_*\"]",
            ["dispatch_tools", "no effect without a dispatch URL"],
        ),
        (
            UP,
            "tool_dispatch_url = \"http://h/r\"",
            ["without `dispatch_tools`", "--dispatch-tools '*'"],
        ),
        (
            &["--upstream", "http://127.0.0.1:9"],
            "",
            ["--upstream", "/v1"],
        ),
        (
            UP,
            "listen = \"0.0.0.0:0\"\ninsecure_no_auth = true",
            ["insecure_no_auth = true", "`allowed_hosts`"],
        ),
    ] {
        let ended = builder(args, toml).run("check-config").await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        for part in parts {
            assert!(
                ended.stdout.contains(part),
                "{toml}: no `{part}` in {}",
                ended.stdout
            );
        }
    }
    let misspelt = TestApp::builder().upstream_url("http://127.0.0.1:9/v1");
    let misspelt = misspelt.env("LOOPWRIGHT_TOOL_DISPTACH_URL", "http://h/run");
    let said = misspelt.run("check-config").await.stdout;
    assert!(
        said.contains("did you mean LOOPWRIGHT_TOOL_DISPATCH_URL?"),
        "{said}"
    );
}

/// A request: method, path, body, and the status, the code and parts of the message of its answer.
type Refused = (
    Method,
    &'static str,
    Value,
    u16,
    Option<&'static str>,
    &'static [&'static str],
);

fn chat(more: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Q"}]});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[tokio::test]
async fn a_mistake_in_a_request_is_named_with_its_remedy() {
    const CHAT: &str = "/v1/chat/completions";
    let rows: Vec<Refused> = vec![
        (
            Method::POST,
            "/chat/completions",
            chat(json!({})),
            404,
            None,
            &["/v1"],
        ),
        (Method::GET, CHAT, Value::Null, 405, None, &["method"]),
        (
            Method::POST,
            CHAT,
            json!({"messages": []}),
            400,
            None,
            &["model"],
        ),
        (
            Method::POST,
            CHAT,
            json!({"model": "m", "session_id": "s"}),
            400,
            None,
            &["messages"],
        ),
        (
            Method::POST,
            CHAT,
            chat(json!({"session_id": "a b"})),
            400,
            None,
            &["session_id"],
        ),
        (
            Method::POST,
            CHAT,
            chat(json!({"max_tool_rounds": "many"})),
            400,
            None,
            &["max_tool_rounds"],
        ),
        (
            Method::POST,
            CHAT,
            chat(json!({"agent": {"limit": {}}})),
            400,
            None,
            &["limit", "limits"],
        ),
        (
            Method::POST,
            CHAT,
            chat(json!({"agent_permission": "maybe"})),
            400,
            None,
            &["agent_permission"],
        ),
        (
            Method::POST,
            CHAT,
            chat(json!({"enable_code_execution": true})),
            400,
            None,
            &["--enable-code-execution"],
        ),
        (
            Method::POST,
            CHAT,
            chat(json!({"tools": [{"type": "code_interpreter"}]})),
            400,
            None,
            &["code_interpreter", "--enable-code-execution"],
        ),
        (
            Method::POST,
            "/v1/responses",
            json!({"model": "m", "input": "Q", "tools": [{"type": "web_search"}]}),
            400,
            Some("unsupported_tool"),
            &["web_search", "--enable-search", "ignore_tools"],
        ),
        (
            Method::POST,
            "/v1/responses",
            json!({"model": "m", "input": "Q", "previous_response_id": "resp_none"}),
            400,
            None,
            &["previous_response_id", "'input'"],
        ),
        (
            Method::GET,
            "/v1/sessions/none",
            Value::Null,
            404,
            Some("not_found"),
            &["session"],
        ),
    ];
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let mut unclear = Vec::new();
    for (method, path, body, status, code, parts) in rows {
        let answer = match method {
            Method::GET => app.get(path).await,
            _ => app.post(path, &body).await,
        };
        let told = answer.text();
        let error: Value = serde_json::from_str(&told).unwrap_or_default();
        let message = error["error"]["message"].as_str().unwrap_or_default();
        let has_code = code.is_none_or(|code| error["error"]["code"] == code);
        let missing: Vec<_> = parts
            .iter()
            .filter(|part| !message.contains(*part))
            .collect();
        if answer.status != status || !has_code || !missing.is_empty() {
            unclear.push(format!(
                "{path} {body}: {missing:?} not in {} {told}",
                answer.status
            ));
        }
    }
    assert!(unclear.is_empty(), "{}", unclear.join("\n"));
}
