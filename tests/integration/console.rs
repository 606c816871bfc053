//! The console as a browser gets it: who may have it, with which headers, and what it has no file for.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use http::Method;

use super::support::app::TestApp;
use super::support::client::{Answer, Client};
use super::support::upstream::ScriptedUpstream;

const KEY: &str = "alice-key-0123456789";
const KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"";
/// What browsers send for a page.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn browser(app: &TestApp) -> Client {
    app.client().header("accept", BROWSER)
}

/// The folder as it is now: paths and contents.
fn folder() -> Vec<(String, Vec<u8>)> {
    fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, Vec<u8>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, files);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap();
                files.push((name.to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server/console");
    let mut files = Vec::new();
    collect(&root, &root, &mut files);
    files
}

/// Asks as a program does that changes nothing about a path.
fn status_of(origin: &str, target: &str) -> u16 {
    let mut stream = TcpStream::connect(origin.strip_prefix("http://").unwrap()).unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn assert_headers(answer: &Answer) {
    for (name, value) in [
        ("cache-control", "no-cache"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
             font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
             require-trusted-types-for 'script'",
        ),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    let abilities = answer.header("permissions-policy").unwrap();
    assert!(abilities.contains("microphone=()"), "{abilities}");
    assert!(answer.header("x-request-id").is_some());
}

#[tokio::test]
async fn every_file_of_the_folder_is_served_as_it_is() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let files = folder();
    let names: BTreeSet<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains("index.html") && names.len() > 3, "{names:?}");
    for (name, content) in &files {
        let path = format!("/ui/{name}");
        let answer = app.get(&path).await;
        assert_eq!(
            answer.status, 200,
            "{path}: cargo does not see new files; run `touch src/server/http/console.rs` and build again"
        );
        assert!(answer.body == content, "{path}");
        assert_headers(&answer);
        let media = match name.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => continue,
        };
        assert_eq!(answer.header("content-type"), Some(media), "{path}");
    }
    let page = browser(&app).get("/").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("vary"), Some("accept"));
    assert_headers(&page);
    assert!(page.body == app.get("/ui/index.html").await.body);
    // What the page names is there.
    let text = page.text();
    let named = text.split('"').filter(|part| part.starts_with("/ui/"));
    for path in named {
        assert_eq!(app.get(path).await.status, 200, "{path}");
    }
    assert!(upstream.others().is_empty() && upstream.requests().is_empty());
}

#[tokio::test]
async fn a_client_that_has_a_file_does_not_get_it_again() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let browser = browser(&app);
    for path in ["/", "/ui/main.js"] {
        let whole = browser.get(path).await;
        let etag = whole.header("etag").unwrap();
        assert!(etag.starts_with('"'), "{etag}");
        for known in [etag.to_owned(), format!("\"x\", W/{etag}"), "*".to_owned()] {
            let answer = browser.header("if-none-match", &known).get(path).await;
            assert_eq!(answer.status, 304, "{path}");
            assert!(answer.body.is_empty());
            assert_eq!(answer.header("etag"), Some(etag));
            assert_headers(&answer);
        }
        let other = browser.header("if-none-match", "\"x\"").get(path).await;
        assert_eq!(other.status, 200, "{path}");
    }
    let (page, script) = (browser.get("/").await, browser.get("/ui/main.js").await);
    assert_ne!(page.header("etag"), script.header("etag"));
}

#[tokio::test]
async fn head_is_answered_as_get_without_the_content() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let browser = browser(&app);
    for path in ["/", "/ui/main.js"] {
        let get = browser.get(path).await;
        let head = Answer::of(browser.request(Method::HEAD, path)).await;
        assert_eq!(head.status, 200, "{path}");
        assert!(head.body.is_empty());
        for name in ["content-length", "content-type", "etag"] {
            assert_eq!(head.header(name), get.header(name), "{path}: {name}");
        }
        assert_headers(&head);
    }
    // A probe accepts nothing in particular.
    let probe = Answer::of(app.client().request(Method::HEAD, "/")).await;
    assert_eq!((probe.status.as_u16(), probe.header("etag")), (200, None));
    let posted = Answer::of(browser.request(Method::POST, "/ui/main.js")).await;
    assert_eq!(posted.status, 405);
}

#[tokio::test]
async fn a_client_that_asks_for_no_html_is_told_the_addresses_in_one_line() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let version = env!("CARGO_PKG_VERSION");
    let line = |origin: &str| {
        format!("loopwright {version} is running; console: {origin}/; API: {origin}/v1\n")
    };
    for accepted in [None, Some("*/*"), Some("application/json"), Some("text/*")] {
        let client = app.client();
        let client = accepted.map_or_else(|| client.clone(), |kind| client.header("accept", kind));
        let answer = client.get("/").await;
        assert_eq!(answer.status, 200, "{accepted:?}");
        assert_eq!(answer.text(), line(app.origin()));
        let media = answer.header("content-type");
        assert_eq!(media, Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("vary"), Some("accept"));
        let head = Answer::of(client.request(Method::HEAD, "/")).await;
        assert_eq!(
            (head.status.as_u16(), head.header("content-type")),
            (200, media)
        );
        assert!(head.body.is_empty());
    }
    // The addresses are those by which the client came.
    let proxied = app.client().header("host", "localhost:9999");
    let proxied = proxied.header("x-forwarded-proto", "https").get("/").await;
    assert_eq!(proxied.text(), line("https://localhost:9999"));
    for accepted in ["text/html", "application/json, Text/HTML;q=0.1", BROWSER] {
        let answer = app.client().header("accept", accepted).get("/").await;
        assert_eq!(answer.status, 200, "{accepted}");
    }
}

