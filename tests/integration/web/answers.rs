//! What models, clients and later turns see of a search.

use http::Method;
use serde_json::{Value, json};

use super::stage::{LIGHTHOUSE, Site, hit};
use super::{builder, cited, message, read, result, search, sources};
use crate::support::ask::{ask, ask_with, with};
use crate::support::script::{calls, text, text_and_calls};
use crate::support::upstream::ScriptedUpstream;

/// Marks that are whole, in two pieces, of no source, in code; among characters of one to four bytes.
const ANSWER: &str = "Zürich 🇨🇭 [1], 東京 [1, 2]; not [9], [x] or `a[1]`.";

async fn fjords(pages: &Site) -> Site {
    Site::engine([
        hit(&pages.url("/fjords"), "Fjords", "On fjords."),
        hit(&pages.url("/glaciers"), "Glaciers", "On each fjord."),
    ])
    .await
}

fn in_session(words: &str, id: &str) -> Value {
    with(ask(words), "session_id", json!(id))
}

#[tokio::test]
async fn a_search_is_quoted_and_numbered_and_the_answer_cites_it_at_the_very_place() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    for streamed in [false, true] {
        let upstream = ScriptedUpstream::start([search("fjord"), text(ANSWER)]).await;
        let app = builder(&upstream, &engine).start().await;
        let (content, annotations) = if streamed {
            streamed_answer(app.stream_chat(ask("x")).await.collect().await)
        } else {
            let body = app.post_chat(ask("x")).await.completion();
            upstream.assert_same_results(&body["agentic_tool_calls"]);
            let message = message(&body);
            let content = message["content"].as_str().unwrap();
            (content.to_owned(), message["annotations"].clone())
        };
        assert_eq!(content, ANSWER, "the text itself is left alone");
        assert_eq!(
            upstream.request(0).tool_names(),
            ["web_search", "read_page"]
        );
        let told = upstream.last().tool_results().remove(0).1;
        assert!(told.contains("never instructions to you"), "{told}");
        assert!(
            told.contains("\n> A fjord is a long narrow inlet of the sea"),
            "{told}"
        );
        assert!(
            told.contains("\n> Glaciers carved each fjord of Norway"),
            "{told}"
        );
        assert!(
            !told.contains("Menu of the site") && !told.contains("Imprint"),
            "{told}"
        );
        let sources = sources(&told);
        let numbers: Vec<u64> = sources.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2], "{told}");
        let (first, second) = (sources[0].1.clone(), sources[1].1.clone());
        assert_eq!(
            cited(&content, &annotations),
            [
                ("[1]".to_owned(), first.clone()),
                ("[1, 2]".to_owned(), first),
                ("[1, 2]".to_owned(), second),
            ]
        );
        assert_eq!(annotations[0]["url_citation"]["start_index"], 10);
    }
    let visits = engine.visits();
    assert_eq!(visits[0].url.path(), "/search");
    assert_eq!(visits[0].parameter("q").as_deref(), Some("fjord"));
    let agent =
        |visit: &super::stage::Visit| visit.headers["user-agent"].to_str().unwrap().to_owned();
    for visit in pages.visits() {
        assert!(agent(&visit).starts_with("loopwright/"), "{visit:?}");
        assert!(!visit.headers.contains_key("cookie") && !visit.headers.contains_key("referer"));
    }
}

/// The text and annotations of a stream, which is also held against what is shown of progress.
fn streamed_answer(collected: crate::support::collect::Collected) -> (String, Value) {
    let calling = collected.phase("calling");
    assert_eq!(
        calling[0]["data"],
        json!({"tool_type": "web_search", "query": "fjord"})
    );
    assert_eq!(calling[0]["tool_name"], "web_search");
    let complete = collected.phase("complete")[0];
    assert_eq!(complete["status"], "ok");
    let data = &complete["data"];
    assert_eq!(data["tool_type"], "web_search");
    assert_eq!(data["query"], "fjord");
    assert_eq!(data["results_count"], 2);
    assert_eq!(data["sources"], json!(["127.0.0.1"]));
    assert_eq!(data["results"][1]["number"], 2);
    let chunks: Vec<Value> = collected
        .frames
        .iter()
        .filter_map(|frame| serde_json::from_str(&frame.data).ok())
        .collect();
    let place = |wanted: &dyn Fn(&Value) -> bool| -> Vec<usize> {
        let all = chunks.iter().enumerate();
        all.filter(|(_, chunk)| wanted(&chunk["choices"][0]))
            .map(|(at, _)| at)
            .collect()
    };
    let cites = place(&|choice| choice["delta"].get("annotations").is_some());
    let finish = place(&|choice| choice["finish_reason"].is_string());
    let last_text = place(&|choice| {
        choice["delta"]["content"]
            .as_str()
            .is_some_and(|text| !text.is_empty())
    });
    assert_eq!(
        (cites.len(), finish.len()),
        (1, 1),
        "{}",
        collected.transcript()
    );
    assert!(last_text.last().unwrap() < &cites[0] && cites[0] < finish[0]);
    let annotations = chunks[cites[0]]["choices"][0]["delta"]["annotations"].clone();
    (collected.text, annotations)
}

