//! Files through the API: upload, list, download, delete; limits, owners, sessions, and what is left on the disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::app::{Builder, TestApp};
use super::support::ask::user;
use super::support::client::{Answer, Client};
use super::support::script::text;
use super::support::upstream::{MODEL, ScriptedUpstream};
use super::support::{eventually, within};

const BOUNDARY: &str = "a-boundary-of-the-tests";
const KEYS: &str =
    "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
const ALICE: &str = "alice-key-0123456789";
const BOB: &str = "bob-key-0123456789ab";

/// A form that is put together part by part.
#[derive(Debug, Default)]
struct Form(Vec<u8>);

impl Form {
    fn part(mut self, head: &str, content: &[u8]) -> Self {
        self.0
            .extend(format!("--{BOUNDARY}\r\n{head}\r\n\r\n").bytes());
        self.0.extend(content);
        self.0.extend(b"\r\n");
        self
    }

    fn field(self, name: &str, value: &str) -> Self {
        let head = format!("content-disposition: form-data; name=\"{name}\"");
        self.part(&head, value.as_bytes())
    }

    fn file(self, name: &str, kind: &str, content: &[u8]) -> Self {
        let head = format!(
            "content-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\ncontent-type: {kind}"
        );
        self.part(&head, content)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend(format!("--{BOUNDARY}--\r\n").bytes());
        self.0
    }

    async fn send(self, client: &Client) -> Answer {
        send(client, self.end()).await
    }
}

async fn send(client: &Client, body: impl Into<reqwest::Body>) -> Answer {
    Answer::of(upload(client, body)).await
}

fn upload(client: &Client, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let request = client.request(Method::POST, "/v1/files");
    request.header("content-type", kind).body(body)
}

/// Uploads a file, whatever comes of it.
pub(crate) async fn tried(client: &Client, name: &str, content: &[u8]) -> Answer {
    let form = Form::default().file(name, "application/octet-stream", content);
    form.send(client).await
}

pub(crate) async fn uploaded(client: &Client, name: &str, content: &[u8]) -> Value {
    let answer = tried(client, name, content).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

pub(crate) async fn uploaded_for(client: &Client, session: &str, name: &str, content: &[u8]) {
    let form = Form::default()
        .field("session_id", session)
        .file(name, "text/plain", content);
    let answer = form.send(client).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn server(toml: &str) -> TestApp {
    start(TestApp::builder().toml(toml)).await
}

async fn start(builder: Builder) -> TestApp {
    builder.upstream_url("http://127.0.0.1:9/v1").start().await
}

pub(crate) fn content_path(file: &Value) -> String {
    format!("/v1/files/{}/content", file["id"].as_str().unwrap())
}

/// The contents of files on the disk, unfinished ones included.
fn on_disk(app: &mut TestApp) -> BTreeSet<PathBuf> {
    contents(&app.dir().join("sessions-files"))
}

pub(crate) fn contents(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_none_or(|ending| ending != "lock") {
                found.insert(path);
            }
        }
    }
    found
}

pub(crate) async fn get_with(client: &Client, path: &str, headers: &[(&str, &str)]) -> Answer {
    let headers = headers.iter();
    let client = headers.fold(client.clone(), |client, (name, value)| {
        client.header(name, value)
    });
    client.get(path).await
}

