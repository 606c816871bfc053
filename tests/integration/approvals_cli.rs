//! `loopwright approvals`: what a person sees of the calls that wait, and decides, in a terminal.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::hooks::receiver::{Receiver, output};
use super::support::app::{Ended, TestApp, run_command};
use super::support::ask::{ask_with, with};
use super::support::client::{Answer, Client};
use super::support::events::EventReader;
use super::support::script::{Reply, calls, text};
use super::support::server::{Arrived, HttpReply, Outgoing, Server};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

const ASK: &str = r#"
    [[permissions]]
    tool = "charge"
    argument = "/account"
    match = "glob"
    patterns = ["*"]
    effect = "ask"
    reason = "This moves money."
"#;

/// Runs `approvals` with these words and variables.
async fn run(words: &[&str], variables: &[(&str, &str)]) -> Ended {
    run_command("approvals", words, variables).await
}

/// What it prints where it succeeds.
async fn printed(app: &TestApp, words: &[&str]) -> String {
    let ended = run(words, &[("LOOPWRIGHT_SERVER", app.origin())]).await;
    assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.stderr);
    assert_eq!(ended.stderr, "", "{words:?}");
    assert_harmless(&ended.stdout);
    ended.stdout
}

/// The line that it says where it fails.
async fn refused(code: i32, words: &[&str], variables: &[(&str, &str)]) -> String {
    let ended = run(words, variables).await;
    assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
    assert_eq!(ended.stdout, "", "{words:?}");
    assert_harmless(&ended.stderr);
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.starts_with("loopwright: "), "{}", ended.stderr);
    ended.stderr
}

