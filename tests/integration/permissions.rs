//! Rules: which calls run, on which level they are decided, and what `explain` says of them.

mod explained;

use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask, ask_with, with};
use super::support::client::Answer;
use super::support::script::{calls, calls_of, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// A model that makes one call and then answers.
async fn calling(tool: &str, arguments: Value) -> ScriptedUpstream {
    ScriptedUpstream::start([calls([(tool, arguments)]), text("Done.")]).await
}

async fn hook() -> Webhook {
    let hook = Webhook::start().await;
    hook.on("files", webhook::text("r"))
        .on("charge", webhook::text("r"))
}

/// The statuses of the calls of an answer, with the last words of each result.
fn outcomes(answer: &Answer) -> Vec<String> {
    let body = answer.completion();
    let entries = body["agentic_tool_calls"].as_array().cloned();
    let entries = entries.unwrap_or_default();
    let outcome = |entry: &Value| {
        let content = entry["result_content"].as_str().unwrap_or_default();
        let reason = content.split_once(": ").map_or("", |(_, reason)| reason);
        format!("{} {reason}", entry["status"].as_str().unwrap())
    };
    entries.iter().map(outcome).collect()
}

#[tokio::test]
async fn a_denied_call_is_told_to_the_model_with_the_reason() {
    let rules = r#"
        [[permissions]]
        tool = "files"
        argument = "/path"
        match = "path"
        patterns = ["/etc/**"]
        effect = "deny"
        reason = "system files"
        must_match = [{ path = "/srv/../etc/passwd" }]
        must_not_match = [{ path = "/srv/data" }]
    "#;
    for streamed in [false, true] {
        let upstream = calling("files", json!({"path": "/srv/../etc/passwd"})).await;
        let hook = hook().await;
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .toml(rules);
        let app = app.start().await;
        let body = ask_with("Read it", ["files"]);
        match streamed {
            false => {
                let answer = app.post_chat(body).await;
                assert_eq!(outcomes(&answer), ["denied system files"]);
                assert_eq!(answer.content(), "Done.");
            }
            true => {
                let stream = app.stream_chat(body).await.collect().await;
                assert_eq!(stream.text, "Done.");
            }
        }
        assert!(hook.calls().is_empty(), "the webhook hears of nothing");
        let told = &upstream.last().body["messages"][2]["content"];
        assert_eq!(told, "This call of 'files' is not permitted: system files");
    }
}

#[tokio::test]
async fn a_lower_level_only_tightens() {
    let file = r#"
        agent_permission = "deny"
        [[permissions]]
        tool = "files"
        effect = "allow"
        [[api_keys]]
        name = "k"
        env = "KEY"
        [[api_keys.permissions]]
        tool = "*"
        argument = "/path"
        match = "prefix"
        patterns = ["/srv/"]
        effect = "allow"
        [[api_keys.permissions]]
        tool = "files"
        argument = "/path"
        match = "prefix"
        patterns = ["/srv/secret"]
        effect = "deny"
        reason = "secret"
    "#;
    let allow = json!([{"tool": "*", "effect": "allow"}]);
    let deny = json!([{"tool": "f*", "effect": "deny", "reason": "by request"}]);
    for (tool, path, rules, expected) in [
        ("files", "/srv/a", json!([]), "ok "),
        ("files", "/srv/secret", allow.clone(), "denied secret"),
        ("files", "/srv/a", deny, "denied by request"),
        // The word of the server.
        ("charge", "/srv/a", allow, "denied "),
    ] {
        let upstream = calling(tool, json!({"path": path})).await;
        let hook = hook().await;
        let app = TestApp::builder()
            .upstream(&upstream)
            .dispatch(&hook)
            .toml(file)
            .env("KEY", "a-key-of-sixteen-characters");
        let app = app.start().await;
        let body = with(
            ask_with("Go", [tool]),
            "agent",
            json!({"permissions": rules}),
        );
        let client = app.client().key("a-key-of-sixteen-characters");
        let answer = client.post_chat(body).await;
        let found = outcomes(&answer);
        assert!(found[0].starts_with(expected), "{found:?} {expected}");
        assert_eq!(hook.calls().len(), usize::from(expected == "ok "), "{path}");
    }
}

#[tokio::test]
async fn what_is_denied_whatever_its_arguments_is_not_offered() {
    let rules = "[[permissions]]\ntool = 'charge'\neffect = 'deny'\nreason = 'not here'\n";
    let upstream = calling("charge", json!({"eur": 5})).await;
    let hook = hook().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(rules);
    let app = app.start().await;
    let body = ask_with("Pay", ["files", "charge"]);
    let answer = app.post_chat(body.clone()).await;
    assert_eq!(outcomes(&answer), ["denied not here"]);
    assert!(hook.calls().is_empty());
    let offered = upstream.request(0).body["tools"].clone();
    assert_eq!(offered.as_array().unwrap().len(), 1);
    assert_eq!(offered[0]["function"]["name"], "files");
    // A choice of it goes with it.
    let named = json!({"type": "function", "function": {"name": "charge"}});
    let upstream = ScriptedUpstream::start([text("No.")]).await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(rules);
    let app = app.start().await;
    let answer = app.post_chat(with(body, "tool_choice", named)).await;
    assert_eq!(answer.content(), "No.");
    assert!(upstream.request(0).body["tool_choice"].is_null());
}

#[tokio::test]
async fn a_rule_can_hold_from_a_later_call_of_the_turn_on() {
    let rules = "[[permissions]]\ntool = 'charge'\nfrom_call = 3\neffect = 'deny'\nreason = 'twice is enough'\n";
    let charge = |n: u32| ("charge", json!({"n": n}));
    let script = [
        calls([charge(1), ("files", json!({}))]),
        calls([charge(2), charge(3)]),
        calls([charge(4)]),
        text("Done."),
        calls([charge(5)]),
        text("Done again."),
    ];
    let upstream = ScriptedUpstream::start(script).await;
    let hook = hook().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(rules);
    let app = app.start().await;
    let body = ask_with("Pay", ["files", "charge"]);
    let answer = app.post_chat(body.clone()).await;
    let (ok, denied) = ("ok ", "denied twice is enough");
    assert_eq!(outcomes(&answer), [ok, ok, ok, denied, denied]);
    // Each turn counts for itself.
    assert_eq!(outcomes(&app.post_chat(body).await), [ok]);
    assert_eq!(hook.calls().len(), 4);
}

#[tokio::test]
async fn risks_are_those_of_the_settings() {
    let rules = |hook: &Webhook| {
        let tool = |name: &str, more: &str| {
            format!(
                "[[tools]]\nname = '{name}'\ndescription = 'd'\nurl = '{}'\n{more}\n\
                 parameters = {{ type = 'object' }}\n",
                hook.tool_url(name)
            )
        };
        format!(
            "[[permissions]]\nrisk = 'destructive'\nargument = '/x'\nmatch = 'glob'\npatterns = ['*']\neffect = 'deny'\n{}{}{}",
            tool("plain", ""),
            tool("reader", "read_only = true"),
            tool("mild", "destructive = false"),
        )
    };
    let hook = Webhook::start().await;
    let hook = ["plain", "reader", "mild"]
        .into_iter()
        .fold(hook, |hook, name| hook.on(name, webhook::text("r")));
    let made = ["plain", "reader", "mild"].map(|name| (name, json!({"x": "1"})));
    let upstream = ScriptedUpstream::start([calls(made), text("Done.")]).await;
    let toml = rules(&hook);
    let app = TestApp::builder()
        .upstream(&upstream)
        .toml(&toml)
        .start()
        .await;
    let statuses = outcomes(&app.post_chat(ask("Go")).await);
    assert_eq!(statuses, ["denied ", "ok ", "ok "]);
    let listed = app.get("/v1/agent/tools").await.json();
    let permissions: Vec<&str> = (listed["data"].as_array().unwrap().iter())
        .map(|tool| tool["permission"].as_str().unwrap())
        .collect();
    assert_eq!(permissions, ["auto", "auto", "auto"]);
}

#[tokio::test]
async fn bad_rules_of_a_request_are_refused_with_their_path() {
    let upstream = ScriptedUpstream::start([]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let rule = |rule: Value| json!([{"effect": "deny"}, rule]);
    for (rules, param) in [
        (json!("deny"), "agent.permissions"),
        (rule(json!(5)), "agent.permissions[1]"),
        (rule(json!({"tool": "t"})), "agent.permissions[1]"),
        (
            rule(json!({"effect": "maybe"})),
            "agent.permissions[1].effect",
        ),
        (
            rule(json!({"effect": "deny", "tools": "t"})),
            "agent.permissions[1].tools",
        ),
        (
            rule(json!({"effect": "deny", "from_call": 0})),
            "agent.permissions[1].from_call",
        ),
        (
            rule(json!({"effect": "deny", "tool": "[a"})),
            "agent.permissions[1].tool",
        ),
        (
            rule(json!({"effect": "deny", "argument": "/a"})),
            "agent.permissions[1].argument",
        ),
        (
            rule(json!({"effect": "deny", "argument": "a", "match": "glob", "patterns": ["x"]})),
            "agent.permissions[1].argument",
        ),
        (
            rule(
                json!({"effect": "deny", "argument": "/a", "match": "regex", "patterns": ["x", "("]}),
            ),
            "agent.permissions[1].patterns[1]",
        ),
        (
            rule(
                json!({"effect": "deny", "argument": "/a", "match": "glob", "patterns": ["x"],
                "must_match": [{"a": "y"}]}),
            ),
            "agent.permissions[1].must_match[0]",
        ),
    ] {
        let body = with(ask("x"), "agent", json!({"permissions": rules}));
        let answer = app.post_chat(body).await;
        assert_eq!(answer.status, 400, "{param}");
        let error = answer.json()["error"].clone();
        assert_eq!(error["param"], param, "{error}");
    }
}

#[tokio::test]
async fn rules_of_a_request_that_cost_too_much_are_refused() {
    let upstream = ScriptedUpstream::start([text("Hi.")]).await;
    let app = TestApp::with_upstream(&upstream).await;
    let asking = |rules: Vec<Value>| with(ask("x"), "agent", json!({"permissions": rules}));
    let costly = |rules: usize, patterns: usize, size: usize| {
        let pattern = |n: usize| format!("{n}(?i)[a-z]{{1,{size}}}\\w$");
        let patterns: Vec<String> = (0..patterns).map(pattern).collect();
        let rule =
            json!({"effect": "deny", "argument": "/a", "match": "regex", "patterns": patterns});
        vec![rule; rules]
    };
    let line = "a; ".repeat(2_000);
    let examples = json!([{"effect": "allow", "argument": "/a", "match": "command", "patterns": ["zz"],
        "must_not_match": vec![json!({"a": line}); 20]}]);
    let examples = examples.as_array().unwrap().clone();
    for rules in [costly(65, 1, 1), costly(2, 129, 1), examples] {
        let answer = app.post_chat(asking(rules)).await;
        assert_eq!(answer.status, 400);
        assert_eq!(answer.json()["error"]["param"], "agent.permissions");
    }
    let answer = app.post_chat(asking(costly(64, 4, 400))).await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.json()["error"]["param"],
        "agent.permissions[0].patterns"
    );
    // The most costly ones that are accepted.
    assert_eq!(
        app.post_chat(asking(costly(64, 4, 200))).await.content(),
        "Hi."
    );
}

#[tokio::test]
async fn settings_that_cannot_be_used_end_the_start_and_name_the_key() {
    for (rule, expected) in [
        ("effect = 'maybe'", "permissions[0].effect"),
        ("effect = 'deny'\nmatch = 'glob'", "permissions[0].match"),
        (
            "effect = 'deny'\nargument = '/a'\nmatch = 'glob'\npatterns = ['x']\nmust_match = [{ a = 'y' }]",
            r#"{"a":"y"}"#,
        ),
        ("effect = 'deny'\nwhen = 1", "when"),
    ] {
        let toml = format!("[[permissions]]\n{rule}\n");
        let app = TestApp::builder()
            .upstream_url("http://127.0.0.1:9/v1")
            .toml(&toml);
        let ended = app.run("check-config").await;
        assert_eq!(ended.code, Some(2), "{rule}");
        assert!(
            ended.stderr.contains(expected),
            "{} {expected}",
            ended.stderr
        );
    }
    let toml = "[[permissions]]\ntool = 'web_*'\neffect = 'deny'\n[[tools]]\nname = 'a'\ndescription = 'd'\n\
                url = 'http://127.0.0.1:9/'\nparameters = { type = 'object' }\n";
    let app = TestApp::builder()
        .upstream_url("http://127.0.0.1:9/v1")
        .toml(toml);
    let ended = app.run("check-config").await;
    assert_eq!(ended.code, Some(0));
    let said = format!("{}{}", ended.stdout, ended.stderr);
    assert!(
        said.contains("permissions[0]: the rule can match no tool"),
        "{said}"
    );
}

#[tokio::test]
async fn decisions_are_counted_and_written_to_the_log() {
    let rules = "[[permissions]]\ntool = 'charge'\nargument = '/eur'\nmatch = 'glob'\npatterns = ['9*']\neffect = 'deny'\n";
    let upstream = calling("charge", json!({"eur": "99", "to": "secret account"})).await;
    let hook = hook().await;
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(rules);
    let app = app.start().await;
    app.post_chat(ask_with("Pay", ["charge"]))
        .await
        .completion();
    let page = app.get("/metrics").await.text();
    let counted = "loopwright_permission_decisions_total{effect=\"deny\",level=\"server\"} 1";
    assert!(page.contains(counted), "{page}");
    let logs = app.logs();
    let line = logs
        .lines()
        .find(|line| line.contains("a call was decided about"))
        .unwrap();
    for part in [
        "audit",
        "tool=\"charge\"",
        "effect=\"deny\"",
        "level=\"server\"",
        "rule=0",
    ] {
        assert!(line.contains(part), "{line} {part}");
    }
    assert!(!logs.contains("secret account"));
}
