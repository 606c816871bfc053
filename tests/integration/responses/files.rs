//! Files that a request names by their URLs.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{calls, text};
use super::super::support::server::{Arrived, HttpReply, Outgoing, Part, Server};
use super::super::support::upstream::ScriptedUpstream;
use super::{PATH, create, request, with};

/// The setting that permits the files of this machine.
const LOCAL: &str = "[file_urls]\nprivate = [\"127.0.0.1\"]\ntimeout = \"2s\"\nmax_bytes = 1000\n";

/// A server of files. What it is asked must carry nothing of the client's.
async fn file_server() -> Server {
    Server::start(Arc::new(|arrived: Arrived| {
        let request = &arrived.request;
        assert_eq!(request.method(), "GET");
        for secret in ["authorization", "cookie", "referer"] {
            assert!(request.headers().get(secret).is_none(), "{secret}");
        }
        let reply = match request.uri().path() {
            "/a%20b.csv" => HttpReply::whole(200, "text/csv; charset=utf-8", "a,b\n"),
            "/600" => HttpReply::whole(200, "application/pdf", "x".repeat(600)),
            "/600-in-pieces" => HttpReply {
                body: vec![Part::Bytes("x".repeat(300).into()); 2],
                ..HttpReply::whole(200, "application/pdf", "")
            },
            "/moved" => HttpReply {
                headers: vec![("location".into(), "/a%20b.csv".into())],
                ..HttpReply::whole(302, "text/plain", "")
            },
            "/slow" => HttpReply {
                before_head: vec![Part::Hang],
                ..HttpReply::whole(200, "text/plain", "")
            },
            _ => HttpReply::whole(404, "text/plain", "no"),
        };
        async move { Outgoing::Scripted(reply) }.boxed()
    }))
    .await
}

fn files(urls: &[String]) -> Value {
    let part = |url: &String| json!({"type": "input_file", "file_url": url});
    let parts: Vec<Value> = urls.iter().map(part).collect();
    json!([{"role": "user", "content": "Hi"}, {"role": "user", "content": parts}])
}

#[tokio::test]
async fn a_file_behind_a_permitted_url_reaches_the_model() {
    let host = file_server().await;
    let upstream = ScriptedUpstream::answering(|_| text("Read."))
        .await
        .lenient();
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml(LOCAL)
        .start()
        .await;
    let url = format!("http://{}/a%20b.csv?x=1", host.addr());
    let sent = |name: &str| json!({"type": "file", "file": {"filename": name, "file_data": "data:text/csv;base64,YSxiCg=="}});
    create(&app, request(files(std::slice::from_ref(&url)))).await;
    assert_eq!(
        upstream.last().messages()[1]["content"],
        json!([sent("a b.csv")])
    );
    // Stored, under a name of its own, and sent again with the history.
    let part = json!({"type": "input_file", "file_url": url, "filename": "c.csv"});
    let body = json!({"model": "m", "input": [{"role": "user", "content": [part]}]});
    let first = create(&app, body).await;
    let more = json!({"model": "m", "input": "More", "previous_response_id": first["id"]});
    create(&app, more).await;
    assert_eq!(
        upstream.last().messages()[0]["content"],
        json!([sent("c.csv")])
    );
    // In the other dialect, too.
    let part = json!({"type": "file", "file": {"file_url": url}});
    let body =
        json!({"model": "m", "session_id": "s", "messages": [{"role": "user", "content": [part]}]});
    app.post_chat(body).await.completion();
    assert_eq!(
        upstream.last().messages()[0]["content"],
        json!([sent("a b.csv")])
    );
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn a_file_behind_a_url_lies_in_the_working_directory() {
    let host = file_server().await;
    let code = json!({"code": "print(open('a b.csv').read())"});
    let upstream = ScriptedUpstream::start([calls([("execute_python", code)]), text("Read.")])
        .await
        .lenient();
    let app = TestApp::builder()
        .upstream(&upstream)
        .args(["--enable-code-execution"])
        .toml(LOCAL)
        .start()
        .await;
    let url = format!("http://{}/a%20b.csv", host.addr());
    let tools = json!([{"type": "code_interpreter", "container": {"type": "auto"}}]);
    let body = json!({"model": "m", "input": files(&[url]), "include": ["code_interpreter_call.outputs"], "tools": tools});
    let response = create(&app, body).await;
    assert_eq!(
        response["output"][0]["outputs"][0]["logs"], "a,b\n\n",
        "{response}"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_had_is_refused_with_its_place() {
    let host = file_server().await;
    let upstream = ScriptedUpstream::answering(|_| text("Hi.")).await.lenient();
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml(LOCAL)
        .start()
        .await;
    let at = |path: &str| format!("http://{}/{path}", host.addr());
    let first = "input[1].content[0].file_url";
    let second = "input[1].content[1].file_url";
    for (urls, param, words) in [
        (vec![at("none")], first, "status 404"),
        (vec![at("moved")], first, "status 302"),
        (vec![at("slow")], first, "longer than 2 s"),
        (
            vec![at("600"), at("600")],
            second,
            "larger than the 400 bytes",
        ),
        (
            vec![at("600"), at("600-in-pieces")],
            second,
            "larger than the 400 bytes",
        ),
        (
            vec!["https://example.org/a".to_owned()],
            first,
            "'example.org' is not permitted",
        ),
        (vec!["file:///etc/passwd".to_owned()], first, "file"),
        (vec!["x".to_owned()], first, "file_data"),
    ] {
        let answer = app.post(PATH, &request(files(&urls))).await;
        answer.assert_error(400, None);
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param, "{urls:?}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
    assert!(upstream.requests().is_empty());
    let items = json!({"items": files(&[at("600")])});
    let answer = app.post("/v1/conversations", &items).await;
    answer.assert_error(400, None);
    assert_eq!(
        answer.json()["error"]["param"],
        "items[1].content[0].file_url"
    );
}

#[tokio::test]
async fn without_the_setting_no_url_is_followed() {
    let host = file_server().await;
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let local = format!("http://{}/600", host.addr());
    for (url, words) in [
        (local, "no host of the public internet"),
        (
            "https://example.org/600".to_owned(),
            "'example.org' is not permitted",
        ),
    ] {
        let body = with(request(files(&[url])), "stream", json!(true));
        let answer = app.post(PATH, &body).await;
        answer.assert_error(400, None);
        assert!(answer.text().contains(words), "{}", answer.text());
    }
}
