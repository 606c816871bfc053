//! Forwarded requests: which upstream they reach, and which of them are forwarded for whom.

use http::Method;
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::client::{Answer, Client};
use super::support::upstream::ScriptedUpstream;

const FORM: &str = "multipart/form-data; boundary=edge";
const KEY_A: &str = "alice-key-0123456789";
const KEY_B: &str = "bob-key-0123456789ab";

/// Two model servers, and what leads to each of them.
struct TwoServers {
    chat: ScriptedUpstream,
    vectors: ScriptedUpstream,
    app: TestApp,
}

impl TwoServers {
    async fn start() -> Self {
        let chat = ScriptedUpstream::start([]).await;
        let vectors = ScriptedUpstream::start([]).await;
        let toml = format!(
            "[[upstreams]]\nname = \"chat\"\nbase_url = \"{}\"\nmodels = [\"chat-*\"]\n\
             [[upstreams]]\nname = \"vectors\"\nbase_url = \"{}\"\nmodels = [\"bge-*\", \"small\", \"whisper\"]\n\
             model_map = {{ small = \"bge-small\", whisper = \"openai/whisper-large\" }}",
            chat.base_url(),
            vectors.base_url()
        );
        let app = TestApp::builder().toml(&toml).start().await;
        Self { chat, vectors, app }
    }

    async fn post(&self, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.app.client().request(Method::POST, path);
        Answer::of(request.header("content-type", kind).body(body)).await
    }

    /// How many requests each server has got.
    fn counts(&self) -> (usize, usize) {
        (self.chat.others().len(), self.vectors.others().len())
    }
}

/// A form with a file of this size, and a model before or after it.
fn form(model: &str, file_bytes: usize, model_first: bool) -> String {
    let model =
        format!("--edge\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n");
    let file = format!(
        "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n{}\r\n",
        "x".repeat(file_bytes)
    );
    match model_first {
        true => format!("{model}{file}--edge--\r\n"),
        false => format!("{file}{model}--edge--\r\n"),
    }
}

#[tokio::test]
async fn a_json_request_goes_where_its_model_lives() {
    let servers = TwoServers::start().await;
    let json = "application/json; charset=utf-8";
    // Byte for byte, in whatever form.
    let odd = "{ \"input\" : \"\\u00e4\",\r\n\"model\":\"bge-m3\" , \"x\":1.0e0 }";
    let answer = servers.post("/v1/embeddings?a=b", json, odd).await;
    assert_eq!(answer.text(), odd);
    assert_eq!(answer.header("x-echo-path"), Some("/v1/embeddings?a=b"));
    assert_eq!(servers.counts(), (0, 1));
    // Under the name that the server knows.
    let body = json!({"input": "x", "model": "small"});
    let answer = servers.post("/v1/embeddings", json, body.to_string()).await;
    assert_eq!(answer.json(), json!({"input": "x", "model": "bge-small"}));
    assert_eq!(servers.counts(), (0, 2));
    let body = json!({"prompt": "x", "model": "chat-7b"}).to_string();
    servers.post("/v1/completions", json, body).await;
    assert_eq!(servers.counts(), (1, 2));
    // Without a model, or with nothing that could be one: the first server.
    for body in [
        "{}",
        "[]",
        "{\"model\":null}",
        "{\"model\":1}",
        "not JSON",
        "\0",
    ] {
        let answer = servers.post("/v1/x", json, body).await;
        assert_eq!(answer.text(), body);
    }
    servers
        .post("/v1/x", "text/plain", "{\"model\":\"small\"}")
        .await;
    servers.app.get("/v1/batches/b_1").await;
    assert_eq!(servers.counts(), (9, 2));
}

