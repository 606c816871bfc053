//! Refusals: each names where the fault is, what it is and what to do.

mod values;

use super::*;

/// Variable, value.
const BAD_VARIABLES: &[(&str, &str)] = &[
    ("LOOPWRIGHT_LISTEN", "8080"),
    ("LOOPWRIGHT_UPSTREAM", "localhost:8000"),
    ("LOOPWRIGHT_AGENT_PERMISSION", "perhaps"),
    ("LOOPWRIGHT_MAX_TOOL_ROUNDS", "many"),
    ("LOOPWRIGHT_SESSION_STORE", "postgres://u:hunter2@h:x/db"),
    ("LOOPWRIGHT_INSECURE_NO_AUTH", "perhaps"),
    ("LOOPWRIGHT_LOG_LEVEL", "loud"),
    ("LOOPWRIGHT_ENABLE_CODE_EXECUTION", "perhaps"),
    ("LOOPWRIGHT_CODE_EXEC_TIMEOUT", "301"),
    ("LOOPWRIGHT_CODE_EXEC_PYTHON", " "),
    ("LOOPWRIGHT_UPSTREAM_API_KEY_ENV", "NOT_SET"),
    ("LOOPWRIGHT_CONFIG", "/no/such/file.toml"),
];

/// A file, and how its refusal begins.
const BAD_SHAPES: &[(&str, &str)] = &[
    ("listen = \n", "line 1: "),
    (
        "\n\nlisten = 5",
        "line 3: listen: invalid type: integer `5`, expected a string",
    ),
    ("enable_tools = true", "line 1: enable_tools: unknown key; "),
    (
        "[retry]\nmax = 1",
        "line 2: retry.max: unknown key, expected one of `max_attempts`",
    ),
    (
        "[[upstreams]]\nname = \"a\"\nbase_url = \"http://a\"\n[[upstreams]]\nname = \"b\"\nbase_url = \"http://b\"\nidle_timeout = \"5 parsecs\"",
        "line 7: upstreams[1].idle_timeout: `5 parsecs` is not a time; write",
    ),
    (
        "[[upstreams]]\nname = \"a\"",
        "line 1: upstreams[0]: the key `base_url` is missing; add it",
    ),
    (
        "[[upstreams]]\nname = \"a\"\nbase_url = \"http://a\"\nquirks = { call_ids = \"long\" }",
        "line 4: upstreams[0].quirks.call_ids: unknown variant `long`, expected `standard` or `short`",
    ),
    (
        "max_messages = -1",
        "line 1: max_messages: -1 is negative; write a whole number",
    ),
    (
        "max_messages = 1.5",
        "line 1: max_messages: invalid type: floating point `1.5`, expected a whole number",
    ),
    (
        "max_body_bytes = \"3 apples\"",
        "line 1: max_body_bytes: `3 apples` is not a size; write",
    ),
    (
        "keep_alive = true",
        "line 1: keep_alive: invalid type: boolean `true`, expected a number of seconds",
    ),
    (
        "dispatch_headers = { x = 5 }",
        "line 1: dispatch_headers.x: invalid type",
    ),
    (
        "dispatch_headers = { x = { evn = \"A\" } }",
        "line 1: dispatch_headers.x.evn: unknown key",
    ),
];

const SERVER: &str = "[[upstreams]]\nname = \"u\"\nbase_url = \"http://u/v1\"\n";

