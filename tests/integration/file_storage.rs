//! Files in object storage: what is asked of it, and what becomes of files when it fails, is slow or is away.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt;
use http::Method;
use serde_json::json;
use tempfile::TempDir;

use super::files::{content_path, contents, get_with, tried, uploaded};
use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, user, with};
use super::support::client::Client;
use super::support::script::{calls, text};
use super::support::server::Gate;
use super::support::storage::{ACCESS_KEY, Fault, Operation, SECRET_KEY, Storage};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};
use super::support::{eventually, within};

const MIB: usize = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A server with files in this storage, and the folder of its temporary files.
async fn start(storage: &Storage, upstream: &ScriptedUpstream) -> (TestApp, TempDir) {
    let temporary = tempfile::tempdir().unwrap();
    let builder = storage.keep_files(TestApp::builder());
    let builder = builder.env("TMPDIR", temporary.path().to_str().unwrap());
    (builder.upstream(upstream).start().await, temporary)
}

fn numbers(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect()
}

async fn listed(client: &Client) -> usize {
    let list = client.get("/v1/files").await.json();
    list["data"].as_array().unwrap().len()
}

/// Neither the log nor an answer says how the storage is reached.
fn assert_no_secrets(app: &TestApp, more: &str) {
    for text in [app.logs().as_str(), more] {
        assert!(
            !text.contains(ACCESS_KEY) && !text.contains(SECRET_KEY),
            "{text}"
        );
        assert!(!text.contains("AWS4-HMAC"), "{text}");
    }
}

#[tokio::test]
async fn files_go_to_the_bucket_and_come_out_as_they_were() {
    let (storage, upstream) = (Storage::start().await, ScriptedUpstream::start([]).await);
    let (mut app, temporary) = start(&storage, &upstream).await;
    let (small, large) = (numbers(300_000), numbers(20 * MIB + 1));
    let mut expected = Vec::new();
    for content in [&small, &large] {
        let file = uploaded(app.client(), "a.bin", content).await;
        let path = content_path(&file);
        let whole = app.get(&path).await;
        assert!(
            whole.body == *content,
            "{} bytes came back",
            whole.body.len()
        );
        expected.push((path, content));
    }
    let sent = [
        Operation::Put,
        Operation::Get(Some("bytes=0-299999".to_owned())),
        Operation::Create,
        Operation::Part(1),
        Operation::Part(2),
        Operation::Part(3),
        Operation::Complete,
        Operation::Get(Some(format!("bytes=0-{}", 20 * MIB))),
    ];
    assert_eq!(storage.log(), sent);
    for (path, content) in &expected {
        let part = get_with(app.client(), path, &[("range", "bytes=100-199")]).await;
        assert_eq!(part.status, 206);
        assert_eq!(part.body, content[100..200]);
        let head = app.client().send(Method::HEAD, path, &json!(null)).await;
        let length = content.len().to_string();
        assert_eq!(
            (head.status.as_u16(), head.header("content-length")),
            (200, Some(&*length))
        );
    }
    let only_the_range = Operation::Get(Some("bytes=100-199".to_owned()));
    let log = storage.log();
    assert_eq!(
        log[8..],
        [
            only_the_range.clone(),
            Operation::Head,
            only_the_range,
            Operation::Head
        ]
    );
    let empty = uploaded(app.client(), "empty", b"").await;
    assert_eq!(app.get(&content_path(&empty)).await.body, "");
    let keys = storage.keys();
    assert_eq!(keys.len(), 3);
    assert!(
        keys.iter().all(|key| key.starts_with("some/prefix/")),
        "{keys:?}"
    );
    let ready = app.get("/readyz").await;
    assert_eq!(
        (ready.status.as_u16(), &ready.json()["file_store"]),
        (200, &json!("ok"))
    );

    app.restart().await;
    for (path, content) in &expected {
        assert!(app.get(path).await.body == **content);
        app.client().delete(path.trim_end_matches("/content")).await;
    }
    assert_eq!(storage.keys().len(), 1);
    // Nothing is on this machine.
    assert!(!app.dir().join("sessions-files").exists());
    assert_eq!(contents(temporary.path()).len(), 0);
    app.terminate().await;
    assert!(app.wait_exit().await.success());
    assert_no_secrets(&app, "");
}

#[tokio::test]
async fn an_upload_that_the_storage_breaks_off_leaves_nothing() {
    let (storage, upstream) = (Storage::start().await, ScriptedUpstream::start([]).await);
    let (app, temporary) = start(&storage, &upstream).await;
    let large = numbers(20 * MIB);
    for (operation, status) in [
        (Operation::Part(2), 500),
        (Operation::Part(3), 403),
        (Operation::Complete, 503),
        (Operation::Create, 500),
        (Operation::Put, 403),
    ] {
        storage.fault(operation.clone(), Fault::Status(status));
        let content = match operation {
            Operation::Put => &large[..1000],
            _ => &large,
        };
        let refused = tried(app.client(), "a", content).await;
        refused.assert_error(503, Some("file_store_unavailable"));
        assert_eq!(listed(app.client()).await, 0, "{operation:?}");
        assert_eq!(storage.open_uploads(), 0, "{operation:?}");
        assert_eq!(storage.keys(), [""; 0], "{operation:?}");
        assert_no_secrets(&app, &refused.text());
        storage.heal();
    }
    let logs = app.logs();
    assert!(logs.contains("object storage: "), "{logs}");
    assert!(storage.log().contains(&Operation::Abort));
    assert_eq!(contents(temporary.path()).len(), 0);
    uploaded(app.client(), "a", &large).await;
    assert_eq!((listed(app.client()).await, storage.keys().len()), (1, 1));
}

