//! `check-config --connect`.

use tokio::net::TcpListener;

use super::{keyed, list, refused};
use crate::support::app::{Builder, Ended, TestApp};
use crate::support::postgres::PostgresServer;
use crate::support::unreachable_url;
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::Webhook;
use serde_json::json;

async fn connect(builder: Builder) -> Ended {
    builder.args(["--connect"]).run("check-config").await
}

fn assert_parts(ended: &Ended, code: i32, parts: &[&str]) {
    let Ended { stdout, stderr, .. } = ended;
    assert_eq!(ended.code, Some(code), "{stdout}\n{stderr}");
    for part in parts {
        assert!(stdout.contains(part), "{part}: {stdout}\n{stderr}");
    }
}

#[tokio::test]
async fn all_that_the_settings_name_is_tried() {
    let upstream = ScriptedUpstream::start([]).await;
    let upstream = upstream.listing([list(&json!({"id": "m", "owned_by": "llamacpp"}))]);
    let hook = Webhook::start().await;
    let mut builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let dir = builder.dir().to_owned();
    let ended = connect(builder).await;
    let place = format!(
        "# files in the directory {}/sessions-files: ok",
        dir.display()
    );
    let parts = [
        "# upstream default (http://127.0.0.1:",
        "ok, llama.cpp, 1 model (m)",
        "# webhook http://127.0.0.1:",
        "# session store: ok",
        &place,
    ];
    assert_parts(&ended, 0, &parts);
    // Nothing was sent to the webhook, and nothing was made.
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn what_is_down_is_named_with_its_cause() {
    let closed = unreachable_url().await;
    let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secure = format!("https://{}/run?token=hidden", plain.local_addr().unwrap());
    let closing = tokio::spawn(async move {
        loop {
            drop(plain.accept().await);
        }
    });
    let tool = format!(
        "[[tools]]\nname = \"lookup\"\ndescription = \"d\"\nurl = \"{closed}/tool?token=hidden\"\n[tools.parameters]\ntype = \"object\"\n"
    );
    let search = format!(
        "enable_search = true\nsearch_provider = \"searxng\"\nsearch_url = \"{closed}\"\nsession_store = \"sqlite:none/s.db\"\n{tool}"
    );
    let builder = TestApp::builder()
        .upstream_url(&closed)
        .dispatch_url(&secure);
    let ended = connect(builder.toml(&search)).await;
    closing.abort();
    let parts = [
        "# upstream default (http://127.0.0.1:",
        "it cannot be reached (Connection refused",
        "# webhook https://127.0.0.1:",
        "# tool lookup http://127.0.0.1:",
        "# search provider searxng: it cannot be reached",
        "# session store: the store failed: ",
        "none does not exist",
    ];
    assert_parts(&ended, 1, &parts);
    let down = ended.stderr.lines().last().unwrap_or_default();
    for part in [
        "upstream default",
        "webhook",
        "tool lookup",
        "search provider searxng",
        "session store",
    ] {
        assert!(down.contains(part), "{part}: {down}");
    }
    assert!(!(ended.stdout + &ended.stderr).contains("hidden"));
}

#[tokio::test]
async fn a_key_that_is_missing_or_refused_is_down_unless_the_clients_have_it() {
    for (has_key, has_api_keys, code, part) in [
        (false, false, 0, "the keys of clients are passed on"),
        (false, true, 1, "set --upstream-api-key-env"),
        (true, true, 1, "the key in MODEL_KEY is not accepted"),
    ] {
        let upstream = ScriptedUpstream::start([]).await.listing([refused(401)]);
        let ended = connect(keyed(&upstream, has_key, has_api_keys)).await;
        assert_parts(&ended, code, &[part]);
        assert!(!(ended.stdout + &ended.stderr).contains(super::KEY));
    }
}

#[tokio::test]
async fn a_store_in_use_is_left_alone() {
    let upstream = ScriptedUpstream::start([]).await;
    let mut app = TestApp::with_upstream(&upstream).await;
    let store = app.dir().join("sessions.db");
    let lines = format!("session_store = \"sqlite:{}\"", store.display());
    let ended = connect(TestApp::builder().upstream(&upstream).toml(&lines)).await;
    assert_parts(&ended, 0, &["# session store: ok"]);
    assert_eq!(app.get("/readyz").await.status, 200);
    app.restart().await;
    assert_eq!(app.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_database_is_connected_to_and_not_migrated() {
    let upstream = ScriptedUpstream::start([]).await;
    let database = PostgresServer::shared().create_database().await;
    let store = |url: &str| {
        let builder = TestApp::builder().upstream(&upstream);
        builder.env("LOOPWRIGHT_SESSION_STORE", url)
    };
    let ended = connect(store(&database)).await;
    assert_parts(&ended, 0, &["# session store: ok"]);
    let missing = database.replacen("?", "_missing?", 1);
    let missing = match missing == database {
        true => format!("{database}_missing"),
        false => missing,
    };
    let ended = connect(store(&missing)).await;
    assert_parts(
        &ended,
        1,
        &["# session store: the store failed: ", "does not exist"],
    );
}