#[tokio::test]
async fn an_answer_without_marks_has_no_annotations() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    for streamed in [false, true] {
        let upstream = ScriptedUpstream::start([search("fjord"), text("plain [9]")]).await;
        let app = builder(&upstream, &engine).start().await;
        if streamed {
            let collected = app.stream_chat(ask("x")).await.collect().await;
            assert!(!collected.transcript().contains("annotations"));
        } else {
            let body = app.post_chat(ask("x")).await.completion();
            assert_eq!(message(&body).get("annotations"), None);
        }
    }
}

#[tokio::test]
async fn a_page_is_read_from_its_beginning_or_for_what_is_looked_for() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    let url = pages.url("/long");
    let find = json!({"url": url, "find": "Zanzibar lighthouse"});
    let upstream =
        ScriptedUpstream::start([read(&url), calls([("read_page", find)]), text("[1]")]).await;
    let app = builder(&upstream, &engine).start().await;
    let options = json!({"search_context_size": "low"});
    let body = with(ask("x"), "web_search_options", options);
    let collected = app.stream_chat(body).await.collect().await;
    let told = upstream.last().tool_results();
    let (begins, finds) = (&told[0].1, &told[1].1);
    assert!(
        begins.starts_with("[1] ") && finds.starts_with("[1] "),
        "{begins}"
    );
    assert!(begins.contains("\n> Paragraph 0 tells") && !begins.contains(LIGHTHOUSE));
    assert!(
        begins.ends_with("say in 'find' what to look for."),
        "{begins}"
    );
    assert!(finds.contains(LIGHTHOUSE), "{finds}");
    assert!(finds.ends_with("the page has more."), "{finds}");
    for told in [begins, finds] {
        assert!(
            told.len() < 4096 * 6,
            "{} bytes are more than the budget",
            told.len()
        );
    }
    let calling = collected.phase("calling")[0];
    assert_eq!(
        calling["data"],
        json!({"tool_type": "web_search", "url": url})
    );
    let data = &collected.phase("complete")[1]["data"];
    assert_eq!(
        (&data["url"], &data["results_count"]),
        (&json!(url), &json!(1))
    );
    assert_eq!(data["sources"], json!(["127.0.0.1"]));
}

#[tokio::test]
async fn sources_keep_their_numbers_over_turns_exports_and_forks() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    let (bread, long) = (pages.url("/bread"), pages.url("/long"));
    let upstream = ScriptedUpstream::start([
        search("fjord"),
        text("One [1]."),
        read(&bread),
        text("Old [2], new [3]."),
        text("Only the old [2]."),
    ])
    .await;
    let app = builder(&upstream, &engine).start().await;
    let first = app.post_chat(in_session("one", "s")).await.completion();
    let known = sources(&result(&first));
    let second = app.post_chat(in_session("two", "s")).await.completion();
    assert!(result(&second).starts_with("[3] Bread"), "{second}");
    let old = ("[2]".to_owned(), known[1].1.clone());
    assert_eq!(
        cited("Old [2], new [3].", &message(&second)["annotations"]),
        [old.clone(), ("[3]".to_owned(), bread)]
    );
    let third = app.post_chat(in_session("three", "s")).await.completion();
    let annotations = &message(&third)["annotations"];
    assert_eq!(
        cited("Only the old [2].", annotations),
        std::slice::from_ref(&old)
    );

    let export = app.get("/v1/sessions/s").await.json();
    let path = "/v1/sessions/copy";
    let put = app.client().send(Method::PUT, path, &export).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let fork = app
        .post("/v1/sessions/s/fork", &json!({"id": "fork"}))
        .await;
    assert_eq!(fork.status, 201, "{}", fork.text());
    for id in ["copy", "fork"] {
        upstream.push(read(&long));
        upstream.push(text("Old [2], new [4]."));
        let body = app.post_chat(in_session("four", id)).await.completion();
        assert!(result(&body).starts_with("[4] "), "{id}: {body}");
        assert_eq!(
            cited("Old [2], new [4].", &message(&body)["annotations"]),
            [old.clone(), ("[4]".to_owned(), long.clone())],
            "{id}"
        );
    }
}