#[tokio::test]
async fn an_upload_whose_client_leaves_is_aborted() {
    let (storage, upstream) = (Storage::start().await, ScriptedUpstream::start([]).await);
    let (app, temporary) = start(&storage, &upstream).await;
    let gate = Gate::new();
    storage.fault(Operation::Part(2), Fault::Wait(gate.clone()));
    let (client, large) = (app.client().clone(), numbers(20 * MIB));
    let uploading = tokio::spawn(async move { tried(&client, "a", &large).await });
    gate.reached(1).await;
    // Others need not wait.
    let file = uploaded(app.client(), "small", b"abc").await;
    uploading.abort();
    eventually("the upload to be aborted", async || {
        storage.log().contains(&Operation::Abort).then_some(())
    })
    .await;
    assert_eq!((storage.open_uploads(), storage.keys().len()), (0, 1));
    assert_eq!(listed(app.client()).await, 1);
    eventually("the local file to go", async || {
        contents(temporary.path()).is_empty().then_some(())
    })
    .await;
    assert_eq!(app.get(&content_path(&file)).await.text(), "abc");
}

#[tokio::test]
async fn a_storage_that_is_away_is_said_and_chats_go_on() {
    let storage = Storage::start().await;
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let (app, _temporary) = start(&storage, &upstream).await;
    let file = uploaded(app.client(), "a", b"abc").await;
    drop(storage);
    for answer in [
        tried(app.client(), "b", b"abc").await,
        app.get(&content_path(&file)).await,
    ] {
        let message = answer.assert_error(503, Some("file_store_unavailable"));
        assert!(
            message.contains("the file store is not available"),
            "{message}"
        );
        assert_no_secrets(&app, &answer.text());
    }
    assert_eq!(listed(app.client()).await, 1);
    assert_eq!(app.post_chat(ask("x")).await.content(), "Hello.");
    let ready = app.get("/readyz").await;
    assert_eq!(
        (ready.status.as_u16(), &ready.json()["file_store"]),
        (503, &json!("unreachable"))
    );
}

#[tokio::test]
async fn a_slow_storage_delays_its_files_only() {
    let storage = Storage::start().await;
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let (app, _temporary) = start(&storage, &upstream).await;
    let file = uploaded(app.client(), "a", b"abc").await;
    let gate = Gate::new();
    storage.fault(Operation::Get(None), Fault::Wait(gate.clone()));
    let (client, path) = (app.client().clone(), content_path(&file));
    let reading = tokio::spawn(async move { client.get(&path).await.text() });
    gate.reached(1).await;
    assert_eq!(app.post_chat(ask("x")).await.content(), "Hello.");
    uploaded(app.client(), "b", b"def").await;
    gate.open();
    assert_eq!(within("the content", reading).await.unwrap(), "abc");
}

#[tokio::test]
async fn a_content_that_is_gone_from_the_bucket_is_said() {
    let (storage, upstream) = (Storage::start().await, ScriptedUpstream::start([]).await);
    let (app, _temporary) = start(&storage, &upstream).await;
    let file = uploaded(app.client(), "a", b"abc").await;
    storage.fault(Operation::Get(None), Fault::Status(404));
    storage.fault(Operation::Head, Fault::Status(404));
    let path = content_path(&file);
    app.get(&path).await.assert_error(404, Some("not_found"));
    let head = app.client().send(Method::HEAD, &path, &json!(null)).await;
    assert_eq!(head.status, 404);
    // One that is gone is deleted all the same.
    storage.fault(Operation::Delete, Fault::Status(404));
    let deleted = app.client().delete(path.trim_end_matches("/content")).await;
    assert_eq!(deleted.status, 200);
}

#[tokio::test]
async fn leftovers_of_others_are_removed_after_a_day() {
    let (storage, upstream) = (Storage::start().await, ScriptedUpstream::start([]).await);
    let (mut app, _temporary) = start(&storage, &upstream).await;
    uploaded(app.client(), "a", b"abc").await;
    let kept = storage.keys().pop().unwrap();
    storage.add_beside(&kept, &"0".repeat(32), 2 * DAY);
    storage.add_beside(&kept, &"1".repeat(32), DAY / 2);
    storage.add_beside(&kept, "notes.txt", 2 * DAY);
    assert_eq!(storage.keys().len(), 4);
    app.restart().await;
    eventually("the leftover to be removed", async || {
        (storage.keys().len() == 3).then_some(())
    })
    .await;
    let old = format!("/{}", "0".repeat(32));
    assert!(!storage.keys().iter().any(|key| key.ends_with(&old)));
    assert!(storage.keys().contains(&kept));
}

