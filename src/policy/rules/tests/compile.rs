//! Rules that cannot be compiled, their error texts, and the bounds.

use serde_json::{Value, json};

use super::{PLAIN, rule, rules};
use crate::rules::patterns::{LONGEST_PATTERN, LONGEST_REGEX, MOST_PATTERNS};
use crate::rules::{RuleEntry, RuleSet, ToolClasses};

/// The text of the error about the second of two rules.
fn error(entry: Value) -> String {
    let good = rule(json!({ "effect": "allow" }));
    let error = RuleSet::compile(vec![good, rule(entry)]).expect_err("an error");
    assert_eq!(error.index, 1);
    error.to_string()
}

fn with(kind: &str, pattern: &str) -> Value {
    json!({ "argument": "/x", "match": kind, "patterns": [pattern], "effect": "deny" })
}

#[test]
fn errors_name_the_field_and_the_remedy() {
    let long = "x".repeat(300);
    for (entry, parts) in [
        (
            json!({ "effect": "deny", "argument": "/x" }),
            ["rule 2: argument: needs `match` and `patterns`", "add both"],
        ),
        (
            json!({ "effect": "deny", "argument": "/x", "patterns": ["a"] }),
            ["rule 2: argument: needs `match`", "add both"],
        ),
        (
            json!({ "effect": "deny", "match": "glob", "patterns": ["a"] }),
            ["rule 2: match: needs `argument`", "JSON pointer"],
        ),
        (
            json!({ "effect": "deny", "patterns": ["a"] }),
            ["rule 2: patterns: needs `argument` and `match`", "add both"],
        ),
        (
            json!({ "effect": "deny", "argument": "/x", "match": "glob" }),
            ["rule 2: patterns: is empty", "at least one"],
        ),
        (
            json!({ "effect": "deny", "argument": "x", "match": "glob", "patterns": ["a"] }),
            [
                "rule 2: argument: \"x\" is no JSON pointer",
                "begin it with `/`",
            ],
        ),
        (
            json!({ "effect": "deny", "argument": "/~x", "match": "glob", "patterns": ["a"] }),
            ["rule 2: argument: \"/~x\"", "write `~0`"],
        ),
        (
            json!({ "effect": "deny", "tool": "a[" }),
            ["rule 2: tool: \"a[\" is no glob", "backslash"],
        ),
        (
            json!({ "effect": "deny", "tool": "" }),
            ["rule 2: tool: is empty", "leave it out"],
        ),
        (
            json!({ "effect": "deny", "tool": long }),
            ["rule 2: tool: \"xxx", "has 300 characters; at most 256"],
        ),
        (
            json!({ "effect": "deny", "argument": "/x", "match": "glob", "patterns": ["a", ""] }),
            ["rule 2: patterns[1]: is empty", "leave it out"],
        ),
    ] {
        assert_parts(entry, parts);
    }
}

#[test]
fn errors_quote_the_pattern() {
    for (entry, parts) in [
        (
            with("glob", "{a"),
            ["rule 2: patterns[0]: \"{a\" is no glob", "backslash"],
        ),
        (
            with("regex", "a("),
            [
                "rule 2: patterns[0]: \"a(\" is no regular expression",
                "unclosed group",
            ],
        ),
        (
            with("host", "https://a.example"),
            [
                "rule 2: patterns[0]: \"https://a.example\" is no host",
                "the host alone",
            ],
        ),
        (
            with("host", "a.example:443"),
            [
                "rule 2: patterns[0]: \"a.example:443\" holds a `:`",
                "the port out",
            ],
        ),
        (
            with("host", "*é.example"),
            ["rule 2: patterns[0]: \"*é\" cannot be converted", "`xn--`"],
        ),
        (
            with("path", "/srv/**/../x"),
            [
                "rule 2: patterns[0]: \"/srv/**/../x\" holds a `..`",
                "without it",
            ],
        ),
        (
            with("path", "/srv/{a,../etc}"),
            [
                "rule 2: patterns[0]: \"/srv/{a,../etc}\" holds a `..`",
                "without it",
            ],
        ),
        (
            with("command", "git push; ls"),
            [
                "rule 2: patterns[0]: \"git push; ls\" is not the beginning",
                "plain words",
            ],
        ),
        (
            with("command", "git *"),
            ["\"git *\" is not the beginning", "quote special"],
        ),
        (
            with("command", "X=1"),
            ["\"X=1\" is not the beginning", "plain words"],
        ),
        (
            with("command", "ls > f"),
            ["\"ls > f\" is not the beginning", "plain words"],
        ),
    ] {
        assert_parts(entry, parts);
    }
}

fn assert_parts(entry: Value, parts: [&str; 2]) {
    let text = error(entry);
    for part in parts {
        assert!(text.contains(part), "{text} lacks {part}");
    }
    assert!(text.len() < 300, "{text}");
}

