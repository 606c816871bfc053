//! A recorded conversation with a search and its pages.

use serde_json::json;

use super::PAGES;
use super::stage::{Site, hit};
use crate::golden::builder;
use crate::golden::record::Golden;
use crate::support::ask::{ask, with};
use crate::support::script::{calls, text};
use crate::support::upstream::ScriptedUpstream;

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
