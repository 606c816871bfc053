//! Calls of declared servers about which a person decides: in chat, and with items in the Responses API.

use super::*;
use crate::responses::events;
use crate::support::client::Answer;
use crate::support::script::{Reply, calls, text};

const PATH: &str = "/v1/responses";

/// The entry of a server, with these words for approvals; `null` for none.
fn asking(far: &Far, required: Value) -> Value {
    let mut server = entry("far", &far.url());
    match required {
        Value::Null => drop(server.as_object_mut().unwrap().remove("require_approval")),
        required => server["require_approval"] = required,
    }
    server
}

fn but(names: &[&str]) -> Value {
    json!({"never": {"tool_names": names}})
}

struct Asked {
    far: Far,
    upstream: ScriptedUpstream,
    app: TestApp,
    server: Value,
}

impl Asked {
    async fn start<const N: usize>(script: [Reply; N], required: Value) -> Self {
        let far = Far::start().await;
        let upstream = ScriptedUpstream::start(script).await;
        let builder = TestApp::builder().upstream(&upstream);
        let builder = builder.toml(&format!("{LOCAL}{KEYS}"));
        let builder = builder.env("ALICE", ALICE).env("BOB", BOB);
        Self {
            server: asking(&far, required),
            app: builder.start().await,
            upstream,
            far,
        }
    }

    fn alice(&self) -> Client {
        self.app.client().key(ALICE)
    }

    fn body(&self, input: Value) -> Value {
        json!({"model": "test-model", "input": input, "tools": [self.server]})
    }

    fn following(&self, response: &Value, input: Value) -> Value {
        with(
            self.body(input),
            "previous_response_id",
            response["id"].clone(),
        )
    }

    async fn send(&self, body: Value) -> Answer {
        self.alice().post(PATH, &body).await
    }