#[test]
fn failing_examples_are_quoted() {
    let mut entry = with("path", "/etc/**");
    entry["must_match"] = json!([{ "x": "/srv/../etc/passwd" }, {}, { "x": 1 }]);
    entry["must_not_match"] = json!([{ "x": "/srv/data" }]);
    rules(json!([entry]));

    let mut wrong = entry.clone();
    wrong["must_match"] = json!([{ "x": "/etc" }, { "x": "/srv" }]);
    assert_eq!(
        error(wrong),
        "rule 2: must_match[1]: the rule does not match the example {\"x\":\"/srv\"}; \
         change the patterns or the example"
    );
    entry["must_not_match"] = json!([{ "x": "/etc/x" }]);
    assert_eq!(
        error(entry),
        "rule 2: must_not_match[0]: the rule matches the example {\"x\":\"/etc/x\"}; \
         change the patterns or the example"
    );
    // An `allow` rule does not match what it cannot read.
    rules(json!([{
        "argument": "/x", "match": "path", "patterns": ["/srv/**"], "effect": "allow",
        "must_match": [{ "x": "srv/a" }], "must_not_match": [{}, { "x": ["/srv/a"] }],
    }]));
    // A rule without an argument matches every example.
    rules(json!([{ "effect": "ask", "must_match": [{}] }]));
    assert!(
        error(json!({ "effect": "ask", "must_not_match": [{}] })).contains("must_not_match[0]")
    );
}

#[test]
fn the_bounds_of_patterns_hold() {
    let entry = |kind: &str, patterns: Vec<String>| {
        rule(json!({ "argument": "/x", "match": kind, "patterns": patterns, "effect": "deny" }))
    };
    let compiles = |entry: RuleEntry| RuleSet::compile(vec![entry]).is_ok();
    for kind in ["glob", "prefix", "path", "host", "command"] {
        let many = |count: usize| (0..count).map(|n| format!("a{n}")).collect();
        assert!(compiles(entry(kind, many(MOST_PATTERNS))), "{kind}");
        assert!(!compiles(entry(kind, many(MOST_PATTERNS + 1))), "{kind}");
        let long = |length| vec!["é".repeat(length)];
        if kind != "host" {
            assert!(compiles(entry(kind, long(LONGEST_PATTERN))), "{kind}");
        }
        assert!(!compiles(entry(kind, long(LONGEST_PATTERN + 1))), "{kind}");
    }
    let regex = |text: String| compiles(entry("regex", vec![text]));
    assert!(regex("a".repeat(LONGEST_REGEX)));
    assert!(!regex("a".repeat(LONGEST_REGEX + 1)));
    assert!(regex("\\w+\\s+\\d{4}".into()));
    assert!(!regex("(\\w{100}){100}".into()));
    assert!(regex(format!("{}a{}", "(".repeat(31), ")".repeat(31))));
    assert!(!regex(format!("{}a{}", "(".repeat(33), ")".repeat(33))));
    let text = error(with("regex", "(a{1000}){1000}"));
    assert!(
        text.contains("patterns[0]: the compiled patterns are too large"),
        "{text}"
    );
    // Together.
    let large: Vec<_> = (0..MOST_PATTERNS).map(|n| format!("{n}\\w{{9}}")).collect();
    let text = RuleSet::compile(vec![entry("regex", large)])
        .expect_err("an error")
        .to_string();
    assert!(
        text.contains("patterns: the compiled patterns are too large"),
        "{text}"
    );
    // Globs of the greatest length compile.
    let stars = "*?".repeat(LONGEST_PATTERN / 2);
    assert!(compiles(entry("glob", vec![stars])));
}

#[test]
fn entries_are_read_and_written() {
    let text = json!({
        "tool": "files__*", "risk": "destructive", "argument": "/path", "match": "path",
        "patterns": ["/etc/**"], "from_call": 3, "effect": "deny", "reason": "system files",
        "must_match": [{ "path": "/etc/x" }], "must_not_match": [{ "path": "/srv" }],
    });
    assert_eq!(
        serde_json::to_value(rule(text.clone())).expect("JSON"),
        text
    );
    let short = json!({ "effect": "ask" });
    assert_eq!(rule(short.clone()).tool, "*");
    assert_eq!(
        serde_json::to_value(rule(short.clone())).expect("JSON"),
        short
    );
    for wrong in [
        json!({}),
        json!({ "effect": "auto" }),
        json!({ "effect": "ask", "from_call": 0 }),
        json!({ "effect": "ask", "unknown": 1 }),
        json!({ "effect": "ask", "must_match": ["x"] }),
    ] {
        assert!(
            serde_json::from_value::<RuleEntry>(wrong.clone()).is_err(),
            "{wrong}"
        );
    }
    let set = rules(json!([short]));
    assert_eq!((set.entries().len(), set.is_empty()), (1, false));
    assert!(RuleSet::default().is_empty());
    assert!(RuleSet::compile(Vec::new()).expect("no rules").is_empty());
}

#[test]
fn rules_without_a_tool_are_named() {
    let set = rules(json!([
        { "tool": "files__*", "effect": "deny" },
        { "tool": "other", "effect": "deny" },
        { "risk": "destructive", "effect": "ask" },
        { "risk": "read_only", "effect": "allow" },
        { "tool": "web", "risk": "open_world", "effect": "ask" },
    ]));
    let tools = [
        (
            "files__read",
            ToolClasses {
                read_only: true,
                destructive: true,
                ..PLAIN
            },
        ),
        (
            "web",
            ToolClasses {
                open_world: true,
                ..PLAIN
            },
        ),
    ];
    assert_eq!(set.without_tool(tools.into_iter()), [1, 2]);
    assert_eq!(set.without_tool([].into_iter()), [0, 1, 2, 3, 4]);
}
