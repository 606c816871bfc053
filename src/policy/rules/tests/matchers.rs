//! Globs, prefixes, regular expressions, hosts and paths, with spellings that are meant to get past them.

use serde_json::{Value, json};

use super::{both, holds};

const MATCHES: (bool, bool) = (true, true);
const DIFFERS: (bool, bool) = (false, false);
const UNREADABLE: (bool, bool) = (false, true);

#[test]
fn globs_match_the_whole_string() {
    for (pattern, value, expected) in [
        ("*.pdf", "a/b/c.pdf", MATCHES),
        ("*.pdf", "a.pdf.exe", DIFFERS),
        ("*.pdf", "a\nb.pdf", MATCHES),
        ("a?c", "abc", MATCHES),
        ("a?c", "ac", DIFFERS),
        ("{a,b}*", "bcd", MATCHES),
        ("[a-c]x", "bx", MATCHES),
        ("secret", "Secret", DIFFERS),
        ("\\*", "*", MATCHES),
        ("\\*", "a", DIFFERS),
        ("*", "", MATCHES),
        ("é*", "éa", MATCHES),
    ] {
        assert_eq!(
            both("glob", &[pattern], value),
            expected,
            "{pattern} {value}"
        );
    }
}

#[test]
fn prefixes_are_plain_text() {
    for (pattern, value, expected) in [
        ("abc", "abcd", MATCHES),
        ("abc", "abc", MATCHES),
        ("abc", " abc", DIFFERS),
        ("abc", "Abc", DIFFERS),
        ("a*", "ab", DIFFERS),
        ("a*", "a*b", MATCHES),
    ] {
        assert_eq!(
            both("prefix", &[pattern], value),
            expected,
            "{pattern} {value}"
        );
    }
}

#[test]
fn regular_expressions_match_anywhere() {
    for (pattern, value, expected) in [
        ("b+", "abbc", MATCHES),
        ("^b+$", "abbc", DIFFERS),
        ("^b+$", "bb", MATCHES),
        ("^b$", "b\nc", DIFFERS),
        ("(?i)drop\\s+table", "DROP \t TABLE x", MATCHES),
        ("\\bé\\b", "x é y", MATCHES),
    ] {
        assert_eq!(
            both("regex", &[pattern], value),
            expected,
            "{pattern} {value}"
        );
    }
}

#[test]
fn hosts_are_those_that_a_client_would_call() {
    let domain = "*.example.com";
    for (pattern, value, expected) in [
        (domain, "https://a.example.com/x", MATCHES),
        (domain, "https://a.b.example.com", MATCHES),
        (domain, "https://example.com", DIFFERS),
        (domain, "https://A.EXAMPLE.COM./", MATCHES),
        (domain, "https://a.example.com.evil.net", DIFFERS),
        (domain, "https://evil.net/a.example.com", DIFFERS),
        (domain, "https://evil.net#a.example.com", DIFFERS),
        (domain, "https://evil.net?a.example.com", DIFFERS),
        (domain, "https://evil.net\\a.example.com", DIFFERS),
        (domain, "https://a.example.com@evil.net", DIFFERS),
        (domain, "https://a.example.com\\@evil.net", MATCHES),
        (domain, "https:a.example.com", MATCHES),
        (domain, "https:\\\\a.example.com", MATCHES),
        (domain, " https://a.exam\tple.com:8080 ", MATCHES),
        (domain, "https://a.ex%61mple.com", MATCHES),
        (domain, "https://a。example。com", MATCHES),
        (domain, "https://a.ｅxample.com", MATCHES),
        (domain, "ftp://a.EXAMPLE.com", MATCHES),
        (domain, "other://A.example.com", MATCHES),
        (domain, "a.example.com", UNREADABLE),
        (domain, "//a.example.com", UNREADABLE),
        (domain, "a.example.com:443", UNREADABLE),
        (domain, "file:///etc/passwd", UNREADABLE),
        (domain, "data:text/plain,x", UNREADABLE),
        (domain, "https://", UNREADABLE),
        (domain, "", UNREADABLE),
        ("*.Example.COM.", "https://a.example.com", MATCHES),
        ("127.0.0.1", "http://127.1/", MATCHES),
        ("127.0.0.1", "http://2130706433", MATCHES),
        ("127.0.0.1", "http://0x7f.0.0.1", MATCHES),
        ("127.0.0.1", "http://0177.0.0.1", MATCHES),
        ("127.0.0.1", "http://127.0.0.1.", MATCHES),
        ("127.*", "http://127.9.9.9", MATCHES),
        ("[::1]", "http://[0:0:0:0:0:0:0:1]/", MATCHES),
        ("[0::1]", "http://[::1]/", MATCHES),
        ("[::1]", "http://1/", DIFFERS),
        ("*.bücher.de", "https://x.BÜCHER.de", MATCHES),
        ("*.bücher.de", "https://x.xn--bcher-kva.de", MATCHES),
    ] {
        assert_eq!(
            both("host", &[pattern], value),
            expected,
            "{pattern} {value}"
        );
    }
}

