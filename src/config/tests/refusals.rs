//! Refusals: each names where the fault is, what it is and what to do.

use super::*;

/// Variable, value.
const BAD_VARIABLES: &[(&str, &str)] = &[
    ("LOOPWRIGHT_LISTEN", "8080"),
    ("LOOPWRIGHT_UPSTREAM", "localhost:8000"),
    ("LOOPWRIGHT_AGENT_PERMISSION", "ask"),
    ("LOOPWRIGHT_MAX_TOOL_ROUNDS", "many"),
    ("LOOPWRIGHT_SESSION_STORE", "postgres://u:hunter2@h/db"),
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
    (
        "enable_tools = true",
        "line 1: enable_tools: unknown key; `config/loopwright.toml`",
    ),
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

/// Lines below an upstream, the key at fault and a part of the remedy.
const IMPOSSIBLE: &[(&str, &str, &str)] = &[
    ("max_messages = 0", "max_messages", "1 or more"),
    ("max_header_bytes = 100", "max_header_bytes", "8192 or more"),
    ("repeat_threshold = 1", "repeat_threshold", "2 or more"),
    (
        "max_tool_rounds = 5000000000",
        "max_tool_rounds",
        "too large",
    ),
    ("keep_alive = 0", "keep_alive", "longer than 0"),
    (
        "session_wait_ms = 100000000000",
        "session_wait_ms",
        "86400000 or less",
    ),
    (
        "session_store = \"redis://h\"",
        "session_store",
        "sqlite:PATH or memory:",
    ),
    ("files_dir = \"\"", "files_dir", "write a path"),
    ("max_file_bytes = 0", "max_file_bytes", "1 or more"),
    (
        "max_total_file_bytes = \"1MiB\"",
        "max_total_file_bytes",
        "max_file_bytes is 67108864",
    ),
    (
        "agent_permission = \"ask\"",
        "agent_permission",
        "approvals are not available in this version",
    ),
    (
        "session_headers = [\"x-ok\", \"authorization\"]",
        "session_headers[1]",
        "secrets",
    ),
    (
        "session_headers = [\"a b\"]",
        "session_headers[0]",
        "not a header name",
    ),
    (
        "allowed_hosts = [\"http://h\"]",
        "allowed_hosts[0]",
        "without scheme",
    ),
    (
        "cors_origins = [\"https://a/\"]",
        "cors_origins[0]",
        "https://chat.corp",
    ),
    (
        "cors_origins = [\"*\"]",
        "cors_origins[0]",
        "list the origins",
    ),
    ("dispatch_tools = []", "dispatch_tools", "`*` for all"),
    (
        "dispatch_tools = [\"a[\"]",
        "dispatch_tools[0]",
        "is not a pattern",
    ),
    (
        "tool_dispatch_url = \"http://u:hunter2@h/\"",
        "tool_dispatch_url",
        "must not hold credentials",
    ),
    (
        "[retry]\nmax_attempts = 0",
        "retry.max_attempts",
        "1 or more",
    ),
    (
        "[retry]\nmax_attempts = 1000",
        "retry.max_attempts",
        "100 or less",
    ),
    (
        "[retry]\nbase_delay = 60",
        "retry.base_delay",
        "longer than max_delay",
    ),
];

/// Lines below a dispatch URL, the key at fault and a part of the remedy.
const IMPOSSIBLE_DISPATCH: &[(&str, &str, &str)] = &[
    ("dispatch_timeout = 0", "dispatch_timeout", "longer than 0"),
    (
        "dispatch_secret_env = \"GPU_API_KEY\"",
        "dispatch_secret_env",
        "whsec_",
    ),
    (
        "dispatch_secret_env = \"A\"\ndispatch_secret_file = \"b\"",
        "dispatch_secret_file",
        "remove one of the two",
    ),
    (
        "dispatch_headers = { content-length = \"1\" }",
        "dispatch_headers.content-length",
        "by loopwright itself",
    ),
    (
        "dispatch_headers = { a = { env = \"NOPE\" } }",
        "dispatch_headers.a",
        "NOPE is not set",
    ),
    (
        "dispatch_headers = { a = {} }",
        "dispatch_headers.a",
        "{ env = \"NAME\" }",
    ),
    (
        "dispatch_headers = { Ab = \"1\", aB = \"2\" }",
        "dispatch_headers.aB",
        "twice",
    ),
];

/// Lines below `[[api_keys]]` with the name `a`, the key at fault and a part of the remedy.
const IMPOSSIBLE_KEYS: &[(&str, &str, &str)] = &[
    ("", "api_keys[0]", "`sha256`"),
    ("sha256 = \"xyz\"", "api_keys[0].sha256", "64 hexadecimal"),
    ("env = \"EMPTY\"", "api_keys[0].env", "EMPTY is not set"),
    ("env = \"BLANK\"", "api_keys[0].env", "BLANK is not set"),
    ("env = \"SHORT_KEY\"", "api_keys[0].env", "openssl rand"),
    ("env = \"SPACED_KEY\"", "api_keys[0].env", "without spaces"),
    (
        "env = \"sk-live-0000\"",
        "api_keys[0].env",
        "never the secret itself",
    ),
    (
        "env = \"ALICE_API_KEY\"\n[[api_keys]]\nname = \"b c\"\nenv = \"ALICE_API_KEY\"",
        "api_keys[1].name",
        "letters",
    ),
    (
        "env = \"ALICE_API_KEY\"\n[[api_keys]]\nname = \"b\"\nenv = \"ALICE_API_KEY\"",
        "api_keys[1]",
        "same key as `a`",
    ),
    (
        "env = \"ALICE_API_KEY\"\n[[api_keys]]\nname = \"a\"\nsha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"",
        "api_keys[1].name",
        "names differ",
    ),
];

const TOOL: &str = "[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t/\"\n";

/// Lines below [`TOOL`], the key at fault and a part of the remedy.
const IMPOSSIBLE_TOOLS: &[(&str, &str, &str)] = &[
    (
        "[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t/\"",
        "tools[1].name",
        "names differ",
    ),
    (
        "[[tools]]\nname = \"t t\"\ndescription = \"d\"\nurl = \"http://t/\"",
        "tools[1].name",
        "letters",
    ),
    (
        "[[tools]]\nname = \"u\"\ndescription = \" \"\nurl = \"http://t/\"",
        "tools[1].description",
        "reads it",
    ),
    (
        "[[tools]]\nname = \"u\"\ndescription = \"d\"\nurl = \"file://t/\"",
        "tools[1].url",
        "scheme",
    ),
    ("method = \"FETCH\"", "tools[0].method", "GET, POST"),
    (
        "parameters = { type = \"array\" }",
        "tools[0].parameters",
        "type = \"object\"",
    ),
    (
        "parameters = { type = \"object\", properties = { a = { type = \"text\" } } }",
        "tools[0].parameters",
        "not a JSON Schema",
    ),
    (
        "parameters = { x = 2026-01-01 }",
        "tools[0].parameters",
        "TOML date",
    ),
    (
        "parameters_file = \"/no/such\"",
        "tools[0].parameters_file",
        "cannot read",
    ),
    (
        "parameters = {}\nparameters_file = \"/no/such\"",
        "tools[0].parameters_file",
        "remove one of the two",
    ),
];

const SERVER: &str = "[[upstreams]]\nname = \"u\"\nbase_url = \"http://u/v1\"\n";

/// Lines below [`SERVER`], the key at fault and a part of the remedy.
const IMPOSSIBLE_SERVERS: &[(&str, &str, &str)] = &[
    (
        "[[upstreams]]\nname = \"u\"\nbase_url = \"http://v\"",
        "upstreams[1].name",
        "names differ",
    ),
    (
        "[[upstreams]]\nname = \"v\"\nbase_url = \"http://u/v1?k=hunter2\"",
        "upstreams[1].base_url",
        "no query",
    ),
    (
        "[[upstreams]]\nname = \"v\"\nbase_url = \"http://me:hunter2@u/v1\"",
        "upstreams[1].base_url",
        "credentials",
    ),
    (
        "[[upstreams]]\nname = \"v\"\nbase_url = \"http://u/v1/chat/completions\"",
        "upstreams[1].base_url",
        "without /chat/completions",
    ),
    (
        "models = [\"ok\", \"{\"]",
        "upstreams[0].models[1]",
        "is not a pattern",
    ),
    (
        "model_map = { a = \"\" }",
        "upstreams[0].model_map",
        "no name",
    ),
    (
        "connect_timeout = 0",
        "upstreams[0].connect_timeout",
        "longer than 0",
    ),
    (
        "api_key_env = \"NOPE\"",
        "upstreams[0].api_key_env",
        "NOPE is not set",
    ),
];

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
        (
            "agent-permission=ask",
            "approvals are not available in this version",
        ),
        ("agent-permission=no", "auto or deny"),
        ("upstream=ftp://h/v1", "http://"),
        ("session-store=postgres://u:hunter2@h/db", "no PostgreSQL"),
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
fn an_impossible_value_is_refused_by_its_key() {
    for (text, key, part) in IMPOSSIBLE {
        check(&format!("{UPSTREAM}{text}"), key, part);
    }
    for (text, key, part) in IMPOSSIBLE_DISPATCH {
        check(
            &format!("{UPSTREAM}tool_dispatch_url = \"http://h/\"\n{text}"),
            key,
            part,
        );
    }
    for (text, key, part) in IMPOSSIBLE_KEYS {
        check(
            &format!("{UPSTREAM}[[api_keys]]\nname = \"a\"\n{text}"),
            key,
            part,
        );
    }
    for (text, key, part) in IMPOSSIBLE_TOOLS {
        check(&format!("{UPSTREAM}{TOOL}{text}"), key, part);
    }
    for (text, key, part) in IMPOSSIBLE_SERVERS {
        check(&format!("{SERVER}{text}"), key, part);
    }
}
