//! Sessions as conversations.

use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{calls, text};
use super::super::support::upstream::ScriptedUpstream;
use super::super::support::webhook::{self, Webhook};
use super::{create, function, text_of, with};

const PATH: &str = "/v1/conversations";

/// All items of a conversation in order.
async fn items_in(app: &TestApp, id: &str) -> Vec<Value> {
    let path = format!("{PATH}/{id}/items?order=asc&limit=100");
    app.get(&path).await.json()["data"]
        .as_array()
        .unwrap()
        .clone()
}

/// Deletes an item. The others stay as they are.
async fn delete_item(app: &TestApp, id: &str, item: &Value) {
    let mut left = items_in(app, id).await;
    let before = left.len();
    left.retain(|one| one["id"] != item["id"]);
    assert_eq!(left.len() + 1, before, "{item} among {left:?}");
    let path = format!("{PATH}/{id}/items/{}", item["id"].as_str().unwrap());
    let answer = app.client().delete(&path).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["object"], "conversation");
    assert_eq!(items_in(app, id).await, left);
    app.get(&path).await.assert_error(404, Some("not_found"));
    let answer = app.client().delete(&path).await;
    answer.assert_error(404, Some("not_found"));
}

fn kinds(page: &Value) -> Vec<String> {
    let items = page["data"].as_array().unwrap().iter();
    items
        .map(|item| item["type"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_conversation_is_a_session_in_items() {
    let upstream =
        ScriptedUpstream::start([calls([("t", json!({}))]), text("Done."), text("Yes.")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let items =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]);
    let made = app.post(PATH, &json!({"items": items})).await.json();
    let id = made["id"].as_str().unwrap();
    assert!(
        id.starts_with("conv_") && made["object"] == "conversation",
        "{made}"
    );
    assert_eq!(app.get(&format!("{PATH}/{id}")).await.json(), made);
    let body =
        json!({"model": "test-model", "input": "Go", "conversation": id, "tools": [function("t")]});
    let response = create(&app, body.clone()).await;
    assert_eq!(
        (&response["conversation"]["id"], &response["session_id"]),
        (&made["id"], &made["id"])
    );
    assert_eq!(upstream.request(0).roles(), ["system", "user", "user"]);
    let page = app
        .get(&format!("{PATH}/{id}/items?order=asc"))
        .await
        .json();
    assert_eq!(
        kinds(&page),
        ["message", "message", "message", "mcp_call", "message"]
    );
    assert_eq!(page["data"][0]["role"], "system");
    assert_eq!(page["data"][3], response["output"][0]);
    let one = format!(
        "{PATH}/{id}/items/{}",
        page["data"][0]["id"].as_str().unwrap()
    );
    assert_eq!(app.get(&one).await.json(), page["data"][0]);
    let added = json!({"items": [{"role": "user", "content": "Sure?"}]});
    let added = app.post(&format!("{PATH}/{id}/items"), &added).await.json();
    assert_eq!(text_of(&added["data"][0]), "Sure?");
    let response = create(&app, with(body, "input", json!("Really?"))).await;
    assert_eq!(text_of(&response["output"][0]), "Yes.");
    let said = upstream.last().messages();
    assert_eq!(said[said.len() - 2]["content"], "Sure?");
    let deleted = app.client().delete(&format!("{PATH}/{id}")).await;
    assert_eq!(deleted.json()["object"], "conversation.deleted");
    app.get(&format!("{PATH}/{id}"))
        .await
        .assert_error(404, Some("not_found"));
    app.get(&format!("{PATH}/{id}/items"))
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn the_session_of_a_chat_is_a_conversation() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let chat = super::super::support::ask::ask_with("Go", ["t"]);
    app.post_chat(with(chat, "session_id", json!("s")))
        .await
        .completion();
    let page = app.get(&format!("{PATH}/s/items?order=asc")).await.json();
    assert_eq!(kinds(&page), ["message", "mcp_call", "message"]);
    assert_eq!(page["data"][1]["output"], "r");
}

#[tokio::test]
async fn what_is_not_available_is_refused() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let answer = app
        .post(PATH, &json!({"items": [{"type": "computer_call"}]}))
        .await;
    assert_eq!(answer.json()["error"]["param"], "items[0]");
    let made = app.post(PATH, &json!({})).await.json();
    let items = format!("{PATH}/{}/items", made["id"].as_str().unwrap());
    app.post(&items, &json!({"items": []}))
        .await
        .assert_error(400, None);
    assert_eq!(app.get(&items).await.json()["data"], json!([]));
    let answer = app.client().delete(&format!("{items}/msg_1")).await;
    answer.assert_error(404, Some("not_found"));
    let answer = app
        .client()
        .delete(&format!("{PATH}/conv_1/items/msg_1"))
        .await;
    answer.assert_error(404, Some("not_found"));
    app.post("/v1/responses/compact", &json!({}))
        .await
        .assert_error(404, Some("not_found"));
    app.get("/v1/containers/cntr_1")
        .await
        .assert_error(404, Some("not_found"));
    app.get("/v1/containers/cntr_1/files")
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_conversation_keeps_its_metadata() {
    let upstream = ScriptedUpstream::start([text("Done.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body =
        json!({"metadata": {"topic": "tickets"}, "items": [{"role": "user", "content": "Hi"}]});
    let made = app.post(PATH, &body).await.json();
    assert_eq!(made["metadata"], json!({"topic": "tickets"}));
    let path = format!("{PATH}/{}", made["id"].as_str().unwrap());
    create(
        &app,
        json!({"model": "test-model", "input": "Go", "conversation": made["id"]}),
    )
    .await;
    assert_eq!(app.get(&path).await.json(), made);
    let items = app.get(&format!("{path}/items")).await.json();
    // A rewrite of the session keeps them too.
    let long: Vec<Value> = (0..3000)
        .map(|number| json!({"role": "user", "content": format!("{number}")}))
        .collect();
    app.post(&format!("{path}/items"), &json!({"items": long}))
        .await
        .json();
    assert_eq!(app.get(&path).await.json()["metadata"], made["metadata"]);
    let update = json!({"metadata": {"k".repeat(64): "v".repeat(512)}});
    let updated = app.post(&path, &update).await.json();
    assert_eq!(updated["metadata"], update["metadata"]);
    assert_eq!(app.get(&path).await.json(), updated);
    let kept = app
        .get(&format!("{path}/items?order=asc&limit=3"))
        .await
        .json();
    assert_eq!(kept["data"][2]["id"], items["data"][0]["id"]);
    let many: serde_json::Map<String, Value> = (0..17)
        .map(|number| (number.to_string(), json!("x")))
        .collect();
    for wrong in [
        json!({"k".repeat(65): "v"}),
        json!({"k": "v".repeat(513)}),
        json!({"k": 1}),
        json!(1),
        Value::Object(many),
    ] {
        for path in [PATH, &path] {
            let answer = app.post(path, &json!({"metadata": wrong})).await;
            answer.assert_error(400, None);
            assert_eq!(answer.json()["error"]["param"], "metadata", "{path}");
        }
    }
    app.post(&path, &json!({})).await.assert_error(400, None);
    let cleared = app.post(&path, &json!({"metadata": {}})).await.json();
    assert_eq!(cleared["metadata"], json!({}));
    app.post(&format!("{PATH}/conv_1"), &json!({"metadata": {}}))
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn the_metadata_of_a_conversation_go_with_forks_and_exports() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    // A fork of a few messages copies them; one of many shares them.
    for count in [1, 3000] {
        let items: Vec<Value> = (0..count)
            .map(|number| json!({"role": "user", "content": format!("{number}")}))
            .collect();
        let body = json!({"metadata": {"topic": "tickets"}, "items": items});
        let made = app.post(PATH, &body).await.json();
        let id = made["id"].as_str().unwrap();
        let fork = app
            .post(&format!("/v1/sessions/{id}/fork"), &json!({}))
            .await;
        let fork = fork.json()["id"].as_str().unwrap().to_owned();
        for id in [id, &fork] {
            let read = app.get(&format!("{PATH}/{id}")).await.json();
            assert_eq!(read["metadata"], made["metadata"], "{count}");
        }
        let exported = app.get(&format!("/v1/sessions/{id}")).await.json();
        assert_eq!(exported["metadata"], made["metadata"]);
        let put = app
            .client()
            .send(http::Method::PUT, "/v1/sessions/copy", &exported)
            .await;
        assert!(put.status.is_success(), "{}", put.text());
        let copy = app.get(&format!("{PATH}/copy")).await.json();
        assert_eq!(copy["metadata"], made["metadata"]);
    }
    let wrong = json!({"messages": [{"role": "user", "content": "a"}], "metadata": {"a": 1}});
    let refused = app
        .client()
        .send(http::Method::PUT, "/v1/sessions/wrong", &wrong)
        .await;
    refused.assert_error(400, None);
    assert_eq!(refused.json()["error"]["param"], "metadata");
}

#[tokio::test]
async fn metadata_count_with_the_bytes_of_a_session() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("session_max_bytes = \"4KiB\"")
        .start()
        .await;
    let texts = |count: usize| -> Value {
        let entry = |number: usize| (number.to_string(), json!("v".repeat(512)));
        Value::Object((0..count).map(entry).collect())
    };
    let made = app.post(PATH, &json!({"metadata": texts(4)})).await.json();
    let path = format!("{PATH}/{}", made["id"].as_str().unwrap());
    let large = app.post(&path, &json!({"metadata": texts(16)})).await;
    assert_eq!(large.status, 413, "{}", large.text());
    assert_eq!(app.get(&path).await.json(), made);
    // What is replaced does not count any more.
    for _ in 0..3 {
        let replaced = app.post(&path, &json!({"metadata": texts(6)})).await;
        assert_eq!(replaced.json()["metadata"], texts(6));
    }
}

#[tokio::test]
async fn a_deleted_item_is_not_sent_to_the_model_and_the_others_keep_their_ids() {
    let upstream = ScriptedUpstream::start([text("Yes."), text("No.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let message = |role: &str, text: &str| json!({"role": role, "content": text});
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": format!("r{id}")});
    let begin = [message("system", "A"), message("user", "a")];
    let made = app.post(PATH, &json!({"items": begin})).await.json();
    let id = made["id"].as_str().unwrap();
    let path = format!("{PATH}/{id}/items");
    let calls = [call("1"), call("2"), output("1"), output("2")];
    app.post(&path, &json!({"items": calls})).await.json();
    let more = [
        message("assistant", "b"),
        message("user", "c"),
        message("user", "d"),
    ];
    let added = app.post(&path, &json!({"items": more})).await.json();
    let items = items_in(&app, id).await;
    assert_eq!(items.len(), 9);
    assert_eq!(added["data"], json!(items[6..]));
    let body = json!({"model": "test-model", "input": "Go", "conversation": id});
    let response = create(&app, body.clone()).await;
    let after = items_in(&app, id).await;
    assert_eq!(after[..9], items[..]);
    assert_eq!(after.len(), 11);
    assert_eq!(upstream.last().messages().len(), 9);
    // The instructions, the first of two calls with its output, a text of each role, and the answer.
    for index in [0, 2, 4, 6, 7, 10] {
        delete_item(&app, id, &after[index]).await;
    }
    create(&app, with(body, "input", json!("On"))).await;
    let said = upstream.last().messages();
    let said: Vec<String> = said
        .iter()
        .map(|message| match message["tool_calls"][0]["id"].as_str() {
            Some(call) => format!("call {call}"),
            None => message["content"].as_str().unwrap().to_owned(),
        })
        .collect();
    assert_eq!(said, ["a", "call 2", "r2", "d", "Go", "On"]);
    // The response itself stays.
    let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
    assert_eq!(app.get(&path).await.json()["output"], response["output"]);
}

#[tokio::test]
async fn each_item_of_a_response_can_be_deleted() {
    let answers = || {
        [
            calls([("t", json!({"n": 1})), ("t", json!({"n": 2}))]),
            calls([("t", json!({"n": 3})), ("mine", json!({}))]),
        ]
    };
    let count = 5;
    for removed in 0..count {
        let upstream = ScriptedUpstream::start([answers(), [text("Done."), text("Yes.")]].concat());
        let upstream = upstream.await;
        let hook = Webhook::start().await.on("t", webhook::text("result"));
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .toml("dispatch_tools = [\"t\"]")
            .start()
            .await;
        let made = app.post(PATH, &json!({})).await.json();
        let id = made["id"].as_str().unwrap();
        let tools = json!([function("t"), function("mine")]);
        let body =
            json!({"model": "test-model", "input": "Go", "conversation": id, "tools": tools});
        let first = create(&app, body.clone()).await;
        let mut made = first["output"].as_array().unwrap().iter();
        let call = made.find(|item| item["type"] == "function_call").unwrap();
        let output =
            json!([{"type": "function_call_output", "call_id": call["call_id"], "output": "own"}]);
        create(&app, with(body.clone(), "input", output)).await;
        let items = items_in(&app, id).await;
        let outputs: Vec<&Value> = items
            .iter()
            .filter(|item| {
                ["mcp_call", "function_call", "message"].contains(&item["type"].as_str().unwrap())
            })
            .skip(1)
            .collect();
        assert_eq!(outputs.len(), count, "{items:?}");
        delete_item(&app, id, outputs[removed]).await;
        create(&app, with(body, "input", json!("Sure?"))).await;
        let said = upstream.last().messages().clone();
        let arguments: Vec<Value> = said
            .iter()
            .flat_map(|message| {
                message["tool_calls"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default()
            })
            .map(|call| call["function"]["arguments"].clone())
            .collect();
        let all = ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}", "{}"];
        let expected: Vec<&str> = all
            .into_iter()
            .filter(|arguments| outputs[removed]["arguments"] != *arguments)
            .collect();
        assert_eq!(arguments, expected, "{removed}");
        let results = said.iter().filter(|message| message["role"] == "tool");
        assert_eq!(results.count(), expected.len(), "{removed}");
        let answered = said.iter().any(|message| message["content"] == "Done.");
        assert_eq!(answered, outputs[removed]["type"] != "message");
    }
}

#[tokio::test]
async fn an_item_is_deleted_only_from_its_own_conversation() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let items = json!({"items": [{"role": "user", "content": "a"}]});
    let made = app.post(PATH, &items).await.json();
    let other = app.post(PATH, &items).await.json();
    let item = items_in(&app, made["id"].as_str().unwrap()).await.remove(0);
    let path = format!(
        "{PATH}/{}/items/{}",
        other["id"].as_str().unwrap(),
        item["id"].as_str().unwrap()
    );
    app.client()
        .delete(&path)
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_list_without_items_has_empty_ids() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let made = app.post(PATH, &json!({})).await.json();
    let path = format!("{PATH}/{}/items", made["id"].as_str().unwrap());
    assert_eq!(
        app.get(&path).await.json(),
        json!({"object": "list", "data": [], "first_id": "", "last_id": "", "has_more": false})
    );
}
