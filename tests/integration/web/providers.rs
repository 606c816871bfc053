//! Search engines that fail: what the model is told, who is asked instead, and what nobody is told.

use http::StatusCode;
use serde_json::json;

use super::stage::{Site, hit, json_answer, silence};
use super::{PAGES, builder, result, results, search};
use crate::support::app::TestApp;
use crate::support::ask::ask;
use crate::support::script::text;
use crate::support::server::{HttpReply, Outgoing};
use crate::support::unreachable_url;
use crate::support::upstream::ScriptedUpstream;

/// What the model is told of a search at the engine with this origin: the call's status and its text.
async fn told(origin: &str, streamed: bool) -> (String, String) {
    let upstream = ScriptedUpstream::start([search("fjord"), text("I could not search.")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .args(["--enable-search", "--search-url", origin])
        .toml("[search]\ntimeout = 0.5\nmax_retries = 0\n")
        .start()
        .await;
    if !streamed {
        let body = app.post_chat(ask("x")).await.completion();
        return results(&body).remove(0);
    }
    let collected = app.stream_chat(ask("x")).await.collect().await;
    let complete = collected.phase("complete")[0];
    assert_eq!(complete["data"]["results_count"], 0);
    assert_eq!(complete["data"]["query"], "fjord");
    let status = complete["status"].as_str().unwrap().to_owned();
    (status, upstream.last().tool_results().remove(0).1)
}

async fn failing(status: u16, body: &'static str) -> Site {
    Site::start(move |_| Outgoing::Scripted(HttpReply::whole(status, "application/json", body)))
        .await
}

#[tokio::test]
async fn a_provider_that_fails_is_an_error_in_plain_words_and_never_nothing_found() {
    let cases = [
        (failing(401, "{}").await, "it refused its API key"),
        (failing(403, "").await, "json to search.formats"),
        (failing(429, "").await, "it asks for fewer requests"),
        (failing(500, "oops").await, "it answered with status 500"),
        (failing(200, "<html>").await, "its answer cannot be used"),
        (
            failing(200, "{\"results\": 7}").await,
            "its answer cannot be used",
        ),
        (failing(302, "").await, "redirects to another address"),
        (
            failing(
                200,
                r#"{"results": [], "unresponsive_engines": [["bing", "timeout"]]}"#,
            )
            .await,
            "its engines did not answer: bing (timeout)",
        ),
        (
            Site::start(|_| silence()).await,
            "it did not answer within 0.5 s",
        ),
    ];
    for (number, (engine, words)) in cases.iter().enumerate() {
        let (status, text) = told(&engine.origin(), number % 2 == 0).await;
        assert_eq!(status, "error", "{words}: {text}");
        assert!(text.contains(words), "{words}: {text}");
        assert!(
            text.contains("says nothing about what there is to find"),
            "{text}"
        );
        assert!(!text.contains("Nothing was found"), "{text}");
        assert!(!text.contains(&engine.origin()), "{text}");
        assert!(!engine.visits().is_empty(), "{words}: nobody asked");
    }
    let down = unreachable_url().await;
    let (status, text) = told(&down, false).await;
    assert_eq!(status, "error");
    assert!(text.contains("it cannot be reached"), "{text}");
    assert!(!text.contains("127.0.0.1"), "{text}");
}

#[tokio::test]
async fn nothing_found_is_no_error() {
    let engine = Site::engine([]).await;
    for streamed in [false, true] {
        let (status, text) = told(&engine.origin(), streamed).await;
        assert_eq!(
            (&*status, &*text),
            ("ok", "Nothing was found for \"fjord\". Try other words.")
        );
    }
}

/// Provider, the variable of its key and the header that carries it, the path that it answers at, and an answer as
/// documented.
type Kind = (
    &'static str,
    Option<(&'static str, &'static str)>,
    &'static str,
    &'static str,
);

const KINDS: [Kind; 5] = [
    (
        "brave",
        Some(("BRAVE_API_KEY", "x-subscription-token")),
        "/res/v1/web/search",
        include_str!("../../web/providers/brave.json"),
    ),
    (
        "tavily",
        Some(("TAVILY_API_KEY", "authorization")),
        "/search",
        include_str!("../../web/providers/tavily.json"),
    ),
    (
        "exa",
        Some(("EXA_API_KEY", "x-api-key")),
        "/search",
        include_str!("../../web/providers/exa.json"),
    ),
    (
        "serper",
        Some(("SERPER_API_KEY", "x-api-key")),
        "/search",
        include_str!("../../web/providers/serper.json"),
    ),
    (
        "duckduckgo",
        None,
        "/html/",
        include_str!("../../web/providers/duckduckgo.html"),
    ),
];

#[tokio::test]
async fn every_provider_answers_in_its_own_way_and_is_told_of_by_name_when_it_does_not() {
    for (name, key, path, answer) in KINDS {
        for status in [200, 429] {
            let engine = Site::start(move |_| {
                let body = if status == 200 { answer } else { "{}" };
                let kind = if name == "duckduckgo" {
                    "text/html"
                } else {
                    "application/json"
                };
                Outgoing::Scripted(HttpReply::whole(status, kind, body))
            })
            .await;
            let script = [search("harbour seals"), text("Seals [1].")];
            let upstream = ScriptedUpstream::start([script.clone(), script].concat()).await;
            // Without pages: the addresses in the answers are nobody's.
            let mut app = TestApp::builder()
                .upstream(&upstream)
                .args([
                    "--enable-search",
                    "--search-provider",
                    name,
                    "--search-url",
                    &engine.origin(),
                ])
                .toml("[search]\nmax_pages = 0\nmax_retries = 0\ncache_ttl = 0\n");
            if let Some((variable, _)) = key {
                app = app.env(variable, "the-key");
            }
            let app = app.start().await;
            let body = app.post_chat(ask("x")).await.completion();
            let (told, content) = results(&body).remove(0);
            let collected = app.stream_chat(ask("x")).await.collect().await;
            let complete = collected.phase("complete")[0].clone();
            let count = complete["data"]["results_count"].as_u64().unwrap();
            assert_eq!(complete["status"], told.as_str(), "{name}");
            if status == 200 {
                assert_eq!(told, "ok", "{name}: {content}");
                assert!(
                    content.contains("https://seals.example.org/harbour"),
                    "{name}: {content}"
                );
                assert!(count > 0, "{name}: {complete}");
                let cited = &body["choices"][0]["message"]["annotations"][0]["url_citation"];
                assert_eq!(
                    (&cited["start_index"], &cited["end_index"]),
                    (&json!(6), &json!(9))
                );
            } else {
                assert_eq!((told.as_str(), count), ("error", 0), "{name}: {content}");
                assert!(
                    content.contains(name) && !content.contains("Nothing was found"),
                    "{content}"
                );
            }
            let visit = engine.visits().remove(0);
            assert_eq!(visit.url.path(), path, "{name}");
            if let Some((_, header)) = key {
                let sent = visit.headers[header].to_str().unwrap();
                assert!(sent.ends_with("the-key"), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn an_upstream_with_embeddings_has_its_say_in_the_order() {
    let hits = [
        hit("https://a.test/", "", "fjord fjord"),
        hit(
            "https://b.test/",
            "",
            "of a fjord and its many narrow inlets by the sea",
        ),
        hit("https://c.test/", "", "something else entirely"),
    ];
    let engine = Site::engine(hits).await;
    // The query, and then the passages in the order that words alone give them.
    let vectors = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]];
    let data = vectors.iter().enumerate();
    let data: Vec<_> = data
        .map(|(index, vector)| json!({"index": index, "embedding": vector}))
        .collect();
    let answer = json!({"object": "list", "data": data});
    let embedder = Site::start(move |_| json_answer(200, &answer)).await;
    let broken = failing(500, "").await;
    for (embeddings, first) in [(&embedder, "https://b.test/"), (&broken, "https://a.test/")] {
        let upstream = ScriptedUpstream::start([search("fjord"), text("So [1].")]).await;
        let settings = format!(
            "[[upstreams]]\nname = \"chat\"\nbase_url = \"{}\"\n[[upstreams]]\nname = \"embed\"\nbase_url = \"{}\"\n\
             models = [\"none\"]\n[search]\nmax_pages = 0\nembedding_model = \"e\"\nembedding_upstream = \"embed\"\n",
            upstream.base_url(),
            embeddings.url("/v1"),
        );
        let app = TestApp::builder()
            .args(["--enable-search", "--search-url", &engine.origin()])
            .toml(&settings)
            .start()
            .await;
        let body = app.post_chat(ask("x")).await.completion();
        let told = result(&body);
        assert_eq!(super::sources(&told)[0], (1, first.to_owned()), "{told}");
        let mut paths = embeddings.paths();
        // At a time of its own loopwright asks for the models.
        paths.retain(|path| path != "/v1/models");
        assert_eq!(paths, ["/v1/embeddings"]);
    }
}

#[tokio::test]
async fn the_next_provider_answers_for_one_that_fails_and_keys_stay_secret() {
    const KEY: &str = "key-of-the-first-engine";
    let first = failing(429, "").await;
    let pages = Site::pages().await;
    let second = Site::engine([hit(&pages.url("/fjords"), "Fjords", "On fjords.")]).await;
    let upstream = ScriptedUpstream::start([search("fjord"), text("So [1].")]).await;
    let providers = format!(
        "[[search.providers]]\nname = \"searxng\"\nurl = \"{}\"\napi_key_env = \"FIRST_KEY\"\n\
         [[search.providers]]\nname = \"searxng\"\nurl = \"{}\"\n",
        first.origin(),
        second.origin()
    );
    let start = || {
        TestApp::builder()
            .upstream(&upstream)
            .args(["--enable-search", "--log-level", "trace"])
            .env("FIRST_KEY", KEY)
            .toml(&format!("{PAGES}{providers}"))
    };
    let app = start().start().await;
    let body = app.post_chat(ask("x")).await.completion();
    let told = result(&body);
    assert!(told.contains("\n> A fjord is"), "{told}");
    let note = "Note: searxng could not be used (it asks for fewer requests: try again later); searxng answered instead.";
    assert!(told.ends_with(note), "{told}");
    let sent = first.visits().remove(0).headers["authorization"].clone();
    assert_eq!(sent, format!("Bearer {KEY}"));
    assert!(!second.visits()[0].headers.contains_key("authorization"));
    let checked = start().run("check-config").await;
    let logs = app.logs();
    assert!(logs.contains("it asks for fewer requests"), "{logs}");
    for said in [&logs, &checked.stdout, &checked.stderr, &body.to_string()] {
        assert!(!said.contains(KEY), "{said}");
    }
}

#[tokio::test]
async fn a_page_that_cannot_be_read_is_quoted_by_its_summary() {
    let pages = Site::pages().await;
    let engine = Site::engine([
        hit(&pages.url("/missing"), "Fjords", "A summary of each fjord."),
        hit(
            &pages.url("/forbidden"),
            "More",
            "Another summary of a fjord.",
        ),
    ])
    .await;
    let upstream = ScriptedUpstream::start([search("fjord"), text("So [1].")]).await;
    let app = builder(&upstream, &engine).start().await;
    let told = result(&app.post_chat(ask("x")).await.completion());
    assert!(told.contains("\n> A summary of each fjord."), "{told}");
    assert!(
        told.ends_with(
            "Note: of 2 source(s) only the search engine's summary is known, not the page."
        ),
        "{told}"
    );
    assert_eq!(pages.paths(), ["/missing"], "robots.txt forbids the other");
}

#[tokio::test]
async fn the_same_search_is_made_once() {
    let engine = Site::start(|_| json_answer(200, &json!({"results": []}))).await;
    let upstream = ScriptedUpstream::start([search("a"), text("1"), search("a"), text("2")]).await;
    let app = builder(&upstream, &engine).start().await;
    for _ in 0..2 {
        let answer = app.post_chat(ask("x")).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    assert_eq!(engine.visits().len(), 1);
}