#[tokio::test]
async fn a_file_goes_in_and_comes_out_as_it_was() {
    let mut app = server("max_body_bytes = 1024").await;
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let table: [(&str, Form); 2] = [
        (
            "user_data",
            Form::default().file("../Übersicht \u{202e}.bin", "application/x-own", &content),
        ),
        (
            "vision",
            Form::default()
                .file("Übersicht .bin", "application/x-own", &content)
                .field("unknown", "is ignored")
                .field("purpose", "vision"),
        ),
    ];
    for (purpose, form) in table {
        let answer = form.send(app.client()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let file = answer.json();
        let id = file["id"].as_str().unwrap();
        assert!(id.starts_with("file-") && id.len() == 37, "{id}");
        assert!(file["created_at"].as_i64().unwrap() > 1_700_000_000);
        let expected = json!({
            "id": id, "object": "file", "bytes": 1_200_000, "created_at": file["created_at"], "purpose": purpose,
            "filename": "Übersicht .bin", "status": "processed", "name": "Übersicht .bin", "size": 1_200_000,
            "mime_type": "application/x-own", "session_id": null,
        });
        assert_eq!(file, expected);
        assert_eq!(app.get(&format!("/v1/files/{id}")).await.json(), expected);

        let answer = app.get(&content_path(&file)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, content);
        for (name, value) in [
            ("content-type", "application/x-own"),
            ("content-length", "1200000"),
            (
                "content-disposition",
                "attachment; filename=\"_bersicht .bin\"; filename*=UTF-8''%C3%9Cbersicht%20.bin",
            ),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "sandbox; default-src 'none'"),
            ("accept-ranges", "bytes"),
            ("etag", &format!("\"{id}\"")),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
        assert!(answer.header("x-request-id").is_some());

        assert_eq!(on_disk(&mut app).len(), 1);
        let deleted = app.client().delete(&format!("/v1/files/{id}")).await;
        assert_eq!(
            deleted.json(),
            json!({"id": id, "object": "file", "deleted": true})
        );
        for path in [format!("/v1/files/{id}"), content_path(&file)] {
            app.get(&path).await.assert_error(404, Some("not_found"));
        }
        let again = app.client().delete(&format!("/v1/files/{id}")).await;
        again.assert_error(404, Some("not_found"));
        assert_eq!(on_disk(&mut app), BTreeSet::new());
    }
    let metrics = app.get("/metrics").await.text();
    let counted = "loopwright_requests_total{route=\"files\",status=\"2xx\"} 8";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn lists_have_openais_shape_and_pages() {
    let app = server("").await;
    let empty =
        json!({"object": "list", "data": [], "has_more": false, "first_id": null, "last_id": null});
    assert_eq!(app.get("/v1/files").await.json(), empty);
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(uploaded(app.client(), name, b"x").await["id"].clone());
    }
    let form = Form::default()
        .field("purpose", "assistants")
        .field("session_id", "s");
    ids.push(form.file("d", "", b"x").send(app.client()).await.json()["id"].clone());
    let list = async |query: &str| -> (Vec<Value>, bool) {
        let list = app.get(&format!("/v1/files?{query}")).await.json();
        let data: Vec<Value> = list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|file| file["id"].clone())
            .collect();
        assert_eq!(list["first_id"], data.first().cloned().unwrap_or_default());
        assert_eq!(list["last_id"], data.last().cloned().unwrap_or_default());
        (data, list["has_more"].as_bool().unwrap())
    };
    let pick =
        |which: &[usize]| -> Vec<Value> { which.iter().map(|at| ids[*at].clone()).collect() };
    assert_eq!(list("").await, (pick(&[3, 2, 1, 0]), false));
    assert_eq!(list("order=asc&limit=3").await, (pick(&[0, 1, 2]), true));
    let after = format!("after={}&limit=2", ids[3].as_str().unwrap());
    assert_eq!(list(&after).await, (pick(&[2, 1]), true));
    let after = format!("order=asc&after={}", ids[2].as_str().unwrap());
    assert_eq!(list(&after).await, (pick(&[3]), false));
    assert_eq!(list("purpose=assistants").await, (pick(&[3]), false));
    assert_eq!(list("session_id=s").await, (pick(&[3]), false));
    assert_eq!(list("session_id=t").await, (pick(&[]), false));
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("purpose=fun", "purpose"),
        ("session_id=a/b", "session_id"),
    ] {
        let answer = app.get(&format!("/v1/files?{query}")).await;
        answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], param);
    }
    let missing = "after=file-00000000000000000000000000000000";
    for query in ["after=nothing", missing] {
        let answer = app.get(&format!("/v1/files?{query}")).await;
        answer.assert_error(404, Some("not_found"));
    }
}