#[tokio::test]
async fn images_in_the_bucket_are_sent_to_the_model_and_in_answers() {
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(200_000, 7);
    let image = STANDARD.encode(image);
    let drawn = json!({"content": "drawn", "images": [image]});
    let hook = Webhook::start().await.on("t", webhook::json(&drawn));
    let storage = Storage::start().await;
    let replies = [calls([("t", json!({}))]), text("Done."), text("Again.")];
    let upstream = ScriptedUpstream::start(replies).await;
    let builder = storage.keep_files(TestApp::builder()).dispatch(&hook);
    let app = builder
        .toml(&upstream.with_quirks("images = true"))
        .start()
        .await;
    let ask = |words: &str| with(ask_with(words, ["t"]), "session_id", json!("s"));
    let url = format!("data:image/png;base64,{image}");
    let answer = app.post_chat(ask("Go")).await.completion();
    let call = &answer["agentic_tool_calls"][0];
    assert_eq!(call["result_images_base64"], json!([image]));
    assert!(upstream.last().body.to_string().contains(&url));
    assert_eq!(storage.keys().len(), 1);
    app.post_chat(ask("More")).await.completion();
    assert!(upstream.last().body.to_string().contains(&url));
    // Gone from the bucket, but not from the list.
    upstream.push(text("Gone."));
    storage.fault(Operation::Head, Fault::Status(404));
    app.post_chat(ask("More")).await.completion();
    let sent = upstream.last().body.to_string();
    assert!(sent.contains("[an image that is not available any more]") && !sent.contains(&url));
}

#[tokio::test]
async fn a_file_in_the_bucket_goes_to_the_model_inline() {
    let storage = Storage::start().await;
    let upstream = ScriptedUpstream::start([text("Read.")]).await;
    let (app, _temporary) = start(&storage, &upstream).await;
    let file = uploaded(app.client(), "a.txt", b"content of the file").await;
    let part = json!({"type": "file", "file": {"file_id": file["id"]}});
    let body = with(
        ask("x"),
        "messages",
        json!([user("x"), {"role": "user", "content": [part]}]),
    );
    app.post_chat(with(body, "session_id", json!("s")))
        .await
        .completion();
    let data = STANDARD.encode("content of the file");
    assert!(upstream.last().body.to_string().contains(&data));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn large_files_are_never_held_in_memory() {
    const SIZE: usize = 120 * MIB;
    let (storage, upstream) = (Storage::start().await, ScriptedUpstream::start([]).await);
    let builder = storage.keep_files(TestApp::builder());
    let builder = builder.toml("max_file_bytes = \"200MiB\"");
    let app = builder.upstream(&upstream).start().await;
    uploaded(app.client(), "first", &numbers(10 * MIB)).await;
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
    let request = app.client().request(Method::GET, &content_path(&file));
    let mut stream = request.send().await.unwrap().bytes_stream();
    let mut received = 0;
    while let Some(piece) = stream.next().await {
        received += piece.unwrap().len();
    }
    assert_eq!(received, SIZE);
    let grown = peak().saturating_sub(before);
    assert!(grown < SIZE / 3, "grew by {grown} bytes");
}

#[tokio::test]
async fn a_storage_that_refuses_the_key_or_cannot_be_is_told_at_the_start() {
    let storage = Storage::start().await;
    let builder = TestApp::builder().upstream_url("http://127.0.0.1:9/v1");
    let builder = storage.with_credentials(builder);
    let refused = builder
        .args(["--files-dir", "s3://other/a"])
        .run("serve")
        .await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let told = refused.stderr;
    assert!(told.contains("cannot use s3://other/a for files"), "{told}");
    assert!(told.contains("404") && !told.contains(ACCESS_KEY), "{told}");
    type Case = (
        &'static str,
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static str,
    );
    let table: [Case; 4] = [
        ("s3://Files", "sqlite:s.db", &[], "write s3://bucket/prefix"),
        ("gs://files", "sqlite:s.db", &[], "of another kind than s3"),
        ("s3://files", "memory:", &[], "another session_store"),
        (
            "s3://files",
            "sqlite:s.db",
            &[("AWS_ACCESS_KEY_ID", ACCESS_KEY)],
            "AWS_SECRET_ACCESS_KEY",
        ),
    ];
    for (place, store, variables, remedy) in table {
        let builder = TestApp::builder().upstream_url("http://127.0.0.1:9/v1");
        let builder = builder.args(["--files-dir", place, "--session-store", store]);
        let set = |builder: super::support::app::Builder, (name, value): &(&str, &str)| {
            builder.env(name, value)
        };
        let ended = variables
            .iter()
            .fold(builder, set)
            .run("check-config")
            .await;
        assert_eq!(ended.code, Some(2), "{place}: {}", ended.stderr);
        assert!(ended.stderr.contains(remedy), "{place}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("files-dir"),
            "{place}: {}",
            ended.stderr
        );
        assert!(!ended.stderr.contains(ACCESS_KEY), "{}", ended.stderr);
    }
}
