//! Bodies that cannot be read, for every endpoint that reads one, and heads and bodies that are too large.

use bytes::Bytes;

use super::super::record::Golden;
use super::outcome::Cases;
use super::sender::Sender;
use super::{ENDPOINTS, any_upstream, app_with, filled};

/// The body `{}` with gzip.
pub(super) const GZIP: &[u8] =
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\xae\x05\x00\x43\xbf\xa6\xa3\x02\x00\x00\x00";

/// The endpoints that take a body, and forwarded paths.
fn reading() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let forwarded = [
        ("POST", "/v1/messages", "{}"),
        ("POST", "/v1/models/x", "{}"),
        ("POST", "/v1/files/a/b/c", "{}"),
        ("POST", "/nothing", "{}"),
    ];
    let all = ENDPOINTS.into_iter().chain(forwarded);
    let reading = all.filter(|(_, _, body)| !body.is_empty());
    reading.map(|(method, path, body)| (method, filled(path, "unknown"), body))
}

/// A header, in the place of the one that a JSON body has.
type Header = Option<(&'static str, &'static str)>;

/// What each of them gets: a name, a header, and the body.
fn bodies() -> Vec<(&'static str, Header, Bytes)> {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let form =
        "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n--b--\r\n";
    let kind = |kind| Some(("content-type", kind));
    let coding = |coding| Some(("content-encoding", coding));
    vec![
        ("text/plain", kind("text/plain"), "{}".into()),
        ("no type", kind(""), "{}".into()),
        (
            "application/*+json",
            kind("application/a+json; charset=utf-8"),
            "{}".into(),
        ),
        ("empty with a type", kind("application/json"), "".into()),
        ("broken JSON", None, "{\"model\":\"m\",".into()),
        ("an array", None, "[]".into()),
        ("null", None, "null".into()),
        ("a string", None, "\"x\"".into()),
        ("deep JSON", None, format!("{{\"x\":{deep}}}").into()),
        (
            "no UTF-8",
            None,
            Bytes::from_static(b"{\"model\":\"\xff\"}"),
        ),
        ("an unknown member", None, "{\"unknown_member\":1}".into()),
        (
            "a member twice",
            None,
            "{\"model\":\"a\",\"model\":\"b\"}".into(),
        ),
        ("an unknown coding", coding("br"), "{}".into()),
        (
            "two codings",
            coding("gzip, gzip"),
            Bytes::from_static(GZIP),
        ),
        ("gzip", coding("gzip"), Bytes::from_static(GZIP)),
        ("broken gzip", coding("gzip"), "no gzip at all".into()),
        ("cut gzip", coding("gzip"), Bytes::from_static(&GZIP[..12])),
        ("broken zstd", coding("zstd"), "no zstd at all".into()),
        (
            "a form",
            kind("multipart/form-data; boundary=b"),
            form.into(),
        ),
        (
            "a form without a boundary",
            kind("multipart/form-data"),
            form.into(),
        ),
        (
            "a cut form",
            kind("multipart/form-data; boundary=b"),
            form[..40].to_owned().into(),
        ),
    ]
}

#[tokio::test]
async fn every_endpoint_bodies() {
    let upstream = any_upstream().await;
    let app = app_with(&upstream, "").await;
    let sender = Sender::of(&app);
    let mut golden = Golden::default();
    for (method, path, _) in reading() {
        let mut cases = Cases::default();
        for (name, header, body) in bodies() {
            let sender = match header {
                Some((header, value)) => sender.with(header, value),
                None => sender.clone(),
            };
            cases.add(name, sender.send(method, &path, body).await);
        }
        cases.write(&mut golden, &format!("{method} {path}"));
    }
    golden.check("every_endpoint_bodies");
}

#[tokio::test]
async fn every_endpoint_limits() {
    let upstream = any_upstream().await;
    let lines = "max_body_bytes = 2048\nmax_header_bytes = 8192\nbody_timeout = 1";
    let app = app_with(&upstream, lines).await;
    let sender = Sender::of(&app);
    let mut golden = Golden::default();
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(3000));
    for (method, path, _) in reading() {
        let mut cases = Cases::default();
        cases.add(
            "a large body",
            sender.send(method, &path, large.clone()).await,
        );
        let text = sender.with("content-type", "text/plain");
        cases.add("as text", text.send(method, &path, large.clone()).await);
        cases.write(&mut golden, &format!("{method} {path}"));
    }
    let mut cases = Cases::default();
    for path in super::paths() {
        let large = sender.with("x-large", &"h".repeat(10_000));
        cases.add(&path, large.send("GET", &path, "").await);
    }
    cases.write(&mut golden, "GET with a large head");
    let mut cases = Cases::default();
    let large = sender.with("x-large", &"h".repeat(10_000));
    for method in ["HEAD", "OPTIONS", "TRACE"] {
        cases.add(method, large.send(method, "/v1/chat/completions", "").await);
    }
    let larger = sender.with("x-large", &"h".repeat(30_000));
    cases.add("a larger head", larger.send("GET", "/v1/models", "").await);
    let long = format!("/v1/models/{}", "m".repeat(9_000));
    cases.add("a long path", sender.send("GET", &long, "").await);
    let many: String = (0..120)
        .map(|number| format!("x-{number}: 1\r\n"))
        .collect();
    for (name, head) in [
        ("many headers", format!("GET / HTTP/1.1\r\nhost: localhost\r\n{many}\r\n")),
        ("no HTTP", "NONSENSE\r\n\r\n".to_owned()),
        ("no version", "GET /v1/models\r\n\r\n".to_owned()),
        ("a broken header", "GET /v1/models HTTP/1.1\r\nbroken header\r\n\r\n".to_owned()),
        ("a space in the path", "GET /v1/models /x HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned()),
        ("HTTP/1.0 without a host", "GET /v1/sessions HTTP/1.0\r\n\r\n".to_owned()),
        ("a whole URL", "GET http://localhost/v1/sessions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned()),
        ("a whole URL of another host", "GET http://evil.test/v1/sessions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned()),
        ("CONNECT", "CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned()),
        ("OPTIONS *", "OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".to_owned()),
        ("no length and no end", "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: x\r\n\r\n".to_owned()),
        ("a body that stalls", "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{".to_owned()),
        ("a broken chunk", "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nzz\r\n".to_owned()),
        ("large chunks", format!("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nbb8\r\n{}\r\n0\r\n\r\n", "y".repeat(3000))),
    ] {
        cases.add(name, sender.raw(&head).await);
    }
    cases.write(&mut golden, "heads");
    golden.check("every_endpoint_limits");
}