#[tokio::test]
async fn ranges_and_validators_save_what_the_client_has() {
    let app = server("").await;
    let client = app.client();
    let file = uploaded(client, "a.txt", b"0123456789").await;
    let path = content_path(&file);
    let etag = format!("\"{}\"", file["id"].as_str().unwrap());
    for (range, body, content_range) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=8-", "89", "bytes 8-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
    ] {
        let answer = get_with(client, &path, &[("range", range)]).await;
        assert_eq!(answer.status, 206, "{range}");
        assert_eq!(answer.text(), body, "{range}");
        assert_eq!(answer.header("content-range"), Some(content_range));
        assert_eq!(
            answer.header("content-length"),
            Some(&*body.len().to_string())
        );
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    for headers in [
        &[("range", "bytes=0-1,4-5")][..],
        &[("range", "lines=0-1")],
        &[("range", "bytes=5-1")],
        &[("range", "bytes=0-1"), ("if-range", "\"another\"")],
        &[("if-none-match", "\"another\"")],
    ] {
        let answer = get_with(client, &path, headers).await;
        assert_eq!(
            (answer.status.as_u16(), &*answer.text()),
            (200, "0123456789"),
            "{headers:?}"
        );
        assert_eq!(answer.header("content-range"), None);
    }
    let answer = get_with(
        client,
        &path,
        &[("range", "bytes=2-3"), ("if-range", &etag)],
    )
    .await;
    assert_eq!((answer.status.as_u16(), &*answer.text()), (206, "23"));
    for range in ["bytes=10-", "bytes=-0"] {
        let answer = get_with(client, &path, &[("range", range)]).await;
        answer.assert_error(416, Some("range_not_satisfiable"));
        assert_eq!(answer.header("content-range"), Some("bytes */10"));
    }
    for tags in [etag.clone(), format!("\"x\", W/{etag}"), "*".to_owned()] {
        let headers = [("if-none-match", &*tags), ("range", "bytes=0-1")];
        let answer = get_with(client, &path, &headers).await;
        assert_eq!(
            (answer.status.as_u16(), answer.body.len()),
            (304, 0),
            "{tags}"
        );
        assert_eq!(answer.header("etag"), Some(&*etag));
    }
    let head = client
        .request(Method::HEAD, &path)
        .header("range", "bytes=0-1");
    let head = Answer::of(head).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some("10"));
    assert_eq!(head.header("content-type"), Some("text/plain"));
    let empty = content_path(&uploaded(client, "empty", b"").await);
    let answer = app.get(&empty).await;
    assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
    let answer = get_with(client, &empty, &[("range", "bytes=0-")]).await;
    answer.assert_error(416, Some("range_not_satisfiable"));
}

#[tokio::test]
async fn the_content_says_what_a_file_is() {
    let app = server("").await;
    for (name, claimed, content, expected) in [
        (
            "a.csv",
            "application/vnd.ms-excel",
            &b"a,b\n1,2\n"[..],
            "text/csv",
        ),
        ("a.png", "image/png", b"<script>", "text/plain"),
        (
            "a.txt",
            "text/plain",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            "image/png",
        ),
        ("a.html", "text/html", b"<!doctype html>", "text/html"),
        (
            "report.jsonl",
            "application/octet-stream",
            b"{}\n",
            "application/jsonl",
        ),
        (
            "report.jsonl",
            "application/x-ndjson",
            b"{}\n",
            "application/jsonl",
        ),
    ] {
        let form = Form::default().file(name, claimed, content);
        let file = form.send(app.client()).await.json();
        assert_eq!(file["mime_type"], expected, "{name}");
        let answer = app.get(&content_path(&file)).await;
        assert_eq!(answer.header("content-type"), Some(expected));
        assert!(
            answer
                .header("content-disposition")
                .unwrap()
                .starts_with("attachment;")
        );
    }
}

