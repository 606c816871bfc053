//! Searches and pages as items of the Responses API.

use serde_json::{Value, json};

use super::stage::{Site, hit};
use super::{builder, read, search};
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;

const PATH: &str = "/v1/responses";

#[tokio::test]
async fn a_search_has_its_sources_where_they_are_asked_for() {
    let pages = Site::pages().await;
    let fjords = pages.url("/fjords");
    let engine = Site::engine([hit(&fjords, "Fjords", "On fjords.")]).await;
    let upstream = ScriptedUpstream::answering({
        let fjords = fjords.clone();
        move |request| match request.tool_results().len() {
            0 => search("fjord"),
            1 => read(&fjords),
            _ => text("Deep [1]."),
        }
    })
    .await;
    let app = builder(&upstream, &engine).start().await;
    let body = |include: Value| {
        json!({
            "model": "test-model", "input": "Fjords?", "tools": [{"type": "web_search"}], "include": include,
        })
    };
    let asked = json!(["web_search_call.action.sources", "web_search_call.results"]);
    for (include, has_sources) in [(json!([]), false), (asked, true)] {
        let response = app.post(PATH, &body(include)).await.json();
        let output = response["output"].as_array().unwrap();
        let kinds: Vec<&str> = output
            .iter()
            .map(|item| item["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["web_search_call", "web_search_call", "message"]);
        let action = &output[0]["action"];
        assert_eq!(
            (&action["type"], &action["query"]),
            (&json!("search"), &json!("fjord"))
        );
        let sources = has_sources.then(|| json!([{"type": "url", "url": fjords}]));
        assert_eq!(action.get("sources"), sources.as_ref());
        let results = has_sources.then(|| json!([{"url": fjords, "title": "Fjords"}]));
        assert_eq!(output[0].get("results"), results.as_ref());
        assert_eq!(
            output[1]["action"],
            json!({"type": "open_page", "url": fjords})
        );
        let part = &output[2]["content"][0];
        let citation = &part["annotations"][0];
        assert_eq!(
            (&citation["type"], &citation["url"]),
            (&json!("url_citation"), &json!(fjords))
        );
        let place = |name: &str| usize::try_from(citation[name].as_u64().unwrap()).unwrap();
        let marked = &part["text"].as_str().unwrap()[place("start_index")..place("end_index")];
        assert_eq!(marked, "[1]");
    }
}