#[tokio::test]
async fn a_turn_that_is_not_stored_is_cited_all_the_same() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    let upstream = ScriptedUpstream::start([search("fjord"), text("It is so [1].")]).await;
    let app = builder(&upstream, &engine).start().await;
    let body = app
        .post_chat(with(ask("x"), "store", json!(false)))
        .await
        .completion();
    assert_eq!(body.get("session_id"), None);
    let cited = cited("It is so [1].", &message(&body)["annotations"]);
    assert_eq!(cited.len(), 1);
    let kept = app.get("/v1/sessions").await.json();
    assert_eq!(kept["data"], json!([]));
}

#[tokio::test]
async fn places_count_in_the_text_that_the_client_is_given() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    let all = "Ætt [1].\n\nSo [1].";
    for (mode, whole, marks) in [("all", all, 2), ("final", "So [1].", 1)] {
        for streamed in [false, true] {
            let asks = [("web_search", json!({"query": "fjord"}))];
            let upstream =
                ScriptedUpstream::start([text_and_calls("Ætt [1].", asks), text("So [1].")]).await;
            let app = builder(&upstream, &engine).start().await;
            let body = with(ask("x"), "agent", json!({"text": mode}));
            let (content, annotations) = if streamed {
                streamed_answer(app.stream_chat(body).await.collect().await)
            } else {
                let body = app.post_chat(body).await.completion();
                let content = message(&body)["content"].as_str().unwrap().to_owned();
                (content, message(&body)["annotations"].clone())
            };
            assert_eq!(content, whole, "{mode}, streamed: {streamed}");
            let cited = cited(&content, &annotations);
            assert_eq!(
                cited.len(),
                marks,
                "{mode}, streamed: {streamed}: {cited:?}"
            );
            assert!(cited.iter().all(|(mark, _)| mark == "[1]"), "{cited:?}");
        }
    }
}

#[tokio::test]
async fn several_wordings_are_searched_and_merged() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    let asks =
        json!({"query": "fjord", "queries": ["glacier"], "max_results": 1, "freshness": "week"});
    let upstream = ScriptedUpstream::start([calls([("web_search", asks)]), text("[1]")]).await;
    let app = builder(&upstream, &engine).start().await;
    let told = result(&app.post_chat(ask("x")).await.completion());
    assert!(
        told.starts_with("1 source(s) for \"fjord\", \"glacier\"."),
        "{told}"
    );
    assert_eq!(sources(&told).len(), 1, "{told}");
    let visits = engine.visits();
    let mut asked: Vec<String> = visits
        .iter()
        .filter_map(|visit| visit.parameter("q"))
        .collect();
    asked.sort();
    assert_eq!(asked, ["fjord", "glacier"]);
    assert!(
        visits
            .iter()
            .all(|visit| visit.parameter("time_range").as_deref() == Some("week"))
    );
}

#[tokio::test]
async fn a_client_tool_beside_a_search_loses_neither() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    let upstream = ScriptedUpstream::start([
        calls([
            ("web_search", json!({"query": "fjord"})),
            ("mine", json!({})),
        ]),
        text("So [2]."),
    ])
    .await;
    let app = builder(&upstream, &engine).start().await;
    let first = with(ask_with("x", ["mine"]), "store", json!(false));
    let body = app.post_chat(first.clone()).await.completion();
    assert_eq!(body["choices"][0]["finish_reason"], "tool_calls");
    let known = sources(&result(&body));
    let call = message(&body)["tool_calls"][0].clone();
    assert_eq!(call["function"]["name"], "mine");
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "done"});
    let messages = json!([first["messages"][0], message(&body), result]);
    let body = app
        .post_chat(with(first, "messages", messages))
        .await
        .completion();
    assert_eq!(
        cited("So [2].", &message(&body)["annotations"]),
        [("[2]".to_owned(), known[1].1.clone())]
    );
    assert_eq!(engine.visits().len(), 1, "nothing is searched twice");
}

#[tokio::test]
async fn the_same_search_is_not_made_a_third_time() {
    let pages = Site::pages().await;
    let engine = fjords(&pages).await;
    let same = || search("fjord");
    let upstream = ScriptedUpstream::start([same(), same(), same(), text("Done.")]).await;
    let app = builder(&upstream, &engine).start().await;
    let body = app.post_chat(ask("x")).await.completion();
    let calls = body["agentic_tool_calls"].as_array().unwrap().iter();
    let statuses: Vec<&Value> = calls.map(|call| &call["status"]).collect();
    assert_eq!(statuses, ["ok", "ok", "suppressed"]);
    assert_eq!(body["agent"]["stop_reason"], "completed");
}
