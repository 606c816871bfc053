//! Values and lines that are meant to exhaust the stack, the memory or the time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{both, holds, level};
use crate::rules::matcher::LONGEST_VALUE;
use crate::rules::shell::{self, LONGEST_LINE, MOST_BRACKETS};
use crate::rules::{Effect, LevelName, Permissions};

/// How long one attack may take, in a build without optimisation on a busy machine.
/// Tried by `rules::attacks::nested_lines_take_bounded_time_and_stack`.
const LIMIT: Duration = Duration::from_secs(5);

/// Pieces that are repeated: what opens, what stands in the middle, what closes.
const NESTS: [(&str, &str, &str); 31] = [
    ("(", "a", ")"),
    ("( ", "a", " )"),
    ("{ ", "a", "; }"),
    ("$(", "a", ")"),
    ("a $(", "a", ")"),
    ("\"$(", "a", ")\""),
    ("a \"${x:-$(", "a", ")}\""),
    ("${x:-", "a", "}"),
    ("\"${x:-", "a", "}\""),
    ("`", "a", "`"),
    ("$((", "1", "))"),
    ("$(( (", "1", ") ))"),
    ("((", "1", "))"),
    ("$[", "1", "]"),
    ("[[ ( ", "a", " ) ]]"),
    ("( ! ", "a", " )"),
    ("a <(", "a", ")"),
    ("a >(", "a", ")"),
    ("if ", "a", "; then a; fi"),
    ("if a; then ", "a", "; fi"),
    ("while ", "a", "; do a; done"),
    ("for x in a; do ", "a", "; done"),
    ("case a in a) ", "a", ";; esac"),
    ("f() { ", "a", "; }"),
    ("{", "a", ",b}"),
    ("x[", "1", "]"),
    ("a <<E\n$(", "a", ")\nE\n"),
    ("@(", "a", ")"),
    ("[[ a == @(", "a", ") ]]"),
    ("${x/", "a", "}"),
    ("! ", "a", ""),
];

/// What counts towards the bound.
const BRACKETS: [char; 8] = ['(', ')', '[', ']', '{', '}', '`', '|'];

/// Pieces that are repeated one after another.
const REPEATS: [&str; 30] = [
    "a;",
    "a|",
    "a&&",
    "a ",
    "\"",
    "'",
    "\\",
    "`",
    "$",
    "$(",
    "${",
    "((",
    "{",
    "[[ ",
    "<<E ",
    "<<E\n",
    "<",
    ">",
    "> a ",
    "x=",
    "if ",
    "case a in ",
    "for ",
    "function ",
    "!",
    "#",
    "a\n",
    "\u{e9}",
    "${x/",
    "$'\\''",
];

fn nested((open, middle, close): (&str, &str, &str), depth: usize) -> String {
    format!("{}{middle}{}", open.repeat(depth), close.repeat(depth))
}

/// All attacks: as deep and as long as the bounds let them be, complete and cut off.
fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    for nest in NESTS {
        let (open, _, close) = nest;
        let openers = open.matches(BRACKETS).count() + close.matches(BRACKETS).count();
        let depth = (LONGEST_LINE / (open.len() + close.len()) - 2)
            .min(MOST_BRACKETS.checked_div(openers).unwrap_or(usize::MAX));
        for depth in [8, 24, depth] {
            lines.push(nested(nest, depth));
            lines.push(open.repeat(depth));
            lines.push(format!("a {}", nested(nest, depth)));
        }
    }
    for piece in REPEATS {
        let openers = piece.matches(BRACKETS).count();
        let most = MOST_BRACKETS.checked_div(openers).unwrap_or(usize::MAX);
        lines.push(piece.repeat((LONGEST_LINE / piece.len()).min(most)));
    }
    lines
}

#[test]
fn nested_lines_take_bounded_time_and_stack() {
    let attack = || {
        let mut slowest = (Duration::ZERO, String::new());
        for line in lines() {
            assert!(line.len() <= LONGEST_LINE);
            let begin = Instant::now();
            let _split = shell::split(&line);
            let taken = begin.elapsed();
            assert!(taken < LIMIT, "{taken:?} {:?}", line.get(..64));
            if taken > slowest.0 {
                slowest = (taken, line.chars().take(48).collect());
            }
        }
        slowest
    };
    // Far less than the stack of a worker.
    let thread = thread::Builder::new().stack_size(256 * 1024);
    let (taken, line) = thread
        .spawn(attack)
        .expect("a thread")
        .join()
        .expect("no panic");
    assert!(taken < LIMIT, "{taken:?} {line:?}");
}

#[test]
fn lines_over_the_bounds_cannot_be_read() {
    let long = |length: usize| format!("ls {}", "a".repeat(length - 3));
    assert!(shell::split(&long(LONGEST_LINE)).is_some());
    assert!(shell::split(&long(LONGEST_LINE + 1)).is_none());
    let deep = |depth: usize| format!("ls '{}'", "(".repeat(depth));
    assert!(shell::split(&deep(MOST_BRACKETS)).is_some());
    assert!(shell::split(&deep(MOST_BRACKETS + 1)).is_none());
    assert_eq!(
        both("command", &["ls"], &long(LONGEST_LINE + 1)),
        (false, true)
    );
    assert_eq!(
        both("command", &["ls"], &deep(MOST_BRACKETS + 1)),
        (false, true)
    );
}

#[test]
fn the_steps_of_the_parser_are_bounded() {
    // A line of the greatest length is within the bound.
    assert!(shell::split(&"a;".repeat(LONGEST_LINE / 2)).is_some());
}

#[test]
fn long_values_are_bounded() {
    let fits = "a".repeat(LONGEST_VALUE);
    let longer = "a".repeat(LONGEST_VALUE + 1);
    for (kind, pattern) in [("glob", "*"), ("regex", "a"), ("path", "/*")] {
        assert_eq!(both(kind, &[pattern], &fits), (true, true), "{kind}");
        assert_eq!(both(kind, &[pattern], &longer), (false, true), "{kind}");
    }
    assert_eq!(both("host", &["a"], &longer), (false, true));
    assert_eq!(both("prefix", &["aa"], &longer), (true, true));
}

#[test]
fn patterns_that_backtrack_elsewhere_take_linear_time() {
    let value = Value::from("a".repeat(LONGEST_VALUE));
    let stars = format!("{}b", "*a".repeat(100));
    for (kind, pattern) in [
        ("regex", "(a*)*b"),
        ("regex", "(a|aa)+$b"),
        ("glob", stars.as_str()),
        ("path", stars.as_str()),
    ] {
        let begin = Instant::now();
        assert!(!holds("deny", kind, &[pattern], &value), "{kind} {pattern}");
        assert!(begin.elapsed() < LIMIT, "{kind} {pattern}");
    }
}

#[test]
fn a_deep_pointer_and_deep_arguments_are_harmless() {
    let mut deep = json!("x");
    for _ in 0..100 {
        deep = json!({ "a": deep });
    }
    let pointer = "/a".repeat(100);
    let rules = json!([{
        "argument": pointer, "match": "glob", "patterns": ["x"], "effect": "ask",
    }]);
    let permissions = Permissions::new(vec![level(LevelName::Server, rules, None)]);
    let decision = super::decide(&permissions, deep);
    assert_eq!(decision.effect, Effect::Ask);
    assert_eq!(Arc::strong_count(&permissions.levels()[0].rules), 1);
}