#[tokio::test]
async fn too_large_a_file_is_refused_while_it_arrives() {
    let mut app = server("max_file_bytes = \"2MiB\"").await;
    let refused = |answer: &Answer| {
        let message = answer.assert_error(413, Some("request_too_large"));
        assert!(message.contains("2097152"), "{message}");
        assert_eq!(answer.json()["error"]["param"], "file");
        assert_eq!(answer.header("connection"), Some("close"));
    };
    let largest = vec![7; 2 << 20];
    uploaded(app.client(), "fits", &largest).await;
    // Just over it, far over what it declares, and without any declared length.
    let over = vec![7; (2 << 20) + 1];
    refused(
        &Form::default()
            .file("a", "", &over)
            .send(app.client())
            .await,
    );
    let far_over = vec![7; 40 << 20];
    refused(
        &Form::default()
            .file("a", "", &far_over)
            .send(app.client())
            .await,
    );
    let whole = Bytes::from(Form::default().file("a", "", &far_over).end());
    let pieces: Vec<_> = (0..whole.len())
        .step_by(100_000)
        .map(|at| Ok::<_, std::io::Error>(whole.slice(at..whole.len().min(at + 100_000))))
        .collect();
    let body = reqwest::Body::wrap_stream(stream::iter(pieces));
    refused(&send(app.client(), body).await);
    assert_eq!(on_disk(&mut app).len(), 1);
    // Who asks first is told before anything is sent.
    let expecting = upload(app.client(), Vec::new())
        .header("expect", "100-continue")
        .header("content-length", "999999999")
        .build()
        .unwrap();
    let mut socket = connect(&app).await;
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 999999999\r\ncontent-type: {}\r\n\r\n",
        expecting.headers()["content-type"].to_str().unwrap()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    within("an answer", socket.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

async fn connect(app: &TestApp) -> tokio::net::TcpStream {
    let address = app.origin().strip_prefix("http://").unwrap();
    tokio::net::TcpStream::connect(address).await.unwrap()
}

#[tokio::test]
async fn a_form_that_cannot_be_used_says_why_and_leaves_nothing() {
    let mut app = server("").await;
    let file = || Form::default().file("a", "", b"abc");
    let cut = |form: Form, by: usize| {
        let mut body = form.end();
        body.truncate(body.len() - by);
        body
    };
    let many = (0..40).fold(file(), |form, at| form.field(&format!("f{at}"), "x"));
    let table: Vec<(&str, Vec<u8>, Value)> = vec![
        (
            "no file",
            Form::default().field("purpose", "user_data").end(),
            json!("file"),
        ),
        ("an empty form", Form::default().end(), json!("file")),
        (
            "a field instead",
            Form::default().field("file", "abc").end(),
            json!("file"),
        ),
        (
            "an empty name",
            Form::default().file("", "", b"abc").end(),
            json!("file"),
        ),
        (
            "two files",
            file().file("b", "", b"abc").end(),
            json!("file"),
        ),
        (
            "a purpose",
            file().field("purpose", "fun").end(),
            json!("purpose"),
        ),
        (
            "no purpose",
            file().field("purpose", "").end(),
            json!("purpose"),
        ),
        (
            "two purposes",
            file()
                .field("purpose", "batch")
                .field("purpose", "batch")
                .end(),
            json!("purpose"),
        ),
        (
            "a session",
            file().field("session_id", "a/b").end(),
            json!("session_id"),
        ),
        (
            "no UTF-8",
            file()
                .part("content-disposition: form-data; name=\"purpose\"", b"\xff")
                .end(),
            json!("purpose"),
        ),
        (
            "a long value",
            file().field("purpose", &"x".repeat(2000)).end(),
            json!("purpose"),
        ),
        (
            "an expiry",
            file().field("expires_after[anchor]", "created_at").end(),
            json!("expires_after"),
        ),
        ("many fields", many.end(), Value::Null),
        ("cut in the boundary", cut(file(), 9), Value::Null),
        ("cut in the file", cut(file(), 40), Value::Null),
        (
            "cut in the head",
            b"--a-boundary-of-the-tests\r\ncontent-disp".to_vec(),
            Value::Null,
        ),
        ("nothing", Vec::new(), Value::Null),
        ("no form at all", b"hello".to_vec(), Value::Null),
        (
            "no end of a head",
            [
                b"--a-boundary-of-the-tests\r\nx: ",
                &vec![b'y'; 1 << 20][..],
            ]
            .concat(),
            Value::Null,
        ),
        ("no beginning", vec![b'-'; 1 << 20], Value::Null),
    ];
    for (what, body, param) in table {
        let answer = send(app.client(), body).await;
        let message = answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], param, "{what}: {message}");
        assert!(!message.is_empty(), "{what}");
        assert_eq!(on_disk(&mut app), BTreeSet::new(), "{what}");
    }
    for kind in [
        "application/json",
        "text/plain",
        "multipart/mixed; boundary=x",
        "",
    ] {
        let request = upload(app.client(), file().end()).header("content-type", kind);
        let mut request = request.build().unwrap();
        request
            .headers_mut()
            .insert("content-type", kind.parse().unwrap());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = within("an answer", client.execute(request)).await.unwrap();
        assert_eq!(answer.status(), 415, "{kind}");
    }
    let no_boundary = app.client().request(Method::POST, "/v1/files");
    let no_boundary = no_boundary
        .header("content-type", "multipart/form-data")
        .body("x");
    Answer::of(no_boundary).await.assert_error(400, None);
    // A page elsewhere can post a form without asking.
    let page = app.client().header("origin", "http://evil.example");
    let answer = file().send(&page).await;
    answer.assert_error(403, Some("origin_not_allowed"));
    for (method, path) in [
        (Method::PUT, "/v1/files"),
        (Method::POST, "/v1/files/file-1"),
    ] {
        let answer = app.client().send(method, path, &json!({})).await;
        answer.assert_error(405, Some("method_not_allowed"));
    }
    assert_eq!(app.get("/v1/files").await.json()["data"], json!([]));
}

