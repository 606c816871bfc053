//! Chats that a header names.

use super::*;

/// The conversation as a front end shows it.
fn shown(messages: &[&str]) -> Value {
    let message = |(index, text): (usize, &&str)| match index % 2 {
        0 => user(text),
        _ => assistant(text),
    };
    let messages: Vec<Value> = messages.iter().enumerate().map(message).collect();
    json!({"model": MODEL, "messages": messages, "tools": [tool("t")]})
}

/// A request for a title, tags or follow-up questions, as Open WebUI sends it beside the conversation.
fn task(what: &str) -> Value {
    let mut body = ask(&format!("### Task: {what}"));
    body["tools"] = json!([tool("t")]);
    body
}

/// The messages of a model call, each in a few letters.
fn brief(request: &Recorded) -> Vec<String> {
    let messages = request.messages();
    let brief = messages.iter().map(|message| {
        match (message["role"].as_str(), message.get("tool_calls")) {
            (Some("tool"), _) => format!("= {}", message["content"].as_str().unwrap()),
            (Some("assistant"), Some(calls)) => {
                format!(
                    "call {}",
                    calls[0]["function"]["arguments"].as_str().unwrap()
                )
            }
            _ => message["content"].as_str().unwrap_or_default().to_owned(),
        }
    });
    brief.collect()
}

/// The messages of the hidden round that answers a question.
fn round(question: &str) -> [String; 2] {
    [
        format!("call {{\"about\":\"{question}\"}}"),
        format!("= {question}!"),
    ]
}

/// A model that calls `t` about each question and then answers; tasks too, once the gate is open.
fn model(gate: &Gate) -> impl FnMut(&Recorded) -> Reply + Send + 'static {
    let gate = gate.clone();
    move |request| {
        let messages = request.messages();
        let question = messages.iter().rfind(|message| message["role"] == "user");
        let question = question.unwrap()["content"].as_str().unwrap().to_owned();
        let reply = match messages.last().unwrap()["role"].as_str() {
            Some("tool") => text(&format!("About {question}")),
            _ => calls([("t", json!({"about": question}))]),
        };
        match question.starts_with("###") {
            true => reply.gate_head(&gate),
            false => reply,
        }
    }
}

async fn echo() -> Webhook {
    let echo = |call: &webhook::Call| {
        let about = call.body["arguments"]["about"].as_str().unwrap_or_default();
        webhook::text(&format!("{about}!"))
    };
    Webhook::start().await.on_call("t", echo)
}

/// What the model saw first in its last turn about a question.
fn seen(upstream: &ScriptedUpstream, question: &str) -> Vec<String> {
    let asked = upstream.requests().into_iter().rev().find(|request| {
        let last = request.messages().pop().unwrap();
        last["role"] == "user" && last["content"] == question
    });
    brief(&asked.unwrap_or_else(|| panic!("the model was not asked {question}")))
}

/// Questions and answers with their hidden rounds, and a last question.
fn with_rounds(questions: &[&str], last: &str) -> Vec<String> {
    let mut messages = Vec::new();
    for question in questions {
        messages.push((*question).to_owned());
        messages.extend(round(question));
        messages.push(format!("About {question}"));
    }
    messages.push(last.to_owned());
    messages
}

#[tokio::test]
async fn a_chat_goes_on_beside_titles_tags_edits_and_regenerations() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::answering(model(&gate)).await;
    let hook = echo().await;
    // A turn that waited for a task would be refused at once.
    let app = builder(&upstream, &hook)
        .toml("session_wait_ms = 0")
        .start()
        .await;
    let client = app.client().header(CHAT_HEADER, "4f5c-1");
    let mut tasks = Vec::new();
    let mut begin = async |what: &'static str| {
        let client = client.clone();
        tasks.push(tokio::spawn(
            async move { client.post_chat(task(what)).await },
        ));
        gate.reached(tasks.len()).await;
    };
    let turn = async |messages: &[&str]| {
        let collected = client.stream_chat(shown(messages)).await.collect().await;
        assert_eq!(collected.error, None);
        seen(&upstream, messages.last().unwrap())
    };

    // The title's request comes before the question, the others beside the later turns.
    begin("title").await;
    assert_eq!(turn(&["one"]).await, ["one"]);
    begin("tags").await;
    begin("follow-ups").await;
    let two = with_rounds(&["one"], "two");
    assert_eq!(turn(&["one", "About one", "two"]).await, two);
    begin("follow-ups again").await;
    let three = with_rounds(&["one", "two"], "three");
    let conversation = ["one", "About one", "two", "About two", "three"];
    assert_eq!(turn(&conversation).await, three);
    // The last message regenerated, and edited.
    assert_eq!(turn(&conversation).await, three);
    let edited = ["one", "About one", "two", "About two", "three?"];
    assert_eq!(turn(&edited).await, with_rounds(&["one", "two"], "three?"));
    // The first message edited, and regenerated; then the edited branch goes on.
    assert_eq!(turn(&["one?"]).await, ["one?"]);
    assert_eq!(turn(&["one?"]).await, ["one?"]);
    let branch = ["one?", "About one?", "and"];
    assert_eq!(turn(&branch).await, with_rounds(&["one?"], "and"));
    // The other branch is still there.
    let back = [&edited[..], &["About three?", "four"]].concat();
    let expected = with_rounds(&["one", "two", "three?"], "four");
    assert_eq!(turn(&back).await, expected);

    gate.open();
    for (task, what) in tasks
        .into_iter()
        .zip(["title", "tags", "follow-ups", "follow-ups again"])
    {
        let question = format!("### Task: {what}");
        assert_eq!(task.await.unwrap().content(), format!("About {question}"));
        assert_eq!(seen(&upstream, &question), [question.as_str()]);
    }
    assert_eq!(seen(&upstream, "four"), expected);
}