/// Nothing in a text acts on a terminal or hides.
fn assert_harmless(text: &str) {
    for one in text.chars().filter(|one| *one != '\n') {
        let hides = matches!(one, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
        assert!(!one.is_control() && !hides, "{one:?} in {text}");
    }
}

async fn start<const N: usize>(
    script: [Reply; N],
    toml: &str,
) -> (ScriptedUpstream, Webhook, TestApp) {
    let upstream = ScriptedUpstream::start(script).await;
    let hook = Webhook::start().await;
    let hook = hook.on("charge", webhook::text("charged"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let builder = builder.toml(&format!("{ASK}\n{toml}"));
    let keys = builder
        .env("ALICE", "alice-alice-alice")
        .env("BOB", "bob-bob-bob-bob-bob");
    let app = keys.start().await;
    (upstream, hook, app)
}

fn charge(account: &str, cents: u32) -> (&'static str, Value) {
    ("charge", json!({"account": account, "cents": cents}))
}

fn pay(session: &str) -> Value {
    with(ask_with("Pay", ["charge"]), "session_id", json!(session))
}

fn go_on(session: &str) -> Value {
    with(pay(session), "messages", json!([]))
}

/// The ids of the approvals of an answer that waits.
fn asked(answer: &Answer) -> Vec<String> {
    let approvals = answer.completion()["agent"]["approvals"].clone();
    let ids = approvals.as_array().unwrap().iter();
    ids.map(|one| one["approval_id"].as_str().unwrap().to_owned())
        .collect()
}

/// The id of the next approval that a stream asks for.
async fn next_approval(stream: &mut EventReader) -> String {
    loop {
        let chunk = stream.next_chunk().await;
        if chunk["type"] == "agentic_tool_approval_required" {
            return chunk["approval_id"].as_str().unwrap().to_owned();
        }
    }
}

#[tokio::test]
async fn what_waits_is_listed_shown_and_decided() {
    let script = [calls([charge("a", 5), charge("b", 6)]), text("Partly.")];
    let (upstream, hook, app) = start(script, "").await;
    assert_eq!(printed(&app, &["list"]).await, "nothing waits\n");
    let ids = asked(&app.post_chat(pay("s")).await);

    let list = printed(&app, &["list"]).await;
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 7, "{list}");
    let words =
        |line: &str| -> Vec<String> { line.split_whitespace().map(ToOwned::to_owned).collect() };
    assert_eq!(words(lines[0]), ["ID", "LEFT", "TOOL", "SESSION"]);
    // Between them is the time that is left.
    let first = words(lines[1]);
    assert_eq!(first[0], ids[0]);
    assert_eq!(first[3..], ["charge", "s"]);
    assert_eq!(lines[2], "    reason: This moves money.");
    assert_eq!(lines[3], r#"    arguments: {"account":"a","cents":5}"#);
    assert!(lines[4].starts_with(&ids[1]), "the newest is the last");

    let shown = printed(&app, &["show", &ids[1]]).await;
    for part in [
        &format!("id       {}\ntool     charge\nsession  s\n", ids[1]),
        "reason   This moves money.\nrule     {\"level\":\"server\",\"index\":0}\nrun      chatcmpl-",
        "\narguments\n{\n  \"account\": \"b\",\n  \"cents\": 6\n}\n",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let listed: Value = serde_json::from_str(&printed(&app, &["list", "--json"]).await).unwrap();
    assert_eq!(listed, app.get("/v1/agent/approvals").await.json());
    let one = printed(&app, &["show", "--json", &ids[1]]).await;
    assert_eq!(
        serde_json::from_str::<Value>(&one).unwrap(),
        listed["data"][1]
    );

    let deny = ["deny", &ids[0], "--message", "not today"];
    let next = "the next request of the session goes on";
    assert_eq!(
        printed(&app, &deny).await,
        format!("denied {}: {next}\n", ids[0])
    );
    // The base URL of the API is an address of the server, too.
    let base = format!("{}/v1", app.origin());
    let edited = r#"{"account": "b", "cents": 1}"#;
    let approve = ["approve", &ids[1], "--arguments", edited, "--server", &base];
    let done = run(&approve, &[]).await;
    assert_eq!(
        (done.code, done.stdout),
        (Some(0), format!("approved {}: {next}\n", ids[1]))
    );
    assert_eq!(printed(&app, &["list"]).await, "nothing waits\n");
    assert_eq!(app.post_chat(go_on("s")).await.content(), "Partly.");
    assert_eq!(hook.calls().len(), 1);
    assert_eq!(
        *hook.call(0).arguments(),
        json!({"account": "b", "cents": 1})
    );
    let told = upstream.last().messages();
    assert!(told[2]["content"].as_str().unwrap().contains("not today"));
}

#[tokio::test]
async fn every_kind_of_waiting_call_is_listed_and_shown() {
    let script = [
        calls([charge("a", 1)]),
        calls([charge("b", 2)]),
        calls([("read", json!({"from": "word"}))]),
        calls([("read", json!({"from": "hook"}))]),
        text("Done."),
    ];
    let asker = Receiver::start(|_, event| match event["tool_input"]["from"] == "hook" {
        true => output(&json!({"permissionDecision": "ask"})),
        false => output(&json!({})),
    })
    .await;
    let hook = asker.entry("before_tool", "/", "");
    let (_upstream, _hook, app) = start(script, &hook).await;
    // A rule asks in a turn that is not stored.
    let unstored = with(ask_with("Pay", ["charge"]), "store", json!(false));
    let mut stream = app.stream_chat(unstored).await;
    let in_memory = next_approval(&mut stream).await;
    // A rule asks in a stored one.
    let of_rule = asked(&app.post_chat(pay("rule")).await);
    // The word of the request, and a hook: neither names a rule.
    let mut word = with(ask_with("Read", ["read"]), "session_id", json!("word"));
    word["agent_permission"] = json!("ask");
    let of_word = asked(&app.post_chat(word).await);
    let read = with(ask_with("Read", ["read"]), "session_id", json!("hook"));
    let of_hook = asked(&app.post_chat(read).await);

    let list = printed(&app, &["list"]).await;
    for (id, session, rule) in [
        (&in_memory, "-", r#"{"level":"server","index":0}"#),
        (&of_rule[0], "rule", r#"{"level":"server","index":0}"#),
        (&of_word[0], "word", "-"),
        (&of_hook[0], "hook", "-"),
    ] {
        let line = list.lines().find(|line| line.starts_with(id.as_str()));
        assert_eq!(
            line.unwrap().split_whitespace().last(),
            Some(session),
            "{list}"
        );
        let shown = printed(&app, &["show", id]).await;
        for (name, value) in [("session", session), ("rule", rule)] {
            assert!(shown.contains(&format!("\n{name:<9}{value}\n")), "{shown}");
        }
    }
    let said = printed(&app, &["deny", &in_memory]).await;
    assert_eq!(
        said,
        format!("denied {in_memory}: the answer that waits goes on\n")
    );
    drop(stream);
}

#[tokio::test]
async fn a_stream_goes_on_and_grants_are_remembered() {
    let script = [
        calls([charge("a", 1)]),
        calls([charge("a", 2)]),
        calls([charge("b", 3)]),
        calls([charge("c", 4)]),
        text("Paid."),
    ];
    let (_upstream, hook, app) = start(script, "").await;
    let mut stream = app.stream_chat(pay("s")).await;
    for choice in ["same", "tool"] {
        let id = next_approval(&mut stream).await;
        let said = printed(&app, &["approve", &id, "--remember", choice]).await;
        assert_eq!(
            said,
            format!("approved {id}: the answer that waits goes on\n")
        );
    }
    assert_eq!(stream.collect().await.text, "Paid.");
    assert_eq!(hook.calls().len(), 4);
}

#[tokio::test]
async fn what_the_server_refuses_is_told_with_the_remedy() {
    let (_upstream, _hook, app) = start([calls([charge("a", 5)])], "").await;
    let id = asked(&app.post_chat(pay("s")).await).remove(0);
    let server = [("LOOPWRIGHT_SERVER", app.origin())];
    let unknown = format!("apr_{}", "0".repeat(id.len() - 4));
    for words in [
        ["show", &unknown],
        ["approve", &unknown],
        ["deny", &unknown],
    ] {
        let said = refused(1, &words, &server).await;
        for part in [&*unknown, "`loopwright approvals list`"] {
            assert!(said.contains(part), "{words:?}: {said}");
        }
    }
    let unfit = ["approve", &id, "--arguments", r#"{"account": 5}"#];
    let said = run(&unfit, &server).await;
    // A tool that a request declares is not known to the server before the call runs.
    assert_eq!(said.code, Some(0), "{said:?}");
    for words in [["approve", &id], ["deny", &id]] {
        let said = refused(1, &words, &server).await;
        for part in [&*id, "decided before", "`loopwright approvals list`"] {
            assert!(said.contains(part), "{words:?}: {said}");
        }
    }
    let said = refused(1, &["show", &id], &server).await;
    assert!(said.contains("is decided or expired"), "{said}");
}

#[tokio::test]
async fn the_key_is_in_a_variable_and_the_own_calls_are_seen() {
    let keys =
        "[[api_keys]]\nname = 'alice'\nenv = 'ALICE'\n[[api_keys]]\nname = 'bob'\nenv = 'BOB'\n";
    let (_upstream, _hook, app) = start([calls([charge("a", 5)])], keys).await;
    let alice: Client = app.client().key("alice-alice-alice");
    let id = asked(&alice.post_chat(pay("s")).await).remove(0);
    let server = ("LOOPWRIGHT_SERVER", app.origin());
    let said = refused(1, &["list"], &[server]).await;
    assert!(
        said.contains("set the environment variable LOOPWRIGHT_API_KEY"),
        "{said}"
    );
    let wrong = [server, ("OTHER", "mallory-mallory")];
    let said = refused(1, &["list", "--key-env", "OTHER"], &wrong).await;
    assert!(
        said.contains("refuses the API key in the environment variable OTHER"),
        "{said}"
    );
    assert!(!said.contains("mallory"), "{said}");
    let said = refused(2, &["list", "--key-env", "UNSET"], &[server]).await;
    assert!(said.contains("UNSET is not set"), "{said}");
    let bob = [server, ("LOOPWRIGHT_API_KEY", "bob-bob-bob-bob-bob")];
    assert_eq!(run(&["list"], &bob).await.stdout, "nothing waits\n");
    let said = refused(1, &["approve", &id], &bob).await;
    assert!(said.contains("for this key"), "{said}");
    let alice = [server, ("LOOPWRIGHT_API_KEY", "alice-alice-alice")];
    assert!(run(&["list"], &alice).await.stdout.contains(&id));
}

#[tokio::test]
async fn without_a_server_and_with_wrong_arguments_one_line_says_what_helps() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let said = refused(1, &["list", "--server", &gone], &[]).await;
    for part in [&*gone, "refused", "--server", "LOOPWRIGHT_SERVER"] {
        assert!(said.contains(part), "{said}");
    }
    let id = format!("apr_{}", "0".repeat(48));
    for (words, part) in [
        (
            &["list", "--server", "localhost:8080"][..],
            "--server: is not the URL",
        ),
        (&["show", "../sessions"], "ID: is not the id of an approval"),
        (
            &["approve", &id, "--arguments", "[]"],
            "--arguments: is not a JSON object",
        ),
    ] {
        let said = refused(2, words, &[]).await;
        assert!(said.contains(part), "{said}");
    }
    for words in [
        &["approve"][..],
        &["approve", &id, "--remember", "all"],
        &["list", "--api-key", "k"],
        &[],
    ] {
        assert_eq!(run(words, &[]).await.code, Some(2), "{words:?}");
    }
    let help = run(&["list", "--help"], &[]).await;
    for part in [
        "--server <URL>",
        "[env: LOOPWRIGHT_SERVER]",
        "--key-env <NAME>",
    ] {
        assert!(help.stdout.contains(part), "{}", help.stdout);
    }
    assert!(
        !help.stdout.contains("LOOPWRIGHT_KEY_ENV"),
        "{}",
        help.stdout
    );
}

#[tokio::test]
async fn hostile_arguments_of_a_model_do_not_reach_the_terminal() {
    let hostile = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{202e}\u{200b}apr_";
    let (_upstream, _hook, app) = start([calls([charge(hostile, 5)])], "").await;
    let id = asked(&app.post_chat(pay("s")).await).remove(0);
    let list = printed(&app, &["list"]).await;
    assert_eq!(list.lines().count(), 4, "{list}");
    assert!(
        list.contains(r#""\u001b[2J\u001b]0;owned\u0007\u009b31m\r\n\u202e\u200bapr_""#),
        "{list}"
    );
    let shown = printed(&app, &["show", &id]).await;
    assert!(shown.contains(r"\u009b31m\r\n\u202e\u200bapr_"), "{shown}");
    for words in [&["list", "--json"][..], &["show", &id, "--json"]] {
        let json: Value = serde_json::from_str(&printed(&app, words).await).unwrap();
        let entry = json.get("data").map_or(&json, |data| &data[0]);
        assert_eq!(entry["arguments"]["account"], hostile);
    }
}

/// A server that answers every request in this way.
async fn fake(status: u16, content_type: &'static str, body: String) -> (Server, String) {
    let handler = move |_: Arrived| {
        let reply = HttpReply::whole(status, content_type, body.clone());
        async move { Outgoing::Scripted(reply) }.boxed()
    };
    let server = Server::start(Arc::new(handler)).await;
    let url = format!("http://{}", server.addr());
    (server, url)
}

#[tokio::test]
async fn hostile_names_and_foreign_servers_do_no_harm() {
    let id = format!("apr_{}", "0".repeat(48));
    let hostile = "evil\u{1b}[31m\u{8}\u{202e}\nnothing waits";
    let entry = json!({
        "approval_id": id, "arguments": {hostile: hostile}, "expires_at": 0, "reason": hostile, "round": 0,
        "rule": {"level": hostile}, "run_id": hostile, "session_id": hostile, "tool": hostile, "tool_call_id": hostile,
    });
    let body = json!({"object": "list", "data": [entry]}).to_string();
    let (_server, url) = fake(200, "application/json", body).await;
    for words in [
        &["list"][..],
        &["list", "--json"],
        &["show", &id],
        &["show", &id, "--json"],
    ] {
        let ended = run(words, &[("LOOPWRIGHT_SERVER", &url)]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stdout.contains(r"evil\u001b[31m"), "{}", ended.stdout);
        assert!(!ended.stdout.lines().any(|line| line == "nothing waits"));
        assert_harmless(&ended.stdout);
    }
    let error = json!({"error": {"message": hostile, "type": "t", "param": null, "code": "c"}});
    let page = format!("<html>{hostile}{}</html>", "x".repeat(10_000));
    for (status, media_type, body, part) in [
        (
            400,
            "application/json",
            error.to_string(),
            "says no (status 400): evil",
        ),
        (
            503,
            "text/html",
            page.clone(),
            "says no (status 503): <html>evil",
        ),
        (
            404,
            "text/html",
            page.clone(),
            "does not answer as loopwright does",
        ),
        (200, "text/html", page, "does not answer as loopwright does"),
        (
            200,
            "application/json",
            "{\"data\": [{}]}".to_owned(),
            "does not answer as loopwright does",
        ),
    ] {
        let (_server, url) = fake(status, media_type, body).await;
        for words in [&["list"][..], &["show", &id]] {
            let said = refused(1, words, &[("LOOPWRIGHT_SERVER", &url)]).await;
            assert!(said.contains(part), "{part}: {said}");
            assert!(said.len() < 500, "{said}");
        }
    }
}
