//! The spans that others learn of, and traces that are not recorded.

use std::sync::Arc;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::collector::{Collector, named};
use super::{SPAN, TRACE, tools, tracing};
use crate::support::ask::{ask, ask_with};
use crate::support::script::{calls, text};
use crate::support::server::{Handler, HttpReply, Outgoing, Server};
use crate::support::upstream::ScriptedUpstream;

/// The name of an event, and the span that a hook is told of.
type Told = Arc<Mutex<Vec<(String, String)>>>;

/// A policy server that has no objections.
async fn hooks() -> (Server, Told) {
    let told = Told::default();
    let noted = told.clone();
    let handler: Handler = Arc::new(move |arrived| {
        let noted = noted.clone();
        Box::pin(async move {
            let (head, body) = arrived.request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let event: Value = serde_json::from_slice(&body).unwrap();
            let event = event["hook_event_name"].as_str().unwrap().to_owned();
            let trace = head.headers["traceparent"].to_str().unwrap().to_owned();
            noted.lock().push((event, trace));
            Outgoing::Scripted(HttpReply::whole(200, "application/json", "{}"))
        })
    });
    (Server::start(handler).await, told)
}

#[tokio::test]
async fn hooks_are_told_of_what_asks_them() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([calls([("add", json!({}))]), text("Done.")]).await;
    let hook = tools().await;
    let (server, told) = hooks().await;
    let entries = ["before_tool", "after_tool", "before_model", "before_finish"];
    let entries = entries.map(|on| {
        format!(
            "[[hooks]]\non = \"{on}\"\nurl = \"http://{}/\"\n",
            server.addr()
        )
    });
    let app = collector.app().upstream(&upstream).dispatch(&hook);
    let app = app.toml(&entries.concat()).start().await;
    let answer = tracing(app.client())
        .post_chat(ask_with("Go", ["add"]))
        .await;
    assert_eq!(answer.content(), "Done.");
    let spans = collector.spans(5).await;
    let call = named(&spans, "execute_tool add").traceparent();
    let agent = named(&spans, "invoke_agent").traceparent();
    let expected = [
        ("PreModelCall", &agent),
        ("PreToolUse", &call),
        ("PostToolUse", &call),
        ("PreModelCall", &agent),
        ("Stop", &agent),
    ];
    let expected = expected.map(|(event, trace)| (event.to_owned(), trace.clone()));
    assert_eq!(*told.lock(), expected);
}

#[tokio::test]
async fn without_a_collector_the_span_of_the_client_is_passed_on() {
    let upstream = ScriptedUpstream::start([calls([("add", json!({}))]), text("Done.")]).await;
    let hook = tools().await;
    let app = crate::support::app::TestApp::with_tools(&upstream, &hook).await;
    tracing(app.client())
        .post_chat(ask_with("Go", ["add"]))
        .await;
    let sent = format!("00-{TRACE}-{SPAN}-01");
    assert_eq!(upstream.request(0).header("traceparent"), Some(&*sent));
    assert_eq!(hook.call(0).header("traceparent"), Some(&*sent));
}

#[tokio::test]
async fn a_trace_that_the_client_does_not_record_is_not_exported() {
    let collector = Collector::start().await;
    let round = || [calls([("add", json!({}))]), text("Done.")];
    let upstream = ScriptedUpstream::start(round().into_iter().chain(round())).await;
    let hook = tools().await;
    let app = collector
        .app()
        .upstream(&upstream)
        .dispatch(&hook)
        .start()
        .await;
    let unsampled = format!("00-{TRACE}-{SPAN}-00");
    let client = app.client().header("traceparent", &unsampled);
    let client = client.header("tracestate", "vendor=1");
    assert_eq!(
        client.post_chat(ask_with("Go", ["add"])).await.content(),
        "Done."
    );
    for headers in [&upstream.request(0).headers, &hook.call(0).headers] {
        let sent = headers["traceparent"].to_str().unwrap();
        assert!(
            sent.starts_with(&format!("00-{TRACE}-")) && sent.ends_with("-00"),
            "{sent}"
        );
        assert_ne!(sent, unsampled);
        assert_eq!(headers["tracestate"], "vendor=1");
    }
    // One that begins here is recorded.
    app.post_chat(ask_with("Go", ["add"])).await;
    let spans = collector.spans(5).await;
    assert!(spans.iter().all(|span| span.trace != TRACE));
}

#[tokio::test]
async fn a_wrong_parent_begins_a_trace() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let app = collector.app().upstream(&upstream).start().await;
    let client = app.client().header("traceparent", "00-nonsense-01");
    assert_eq!(client.post_chat(ask("Hi")).await.content(), "Hello.");
    let spans = collector.spans(2).await;
    let server = named(&spans, "POST /v1/chat/completions");
    assert_eq!(server.parent, "");
}