#[tokio::test]
async fn a_chat_is_stored_once_a_call_starts_and_found_again_after_a_restart() {
    let gate = Gate::new();
    gate.open();
    let mut model = model(&gate);
    let upstream = ScriptedUpstream::answering(move |request| {
        let last = request.messages().pop().unwrap();
        match last["content"].as_str() {
            Some("hello" | "thanks") => text("Hi."),
            _ => model(request),
        }
    })
    .await;
    let hook = echo().await;
    let mut app = builder(&upstream, &hook).start().await;
    let chat = |app: &TestApp| app.client().header(CHAT_HEADER, "c");
    let answer = chat(&app).post_chat(shown(&["hello"])).await;
    assert_eq!(answer.header("x-session-id"), None, "a chat is no session");
    assert_eq!(answer.completion().get("session_id"), None);
    assert!(session_ids(app.client()).await.is_empty());

    let conversation = ["hello", "Hi.", "one"];
    let answer = chat(&app).post_chat(shown(&conversation)).await;
    assert_eq!(answer.header("x-session-id"), None);
    let id = answer.completion()["session_id"].clone();
    assert_eq!(session_ids(app.client()).await, [id.as_str().unwrap()]);
    assert_eq!(hook.call(0).body["session_id"], id);

    app.restart().await;
    let conversation = ["hello", "Hi.", "one", "About one", "two"];
    let answer = chat(&app)
        .post_chat(shown(&conversation))
        .await
        .completion();
    assert_eq!(answer["session_id"], id);
    let [call, result] = round("one");
    let expected = ["hello", "Hi.", "one", &call, &result, "About one", "two"];
    assert_eq!(seen(&upstream, "two"), expected);

    // A request without tools has the hidden rounds as well; one of a new chat leaves nothing.
    let mut plain = shown(&[&conversation[..], &["About two", "thanks"]].concat());
    plain.as_object_mut().unwrap().remove("tools");
    chat(&app).post_chat(plain).await.completion();
    let [call, result] = round("two");
    let expected = [&expected[..], &[&call, &result, "About two", "thanks"]].concat();
    assert_eq!(seen(&upstream, "thanks"), expected);
    chat(&app).post_chat(ask("thanks")).await.completion();
    assert_eq!(session_ids(app.client()).await, [id.as_str().unwrap()]);
}

