//! Search and pages over HTTP: a scripted search engine and a scripted site, on loopback addresses alone.

mod answers;
mod items;
mod life;
mod links;
mod options;
mod pages;
mod providers;
mod recorded;
mod stage;

use serde_json::{Value, json};

use self::stage::Site;
use super::support::app::{Builder, TestApp};
use super::support::script::{Reply, calls};
use super::support::upstream::ScriptedUpstream;

/// Pages at two addresses of this machine may be read, without a pause in between.
const PAGES: &str = "[search.pages]\nprivate = [\"127.0.0.1\", \"127.0.0.3\"]\nhost_interval = 0\n";

/// A server that searches with this engine.
fn builder(upstream: &ScriptedUpstream, engine: &Site) -> Builder {
    builder_with("", upstream, engine)
}

/// The same with more top-level settings.
fn builder_with(settings: &str, upstream: &ScriptedUpstream, engine: &Site) -> Builder {
    TestApp::builder()
        .upstream(upstream)
        .args(["--enable-search", "--search-url", &engine.origin()])
        .toml(settings)
        .toml(PAGES)
}

/// The model searches.
fn search(query: &str) -> Reply {
    calls([("web_search", json!({"query": query}))])
}

/// The model reads a page.
fn read(url: &str) -> Reply {
    calls([("read_page", json!({"url": url}))])
}

/// The results of the calls of an answer, in order: status and text.
fn results(body: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let calls = body["agentic_tool_calls"].as_array().unwrap();
    calls
        .iter()
        .map(|call| (text(&call["status"]), text(&call["result_content"])))
        .collect()
}

/// The one result of an answer that went well.
fn result(body: &Value) -> String {
    let mut results = results(body);
    assert_eq!(results.len(), 1, "{results:?}");
    let (status, text) = results.remove(0);
    assert_eq!(status, "ok", "{text}");
    text
}

/// The sources that a result names: number and URL.
fn sources(content: &str) -> Vec<(u64, String)> {
    let lines: Vec<&str> = content.lines().collect();
    let source = |pair: &[&str]| {
        let (number, _) = pair[0].strip_prefix('[')?.split_once("] ")?;
        Some((number.parse().ok()?, pair[1].to_owned()))
    };
    lines.windows(2).filter_map(source).collect()
}

/// What annotations mark in a text, and where that leads.
fn cited(text: &str, annotations: &Value) -> Vec<(String, String)> {
    let list = annotations.as_array().expect("a list of annotations");
    list.iter()
        .map(|annotation| {
            assert_eq!(annotation["type"], "url_citation", "{annotation}");
            let citation = &annotation["url_citation"];
            let place = |name: &str| usize::try_from(citation[name].as_u64().unwrap()).unwrap();
            let (start, end) = (place("start_index"), place("end_index"));
            assert!(start < end && !citation["title"].as_str().unwrap().is_empty());
            let mark = text.chars().skip(start).take(end - start).collect();
            (mark, citation["url"].as_str().unwrap().to_owned())
        })
        .collect()
}

/// The message of an answer that is not streamed.
fn message(body: &Value) -> &Value {
    &body["choices"][0]["message"]
}