#[tokio::test]
async fn an_upload_that_stalls_or_breaks_off_leaves_nothing() {
    let mut app = server("body_timeout = 0.3").await;
    let whole = Form::default().file("a", "", &vec![1; 100_000]).end();
    for sent in [10, 1000, whole.len() - 4] {
        let first = Ok::<_, std::io::Error>(Bytes::copy_from_slice(&whole[..sent]));
        let stalled = stream::iter([first]).chain(stream::pending());
        let answer = send(app.client(), reqwest::Body::wrap_stream(stalled)).await;
        answer.assert_error(408, Some("request_timeout"));
        assert_eq!(answer.header("connection"), Some("close"));
        assert_eq!(on_disk(&mut app), BTreeSet::new());
    }
    // A client that goes away in the middle.
    let mut app = server("").await;
    let mut socket = connect(&app).await;
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\ncontent-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n",
        whole.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&whole[..50_000]).await.unwrap();
    let begun = on_disk_is(&mut app, |files| files.len() == 1).await;
    drop(socket);
    on_disk_is(&mut app, BTreeSet::is_empty).await;
    assert!(
        begun
            .iter()
            .all(|path| path.parent().unwrap().ends_with("tmp")),
        "{begun:?}"
    );
}

async fn on_disk_is(
    app: &mut TestApp,
    holds: impl Fn(&BTreeSet<PathBuf>) -> bool,
) -> BTreeSet<PathBuf> {
    let root = app.dir().join("sessions-files");
    let look = async || {
        let files = contents(&root);
        holds(&files).then_some(files)
    };
    eventually("the directory of files", look).await
}

