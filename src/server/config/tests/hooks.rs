//! Hooks: what an entry holds, and what is refused.

use super::*;
use policy::hooks::settings::{HookPoint, OnFailure};

fn with_hook(lines: &str) -> Result<Config, String> {
    load(&format!("{UPSTREAM}[[hooks]]\n{lines}\n"))
}

#[test]
fn an_entry_has_defaults() {
    let config = with_hook("on = 'before_model'\nurl = 'http://h/check?token=t'").unwrap();
    let hook = &config.hooks.hooks[0];
    assert_eq!(
        (hook.on, hook.tools.as_ref()),
        (HookPoint::BeforeModel, None)
    );
    let service = &hook.service;
    assert_eq!(service.timeout, Duration::from_secs(10));
    assert_eq!(service.max_answer_bytes, 1024 * 1024);
    assert_eq!(service.on_failure, OnFailure::Continue);
    assert!(service.secret.is_none() && service.headers.is_empty());
    let shown = config.summary();
    assert!(
        shown.contains("[[hooks]]") && !shown.contains("token=t"),
        "{shown}"
    );
}

#[test]
fn an_entry_can_say_everything() {
    let config = with_hook(
        "on = 'after_tool'\nurl = 'https://h/'\ntools = ['files__*']\ntimeout = '500ms'\nmax_answer_bytes = '2KiB'\n\
         on_failure = 'block'\nheaders = { authorization = { env = 'DISPATCH_AUTHORIZATION' } }\n\
         secret_env = 'DISPATCH_SECRET'",
    );
    let config = config.unwrap();
    let hook = &config.hooks.hooks[0];
    assert_eq!(hook.tools.as_deref(), Some(&["files__*".to_owned()][..]));
    let service = &hook.service;
    assert_eq!(service.timeout, Duration::from_millis(500));
    assert_eq!(service.max_answer_bytes, 2048);
    assert_eq!(service.on_failure, OnFailure::Block);
    assert!(service.headers["authorization"].is_sensitive());
    assert!(service.secret.is_some());
    let shown = config.summary() + &format!("{config:?}");
    assert!(!shown.contains("dispatch-secret"), "{shown}");
}

#[test]
fn what_cannot_be_used_is_refused() {
    for (lines, expected) in [
        ("url = 'http://h/'", "on"),
        ("on = 'before_tool'", "url"),
        ("on = 'PreToolUse'\nurl = 'http://h/'", "before_tool"),
        ("on = 'before_tool'\nurl = 'ftp://h/'", "scheme"),
        ("on = 'before_tool'\nurl = 'http://a:b@h/'", "credentials"),
        (
            "on = 'before_tool'\nurl = 'http://h/'\ntools = []",
            "hooks[0].tools",
        ),
        (
            "on = 'before_model'\nurl = 'http://h/'\ntools = ['*']",
            "hooks[0].tools",
        ),
        (
            "on = 'before_tool'\nurl = 'http://h/'\ntools = ['[a']",
            "pattern",
        ),
        (
            "on = 'before_tool'\nurl = 'http://h/'\ntimeout = 0",
            "longer than 0",
        ),
        (
            "on = 'before_tool'\nurl = 'http://h/'\non_failure = 'deny'",
            "on_failure",
        ),
        (
            "on = 'before_tool'\nurl = 'http://h/'\nsecret_env = 'SHORT_KEY'",
            "whsec_",
        ),
        (
            "on = 'before_tool'\nurl = 'http://h/'\nmethod = 'GET'",
            "method",
        ),
    ] {
        let refused = with_hook(lines).unwrap_err();
        assert!(refused.contains(expected), "{lines}: {refused}");
        assert!(!refused.contains("sesame"), "{refused}");
    }
}
