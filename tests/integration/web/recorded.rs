//! A recorded conversation with a search and its pages.

use serde_json::{Value, json};

use super::PAGES;
use super::stage::{Site, hit};
use crate::golden::builder;
use crate::golden::record::Golden;
use crate::support::ask::{ask, with};
use crate::support::script::{calls, text};
use crate::support::upstream::{MODEL, ScriptedUpstream};

#[tokio::test]
async fn search_and_pages() {
    let pages = Site::pages().await;
    let engine = Site::engine([
        hit(&pages.url("/fjords"), "Fjords", "On fjords."),
        hit(&pages.url("/glaciers"), "Glaciers", "On each fjord."),
    ])
    .await;
    let script = || {
        [
            calls([("web_search", json!({"query": "fjord"}))]),
            calls([("read_page", json!({"url": pages.url("/bread")}))]),
            calls([("read_page", json!({"url": pages.url("/forbidden")}))]),
            text("Zürich [1], 東京 [1, 2]; not [9], [x] or `a[1]`; bread [3]."),
        ]
    };
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let app = builder()
        .upstream(&upstream)
        .args(["--enable-search", "--search-url", &engine.origin()])
        .toml(PAGES)
        .start()
        .await;
    let mut golden = Golden::default();
    for (id, streamed) in [("streamed", true), ("whole", false)] {
        golden.heading(id);
        let mut body = with(ask("Fjords?"), "session_id", json!(id));
        body["stream"] = json!(streamed);
        body["web_search_options"] = json!({"search_context_size": "low"});
        golden.chat(app.client(), &body).await;
        golden.upstream(&upstream);
        golden.session(app.client(), id).await;
    }
    golden.heading("what the search engine and the site were asked");
    let mut visits: Vec<String> = engine
        .visits()
        .iter()
        .chain(&pages.visits())
        .map(|visit| format!("{} {:?}", visit.url.path(), visit.url.query()))
        .collect();
    // Pages are read at the same time.
    visits.sort();
    visits.iter().for_each(|visit| golden.line(visit));
    golden.check("search_and_pages");
}

/// The options of a search, and what a response shows of it.
#[tokio::test]
async fn search_in_responses() {
    let pages = Site::pages().await;
    let engine = Site::engine([
        hit(&pages.url("/fjords"), "Fjords", "On fjords."),
        hit(&pages.url("/glaciers"), "Glaciers", "On each fjord."),
    ])
    .await;
    let url = pages.url("/bread");
    let upstream = ScriptedUpstream::answering(move |request| {
        let is_offered = request.tool_names().iter().any(|name| name == "web_search");
        match request.tool_results().len() {
            0 if is_offered => calls([("web_search", json!({"query": "fjord"}))]),
            1 => calls([("read_page", json!({"url": url}))]),
            _ => text("Fjords [1]; bread [3]."),
        }
    })
    .await;
    let app = builder()
        .upstream(&upstream)
        .args(["--enable-search", "--search-url", &engine.origin()])
        .toml(PAGES)
        .start()
        .await;
    let mut golden = Golden::default();
    let place = json!({"type": "approximate", "country": "no", "city": "Oslo"});
    let web = |more: Value| {
        let mut tool = json!({"type": "web_search", "search_context_size": "low"});
        tool.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!([tool])
    };
    let include = json!(["web_search_call.action.sources", "web_search_call.results"]);
    for more in [
        json!({"tools": web(json!({"user_location": place}))}),
        json!({"tools": web(json!({})), "include": include, "stream": true}),
        json!({"tools": web(json!({"external_web_access": false}))}),
        json!({"tools": [{"type": "web_search_preview_2025_03_11"}], "tool_choice": {"type": "web_search_preview"}}),
        json!({"tools": web(json!({"filters": {"allowed_domains": ["127.0.0.1"]}})), "agent": {"citations": "links", "text": "final"}}),
        json!({"agent": {"progress": "declared"}}),
        json!({"max_tool_rounds": 0}),
        json!({"agent": {"tools": {"deny": ["web_search"]}}, "store": false}),
    ] {
        golden.heading(&more.to_string());
        let mut body = json!({"model": MODEL, "input": "Fjords?"});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        golden.response(app.client(), &body).await;
        golden.line("");
        golden.bodies(&upstream);
    }
    golden.check("search_in_responses");
}