#[tokio::test]
async fn another_keys_files_do_not_exist() {
    let builder = TestApp::builder()
        .env("ALICE", ALICE)
        .env("BOB", BOB)
        .toml(KEYS);
    let app = start(builder).await;
    let (alice, bob) = (app.client().key(ALICE), app.client().key(BOB));
    let form = Form::default()
        .field("session_id", "s")
        .file("a.txt", "", b"secret");
    let file = form.send(&alice).await.json();
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    for path in [
        path.clone(),
        content_path(&file),
        format!("/v1/files?after={}", file["id"].as_str().unwrap()),
    ] {
        bob.get(&path).await.assert_error(404, Some("not_found"));
        app.get(&path)
            .await
            .assert_error(401, Some("invalid_api_key"));
        assert_eq!(alice.get(&path).await.status, 200, "{path}");
    }
    bob.delete(&path).await.assert_error(404, Some("not_found"));
    Form::default()
        .file("a", "", b"x")
        .send(app.client())
        .await
        .assert_error(401, Some("invalid_api_key"));
    for list in ["/v1/files", "/v1/files?session_id=s"] {
        assert_eq!(bob.get(list).await.json()["data"], json!([]));
        assert_eq!(alice.get(list).await.json()["data"], json!([file]));
    }
    bob.get("/v1/sessions/s")
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn files_of_a_session_go_with_it() {
    let upstream = ScriptedUpstream::start([text("A1"), text("A2")]).await;
    let mut app = TestApp::with_upstream(&upstream).await;
    let form = Form::default()
        .file("a.csv", "", b"a,b\n")
        .field("session_id", "s");
    let file = form.send(app.client()).await.json();
    assert_eq!(file["session_id"], "s");
    let loose = uploaded(app.client(), "loose", b"x").await;
    // The session was made for it, and the first turn is its first.
    let turn = json!({"model": MODEL, "session_id": "s", "messages": [user("Q1")]});
    app.post_chat(turn).await.completion();
    assert_eq!(upstream.last().roles(), ["user"]);
    let export = app.get("/v1/sessions/s").await.json();
    assert_eq!(export["files"], json!([file]));
    assert_eq!(export["messages"].as_array().unwrap().len(), 2);
    let list = app.get("/v1/sessions").await.json();
    assert_eq!(list["data"][0]["title"], "Q1");
    // An import keeps them, a fork shares them.
    let imported = app
        .client()
        .send(Method::PUT, "/v1/sessions/s", &export)
        .await;
    assert_eq!(imported.status, 200);
    assert_eq!(imported.json()["files"], json!([file]));
    let fork = app.post("/v1/sessions/s/fork", &json!({"id": "t"})).await;
    let mut shared = file.clone();
    shared["session_id"] = json!("t");
    assert_eq!(fork.json()["files"], json!([shared]));
    assert_eq!(app.client().delete("/v1/sessions/s").await.status, 200);
    assert_eq!(app.get(&content_path(&file)).await.text(), "a,b\n");
    assert_eq!(on_disk(&mut app).len(), 2);
    assert_eq!(app.client().delete("/v1/sessions/t").await.status, 200);
    app.get(&content_path(&file))
        .await
        .assert_error(404, Some("not_found"));
    assert_eq!(app.get("/v1/files").await.json()["data"], json!([loose]));
    assert_eq!(on_disk(&mut app).len(), 1);
}

#[tokio::test]
async fn expired_sessions_and_files_leave_nothing_on_the_disk() {
    let mut app = server("session_ttl = 1").await;
    let form = Form::default().field("session_id", "s").file("a", "", b"x");
    assert_eq!(form.send(app.client()).await.status, 200);
    uploaded(app.client(), "b", b"y").await;
    on_disk_is(&mut app, BTreeSet::is_empty).await;
    assert_eq!(app.get("/v1/files").await.json()["data"], json!([]));
    app.get("/v1/sessions/s")
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_restart_keeps_files_and_removes_what_a_crash_has_left() {
    let mut app = server("").await;
    let file = uploaded(app.client(), "a", b"kept").await;
    let path = on_disk(&mut app).pop_first().unwrap();
    // Killed in the middle of an upload.
    let mut socket = connect(&app).await;
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\ncontent-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let begun = Form::default().file("b", "", &[1; 50_000]).0;
    socket.write_all(&begun).await.unwrap();
    on_disk_is(&mut app, |files| files.len() == 2).await;
    app.kill9().await;
    // Killed between the last byte and the row.
    let name = path.file_name().unwrap().to_str().unwrap();
    let (store, _) = name.split_once('-').unwrap();
    let shard = path
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    let orphan = path.with_file_name(format!("{store}-{}", shard.repeat(16)));
    std::fs::write(&orphan, "orphan").unwrap();
    let foreign = path.with_file_name("not-ours.txt");
    std::fs::write(&foreign, "x").unwrap();
    app.restart().await;
    assert_eq!(on_disk(&mut app), BTreeSet::from([path, foreign]));
    assert_eq!(app.get(&content_path(&file)).await.text(), "kept");
    assert_eq!(app.get("/v1/files").await.json()["data"], json!([file]));
}

#[tokio::test]
async fn in_memory_the_files_go_with_the_process() {
    let temporary = tempfile::tempdir().unwrap();
    let builder = TestApp::builder()
        .toml("session_store = \"memory:\"")
        .env("TMPDIR", temporary.path().to_str().unwrap());
    let mut app = start(builder).await;
    let file = uploaded(app.client(), "a", b"abc").await;
    assert_eq!(app.get(&content_path(&file)).await.text(), "abc");
    assert_eq!(contents(temporary.path()).len(), 1);
    app.terminate().await;
    assert!(app.wait_exit().await.success());
    assert!(
        std::fs::read_dir(temporary.path())
            .unwrap()
            .next()
            .is_none()
    );
}

#[tokio::test]
async fn the_oldest_files_make_room_where_files_are_configured_to_be() {
    let files = tempfile::tempdir().unwrap();
    let directory = files.path().join("deep/files");
    let builder = TestApp::builder()
        .toml("max_file_bytes = 1000\nmax_total_file_bytes = 2000")
        .args(["--files-dir", directory.to_str().unwrap()]);
    let mut app = start(builder).await;
    for name in ["a", "b", "c"] {
        uploaded(app.client(), name, &[1; 900]).await;
    }
    let list = app.get("/v1/files?order=asc").await.json();
    let names: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["b", "c"]);
    assert_eq!(contents(&directory).len(), 2);
    assert!(!app.dir().join("sessions-files").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn uploads_and_downloads_are_never_held_in_memory() {
    const SIZE: usize = 60 << 20;
    let app = server("").await;
    uploaded(app.client(), "first", b"x").await;
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", app.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .unwrap();
        let number: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        number * 1024
    };
    let before = peak();
    let file = uploaded(app.client(), "large", &vec![1; SIZE]).await;
    let answer = app.get(&content_path(&file)).await;
    assert_eq!(answer.body.len(), SIZE);
    assert!(answer.body.iter().all(|byte| *byte == 1));
    let grown = peak().saturating_sub(before);
    assert!(grown < SIZE / 2, "grew by {grown} bytes");
}