#[test]
fn a_variable_at_fault_is_named() {
    for (variable, value) in BAD_VARIABLES {
        let env = |name: &str| match name {
            _ if name == *variable => Some((*value).to_owned()),
            "LOOPWRIGHT_UPSTREAM" => Some("http://h/v1".to_owned()),
            _ => None,
        };
        let refused = Config::load(&ServeFlags::default(), &env)
            .unwrap_err()
            .to_string();
        assert!(refused.starts_with(&format!("{variable}: ")), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn a_flag_at_fault_is_named() {
    for (flag, part) in [
        ("search-provider=google", "searxng, brave"),
        ("search-url=ftp://s", "http://"),
        ("agent-permission=no", "auto, ask or deny"),
        ("upstream=ftp://h/v1", "http://"),
        (
            "session-store=postgres://u:hunter2@h:x/db",
            "postgres://USER:PASSWORD@HOST/DATABASE",
        ),
        ("listen=8080", "127.0.0.1:8080"),
        ("log-level=loud", "info"),
        ("max-tool-rounds=-1", "0 or more"),
        ("max-tool-rounds=many", "0 or more"),
        ("dispatch-tools=", "`*` for all"),
        ("dispatch-tools=a,b[", "`b[` is not a pattern"),
        ("enable-search=perhaps", "true or false"),
        ("code-exec-timeout=0", "1 to 300 seconds"),
        ("code-exec-timeout=301", "1 to 300 seconds"),
        ("code-exec-python=", "such as python3"),
    ] {
        let mut line = vec![format!("--{flag}")];
        if !flag.starts_with("upstream") {
            line.push("--upstream=http://h/v1".to_owned());
        }
        let refused = Config::load(&flags(&line), &lookup)
            .unwrap_err()
            .to_string();
        let name = flag.split('=').next().unwrap();
        assert!(refused.starts_with(&format!("--{name}: ")), "{refused}");
        assert!(refused.contains(part), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn a_public_address_needs_keys_or_the_word_of_the_operator() {
    for listen in [
        "0.0.0.0:80",
        "[::]:80",
        "192.168.1.1:80",
        "[::ffff:10.0.0.1]:80",
    ] {
        let line = [
            "--upstream=http://h/v1".to_owned(),
            format!("--listen={listen}"),
        ];
        let refused = Config::load(&flags(&line), &lookup)
            .unwrap_err()
            .to_string();
        assert!(refused.starts_with("--listen: "), "{refused}");
        assert!(
            refused.contains("[[api_keys]]") && refused.contains("--insecure-no-auth"),
            "{refused}"
        );
    }
    for listen in [
        "127.0.0.2:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
        "localhost:80",
    ] {
        let line = [
            "--upstream=http://h/v1".to_owned(),
            format!("--listen={listen}"),
        ];
        assert!(Config::load(&flags(&line), &lookup).is_ok(), "{listen}");
    }
}

#[test]
fn an_upstream_is_required_once() {
    let refused = Config::load(&ServeFlags::default(), &lookup)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("--upstream"), "{refused}");
    check(&format!("{UPSTREAM}{SERVER}"), "upstream", "[[upstreams]]");
    let key = "upstream_api_key_env = \"GPU_API_KEY\"\n";
    check(
        &format!("{key}{SERVER}"),
        "upstream_api_key_env",
        "[[upstreams]]",
    );
    check(key, "upstream_api_key_env", "--upstream");
}

#[test]
fn a_wrong_shape_is_refused_with_its_line_and_key() {
    for (text, expected) in BAD_SHAPES {
        let refused = load(text).unwrap_err();
        let expected = format!("FILE, {expected}");
        assert!(
            refused.starts_with(&expected),
            "{refused}\nexpected: {expected}"
        );
    }
}

#[test]
fn a_setting_whose_feature_is_missing_is_refused() {
    let (s3, mcp) = (cfg!(feature = "s3"), cfg!(feature = "mcp"));
    let otlp = cfg!(feature = "otlp");
    for (has, feature, key, text) in [
        (s3, "s3", "files_dir", "files_dir = \"s3://files\""),
        (
            mcp,
            "mcp",
            "mcp_servers.x",
            "[mcp_servers.x]\ncommand = \"/bin/true\"",
        ),
        (
            mcp,
            "mcp",
            "mcp_requests",
            "[mcp_requests]\nhosts = [\"mcp.example.org\"]",
        ),
        (
            otlp,
            "otlp",
            "otlp_endpoint",
            "otlp_endpoint = \"http://collector:4318\"",
        ),
    ] {
        let text = format!("{UPSTREAM}{text}");
        match has {
            true => assert!(load(&text).is_ok(), "{key}"),
            false => check(&text, key, &format!("the feature `{feature}`")),
        }
    }
    let unused = "[mcp_servers.x]\ncommand = \"/bin/true\"\nenabled = false";
    assert!(load(&format!("{UPSTREAM}{unused}")).is_ok());
}
