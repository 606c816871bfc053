//! What loopwright finds out about its model servers, says about them in its log and to probes, and does with it.

mod connect;
mod refusals;

use serde_json::{Value, json};

use super::support::app::{Builder, TestApp};
use super::support::ask::{ask, ask_with, user, with};
use super::support::eventually;
use super::support::script::{error, raw_sse, text};
use super::support::server::{HttpReply, Part};
use super::support::unreachable_url;
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

const KEY: &str = "sk-model-server-0123456789";
const API_KEYS: &str = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n";
const ALICE: &str = "alice-key-0123456789";

/// A list with this entry.
fn list(entry: &Value) -> HttpReply {
    json_reply(200, &json!({"object": "list", "data": [entry]}))
}

fn json_reply(status: u16, body: &Value) -> HttpReply {
    HttpReply::whole(status, "application/json", body.to_string())
}

fn refused(status: u16) -> HttpReply {
    json_reply(status, &json!({"error": {"message": "no"}}))
}

/// Waits for a line of the log that has all these parts.
async fn logged(app: &TestApp, parts: &[&str]) -> String {
    eventually(&format!("a line with {parts:?}"), async || {
        let logs = app.logs();
        let mut lines = logs.lines();
        let line = lines.find(|line| parts.iter().all(|part| line.contains(part)))?;
        Some(line.to_owned())
    })
    .await
}

fn ready_state(ready: &Value) -> Value {
    ready["upstreams"]["default"].clone()
}

/// A request with the role `developer`, for which the loop runs.
fn with_developer() -> Value {
    let messages = json!([{"role": "developer", "content": "Be brief."}, user("Go")]);
    with(ask_with("Go", ["t"]), "messages", messages)
}

async fn role_sent(app: &TestApp, upstream: &ScriptedUpstream) -> Value {
    app.post_chat(with_developer()).await.completion();
    upstream.last().messages()[0]["role"].clone()
}

#[tokio::test]
async fn the_kind_of_a_server_is_found_and_what_is_set_wins() {
    let of = |owner: &str| list(&json!({"id": "m", "object": "model", "owned_by": owner}));
    let mut llama_cpp = of("corp");
    llama_cpp
        .headers
        .push(("server".into(), "llama.cpp".into()));
    let transformers = json!({"id": "org/m", "created": 1.5, "owned_by": ["org", "m"]});
    for (listing, args, kind, role) in [
        (of("vllm"), vec![], json!("vllm"), "system"),
        (
            of("library"),
            vec!["--upstream-kind=auto"],
            json!("ollama"),
            "system",
        ),
        (llama_cpp, vec![], json!("llama.cpp"), "system"),
        (list(&transformers), vec![], json!("transformers"), "system"),
        (of("corp"), vec![], Value::Null, "developer"),
        (
            of("vllm"),
            vec!["--upstream-kind=groq"],
            json!("groq"),
            "developer",
        ),
    ] {
        let what = format!("{listing:?}, {args:?}");
        let upstream = ScriptedUpstream::answering(|_| text("Done.")).await;
        let upstream = upstream.listing([listing]);
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let mut builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        for arg in args {
            builder = builder.args([arg]);
        }
        let app = builder.start().await;
        let shown = kind.as_str().unwrap_or("of a kind that is not recognised");
        let line = format!("{shown}, 1 model (");
        logged(
            &app,
            &["INFO", "model server default (http://127.0.0.1:", &line],
        )
        .await;
        assert_eq!(role_sent(&app, &upstream).await, role, "{what}");
        let state = ready_state(&app.get("/readyz").await.json());
        assert_eq!(
            (&state["kind"], &state["state"]),
            (&kind, &json!("ok")),
            "{what}"
        );
    }
}

#[tokio::test]
async fn a_quirk_that_is_set_wins_over_that_of_a_kind_that_was_found() {
    let vllm = || list(&json!({"id": "m", "owned_by": "vllm"}));
    for (lines, role) in [
        ("", "system"),
        ("quirks = { developer_role = true }", "developer"),
        (
            "kind = \"auto\"\nquirks = { developer_role = true }",
            "developer",
        ),
        // Another quirk leaves the kind its own.
        ("quirks = { images = true }", "system"),
    ] {
        let upstream = ScriptedUpstream::answering(|_| text("Done.")).await;
        let upstream = upstream.listing([vllm()]);
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let url = upstream.base_url();
        let toml = format!("[[upstreams]]\nname = \"u\"\nbase_url = \"{url}\"\n{lines}");
        let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
        logged(&app, &["model server u (", "vllm, 1 model (m)"]).await;
        assert_eq!(role_sent(&app, &upstream).await, role, "{lines}");
    }
}