#[tokio::test]
async fn the_console_needs_no_key_and_the_rest_does() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream).env("ALICE", KEY);
    let app = builder.toml(KEYS).start().await;
    let browser = browser(&app);
    for client in [browser.clone(), browser.key("wrong"), browser.key(KEY)] {
        for path in ["/", "/ui/main.js"] {
            assert_eq!(client.get(path).await.status, 200, "{path}");
        }
    }
    for path in ["/v1/models", "/v1/sessions", "/metrics", "/ui", "/x"] {
        assert_eq!(browser.get(path).await.status, 401, "{path}");
    }
    // The version stays with those who have a key.
    let line = app.get("/").await;
    assert_eq!(line.status, 200);
    assert!(
        line.text()
            .starts_with("loopwright is running; console: http://")
    );
    let line = app.client().key(KEY).get("/").await.text();
    assert!(
        line.starts_with(concat!("loopwright ", env!("CARGO_PKG_VERSION"), " is")),
        "{line}"
    );
    // The state of the server stays with those who have a key.
    let ready = browser.get("/readyz").await.json();
    assert_eq!(ready.as_object().unwrap().len(), 1, "{ready}");
}

#[tokio::test]
async fn without_keys_the_console_is_for_allowed_hosts() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder
        .toml("allowed_hosts = [\"proxy.corp\"]")
        .start()
        .await;
    let browser = browser(&app);
    for path in ["/", "/ui/main.js"] {
        let foreign = browser.header("host", "evil.example").get(path).await;
        foreign.assert_error(403, Some("host_not_allowed"));
        let known = browser.header("host", "proxy.corp").get(path).await;
        assert_eq!(known.status, 200, "{path}");
    }
}

#[tokio::test]
async fn what_is_no_file_is_not_found_however_it_is_spelled() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let origin = app.client().origin().to_owned();
    for target in [
        "/ui",
        "/ui/",
        "/ui//",
        "/ui/nothing.js",
        "/ui/vendor",
        "/ui/vendor/",
        "/ui/MAIN.JS",
        "/ui/main.js/",
        "/ui/./main.js",
        "/ui/../http.rs",
        "/ui/..%2fhttp.rs",
        "/ui/%2e%2e/http.rs",
        "/ui/%2e%2e%2fhttp.rs",
        "/ui/..%5chttp.rs",
        "/ui/..\\http.rs",
        "/ui/vendor/../../http.rs",
        "/ui/vendor/%2e%2e/main.js",
        "/ui//etc/passwd",
        "/ui/%2fetc%2fpasswd",
        "/ui/../../../../../../etc/passwd",
        "/ui/main.js%00",
        "/ui/main.js%00.css",
        "/ui/%252e%252e/http.rs",
    ] {
        let status = status_of(&origin, target);
        assert!([400, 404].contains(&status), "{target}: {status}");
    }
    assert_eq!(status_of(&origin, "/ui/main.js"), 200);
    assert_eq!(status_of(&origin, "/ui/main.js?x=../http.rs"), 200);
}

#[tokio::test]
async fn a_console_that_is_switched_off_is_not_there() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder.toml("console = false").start().await;
    let browser = browser(&app);
    for path in ["/", "/ui/main.js", "/ui/index.html"] {
        browser.get(path).await.assert_error(404, Some("not_found"));
        let probe = Answer::of(browser.request(Method::HEAD, path)).await;
        assert_eq!(probe.header("content-security-policy"), None, "{path}");
    }
    assert!(!app.logs().contains("console: "), "{}", app.logs());
    let line = app.get("/").await.text();
    assert!(
        line.ends_with(&format!(" is running; API: {}/v1\n", app.origin())),
        "{line}"
    );
    let builder = TestApp::builder().upstream(&upstream).env("ALICE", KEY);
    let closed = builder.toml("console = false").toml(KEYS).start().await;
    let client = closed.client().header("accept", BROWSER);
    for path in ["/", "/ui/main.js"] {
        assert_eq!(client.get(path).await.status, 401, "{path}");
    }
    assert_eq!(closed.get("/").await.status, 401);
}

#[tokio::test]
async fn a_start_says_where_the_console_is() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let line = format!("console: {}/\n", app.client().origin());
    super::support::eventually("the address of the console", async || {
        app.logs().contains(&line).then_some(())
    })
    .await;
    let builder = TestApp::builder().upstream(&upstream);
    let json = builder.args(["--log-format", "json"]).start().await;
    let member = format!("\"console\":\"{}/\"", json.client().origin());
    assert!(json.logs().contains(&member), "{}", json.logs());
}