#[test]
fn paths_are_compared_without_detours() {
    for (pattern, value, expected) in [
        ("/etc/**", "/etc/passwd", MATCHES),
        ("/etc/**", "/etc/a/b", MATCHES),
        ("/etc/**", "/etc", MATCHES),
        ("/etc/**", "/etc/", MATCHES),
        ("/etc/**", "/etcetera", DIFFERS),
        ("/etc/**", "etc/passwd", MATCHES),
        ("/etc/**", "./etc/passwd", MATCHES),
        ("/etc/**", "/srv/../etc/passwd", MATCHES),
        ("/etc/**", "/srv/./.././etc//passwd", MATCHES),
        ("/etc/**", "//etc/passwd", MATCHES),
        ("/etc/**", "/../../etc/passwd", MATCHES),
        ("/etc/**", "../etc/passwd", MATCHES),
        ("/etc/**", "/etc/../srv", DIFFERS),
        ("/etc/**", "/etc/x/../../srv", DIFFERS),
        ("/etc/**", "/etc/a\nb", MATCHES),
        ("/etc/**", "/%65tc/passwd", DIFFERS),
        ("/etc/**", "/ETC/passwd", DIFFERS),
        ("/etc/**", "/etc\\passwd", DIFFERS),
        ("/srv/*", "/srv/a", MATCHES),
        ("/srv/*", "/srv/a/b", DIFFERS),
        ("/srv/*", "/srv", DIFFERS),
        ("/srv/*", "/srv/..", DIFFERS),
        ("/srv/?", "/srv//a", MATCHES),
        ("/srv/?x", "/srv/x", DIFFERS),
        ("/**", "", MATCHES),
        ("/**", "/", MATCHES),
        ("/**/secret", "/a/b/secret", MATCHES),
        ("/**/secret", "/secret", MATCHES),
        ("srv/**", "/srv/a", MATCHES),
        ("/srv//data/./x/../**", "/srv/data/a", MATCHES),
        ("/srv/data/", "/srv/data", MATCHES),
        ("/srv/*/../a", "/srv/a", MATCHES),
        ("/{etc,usr}/**", "/usr", MATCHES),
        ("/{etc,usr/lib}/**", "/usr/lib/x", MATCHES),
        ("/srv/\\*", "/srv/*", MATCHES),
        ("/srv/\\*", "/srv/a", DIFFERS),
    ] {
        assert_eq!(
            both("path", &[pattern], value),
            expected,
            "{pattern} {value}"
        );
    }
}

#[test]
fn what_is_no_string_matches_only_the_strict() {
    for kind in ["glob", "prefix", "regex", "host", "path", "command"] {
        let pattern = ["a"];
        for value in [
            json!(null),
            json!(1),
            json!(true),
            json!(["a"]),
            json!({"a": "a"}),
        ] {
            assert!(!holds("allow", kind, &pattern, &value), "{kind} {value}");
            assert!(holds("ask", kind, &pattern, &value), "{kind} {value}");
            assert!(holds("deny", kind, &pattern, &value), "{kind} {value}");
        }
    }
}

#[test]
fn one_of_the_patterns_is_enough() {
    let value = Value::from("b");
    assert!(holds("allow", "glob", &["a", "b"], &value));
    assert!(!holds("allow", "glob", &["a", "c"], &value));
}