#[tokio::test]
async fn what_several_servers_take_is_found_anew_when_the_kind_of_one_is_known() {
    let named = |upstream: &ScriptedUpstream, name: &str| {
        let url = upstream.base_url();
        format!("[[upstreams]]\nname = \"{name}\"\nbase_url = \"{url}\"\n")
    };
    let first = ScriptedUpstream::answering(|_| text("Done.")).await;
    let second = ScriptedUpstream::answering(|_| text("Done.")).await;
    let second = second.listing([list(&json!({"id": "m", "owned_by": "sglang"}))]);
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let toml = named(&first, "a") + &named(&second, "b");
    let app = TestApp::builder().dispatch(&hook).toml(&toml).start().await;
    logged(&app, &["model server b (", "sglang, 1 model (m)"]).await;
    // The first server would take the role, and the second does not.
    assert_eq!(role_sent(&app, &first).await, "system");
}

#[tokio::test]
async fn what_a_server_attached_goes_to_another_one_of_a_kind_that_was_found() {
    for (kind, knows) in [("sglang", true), ("llamacpp", false)] {
        let delta = json!({"role": "assistant", "content": "Hi.", "x_state": ["s"]});
        let chunk = |choice: Value| {
            let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
            format!("data: {chunk}\n\n")
        };
        let stream = raw_sse([
            chunk(json!({"index": 0, "delta": delta, "finish_reason": null})),
            chunk(json!({"index": 0, "delta": {}, "finish_reason": "stop"})),
            "data: [DONE]\n\n".to_owned(),
        ]);
        let first = ScriptedUpstream::start([stream, error(500, "gone")]).await;
        let second = ScriptedUpstream::start([text("Done.")]).await;
        let of = |owner: &str| list(&json!({"id": "m", "owned_by": owner}));
        let (first, second) = (first.listing([of("sglang")]), second.listing([of(kind)]));
        let entry = |upstream: &ScriptedUpstream, name: &str| {
            let url = upstream.base_url();
            format!("[[upstreams]]\nname = \"{name}\"\nbase_url = \"{url}\"\n")
        };
        let retry = "[retry]\nmax_attempts = 1\n";
        let toml = entry(&first, "a") + &entry(&second, "b") + retry;
        let app = TestApp::builder().toml(&toml).start().await;
        logged(&app, &["model server a (", "1 model (m)"]).await;
        logged(&app, &["model server b (", "1 model (m)"]).await;
        for asked in ["Hello", "Go on"] {
            let body = with(ask(asked), "session_id", json!("s"));
            app.post_chat(body).await.completion();
        }
        let sent = &second.last().messages()[1];
        assert_eq!(sent.get("x_state").is_some(), knows, "{kind}: {sent}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_asked_again_and_recognised() {
    let vllm = list(&json!({"id": "m", "owned_by": "vllm"}));
    let upstream = ScriptedUpstream::answering(|_| text("Done.")).await;
    let reset = HttpReply {
        before_head: vec![Part::Reset],
        ..HttpReply::default()
    };
    let upstream = upstream.listing([refused(503), refused(503), reset, refused(503), vllm]);
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    logged(&app, &["INFO", "vllm, 1 model (m)"]).await;
    let logs = app.logs();
    // Once for each change.
    let loading = "it answers with status 503; it may still be loading";
    assert_eq!(logs.matches(loading).count(), 2, "{logs}");
    assert_eq!(logs.matches("it cannot be reached (").count(), 1, "{logs}");
    assert_eq!(role_sent(&app, &upstream).await, "system");
}

#[tokio::test]
async fn a_server_without_models_is_recognised_when_it_has_one() {
    let none = json_reply(200, &json!({"object": "list", "data": null}));
    let one = list(&json!({"id": "qwen3:8b", "owned_by": "library"}));
    let upstream = ScriptedUpstream::answering(|_| text("Done.")).await;
    let upstream = upstream.listing([none.clone(), none, one]);
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    logged(&app, &["INFO", "ollama, 1 model (qwen3:8b)"]).await;
    assert_eq!(role_sent(&app, &upstream).await, "system");
}

#[tokio::test]
async fn the_list_that_a_client_asks_for_tells_the_kind_as_well() {
    let vllm = list(&json!({"id": "m", "owned_by": "vllm"}));
    let upstream = ScriptedUpstream::answering(|_| text("Done.")).await;
    // Only clients have its key.
    let upstream = upstream.listing([refused(401), vllm]);
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    logged(&app, &["INFO", "asks for a key"]).await;
    assert_eq!(role_sent(&app, &upstream).await, "developer");
    let client = app.client().key("sk-of-the-client");
    assert_eq!(client.get("/v1/models").await.status, 200);
    assert_eq!(role_sent(&app, &upstream).await, "system");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_reported_once() {
    let url = unreachable_url().await;
    let app = TestApp::builder().upstream_url(&url).start().await;
    let parts = ["WARN", &url, "refused", "start it, or correct --upstream"];
    logged(&app, &parts).await;
    let ready = app.get("/readyz").await;
    assert_eq!(ready.status, 503);
    let state = json!({"state": "unreachable", "url": url});
    assert_eq!(ready_state(&ready.json()), state);
    assert_eq!(app.logs().matches("it cannot be reached").count(), 1);
}

#[tokio::test]
async fn neither_the_start_nor_a_request_waits_for_the_look() {
    let hang = HttpReply {
        before_head: vec![Part::Hang],
        ..HttpReply::default()
    };
    let upstream = ScriptedUpstream::answering(|_| text("Done.")).await;
    let upstream = upstream.listing([hang]);
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    assert_eq!(role_sent(&app, &upstream).await, "developer");
    assert!(!app.logs().contains("model server default"));
    let parts = ["WARN", "it cannot be reached (no answer within 5 s)"];
    logged(&app, &parts).await;
}

/// A server with `--upstream`, a key of the model server if there is one, and API keys if there are to be some.
fn keyed(upstream: &ScriptedUpstream, has_key: bool, has_api_keys: bool) -> Builder {
    let mut builder = TestApp::builder().upstream(upstream);
    if has_key {
        let args = ["--upstream-api-key-env", "MODEL_KEY"];
        builder = builder.env("MODEL_KEY", KEY).args(args);
    }
    match has_api_keys {
        true => builder.env("ALICE", ALICE).toml(API_KEYS),
        false => builder,
    }
}

#[tokio::test]
async fn the_log_says_what_is_wrong_and_which_setting_to_change() {
    let (own, api) = (true, true);
    let html = HttpReply::whole(200, "text/html", "<html>A front end</html>");
    let no_list = "its answer to GET /models is no list of models";
    for (answer, has_key, has_api_keys, ready, state, parts) in [
        (
            refused(401),
            !own,
            !api,
            200,
            "asks_for_key",
            [
                "INFO",
                "asks for a key",
                "the keys of clients are passed on",
            ],
        ),
        (
            refused(403),
            !own,
            !api,
            200,
            "asks_for_key",
            [
                "INFO",
                "asks for a key",
                "the keys of clients are passed on",
            ],
        ),
        (
            refused(401),
            !own,
            api,
            200,
            "asks_for_key",
            ["WARN", "asks for a key", "set --upstream-api-key-env"],
        ),
        (
            refused(401),
            own,
            !api,
            200,
            "refused_key",
            [
                "WARN",
                "refuses the key",
                "the key in MODEL_KEY is not accepted",
            ],
        ),
        (
            refused(403),
            own,
            api,
            200,
            "refused_key",
            [
                "WARN",
                "refuses the key",
                "the key in MODEL_KEY is not accepted",
            ],
        ),
        (
            refused(404),
            !own,
            !api,
            200,
            "no_models_endpoint",
            ["WARN", "does not list its models", "lacks /v1"],
        ),
        (
            refused(405),
            own,
            !api,
            200,
            "no_models_endpoint",
            ["WARN", "does not list its models", "lacks /v1"],
        ),
        (
            refused(429),
            !own,
            !api,
            200,
            "refused",
            ["WARN", "it answers with status 429", "--upstream"],
        ),
        (
            refused(500),
            !own,
            !api,
            503,
            "server_error",
            ["WARN", "it answers with status 500", "it is asked again"],
        ),
        (
            html,
            !own,
            !api,
            503,
            "no_model_list",
            ["WARN", no_list, "--upstream"],
        ),
        (
            json_reply(200, &json!({"models": []})),
            !own,
            !api,
            503,
            "no_model_list",
            ["WARN", no_list, "--upstream"],
        ),
        (
            HttpReply::whole(200, "application/json", ""),
            !own,
            !api,
            503,
            "no_model_list",
            ["WARN", no_list, "--upstream"],
        ),
        (
            json_reply(200, &json!({"object": "list", "data": null})),
            !own,
            !api,
            200,
            "ok",
            ["INFO", "no models", "model server default"],
        ),
    ] {
        let what = format!("{answer:?}, {has_key}, {has_api_keys}");
        let upstream = ScriptedUpstream::start([]).await.listing([answer]);
        let app = keyed(&upstream, has_key, has_api_keys).start().await;
        logged(&app, &parts).await;
        assert!(!app.logs().contains(KEY), "{what}");
        let found = app.client().key(ALICE).get("/readyz").await;
        assert_eq!(found.status, ready, "{what}");
        assert_eq!(ready_state(&found.json())["state"], state, "{what}");
        // Others are told as much as before.
        if has_api_keys {
            assert_eq!(app.get("/readyz").await.json(), json!({"status": "ok"}));
        }
        // Probes say nothing that was said already.
        let heading = "model server default (";
        assert_eq!(app.logs().matches(heading).count(), 1, "{}", app.logs());
    }
}

#[tokio::test]
async fn names_in_the_log_are_bounded_and_plain() {
    let long = "x".repeat(500);
    let ids = [
        "a\n2026 ERROR forged",
        "\u{1b}[31mred",
        &long,
        "d",
        "e",
        "f",
        "g",
    ];
    let entries: Vec<Value> = ids.iter().map(|id| json!({"id": id})).collect();
    let answer = json_reply(200, &json!({"object": "list", "data": entries}));
    let upstream = ScriptedUpstream::start([]).await.listing([answer]);
    let app = TestApp::with_upstream(&upstream).await;
    let line = logged(
        &app,
        &[
            "model server default (",
            "7 models (a?2026 ERROR forged, ?[31mred, xxx",
        ],
    )
    .await;
    assert!(line.ends_with(", d, e, …)"), "{line}");
    assert!(line.len() < 400, "{line}");
}

#[tokio::test]
async fn a_list_without_an_end_is_not_read_for_ever() {
    let endless = HttpReply {
        status: 200,
        headers: vec![("content-type".into(), "application/json".into())],
        body: vec![
            Part::Bytes("{\"data\":[".into()),
            Part::Bytes(" ".repeat(5 << 20).into()),
            Part::Hang,
        ],
        ..HttpReply::default()
    };
    let upstream = ScriptedUpstream::start([]).await.listing([endless]);
    let app = TestApp::with_upstream(&upstream).await;
    logged(&app, &["WARN", "no list of models"]).await;
}

#[tokio::test]
async fn check_config_shows_kinds_and_refuses_unknown_ones() {
    let run = async |args: [&str; 1]| {
        let upstream = "http://127.0.0.1:1/v1";
        let builder = TestApp::builder().upstream_url(upstream).args(["--all"]);
        builder.args(args).run("check-config").await
    };
    let auto = run(["--upstream-kind=auto"]).await;
    assert!(auto.stdout.contains("kind = \"auto\""), "{}", auto.stdout);
    let set = run(["--upstream-kind=transformers"]).await;
    for line in [
        "kind = \"transformers\"",
        "final_call = \"remove_tools\"",
        "stream_options = false",
    ] {
        assert!(set.stdout.contains(line), "{line}: {}", set.stdout);
    }
    let wrong = run(["--upstream-kind=vLLM"]).await;
    assert_eq!(wrong.code, Some(2));
    for part in ["--upstream-kind", "`vLLM`", "`vllm`", "or `auto`"] {
        assert!(wrong.stderr.contains(part), "{part}: {}", wrong.stderr);
    }
    let builder = TestApp::builder().env("LOOPWRIGHT_UPSTREAM_KIND", "ollama");
    let of_variable = builder
        .upstream_url("http://127.0.0.1:1/v1")
        .args(["--all"])
        .run("check-config")
        .await;
    assert!(of_variable.stdout.contains("kind = \"ollama\""));
    let alone = TestApp::builder().args(["--upstream-kind=vllm"]);
    let alone = alone.run("check-config").await;
    assert!(
        alone.stderr.contains("give --upstream as well"),
        "{}",
        alone.stderr
    );
}

#[tokio::test]
async fn a_server_stops_while_it_looks() {
    let url = unreachable_url().await;
    let mut app = TestApp::builder().upstream_url(&url).start().await;
    logged(&app, &["WARN", "it cannot be reached"]).await;
    app.terminate().await;
    assert!(app.wait_exit().await.success());
    assert!(!app.logs().contains("background tasks did not end"));
}
