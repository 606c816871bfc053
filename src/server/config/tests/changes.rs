//! What is said at start-up about settings that a change concerns.

use super::*;

/// What is said of these lines.
fn said(lines: &str) -> Vec<String> {
    load(&format!("{UPSTREAM}{lines}")).unwrap().changes
}

#[test]
fn settings_that_a_change_concerns_are_noted() {
    let key = "[[api_keys]]\nname = \"a\"\nenv = \"ALICE_API_KEY\"\noperator = true";
    let mine = "\nforward = [\"embeddings\"]";
    for (lines, keys) in [
        ("", &[][..]),
        ("session_headers = [\"x-chat-id\"]", &["session_headers"]),
        ("session_headers = [\"x-session-id\"]", &[]),
        ("session_ttl = \"90d\"", &["session_ttl"]),
        ("session_ttl = \"90d\"\nnameless_session_ttl = \"90d\"", &[]),
        ("max_body_bytes = \"128MiB\"", &["max_body_bytes"]),
        (
            "max_body_bytes = \"128MiB\"\nsession_max_bytes = \"1GiB\"",
            &["max_body_bytes"],
        ),
        (
            "max_body_bytes = \"128MiB\"\nsession_max_bytes = \"1GiB\"\nmax_parsed_bytes = \"1GiB\"",
            &[],
        ),
        (
            "dispatch_max_answer_bytes = \"128MiB\"",
            &["max_turn_bytes"],
        ),
        (
            "[[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t/\"\nmax_answer_bytes = \"65MiB\"",
            &["max_turn_bytes"],
        ),
        ("body_timeout = 60", &["body_timeout"]),
        ("body_timeout = 30\nrepeat_threshold = 3", &[]),
        ("repeat_threshold = 5", &["repeat_threshold"]),
        ("repeat_threshold = 0", &[]),
        (key, &["forward", "api_keys"]),
        (&format!("{key}{mine}"), &["api_keys"]),
        (&format!("forward = [\"**\"]\n{key}"), &["api_keys"]),
        (
            "enable_code_execution = true\n[sandbox]\nnetwork = \"full\"",
            &["sandbox.network"],
        ),
    ] {
        let found = said(lines);
        assert_eq!(found.len(), keys.len(), "{lines}: {found:?}");
        for (note, key) in found.iter().zip(keys) {
            assert!(note.contains(&format!(" {key} ")), "{lines}: {note}");
        }
    }
    let upstream =
        |name: &str| format!("[[upstreams]]\nname = \"{name}\"\nbase_url = \"http://{name}/v1\"\n");
    let several = load(&(upstream("a") + &upstream("b"))).unwrap().changes;
    assert_eq!(several.len(), 1, "{several:?}");
    assert!(several[0].contains("upstreams are several"), "{several:?}");
}