    async fn create(&self, body: Value) -> Value {
        let answer = self.send(body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    async fn refused(&self, body: Value, status: u16, code: Option<&str>, param: &str) {
        let answer = self.send(body).await;
        let message = answer.assert_error(status, code);
        assert_eq!(answer.json()["error"]["param"], param, "{message}");
    }
}

fn remember() -> Reply {
    calls([("far__remember", json!({"fact": "a"}))])
}

fn types(response: &Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap().iter();
    items.map(|item| item["type"].as_str().unwrap()).collect()
}

/// The last item of a response, which asks.
fn question(response: &Value) -> &Value {
    assert_eq!(response["status"], "completed", "{response}");
    assert_eq!(
        response["agent"]["stop_reason"], "approval_required",
        "{response}"
    );
    let asked = response["output"].as_array().unwrap().last().unwrap();
    assert_eq!(asked["type"], "mcp_approval_request", "{response}");
    assert!(asked["id"].as_str().unwrap().starts_with("mcpr_"));
    asked
}

fn decision(asked: &Value, approve: bool) -> Value {
    json!({"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve})
}

#[tokio::test]
async fn a_request_says_which_calls_of_a_server_are_approved() {
    let far = Far::start().await;
    let (app, _upstream) = start(LOCAL).await;
    for (required, asks) in [
        (Value::Null, true),
        (json!("always"), true),
        (json!("never"), false),
        (but(&["echo"]), false),
        (but(&["team"]), true),
        (json!({"always": {"tool_names": ["echo"]}}), true),
        (json!({"always": {"tool_names": ["team"]}}), false),
        (
            json!({"always": {"tool_names": ["echo"]}, "never": {"tool_names": ["echo"]}}),
            true,
        ),
    ] {
        let servers = [asking(&far, required.clone())];
        let body = calling("far__echo", &json!({}), &servers);
        let before = far.count("tools/call");
        let answer = app.post_chat(body.clone()).await.completion();
        let reason = &answer["agent"]["stop_reason"];
        let expected = if asks {
            "approval_required"
        } else {
            "completed"
        };
        assert_eq!(reason, expected, "{required}");
        assert_eq!(far.count("tools/call") - before, usize::from(!asks));
        if asks {
            let asked = &answer["agent"]["approvals"][0];
            assert_eq!(asked["tool"], "far__echo");
            assert_eq!(asked["rule"]["level"], "request");
            let why = asked["reason"].as_str().unwrap();
            assert!(why.contains("'far'"), "{why}");
            // Nobody could decide later.
            let unstored = app.post_chat(with(body, "store", json!(false))).await;
            let calls = &unstored.completion()["agentic_tool_calls"];
            assert_eq!(calls[0]["status"], "denied", "{calls}");
        }
    }
    far.assert_clean();
}

#[tokio::test]
async fn chat_waits_for_a_decision_in_its_stream_and_without() {
    let far = Far::start().await;
    let (app, upstream) = start(LOCAL).await;
    let body = calling("far__echo", &json!({}), &[asking(&far, Value::Null)]);
    let body = with(body, "session_id", json!("s"));
    let answer = app.post_chat(body.clone()).await;
    let id = answer.completion()["agent"]["approvals"][0]["approval_id"].clone();
    assert!(answer.content().contains(id.as_str().unwrap()));
    let approve = async |id: &Value| {
        let path = format!("/v1/agent/approvals/{}", id.as_str().unwrap());
        let decided = app.post(&path, &json!({"decision": "approve"})).await;
        assert_eq!(decided.status, 200, "{}", decided.text());
    };
    approve(&id).await;
    let rest = app
        .post_chat(with(body.clone(), "messages", json!([])))
        .await;
    assert_eq!(rest.content(), "Done.");
    let last = upstream.last().messages();
    assert_eq!(last.last().unwrap()["content"], "echoed");

    let mut stream = app
        .stream_chat(with(body, "session_id", json!("other")))
        .await;
    let asked = loop {
        let chunk = stream.next_chunk().await;
        if chunk["type"] == "agentic_tool_approval_required" {
            break chunk;
        }
    };
    approve(&asked["approval_id"]).await;
    assert_eq!(stream.collect().await.text, "Done.");
    assert_eq!(far.count("tools/call"), 2);
}

#[tokio::test]
async fn a_response_asks_with_an_item_and_the_next_request_decides() {
    let both = calls([
        ("far__remember", json!({"fact": "a"})),
        ("far__echo", json!({"text": "hi"})),
    ]);
    let asked = Asked::start([both, text("Done.")], but(&["echo"])).await;
    let first = asked.create(asked.body(json!("Go"))).await;
    // What the batch holds besides has run.
    assert_eq!(
        types(&first),
        ["mcp_list_tools", "mcp_call", "mcp_approval_request"]
    );
    assert_eq!(first["output"][1]["output"], "hi");
    let item = question(&first);
    assert_eq!(
        (&item["server_label"], &item["name"]),
        (&json!("far"), &json!("remember"))
    );
    assert_eq!(item["arguments"], r#"{"fact":"a"}"#);
    assert_eq!(asked.far.count("tools/call"), 1);
    let id = first["id"].as_str().unwrap();
    let stored = asked.alice().get(&format!("{PATH}/{id}")).await.json();
    assert_eq!(stored["output"], first["output"]);

    let input = json!([decision(item, true)]);
    let body = asked.following(&first, input);
    let second = asked.create(body.clone()).await;
    assert_eq!(types(&second), ["mcp_list_tools", "mcp_call", "message"]);
    let call = &second["output"][1];
    assert_eq!(
        (&call["name"], &call["status"]),
        (&json!("remember"), &json!("completed"))
    );
    assert_eq!(call["output"], "session-1: a");
    assert_eq!(second["output"][2]["content"][0]["text"], "Done.");
    let sent = asked.upstream.last().messages();
    let contents: Vec<&str> = sent
        .iter()
        .map(|one| one["content"].as_str().unwrap_or("-"))
        .collect();
    assert_eq!(contents, ["Go", "", "session-1: a", "hi"]);
    assert_eq!(asked.far.count("tools/call"), 2);
    let param = "input[0].approval_request_id";
    asked
        .refused(body, 409, Some("approval_decided"), param)
        .await;
    asked.far.assert_clean();
    asked.upstream.assert_clean();
}

#[tokio::test]
async fn a_streamed_response_ends_with_the_question() {
    let asked = Asked::start([remember(), text("Done.")], Value::Null).await;
    let streamed = with(asked.body(json!("Go")), "stream", json!(true));
    let first = events(&asked.send(streamed).await);
    let of_item = |kind: &str| {
        let item = |event: &&Value| {
            event["type"] == kind && event["item"]["type"] == "mcp_approval_request"
        };
        first.iter().filter(item).count()
    };
    assert_eq!(of_item("response.output_item.added"), 1);
    assert_eq!(of_item("response.output_item.done"), 1);
    let last = &first.last().unwrap()["response"];
    assert_eq!(types(last), ["mcp_list_tools", "mcp_approval_request"]);
    let input = json!([decision(question(last), true)]);
    let streamed = with(asked.following(last, input), "stream", json!(true));
    let second = events(&asked.send(streamed).await);
    let end = &second.last().unwrap()["response"];
    assert_eq!(types(end), ["mcp_list_tools", "mcp_call", "message"]);
    // The call is shown while it runs.
    let kinds: Vec<&str> = second
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert!(
        kinds.contains(&"response.mcp_call.in_progress"),
        "{kinds:?}"
    );
}

#[tokio::test]
async fn the_model_hears_why_a_call_is_denied() {
    let script = [remember(), text("A pity."), text("Hello.")];
    let asked = Asked::start(script, json!("always")).await;
    let first = asked.create(asked.body(json!("Go"))).await;
    let denial = with(
        decision(question(&first), false),
        "reason",
        json!("too soon"),
    );
    let input = json!([denial, {"role": "user", "content": "And now?"}]);
    let second = asked.create(asked.following(&first, input)).await;
    let call = &second["output"][1];
    assert_eq!(
        (&call["type"], &call["status"]),
        (&json!("mcp_call"), &json!("failed"))
    );
    assert_eq!(asked.far.count("tools/call"), 0);
    let sent = asked.upstream.last().messages();
    let contents: Vec<&str> = sent
        .iter()
        .map(|one| one["content"].as_str().unwrap_or("-"))
        .collect();
    assert!(contents[2].contains("too soon"), "{contents:?}");
    assert_eq!(contents[3], "And now?");
    let third = asked.following(&second, json!("Hello"));
    assert_eq!(
        types(&asked.create(third).await),
        ["mcp_list_tools", "message"]
    );
}

#[tokio::test]
async fn decisions_that_cannot_be_made_name_their_field() {
    let asked = Asked::start([remember(), text("Done.")], Value::Null).await;
    let first = asked.create(asked.body(json!("Go"))).await;
    let item = question(&first).clone();
    let param = "input[0].approval_request_id";
    for id in ["mcpr_1", "apr_1", &format!("mcpr_{:048x}", 7)] {
        let input = json!([decision(&json!({"id": id}), true)]);
        let body = asked.following(&first, input.clone());
        asked.refused(body, 400, None, param).await;
        asked.refused(asked.body(input), 400, None, param).await;
    }
    let good = json!([decision(&item, true)]);
    let theirs = asked.app.client().key(BOB);
    let answer = theirs.post(PATH, &asked.body(good.clone())).await;
    answer.assert_error(400, None);
    assert_eq!(answer.json()["error"]["param"], param);
    let body = with(asked.following(&first, good.clone()), "store", json!(false));
    asked.refused(body, 400, None, param).await;
    for (member, value) in [
        ("approve", Value::Null),
        ("approve", json!("yes")),
        ("approval_request_id", Value::Null),
        ("reason", json!(3)),
    ] {
        let input = json!([with(decision(&item, true), member, value)]);
        let param = format!("input[0].{member}");
        asked
            .refused(asked.following(&first, input), 400, None, &param)
            .await;
    }
    // Somebody else denies it meanwhile.
    let list = asked.alice().get("/v1/agent/approvals").await.json();
    let id = list["data"][0]["approval_id"].as_str().unwrap();
    let path = format!("/v1/agent/approvals/{id}");
    let denied = asked
        .alice()
        .post(&path, &json!({"decision": "deny"}))
        .await;
    assert_eq!(denied.status, 200, "{}", denied.text());
    let body = asked.following(&first, good);
    asked
        .refused(body, 409, Some("approval_decided"), param)
        .await;
    let agreed = asked.following(&first, json!([decision(&item, false)]));
    assert_eq!(
        types(&asked.create(agreed).await),
        ["mcp_list_tools", "mcp_call", "message"]
    );
    assert_eq!(asked.far.count("tools/call"), 0);
}

#[tokio::test]
async fn clients_decide_in_every_way_of_going_on() {
    let user = json!({"role": "user", "content": "Go"});
    for way in ["whole", "reference", "alone", "conversation"] {
        let script = [remember(), text("Done."), text("Hello.")];
        let asked = Asked::start(script, Value::Null).await;
        let made = asked
            .alice()
            .post("/v1/conversations", &json!({}))
            .await
            .json();
        let in_way = |body: Value| match way {
            "conversation" => with(body, "conversation", made["id"].clone()),
            _ => body,
        };
        let first = asked.create(in_way(asked.body(json!([user])))).await;
        let item = question(&first);
        let approval = decision(item, true);
        let mut whole = vec![user.clone()];
        whole.extend(first["output"].as_array().unwrap().iter().cloned());
        whole.push(approval.clone());
        let reference = json!({"type": "item_reference", "id": item["id"]});
        let input = match way {
            "whole" => json!(whole),
            "reference" => json!([user, reference, approval]),
            _ => json!([approval]),
        };
        let second = asked.create(in_way(asked.body(input))).await;
        assert_eq!(
            types(&second),
            ["mcp_list_tools", "mcp_call", "message"],
            "{way}"
        );
        assert_eq!(asked.far.count("tools/call"), 1, "{way}");
        if way == "whole" {
            // What was decided is history.
            whole.extend(second["output"].as_array().unwrap().iter().cloned());
            whole.push(json!({"role": "user", "content": "Hello"}));
            let third = asked.create(asked.body(json!(whole))).await;
            assert_eq!(types(&third), ["mcp_list_tools", "message"]);
            assert_eq!(asked.upstream.last().messages().len(), 5);
        }
    }
}
