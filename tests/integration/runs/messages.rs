//! The messages of an answer: those up to its end, in pages.

use http::Method;

use super::*;

/// A page of the messages of an answer.
async fn listed(client: &Client, id: &str, query: &str) -> Value {
    let answer = client.get(&format!("{}/messages{query}", path(id))).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

/// The roles and texts of a page.
fn texts(page: &Value) -> Vec<String> {
    let data = page["data"].as_array().unwrap();
    data.iter()
        .map(|message| {
            format!(
                "{}: {}",
                message["role"].as_str().unwrap(),
                content(message)
            )
        })
        .collect()
}

/// The ids of a page.
fn ids(page: &Value) -> Vec<String> {
    let data = page["data"].as_array().unwrap();
    let ids = data.iter().map(|message| message["id"].as_str().unwrap());
    ids.map(ToOwned::to_owned).collect()
}

/// Answers a message in a session, and gives the id of the answer.
async fn answered(app: &TestApp, text: &str, session: &str) -> String {
    let answer = app.post_chat(in_session(text, session)).await.completion();
    answer["id"].as_str().unwrap().to_owned()
}

async fn app_of(replies: impl IntoIterator<Item = Reply>) -> (TestApp, ScriptedUpstream, Webhook) {
    let upstream = ScriptedUpstream::start(replies).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    (TestApp::with_tools(&upstream, &hook).await, upstream, hook)
}

#[tokio::test]
async fn the_messages_of_an_answer_end_with_it() {
    let (mut app, _upstream, _hook) = app_of([
        text_and_calls("Let me see.", [("t", json!({}))]),
        text("One."),
        text("Two."),
        text("Three."),
    ])
    .await;
    let first = answered(&app, "Q1", "s").await;
    let second = answered(&app, "Q2", "s").await;
    let third = answered(&app, "Q3", "s").await;
    let all = [
        "user: Q1",
        "assistant: Let me see.",
        "tool: r",
        "assistant: One.",
        "user: Q2",
        "assistant: Two.",
        "user: Q3",
        "assistant: Three.",
    ];
    for restarted in [false, true] {
        if restarted {
            app.restart().await;
        }
        for (id, count) in [(&first, 4), (&second, 6), (&third, 8)] {
            let page = listed(app.client(), id, "").await;
            assert_eq!(texts(&page), all[..count], "restarted: {restarted}");
            assert_eq!(page["has_more"], false);
        }
    }
    // The export shows nothing of it.
    let export = app.get("/v1/sessions/s").await.json();
    let view = &export["agent"]["message_meta"][2]["view"];
    assert_eq!(view["final_text"], "One.", "{export}");
    assert!(
        view.get("completion").is_none() && view.get("run").is_none(),
        "{view}"
    );
}

#[tokio::test]
async fn pages_follow_each_other_in_both_orders() {
    let (app, _upstream, _hook) =
        app_of([text("One."), text("Two."), text("Three."), text("Four.")]).await;
    answered(&app, "Q1", "s").await;
    answered(&app, "Q2", "s").await;
    let id = answered(&app, "Q3", "s").await;
    answered(&app, "Q4", "s").await;
    let client = app.client();
    let whole = ids(&listed(client, &id, "").await);
    assert_eq!(whole.len(), 6);
    for order in ["asc", "desc"] {
        let mut expected = whole.clone();
        if order == "desc" {
            expected.reverse();
        }
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let query = format!("?limit=4&order={order}{after}");
            let page = listed(client, &id, &query).await;
            let of_page = ids(&page);
            assert_eq!(page["first_id"], of_page[0]);
            assert_eq!(page["last_id"], *of_page.last().unwrap());
            after = format!("&after={}", of_page.last().unwrap());
            found.extend(of_page);
            assert_eq!(page["has_more"], found.len() < expected.len());
            if page["has_more"] == false {
                break;
            }
        }
        assert_eq!(found, expected, "{order}");
        let past = listed(client, &id, &format!("?order={order}{after}")).await;
        assert_eq!(
            past,
            json!({"object": "list", "data": [], "first_id": null, "last_id": null, "has_more": false})
        );
    }
    for (query, param) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("order=up", "order"),
        ("order=", "order"),
        ("after=chatcmpl-1-0", "after"),
        ("after=6", "after"),
        (&*format!("after={id}-6"), "after"),
    ] {
        let answer = client.get(&format!("{}/messages?{query}", path(&id))).await;
        answer.assert_error(400, None);
        assert_eq!(answer.json()["error"]["param"], param, "{query}");
    }
}

