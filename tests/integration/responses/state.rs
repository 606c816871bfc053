//! Stored responses: references, forks, reading, deleting, the background.

use serde_json::{Value, json};

use super::super::support::app::TestApp;
use super::super::support::script::{calls, hang, text, text_and_calls};
use super::super::support::server::Gate;
use super::super::support::upstream::ScriptedUpstream;
use super::super::support::webhook::{self, Webhook};
use super::{PATH, create, events, function, kinds, last, response, stream, text_of, with};

/// A request that is stored.
fn stored(input: Value) -> Value {
    json!({"model": "test-model", "input": input})
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

fn path(response: &Value) -> String {
    format!("{PATH}/{}", id(response))
}

#[tokio::test]
async fn a_response_is_continued_by_its_id_and_an_older_one_is_forked() {
    let upstream = ScriptedUpstream::start(["One.", "Two.", "Three.", "Four."].map(text)).await;
    let app = TestApp::with_upstream(&upstream).await;
    let first = create(
        &app,
        with(stored(json!("a")), "instructions", json!("Be brief.")),
    )
    .await;
    let next = |previous: &Value, input: &str| {
        with(
            stored(json!(input)),
            "previous_response_id",
            previous["id"].clone(),
        )
    };
    let second = create(&app, next(&first, "b")).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(second["session_id"], first["session_id"]);
    let said = |number: usize| -> Vec<String> {
        let messages = upstream.request(number).messages();
        let texts = messages
            .iter()
            .map(|one| one["content"].as_str().unwrap().to_owned());
        texts.collect()
    };
    assert_eq!(said(0), ["Be brief.", "a"]);
    assert_eq!(said(1), ["a", "One.", "b"]);
    let fork = create(&app, next(&first, "c")).await;
    assert_ne!(fork["session_id"], first["session_id"]);
    assert_eq!(said(2), ["a", "One.", "c"]);
    create(&app, next(&second, "d")).await;
    assert_eq!(said(3), ["a", "One.", "b", "Two.", "d"]);
}

#[tokio::test]
async fn an_unknown_response_cannot_be_continued() {
    let upstream = ScriptedUpstream::start([text("One.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let first = create(&app, stored(json!("a"))).await;
    assert_eq!(app.client().delete(&path(&first)).await.status, 200);
    for previous in [first["id"].clone(), json!("resp_1"), json!("x")] {
        let answer = app
            .post(
                PATH,
                &with(stored(json!("b")), "previous_response_id", previous),
            )
            .await;
        answer.assert_error(400, Some("previous_response_not_found"));
        assert_eq!(answer.json()["error"]["param"], "previous_response_id");
    }
    let both = with(stored(json!("b")), "previous_response_id", json!("x"));
    let answer = app
        .post(PATH, &with(both, "conversation", json!("c")))
        .await;
    answer.assert_error(400, None);
    let answer = app
        .post(PATH, &with(stored(json!("b")), "conversation", json!("c")))
        .await;
    answer.assert_error(404, Some("conversation_not_found"));
}

/// The messages of the last request of a second turn that brings a first one back in this way.
async fn second_turn(way: impl FnOnce(&Value) -> Value) -> Vec<Value> {
    let upstream = ScriptedUpstream::start([
        text_and_calls(
            "Let me look.",
            [("t", json!({"id": 7})), ("mine", json!({}))],
        )
        .thinking("Hm."),
        text_and_calls("And again.", [("t", json!({"id": 8}))]),
        text("It is open."),
        text("Yes."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml("dispatch_tools = [\"t\"]")
        .start()
        .await;
    let tools = json!([function("t"), function("mine")]);
    let body = with(stored(json!("Go")), "tools", tools.clone());
    let first = create(&app, body).await;
    let call = first["output"].as_array().unwrap().last().unwrap()["call_id"].clone();
    let output = json!({"type": "function_call_output", "call_id": call, "output": "2"});
    let body = with(stored(json!([output])), "tools", tools.clone());
    let second = create(
        &app,
        with(body, "previous_response_id", first["id"].clone()),
    )
    .await;
    assert_eq!(kinds(&second), ["message", "mcp_call", "message"]);
    let mut items = vec![json!({"type": "message", "role": "user", "content": "Go"})];
    items.extend(first["output"].as_array().unwrap().iter().cloned());
    items.push(output);
    items.extend(second["output"].as_array().unwrap().iter().cloned());
    let mut turn = json!({"first": first, "second": second, "items": items});
    turn["session"] = turn["second"]["session_id"].clone();
    let body = with(way(&turn), "tools", tools);
    let third = create(&app, body).await;
    assert_eq!(text_of(&third["output"][0]), "Yes.");
    assert_eq!(hook.calls().len(), 2);
    upstream.last().messages()
}

#[tokio::test]
async fn every_way_back_gives_the_model_the_same_messages() {
    let and = |mut items: Value| {
        items
            .as_array_mut()
            .unwrap()
            .push(json!({"role": "user", "content": "Sure?"}));
        stored(items)
    };
    let expected = second_turn(|turn| {
        with(
            stored(json!("Sure?")),
            "previous_response_id",
            turn["second"]["id"].clone(),
        )
    })
    .await;
    let anonymous = |messages: Vec<Value>| {
        let mut text = json!(messages).to_string();
        let mut number = 0;
        while let Some(at) = text.find("call_") {
            let id = text[at..at + 29].to_owned();
            number += 1;
            text = text.replace(&id, &format!("id{number}"));
        }
        text
    };
    let expected = anonymous(expected);
    assert!(
        expected.contains("Hm.") && expected.contains(r#"{\"id\":8}"#),
        "{expected}"
    );
    let items = second_turn(|turn| and(turn["items"].clone())).await;
    assert_eq!(anonymous(items), expected);
    let conversation = second_turn(|turn| {
        with(
            stored(json!("Sure?")),
            "conversation",
            turn["session"].clone(),
        )
    })
    .await;
    assert_eq!(anonymous(conversation), expected);
    let references = second_turn(|turn| {
        let items = turn["items"].as_array().unwrap().iter();
        let refer = |item: &Value| match (item["id"].as_str(), item["type"].as_str()) {
            (Some(id), Some("mcp_call" | "message" | "reasoning")) => {
                json!({"type": "item_reference", "id": id})
            }
            (_, Some("function_call")) => {
                let mut call = item.clone();
                call.as_object_mut().unwrap().remove("id");
                call
            }
            _ => item.clone(),
        };
        and(items.map(refer).collect())
    })
    .await;
    assert_eq!(anonymous(references), expected);
}

#[tokio::test]
async fn items_whose_response_is_gone_are_rebuilt() {
    let upstream = ScriptedUpstream::start([
        calls([("t", json!({"id": 7}))]),
        text("It is open."),
        text("Yes."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(stored(json!("Go")), "tools", json!([function("t")]));
    let first = create(&app, body.clone()).await;
    assert_eq!(app.client().delete(&path(&first)).await.status, 200);
    let mut input = vec![json!({"role": "user", "content": "Go"})];
    input.extend(first["output"].as_array().unwrap().iter().cloned());
    input.push(json!({"role": "user", "content": "Sure?"}));
    create(&app, with(body, "input", json!(input))).await;
    assert_eq!(
        upstream.last().roles(),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    assert_eq!(upstream.last().tool_results()[0].1, "r");
}

#[tokio::test]
async fn a_response_is_read_in_both_dialects() {
    let upstream = ScriptedUpstream::start([calls([("t", json!({}))]), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(stored(json!("Go")), "tools", json!([function("t")]));
    let made = create(&app, body).await;
    assert_eq!(response(&app.get(&path(&made)).await), made);
    let run = id(&made).strip_prefix("resp_").unwrap();
    let chat = app
        .get(&format!("/v1/chat/completions/chatcmpl-{run}"))
        .await;
    assert_eq!(chat.content(), "Done.");
    assert_eq!(chat.json()["session_id"], made["session_id"]);
    // The session goes on in the other dialect.
    upstream.push(text("More."));
    let chat = json!({"model": "test-model", "session_id": made["session_id"], "messages": [{"role": "user", "content": "And?"}]});
    let chat = app.post_chat(chat).await;
    assert_eq!(chat.content(), "More.");
    assert_eq!(
        upstream.last().roles(),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    let run = chat.json()["id"]
        .as_str()
        .unwrap()
        .strip_prefix("chatcmpl-")
        .unwrap()
        .to_owned();
    let read = response(&app.get(&format!("{PATH}/resp_{run}")).await);
    assert_eq!(text_of(&read["output"][0]), "More.");
    upstream.push(text("Most."));
    let body = with(
        stored(json!("And?")),
        "previous_response_id",
        json!(format!("resp_{run}")),
    );
    let made = create(&app, body).await;
    assert_eq!(text_of(&made["output"][0]), "Most.");
    let answer = app.client().delete(&path(&made)).await;
    assert_eq!(
        answer.json(),
        json!({"id": made["id"], "object": "response", "deleted": true})
    );
    app.get(&path(&made))
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn what_is_not_stored_cannot_be_read() {
    let upstream = ScriptedUpstream::start([text("One.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let made = create(&app, with(stored(json!("a")), "store", json!(false))).await;
    app.get(&path(&made))
        .await
        .assert_error(404, Some("not_found"));
    let answer = app
        .post(
            PATH,
            &with(
                stored(json!("b")),
                "previous_response_id",
                made["id"].clone(),
            ),
        )
        .await;
    answer.assert_error(400, Some("previous_response_not_found"));
    assert!(made.get("session_id").is_none(), "{made}");
}

#[tokio::test]
async fn the_input_of_a_response_is_listed() {
    let upstream = ScriptedUpstream::start([text("One."), text("Two.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let first = create(&app, stored(json!("a"))).await;
    let input = json!([{"role": "user", "content": "b"}, {"role": "user", "content": "c"}]);
    let body = with(stored(input), "previous_response_id", first["id"].clone());
    let second = create(&app, body).await;
    let list = |query: &str| format!("{}/input_items{query}", path(&second));
    let texts = |list: &Value| -> Vec<String> {
        let items = list["data"].as_array().unwrap().iter();
        items.map(|item| text_of(item).to_owned()).collect()
    };
    let page = app.get(&list("")).await.json();
    assert_eq!(
        (texts(&page), &page["has_more"]),
        (vec!["c".to_owned(), "b".to_owned()], &json!(false))
    );
    let page = app.get(&list("?order=asc&limit=1")).await.json();
    assert_eq!(
        (texts(&page), &page["has_more"]),
        (vec!["b".to_owned()], &json!(true))
    );
    let after = page["last_id"].as_str().unwrap();
    let page = app
        .get(&list(&format!("?order=asc&after={after}")))
        .await
        .json();
    assert_eq!(texts(&page), ["c"]);
    app.get(&list("?limit=0")).await.assert_error(400, None);
    app.get(&format!("{PATH}/resp_1/input_items"))
        .await
        .assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_session_without_a_name_is_stored_with_the_first_round_and_not_with_a_failure() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([
        text("one two").gate_before(1, &gate),
        super::super::support::script::error(400, "too long"),
    ])
    .await;
    let app = TestApp::with_upstream(&upstream).await;
    let sessions = async || {
        let list = app.get("/v1/sessions").await.json();
        list["data"].as_array().unwrap().len()
    };
    let body = with(stored(json!("Go")), "background", json!(true));
    let made = create(&app, body.clone()).await;
    upstream.called(1).await;
    assert_eq!(sessions().await, 0);
    let list = format!("{}/input_items", path(&made));
    let opened = async {
        assert_eq!(
            response(&app.get(&path(&made)).await)["status"],
            "in_progress"
        );
        gate.open();
    };
    let (listed, ()) = tokio::join!(app.get(&list), opened);
    assert_eq!(text_of(&listed.json()["data"][0]), "Go");
    assert_eq!(sessions().await, 1);
    let made = create(&app, body).await;
    let read = app.get(&format!("{}?stream=true", path(&made))).await;
    assert_eq!(last(&events(&read))["status"], "failed");
    assert_eq!(sessions().await, 1);
}

#[tokio::test]
async fn a_response_in_the_background_is_fetched_later() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("one two").gate_head(&gate)]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let body = with(stored(json!("Go")), "background", json!(true));
    let made = create(&app, body.clone()).await;
    assert_eq!(
        (&made["status"], &made["background"]),
        (&json!("queued"), &json!(true))
    );
    upstream.called(1).await;
    let now = response(&app.get(&path(&made)).await);
    assert_eq!(
        (&now["status"], &now["output"]),
        (&json!("in_progress"), &json!([]))
    );
    gate.open();
    let read = app.get(&format!("{}?stream=true", path(&made))).await;
    let all = events(&read);
    assert_eq!(text_of(&last(&all)["output"][0]), "one two");
    let cut = app
        .get(&format!("{}?stream=true&starting_after=3", path(&made)))
        .await;
    let rest: Vec<&str> = cut
        .text()
        .leak()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    let expected: Vec<String> = all[4..].iter().map(Value::to_string).collect();
    let rest: Vec<String> = rest[..rest.len() - 1]
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap().to_string())
        .collect();
    assert_eq!(rest, expected);
    assert_eq!(
        response(&app.get(&path(&made)).await)["status"],
        "completed"
    );
    let answer = app.post(PATH, &with(body, "store", json!(false))).await;
    answer.assert_error(400, None);
}

#[tokio::test]
async fn a_failure_in_the_background_is_a_failed_response() {
    let upstream =
        ScriptedUpstream::start([super::super::support::script::error(400, "too long")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let made = create(&app, with(stored(json!("Go")), "background", json!(true))).await;
    let read = app.get(&format!("{}?stream=true", path(&made))).await;
    let all = events(&read);
    assert_eq!(last(&all)["status"], "failed");
    let read = response(&app.get(&path(&made)).await);
    assert_eq!(read["status"], "failed");
    assert_eq!(read["error"]["message"], "too long");
}

#[tokio::test]
async fn a_cancelled_response_keeps_what_it_has() {
    let upstream = ScriptedUpstream::start([text("one two").hang_after(2), text("Two.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let made = create(&app, with(stored(json!("Go")), "background", json!(true))).await;
    upstream.called(1).await;
    let path = format!("{}/cancel", path(&made));
    let ended = response(&app.post(&path, &json!({})).await);
    assert_eq!(ended["status"], "cancelled");
    assert_eq!(response(&app.post(&path, &json!({})).await), ended);
}

#[tokio::test]
async fn a_restart_leaves_an_interrupted_response() {
    let upstream = ScriptedUpstream::start([hang()]).await;
    let mut app = TestApp::with_upstream(&upstream).await;
    let made = create(&app, with(stored(json!("Go")), "background", json!(true))).await;
    upstream.called(1).await;
    app.kill9().await;
    app.restart().await;
    app.get(&path(&made))
        .await
        .assert_error(410, Some("run_interrupted"));
}

#[tokio::test]
async fn another_key_finds_nothing() {
    let upstream = ScriptedUpstream::start([text("One."), text("Two.")]).await;
    let keys =
        "[[api_keys]]\nname = \"alice\"\nenv = \"A\"\n[[api_keys]]\nname = \"bob\"\nenv = \"B\"";
    let app = TestApp::builder()
        .upstream(&upstream)
        .env("A", "key-of-alice-0123456789")
        .env("B", "key-of-bob-0123456789")
        .toml(keys)
        .start()
        .await;
    let (alice, bob) = (
        app.client().key("key-of-alice-0123456789"),
        app.client().key("key-of-bob-0123456789"),
    );
    let made = response(&alice.post(PATH, &stored(json!("a"))).await);
    bob.get(&path(&made))
        .await
        .assert_error(404, Some("not_found"));
    let body = with(
        stored(json!("b")),
        "previous_response_id",
        made["id"].clone(),
    );
    bob.post(PATH, &body)
        .await
        .assert_error(400, Some("previous_response_not_found"));
    let item = json!([{"type": "item_reference", "id": made["output"][0]["id"]}, {"role": "user", "content": "b"}]);
    bob.post(PATH, &stored(item.clone()))
        .await
        .assert_error(404, Some("item_not_found"));
    response(&alice.post(PATH, &stored(item)).await);
}

#[tokio::test]
async fn tokens_are_estimated() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let answer = app
        .post(
            &format!("{PATH}/input_tokens"),
            &stored(json!("x".repeat(400))),
        )
        .await;
    assert_eq!(answer.header("x-loopwright-estimated"), Some("true"));
    let tokens = answer.json()["input_tokens"].as_u64().unwrap();
    assert!((100..120).contains(&tokens), "{tokens}");
}

#[tokio::test]
async fn tokens_are_counted_with_the_history_by_a_model_server_that_can() {
    for counts in [true, false] {
        let upstream = ScriptedUpstream::start([text(&"a".repeat(400)), text("b")]).await;
        let app = TestApp::builder()
            .toml(&upstream.with_quirks(&format!("tokenize = {counts}")))
            .start()
            .await;
        let first = create(&app, stored(json!("Go"))).await;
        let after_first = |input: &str| {
            let body = json!({"model": "test-model", "input": input, "instructions": "Be brief."});
            with(body, "previous_response_id", first["id"].clone())
        };
        create(&app, after_first("On")).await;
        let count = |body: Value| {
            let app = &app;
            async move {
                let answer = app.post(&format!("{PATH}/input_tokens"), &body).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let estimated = answer.header("x-loopwright-estimated").is_some();
                (answer.json()["input_tokens"].as_u64().unwrap(), estimated)
            }
        };
        let sessions = app.get("/v1/sessions").await.json();
        let body = with(after_first("Or"), "tools", json!([function("mine")]));
        let (tokens, estimated) = count(body.clone()).await;
        assert_eq!(estimated, !counts);
        let others = upstream.others();
        let asked: Vec<_> = others
            .iter()
            .filter(|one| one.path == "/tokenize")
            .collect();
        if counts {
            assert_eq!(tokens, 4001);
            let keys = asked[0].body.as_object().unwrap().keys();
            assert_eq!(keys.collect::<Vec<_>>(), ["messages", "model", "tools"]);
            let said = asked[0].messages();
            assert_eq!(said[0]["content"], "Be brief.");
            assert_eq!(said[3]["content"], "Or");
            // A model that the server does not have.
            let (tokens, estimated) = count(with(body, "model", json!("other"))).await;
            assert!((100..200).contains(&tokens) && estimated, "{tokens}");
        } else {
            assert!((100..200).contains(&tokens), "{tokens}");
            assert!(asked.is_empty());
        }
        assert_eq!(app.get("/v1/sessions").await.json(), sessions);
        let unknown = with(after_first("Or"), "previous_response_id", json!("resp_1"));
        app.post(&format!("{PATH}/input_tokens"), &unknown)
            .await
            .assert_error(400, Some("previous_response_not_found"));
    }
}

#[tokio::test]
async fn a_stream_cut_anywhere_goes_on_with_the_same_events() {
    let upstream = ScriptedUpstream::start([
        text_and_calls("Let me look.", [("t", json!({}))]),
        text("It is open."),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(stored(json!("Go")), "tools", json!([function("t")]));
    let all = stream(app.client(), with(body, "background", json!(true))).await;
    let made = last(&all).clone();
    for cut in 0..all.len() {
        let answer = app
            .get(&format!("{}?stream=true&starting_after={cut}", path(&made)))
            .await;
        let text = answer.text();
        let rest = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let rest: Vec<Value> = rest
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        assert_eq!(rest, all[cut + 1..], "{cut}");
    }
    let past = app
        .get(&format!("{}?stream=true&starting_after=99", path(&made)))
        .await;
    past.assert_error(400, None);
}

#[tokio::test]
async fn a_turn_that_failed_goes_on_where_its_retry_is_known() {
    let failed = || super::super::support::script::error(500, "broken");
    let upstream = ScriptedUpstream::answering(move |request| match request.tool_results().len() {
        0 => calls([("pay", json!({}))]),
        _ if request.body["temperature"] == 0 => text("Paid."),
        _ => failed(),
    })
    .await;
    let hook = Webhook::start().await.on("pay", webhook::text("paid"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(stored(json!("Go")), "tools", json!([function("pay")]));
    let keyed = with(body.clone(), "prompt_cache_key", json!("k"));
    for (number, (body, paid)) in [(keyed.clone(), 1), (keyed, 1), (body.clone(), 2), (body, 3)]
        .into_iter()
        .enumerate()
    {
        let body = with(body, "stream", json!(number % 2 == 0));
        let answer = app.post(PATH, &body).await;
        let failed = answer.status == 500 || answer.text().contains("response.failed");
        assert!(failed, "{}", answer.text());
        assert_eq!(hook.calls().len(), paid, "{number}");
    }
}

#[tokio::test]
async fn every_repeat_of_a_failed_turn_continues_it_and_its_call_runs_once() {
    let upstream = ScriptedUpstream::answering(|request| match request.tool_results().len() {
        0 => calls([("pay", json!({}))]),
        _ => super::super::support::script::error(500, "broken"),
    })
    .await;
    let hook = Webhook::start().await.on("pay", webhook::text("paid"));
    let app = TestApp::with_tools(&upstream, &hook).await;
    let body = with(stored(json!("Go")), "tools", json!([function("pay")]));
    let keyed = with(body.clone(), "prompt_cache_key", json!("k"));
    let by_header = |name| app.client().header(name, name);
    let ways = [
        (app.client().clone(), keyed),
        (by_header("session-id"), body.clone()),
        (by_header("x-claude-code-session-id"), body.clone()),
    ];
    for (place, (client, body)) in ways.into_iter().enumerate() {
        for attempt in 0..6 {
            let body = with(body.clone(), "stream", json!(attempt % 2 == 0));
            let answer = client.post(PATH, &body).await;
            let failed = answer.status == 500 || answer.text().contains("response.failed");
            assert!(failed, "{}", answer.text());
            assert_eq!(hook.calls().len(), place + 1, "attempt {attempt}");
        }
    }
    // Sub-agents share the session of their agent.
    for (agent, paid) in [("a", 4), ("b", 5), ("a", 5)] {
        let client = by_header("session-id").header("x-claude-code-agent-id", agent);
        assert_eq!(client.post(PATH, &body).await.status, 500);
        assert_eq!(hook.calls().len(), paid, "{agent}");
    }
}

#[tokio::test]
async fn no_other_key_makes_a_failed_turn_be_forgotten() {
    /// More than are remembered of all keys together.
    const OTHERS: usize = 20_000;
    /// How many are sent at a time.
    const CALLERS: usize = 16;
    let upstream = ScriptedUpstream::answering(|request| match request.tool_results().len() {
        0 => calls([("pay", json!({}))]),
        _ => super::super::support::script::error(500, "broken"),
    })
    .await;
    let hook = Webhook::start().await.on("pay", webhook::text("paid"));
    let keys = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let builder = builder.toml(keys).env("ALICE", "alice-alice-alice");
    let app = builder.env("BOB", "bob-bob-bob-bob-bob").start().await;
    let alice = app.client().key("alice-alice-alice");
    let body = with(stored(json!("Go")), "tools", json!([function("pay")]));
    let body = with(body, "prompt_cache_key", json!("k"));
    assert_eq!(alice.post(PATH, &body).await.status, 500);
    assert_eq!(hook.calls().len(), 1);
    // Requests that are refused early, but late enough to be remembered.
    let unknown = json!([{"type": "function_call_output", "call_id": "call_0", "output": "x"}]);
    let caller = |first: usize| {
        let (bob, unknown) = (app.client().key("bob-bob-bob-bob-bob"), unknown.clone());
        async move {
            for number in (first..OTHERS).step_by(CALLERS) {
                let body = with(
                    stored(unknown.clone()),
                    "prompt_cache_key",
                    json!(number.to_string()),
                );
                assert_eq!(bob.post(PATH, &body).await.status, 400);
            }
        }
    };
    futures_util::future::join_all((0..CALLERS).map(caller)).await;
    assert_eq!(alice.post(PATH, &body).await.status, 500);
    assert_eq!(hook.calls().len(), 1, "it goes on after its call");
}
