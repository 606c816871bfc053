//! Values that are well-formed and impossible, table by table.

use super::*;

/// Lines below an upstream, the key at fault and a part of the remedy.
const IMPOSSIBLE: &[(&str, &str, &str)] = &[
    ("max_messages = 0", "max_messages", "1 or more"),
    ("max_header_bytes = 100", "max_header_bytes", "8192 or more"),
    ("repeat_threshold = 1", "repeat_threshold", "2 or more"),
    ("repeat_threshold = 9", "repeat_threshold", "8 or less"),
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
        "sqlite:PATH, postgres:",
    ),
    ("files_dir = \"\"", "files_dir", "write a path"),
    (
        "replica_name = \"a b\"",
        "replica_name",
        "write 1 to 128 letters",
    ),
    ("max_file_bytes = 0", "max_file_bytes", "1 or more"),
    (
        "max_total_file_bytes = \"1MiB\"",
        "max_total_file_bytes",
        "max_file_bytes is 67108864",
    ),
    ("session_max_bytes = 1", "session_max_bytes", "1024 or more"),
    (
        "max_total_session_bytes = \"1MiB\"",
        "max_total_session_bytes",
        "session_max_bytes is 67108864",
    ),
    (
        "agent_permission = \"maybe\"",
        "agent_permission",
        "write auto, ask or deny",
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
        "another name",
    ),
];

const TOOL: &str = "[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t/\"\n";

/// Lines below [`TOOL`], the key at fault and a part of the remedy.
const IMPOSSIBLE_TOOLS: &[(&str, &str, &str)] = &[
    (
        "[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t/\"",
        "tools[1].name",
        "another name",
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
    (
        "[[tools]]\nname = \"u\"\ndescription = \"d\"",
        "tools[1].url",
        "--tool-dispatch-url",
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

/// Lines of a tool without a URL below a dispatch URL, the key at fault and a part of the remedy.
const IMPOSSIBLE_DISPATCHED_TOOLS: &[(&str, &str, &str)] = &[
    ("name = \"other\"", "tools[0].url", "`dispatch_tools`"),
    (
        "name = \"crm_t\"\nmethod = \"GET\"",
        "tools[0].method",
        "dispatch_",
    ),
    (
        "name = \"crm_t\"\nheaders = { x-a = \"b\" }",
        "tools[0].headers",
        "dispatch_",
    ),
    (
        "name = \"crm_t\"\nsecret_env = \"TICKET_SECRET\"",
        "tools[0].secret_env",
        "dispatch_",
    ),
];

/// Lines below [`SERVER`], the key at fault and a part of the remedy.
const IMPOSSIBLE_SERVERS: &[(&str, &str, &str)] = &[
    (
        "[[upstreams]]\nname = \"u\"\nbase_url = \"http://v\"",
        "upstreams[1].name",
        "another name",
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
    for (text, key, part) in IMPOSSIBLE_DISPATCHED_TOOLS {
        let dispatch = "tool_dispatch_url = \"http://h/\"\ndispatch_tools = [\"crm_*\"]";
        check(
            &format!("{UPSTREAM}{dispatch}\n[[tools]]\ndescription = \"d\"\n{text}"),
            key,
            part,
        );
    }
    for (text, key, part) in IMPOSSIBLE_SERVERS {
        check(&format!("{SERVER}{text}"), key, part);
    }
}