#[tokio::test]
async fn a_chat_lives_as_long_as_a_named_session() {
    let gate = Gate::new();
    gate.open();
    let upstream = ScriptedUpstream::answering(model(&gate)).await;
    let hook = echo().await;
    let builder = builder(&upstream, &hook).toml("nameless_session_ttl = 1");
    let app = builder.start().await;
    let chat = app.client().header(CHAT_HEADER, "c");
    let chat = chat.post_chat(shown(&["one"])).await.completion()["session_id"].clone();
    let nameless = app.post_chat(shown(&["one"])).await.completion()["session_id"].clone();
    eventually("the end of the nameless session", || async {
        let ids = session_ids(app.client()).await;
        assert!(ids.iter().any(|id| *id == chat), "{ids:?}");
        (!ids.iter().any(|id| *id == nameless)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_chat_belongs_to_its_key_and_its_id_cannot_be_computed() {
    let gate = Gate::new();
    gate.open();
    let upstream = ScriptedUpstream::answering(model(&gate)).await;
    let hook = echo().await;
    let keys = "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
    let (alice, bob) = ("alice-key-0123456789", "bob-key-0123456789-bob");
    let mut ids = Vec::new();
    for _ in 0..2 {
        let builder = builder(&upstream, &hook).toml(keys);
        let app = builder.env("ALICE", alice).env("BOB", bob).start().await;
        for key in [alice, bob] {
            let client = app.client().key(key).header(CHAT_HEADER, "c");
            let answer = client.post_chat(shown(&["one"])).await.completion();
            assert_eq!(seen(&upstream, "one"), ["one"]);
            ids.push(answer["session_id"].as_str().unwrap().to_owned());
        }
        let other = format!("/v1/sessions/{}", ids[ids.len() - 2]);
        let refused = app.client().key(bob).get(&other).await;
        refused.assert_error(404, Some("not_found"));
    }
    // Two stores give the same chat of the same key two ids.
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
}

#[tokio::test]
async fn a_chat_with_tools_of_the_client_runs_nothing_twice() {
    let batch = [("mine", json!({})), ("t", json!({"about": "x"}))];
    let upstream = ScriptedUpstream::start([
        text_and_calls("Both.", batch),
        text("Done."),
        text("Of course."),
    ])
    .await;
    let hook = echo().await;
    let app = builder(&upstream, &hook).start().await;
    let client = app.client().header(CHAT_HEADER, "c");
    let body = |messages: Value| {
        let body =
            json!({"model": MODEL, "messages": messages, "tools": [tool("t"), tool("mine")]});
        with(body, "agent", json!({"client_tools": ["mine"]}))
    };
    let first = client
        .post_chat(body(json!([user("Go")])))
        .await
        .completion();
    let asked = first["choices"][0]["message"].clone();
    let result =
        json!({"role": "tool", "tool_call_id": asked["tool_calls"][0]["id"], "content": "r"});
    let second = json!([user("Go"), asked, result]);
    client.post_chat(body(second.clone())).await.completion();
    let results = upstream.last().tool_results();
    let contents: Vec<&str> = results.iter().map(|(_, content)| &**content).collect();
    assert_eq!(contents, ["r", "x!"]);
    // The same conversation under the id of another chat is another session.
    let copy = app.client().header(CHAT_HEADER, "copy");
    copy.post_chat(body(second)).await.completion();
    assert_eq!(upstream.last().tool_results().len(), 1);
    assert_eq!(hook.calls().len(), 1);
    assert_eq!(session_ids(app.client()).await.len(), 1);
}

#[tokio::test]
async fn an_id_of_a_session_comes_before_that_of_a_chat_and_an_empty_header_is_none() {
    let upstream = ScriptedUpstream::answering(|_| text("A.")).await;
    let hook = Webhook::start().await;
    let app = builder(&upstream, &hook).start().await;
    let both = app
        .client()
        .header(CHAT_HEADER, "c")
        .header("x-session-id", "s");
    let answer = both.post_chat(ask("one")).await;
    assert_eq!(answer.header("x-session-id"), Some("s"));
    both.post_chat(ask("two")).await.completion();
    assert_eq!(upstream.last().roles(), ["user", "assistant", "user"]);
    let named = app.client().header(CHAT_HEADER, "c");
    let answer = named
        .post_chat(with(ask("one"), "session_id", json!("t")))
        .await;
    assert_eq!(answer.header("x-session-id"), Some("t"));
    assert_eq!(session_ids(app.client()).await, ["s", "t"]);
    for header in [CHAT_HEADER, "x-session-id"] {
        assert!(
            upstream.last().header(header).is_none(),
            "{header} stays here"
        );
    }
    let empty = app.client().header(CHAT_HEADER, "");
    assert_eq!(
        empty.post_chat(ask("one")).await.completion().get("agent"),
        None
    );
    let bad = app
        .client()
        .header(CHAT_HEADER, "a/b")
        .post_chat(ask("one"))
        .await;
    bad.assert_error(400, None);
    assert_eq!(bad.json()["error"]["param"], CHAT_HEADER);
}

#[tokio::test]
#[ignore = "needs Python and a host that can isolate it"]
async fn an_edit_of_the_first_message_keeps_the_interpreter() {
    let run = |code: &str| calls([("execute_python", json!({ "code": code }))]);
    let upstream = ScriptedUpstream::start([
        run("x = 41\nopen('kept', 'w').write('k')\nNone"),
        text("Set."),
        run("x + 1, open('kept').read()"),
        text("42"),
        run("x"),
        text("gone"),
    ])
    .await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml("session_headers = [\"x-openwebui-chat-id\"]")
        .args(["--enable-code-execution"])
        .start()
        .await;
    let code = |text: &str| with(ask(text), "enable_code_execution", json!(true));
    let chat = app.client().header(CHAT_HEADER, "c");
    chat.post_chat(code("one")).await.completion();
    let edited = chat.post_chat(code("two")).await.completion();
    let result = |body: &Value| body["agentic_tool_calls"][0]["result_content"].clone();
    assert_eq!(result(&edited), "result:\n(42, 'k')");
    let id = edited["session_id"].as_str().unwrap();
    app.client().delete(&format!("/v1/sessions/{id}")).await;
    let after = chat.post_chat(code("three")).await.completion();
    let after = result(&after).to_string();
    assert!(after.contains("NameError"), "{after}");
}