#[tokio::test]
async fn by_default_a_page_has_twenty_messages() {
    let (app, _upstream, _hook) = app_of([text("One.")]).await;
    let messages: Vec<Value> = (0..30).map(|number| user(&number.to_string())).collect();
    let body = with(in_session("", "s"), "messages", json!(messages));
    let answer = app.post_chat(body).await.completion();
    let id = answer["id"].as_str().unwrap();
    let page = listed(app.client(), id, "").await;
    assert_eq!((ids(&page).len(), &page["has_more"]), (20, &json!(true)));
    let rest = listed(app.client(), id, "?limit=100").await;
    assert_eq!((ids(&rest).len(), &rest["has_more"]), (31, &json!(false)));
}

#[tokio::test]
async fn messages_that_were_replaced_since_are_not_found() {
    let (app, _upstream, _hook) = app_of([
        text("One."),
        text("Two."),
        text("Two, otherwise."),
        text("Three."),
    ])
    .await;
    let first = answered(&app, "Q1", "s").await;
    let second = answered(&app, "Q2", "s").await;
    let edited = json!([
        user("Q1"),
        {"role": "assistant", "content": "One."},
        user("Q2, otherwise"),
    ]);
    let body = with(in_session("", "s"), "messages", edited);
    let third = app.post_chat(body).await.completion();
    let third = third["id"].as_str().unwrap();
    let client = app.client();
    let gone = client.get(&format!("{}/messages", path(&second))).await;
    let message = gone.assert_error(404, Some("not_found"));
    assert!(message.contains("session"), "{message}");
    assert_eq!(client.get(&path(&second)).await.content(), "Two.");
    assert_eq!(ids(&listed(client, &first, "").await).len(), 2);
    assert_eq!(
        texts(&listed(client, third, "").await),
        [
            "user: Q1",
            "assistant: One.",
            "user: Q2, otherwise",
            "assistant: Two, otherwise."
        ]
    );
    // An import replaces everything, though the texts are the same.
    let export = app.get("/v1/sessions/s").await.json();
    let put = client.send(Method::PUT, "/v1/sessions/s", &export).await;
    assert_eq!(put.status, 200);
    let gone = client.get(&format!("{}/messages", path(third))).await;
    gone.assert_error(404, Some("not_found"));
    let fourth = answered(&app, "Q3", "s").await;
    client.delete("/v1/sessions/s").await;
    let gone = client.get(&format!("{}/messages", path(&fourth))).await;
    gone.assert_error(404, Some("not_found"));
}

#[tokio::test]
async fn a_running_turn_lists_what_is_stored_so_far() {
    let gate = Gate::new();
    let held = text("Two.").gate_before(1, &gate);
    let (app, _upstream, hook) = app_of([
        text("One."),
        text_and_calls("Let me see.", [("t", json!({}))]),
        held,
    ])
    .await;
    answered(&app, "Q1", "s").await;
    let stream = app.stream_chat(in_session("Q2", "s")).await;
    hook.called(1).await;
    history_of(app.client(), "s", 5).await;
    let id = stream.run_id();
    let so_far = listed(app.client(), &id, "").await;
    assert_eq!(
        texts(&so_far)[..3],
        ["user: Q1", "assistant: One.", "user: Q2"]
    );
    gate.open();
    stream.collect().await;
    none_running(app.client()).await;
    let page = listed(app.client(), &id, "?order=desc&limit=1").await;
    assert_eq!(texts(&page), ["assistant: Two."]);
}

#[tokio::test]
async fn a_turn_that_stores_nothing_has_no_messages() {
    let (app, _upstream, _hook) = app_of([text("One.")]).await;
    let answer = app.post_chat(finishing(go())).await.completion();
    let page = listed(app.client(), answer["id"].as_str().unwrap(), "").await;
    assert_eq!(page["data"], json!([]));
}

#[tokio::test]
async fn answers_of_both_dialects_are_found_in_one_session() {
    let (app, _upstream, _hook) = app_of([text("One."), text("Two."), text("Three.")]).await;
    let first = answered(&app, "Q1", "s").await;
    let body = json!({"model": MODEL, "input": "Q2", "session_id": "s"});
    let response = app.post("/v1/responses", &body).await.json();
    let third = answered(&app, "Q3", "s").await;
    let second = response["id"].as_str().unwrap();
    for (id, count) in [(first.as_str(), 2), (second, 4), (&third, 6)] {
        let page = listed(app.client(), id, "").await;
        assert_eq!(ids(&page).len(), count, "{id}: {page}");
        let prefix = format!("chatcmpl-{}", id.rsplit(['-', '_']).next().unwrap());
        assert!(
            ids(&page).iter().all(|id| id.starts_with(&prefix)),
            "{page}"
        );
    }
}