#[tokio::test]
async fn a_form_goes_where_its_model_lives() {
    let servers = TwoServers::start().await;
    let path = "/v1/audio/transcriptions";
    for (file_bytes, model_first) in [(10, true), (10, false), (200_000, false), (3_000_000, true)]
    {
        let sent = form("whisper", file_bytes, model_first);
        let answer = servers.post(path, FORM, sent.clone()).await;
        let expected = sent.replace("\r\nwhisper\r\n", "\r\nopenai/whisper-large\r\n");
        assert!(answer.text() == expected, "{file_bytes} {model_first}");
        assert_eq!(answer.header("content-type"), Some(FORM));
        let seen = servers.vectors.others().pop().unwrap();
        // A length that was declared stays one, and is right.
        let length = expected.len().to_string();
        assert_eq!(seen.header("content-length"), Some(length.as_str()));
    }
    assert_eq!(servers.counts(), (0, 4));
    // In chunks of a client that declares no length.
    let sent = form("whisper", 600_000, true);
    let pieces: Vec<std::io::Result<String>> = sent
        .as_bytes()
        .chunks(70_000)
        .map(|piece| Ok(String::from_utf8_lossy(piece).into_owned()))
        .collect();
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
    let answer = servers.post(path, FORM, body).await;
    assert!(answer.text() == sent.replace("\r\nwhisper\r\n", "\r\nopenai/whisper-large\r\n"));
    assert_eq!(servers.counts(), (0, 5));
    // The model is not in the first 256 KiB: the first server.
    let late = form("whisper", 600_000, false);
    assert!(servers.post(path, FORM, late.clone()).await.text() == late);
    assert_eq!(servers.counts(), (1, 5));
}

#[tokio::test]
async fn a_model_that_no_upstream_serves_is_a_404_everywhere() {
    let servers = TwoServers::start().await;
    let body = json!({"input": "x", "model": "nobodys"}).to_string();
    for (path, kind, body) in [
        ("/v1/chat/completions", "application/json", body.clone()),
        ("/v1/embeddings", "application/json", body),
        ("/v1/audio/translations", FORM, form("nobodys", 10, true)),
    ] {
        let answer = servers.post(path, kind, body).await;
        let message = answer.assert_error(404, Some("model_not_found"));
        assert!(message.contains("'nobodys'"), "{message}");
        assert_eq!(answer.json()["error"]["param"], "model");
    }
    assert_eq!(servers.counts(), (0, 0));
}

#[tokio::test]
async fn a_model_is_deleted_at_the_upstream_that_has_it() {
    let servers = TwoServers::start().await;
    let answer = servers.app.client().delete("/v1/models/bge%2Dold").await;
    assert_eq!(answer.header("x-echo-method"), Some("DELETE"));
    assert_eq!(servers.counts(), (0, 1));
    let answer = servers.app.client().delete("/v1/models/nobodys").await;
    answer.assert_error(404, Some("model_not_found"));
}

/// Two servers for all models, the first of which is not there.
async fn first_is_away(second: &ScriptedUpstream) -> TestApp {
    // Bound and dropped: nothing listens there.
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = away.local_addr().unwrap();
    drop(away);
    let toml = format!(
        "[[upstreams]]\nname = \"away\"\nbase_url = \"http://{address}/v1\"\n\
         [[upstreams]]\nname = \"there\"\nbase_url = \"{}\"\nmodel_map = {{ m = \"real\" }}\n\
         [retry]\nmax_attempts = 2\nbase_delay = \"1ms\"",
        second.base_url()
    );
    TestApp::builder().toml(&toml).start().await
}

#[tokio::test]
async fn a_body_that_is_held_whole_fails_over() {
    let second = ScriptedUpstream::start([]).await;
    let app = first_is_away(&second).await;
    let post = async |kind: &str, body: String| {
        let request = app.client().request(Method::POST, "/v1/embeddings");
        Answer::of(request.header("content-type", kind).body(body)).await
    };
    let answer = post("application/json", r#"{"model":"m"}"#.to_owned()).await;
    assert_eq!(answer.json(), json!({"model": "real"}));
    let answer = post(FORM, form("m", 10, false)).await;
    assert_eq!(answer.text(), form("real", 10, false));
    assert_eq!(second.others().len(), 2);
    // What has begun to stream can be sent only once, and without a model there is one server.
    for (kind, body) in [
        (FORM, form("m", 600_000, true)),
        ("application/json", "{}".to_owned()),
    ] {
        let answer = post(kind, body).await;
        answer.assert_error(502, Some("upstream_unreachable"));
    }
    assert_eq!(second.others().len(), 2);
    let metrics = app.get("/metrics").await.text();
    let retried = "loopwright_upstream_retries_total{upstream=\"away\"} 4";
    assert!(metrics.contains(retried), "{metrics}");
}

#[tokio::test]
async fn a_json_body_to_forward_is_bounded() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder.toml("max_body_bytes = \"64KiB\"").start().await;
    let body = json!({"model": "m", "input": "x".repeat(70_000)});
    let answer = app.post("/v1/embeddings", &body).await;
    answer.assert_error(413, Some("request_too_large"));
    assert!(upstream.others().is_empty());
    // Other bodies are streamed, however long they are.
    let request = app
        .client()
        .request(Method::POST, "/v1/audio/transcriptions");
    let sent = form("m", 400_000, true);
    let answer = Answer::of(request.header("content-type", FORM).body(sent.clone())).await;
    assert!(answer.text() == sent);
}

