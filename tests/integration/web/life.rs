//! What ends with a connection, and with the server.

use std::collections::HashSet;
use std::path::Path;

use super::stage::{Site, hit, silence};
use super::{PAGES, builder, read, search};
use crate::support::app::TestApp;
use crate::support::ask::ask;
use crate::support::eventually;
use crate::support::script::text;
use crate::support::upstream::ScriptedUpstream;

#[tokio::test]
async fn a_client_that_goes_away_takes_the_connection_to_the_page_with_it() {
    let pages = Site::pages().await;
    let engine = Site::engine([hit(&pages.url("/slow"), "Slow", "Slow.")]).await;
    for reply in [read(&pages.url("/slow")), search("slow")] {
        let pages_before = pages.visits().len();
        let upstream = ScriptedUpstream::start([reply, text("never said")]).await;
        let app = builder(&upstream, &engine).start().await;
        let mut stream = app.stream_chat(ask("x")).await;
        stream
            .next_progress("agentic_tool_call_progress", "calling")
            .await;
        let visit = eventually("the slow page to be asked for", || async {
            let new = pages.visits().split_off(pages_before);
            new.into_iter().find(|visit| visit.url.path() == "/slow")
        })
        .await;
        drop(stream);
        visit.dropped().await;
        assert_eq!(upstream.remaining(), 1, "the turn ends there");
    }
}

#[tokio::test]
async fn a_client_that_goes_away_takes_the_search_with_it() {
    let engine = Site::start(|_| silence()).await;
    let upstream = ScriptedUpstream::start([search("slow"), text("never said")]).await;
    let app = builder(&upstream, &engine).start().await;
    let stream = app.stream_chat(ask("x")).await;
    let visit = engine.visited("/search").await;
    drop(stream);
    visit.dropped().await;
}

#[tokio::test]
async fn a_server_that_ends_during_a_search_leaves_no_parser_behind() {
    let pages = Site::pages().await;
    let engine = Site::engine([hit(&pages.url("/slow"), "Slow", "Slow.")]).await;
    let upstream = ScriptedUpstream::start([
        read(&pages.url("/bread")),
        search("slow"),
        text("never said"),
    ])
    .await;
    let mut app = TestApp::builder()
        .toml("shutdown_grace = 0.2")
        .upstream(&upstream)
        .args(["--enable-search", "--search-url", &engine.origin()])
        .toml(PAGES)
        .start()
        .await;
    let stream = app.stream_chat(ask("x")).await;
    let slow = pages.visited("/slow").await;
    let parsers = descendants(app.pid());
    assert!(
        !parsers.is_empty(),
        "a page was parsed, so there is a parser"
    );
    app.terminate().await;
    let (said, _) = stream.raw().await;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.trim_end().ends_with("data: [DONE]"), "{said}");
    let status = app.wait_exit().await;
    assert!(status.success(), "{status}: {}", app.logs());
    slow.dropped().await;
    eventually("the parsers to be gone", || async {
        let alive = |pid: &&u32| Path::new(&format!("/proc/{pid}/exe")).exists();
        let left: Vec<&u32> = parsers.iter().filter(alive).collect();
        left.is_empty().then_some(())
    })
    .await;
    assert!(!app.logs().contains("panic"), "{}", app.logs());
}

/// All processes below one.
fn descendants(root: u32) -> HashSet<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok());
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name is in parentheses and may hold anything.
        let parent = stat
            .rsplit(") ")
            .next()
            .and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        parents.extend(pid.zip(parent));
    }
    let mut found = HashSet::from([root]);
    while let Some((pid, _)) = parents
        .iter()
        .find(|(pid, parent): &&(u32, u32)| found.contains(parent) && !found.contains(pid))
    {
        found.insert(*pid);
    }
    found.remove(&root);
    found
}
