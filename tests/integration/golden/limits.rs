//! The ends that a turn can come to before the model is done.

use serde_json::{Value, json};

use super::builder;
use super::record::Golden;
use crate::support::app::TestApp;
use crate::support::ask::{ask_with, with};
use crate::support::script::{calls, text, text_and_calls};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

/// A model that asks for the tool whenever it may, each time with other arguments.
async fn insatiable() -> ScriptedUpstream {
    let mut number = 0;
    ScriptedUpstream::answering(move |request| {
        number += 1;
        let may = request.body["tools"].is_array() && request.body["tool_choice"] != "none";
        match may {
            true => text_and_calls(&format!("Call {number}."), [("t", json!({"n": number}))])
                .usage(10, 10),
            false => text("Enough."),
        }
    })
    .await
}

/// Records the same request streamed and whole.
async fn both(golden: &mut Golden, app: &TestApp, upstream: &ScriptedUpstream, body: &Value) {
    for (id, streamed) in [("streamed", true), ("whole", false)] {
        golden.heading(id);
        let mut body = with(body.clone(), "session_id", json!(id));
        body["stream"] = json!(streamed);
        golden.chat(app.client(), &body).await;
        golden.upstream(upstream);
        golden.session(app.client(), id).await;
    }
}

#[tokio::test]
async fn round_cap() {
    for on_limit in ["final_answer", "stop", "error"] {
        let upstream = insatiable().await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let app = builder().upstream(&upstream).dispatch(&hook).start().await;
        let mut golden = Golden::default();
        let mut body = with(ask_with("Go", ["t"]), "max_tool_rounds", json!(2));
        body["agent"] = json!({"on_limit": on_limit});
        both(&mut golden, &app, &upstream, &body).await;
        golden.check(&format!("round_cap_{on_limit}"));
    }
}

#[tokio::test]
async fn budgets() {
    let upstream = insatiable().await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    for limits in [
        json!({"max_tool_calls": 1}),
        json!({"max_total_tokens": 30}),
    ] {
        golden.heading(&limits.to_string());
        for on_limit in ["final_answer", "stop", "error"] {
            let agent = json!({"on_limit": on_limit, "limits": limits});
            golden
                .chat(app.client(), &with(ask_with("Go", ["t"]), "agent", agent))
                .await;
            golden.upstream(&upstream);
        }
    }
    golden.check("budgets");
}

#[tokio::test]
async fn repeated_calls() {
    let same = || calls([("t", json!({"a": 1}))]);
    let script = || [same(), same(), same(), same(), text("I give up.")];
    let upstream = ScriptedUpstream::start(script().into_iter().chain(script())).await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let app = builder().upstream(&upstream).dispatch(&hook).start().await;
    let mut golden = Golden::default();
    both(&mut golden, &app, &upstream, &ask_with("Go", ["t"])).await;
    golden.check("repeated_calls");
}