/// A server with two keys, one of which has a list of its own, and these settings.
async fn with_keys(upstream: &ScriptedUpstream, lines: &str) -> (TestApp, Client, Client) {
    let toml = format!(
        "{lines}\n[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n\
         [[api_keys]]\nname = \"bob\"\nenv = \"BOB\"\nforward = [\"batches/*\", \"embeddings\"]"
    );
    let builder = TestApp::builder().upstream(upstream).toml(&toml);
    let app = builder.env("ALICE", KEY_A).env("BOB", KEY_B).start().await;
    let (alice, bob) = (app.client().key(KEY_A), app.client().key(KEY_B));
    (app, alice, bob)
}

/// Whether a request is forwarded; otherwise the message of the error.
async fn forwarded(client: &Client, method: Method, path: &str) -> Result<(), String> {
    let answer = client.send(method, path, &Value::Null).await;
    match answer.header("x-echo-path") {
        Some(_) => Ok(()),
        None => Err(answer.assert_error(404, Some("not_found"))),
    }
}

#[tokio::test]
async fn holders_of_keys_get_forwarded_what_the_list_allows() {
    let upstream = ScriptedUpstream::start([]).await;
    let (_app, alice, bob) = with_keys(&upstream, "").await;
    for path in [
        "embeddings",
        "%65mbeddings",
        "audio/speech",
        "images/edits",
        "messages/count_tokens",
    ] {
        let path = format!("/v1/{path}?x=1");
        forwarded(&alice, Method::POST, &path).await.unwrap();
    }
    let before = upstream.others().len();
    for (path, line) in [
        ("/v1/batches/b_1/cancel?x=1", "\"batches/**\","),
        ("/v1/batches", "\"batches\","),
        ("/v1/organization/api_keys", "\"organization/**\","),
        ("/v1/audio/x/y", "\"audio/**\","),
        ("/v1/models/ft%3Aabc", "\"models/**\","),
    ] {
        for method in [Method::POST, Method::DELETE] {
            let message = forwarded(&alice, method, path).await.unwrap_err();
            let bare = path.split('?').next().unwrap().replace("%3A", ":");
            assert!(message.contains(&format!("'{bare}'")), "{message}");
            assert!(
                message.contains(line) && message.contains("`forward`"),
                "{message}"
            );
        }
    }
    assert_eq!(
        upstream.others().len(),
        before,
        "nothing reached the server"
    );
    // A key's own list takes the place of the general one.
    for (path, expected) in [
        ("/v1/batches/b_1", true),
        ("/v1/embeddings", true),
        ("/v1/batches/b_1/cancel", false),
        ("/v1/audio/speech", false),
    ] {
        let answer = forwarded(&bob, Method::POST, path).await;
        assert_eq!(answer.is_ok(), expected, "{path}");
        assert!(
            expected
                || answer
                    .unwrap_err()
                    .contains("`forward` of the API key 'bob'")
        );
    }
}

#[tokio::test]
async fn two_stars_allow_all_and_without_keys_the_list_does_not_matter() {
    let upstream = ScriptedUpstream::start([]).await;
    let (_app, alice, _bob) = with_keys(&upstream, "forward = [\"**\"]").await;
    for path in ["/v1/organization/api_keys", "/v1/batches", "/v1/models/x/y"] {
        forwarded(&alice, Method::DELETE, path).await.unwrap();
    }
    let builder = TestApp::builder().upstream(&upstream);
    let app = builder.toml("forward = []").start().await;
    forwarded(app.client(), Method::POST, "/v1/batches")
        .await
        .unwrap();
}
