//! What `explain` says is what a turn does: random rules and calls.

use serde_json::{Value, json};

use super::super::support::ask::ask;
use super::{ScriptedUpstream, TestApp, Webhook, calls_of, hook, text, webhook};

const TOOLS: [&str; 3] = ["files_read", "files_write", "charge"];
const PATHS: [&str; 6] = [
    "/etc/passwd",
    "/srv/a/b",
    "/srv/../etc/x",
    "relative",
    "",
    "/",
];
const PATTERNS: [&str; 5] = ["/etc/**", "/srv/*", "/**", "/srv/a/b", "*"];

/// Random numbers that are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % most
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn rule(&mut self, table: &str) -> String {
        let tool = self.one(&["*", "files_*", "charge", "files_write", "nothing"]);
        let effect = self.one(&["allow", "allow", "deny"]);
        let mut rule = format!("[[{table}]]\ntool = '{tool}'\neffect = '{effect}'\n");
        if self.below(3) == 0 {
            let risk = self.one(&["read_only", "destructive", "open_world"]);
            rule.push_str(&format!("risk = '{risk}'\n"));
        }
        if self.below(4) > 0 {
            let (kind, pattern) = (self.one(&["path", "glob", "prefix"]), self.one(&PATTERNS));
            rule.push_str(&format!(
                "argument = '/path'\nmatch = '{kind}'\npatterns = ['{pattern}']\n"
            ));
        }
        if self.below(2) == 0 {
            rule.push_str(&format!("reason = 'reason {}'\n", self.below(1000)));
        }
        rule
    }

    fn arguments(&mut self) -> Value {
        match self.below(8) {
            0 => json!({}),
            1 => json!({"path": 5}),
            _ => json!({"path": self.one(&PATHS)}),
        }
    }

    fn settings(&mut self, hook: &Webhook) -> String {
        let word = self.one(&["auto", "auto", "deny"]);
        let mut toml = format!("agent_permission = '{word}'\nrepeat_threshold = 0\n");
        for (index, tool) in TOOLS.into_iter().enumerate() {
            toml.push_str(&format!(
                "[[tools]]\nname = '{tool}'\ndescription = 'd'\nurl = '{}'\nparameters = {{ type = 'object' }}\n\
                 read_only = {}\n",
                hook.tool_url(tool),
                index == 0
            ));
        }
        for _ in 0..self.below(5) {
            let rule = self.rule("permissions");
            toml.push_str(&rule);
        }
        toml
    }
}

#[tokio::test]
async fn explain_agrees_with_what_turns_do() {
    let mut numbers = Numbers(20);
    let (mut denied, mut ran) = (0, 0);
    for _ in 0..10 {
        let hook = TOOLS
            .into_iter()
            .fold(hook().await, |hook, tool| hook.on(tool, webhook::text("r")));
        let toml = numbers.settings(&hook);
        let made: Vec<(&str, Value)> = (0..100)
            .map(|_| (numbers.one(&TOOLS), numbers.arguments()))
            .collect();
        let script = made
            .chunks(20)
            .flat_map(|batch| [calls_of(batch), text("Done.")]);
        let upstream = ScriptedUpstream::start(script.collect::<Vec<_>>()).await;
        let app = TestApp::builder()
            .upstream(&upstream)
            .toml(&toml)
            .start()
            .await;
        for batch in made.chunks(20) {
            let body = app.post_chat(ask("Go")).await.completion();
            let entries = body["agentic_tool_calls"].as_array().unwrap();
            assert_eq!(entries.len(), batch.len());
            for (entry, (tool, arguments)) in entries.iter().zip(batch) {
                let call = json!({"tool": tool, "arguments": arguments});
                let explained = app.post("/v1/permissions/explain", &call).await.json();
                let expected = match explained["effect"].as_str().unwrap() {
                    "allow" => "ok",
                    "deny" => "denied",
                    other => panic!("{other}"),
                };
                assert_eq!(entry["status"], expected, "{toml}\n{call}\n{explained}");
                if let Some(reason) = explained["reason"].as_str() {
                    let told = entry["result_content"].as_str().unwrap();
                    assert!(
                        expected == "ok" || told.ends_with(reason),
                        "{told} {reason}"
                    );
                }
                match expected {
                    "ok" => ran += 1,
                    _ => denied += 1,
                }
            }
        }
    }
    assert!(ran > 100 && denied > 100, "{ran} {denied}");
}

#[tokio::test]
async fn explain_names_the_rule_and_what_each_level_says() {
    let toml = "[[permissions]]\ntool = 'charge'\neffect = 'ask'\nreason = 'money'\n\
                [[permissions]]\ntool = 'charge'\nargument = '/eur'\nmatch = 'glob'\npatterns = ['1000*']\neffect = 'deny'\n";
    let (upstream, hook) = (ScriptedUpstream::start([]).await, hook().await);
    let app = TestApp::builder()
        .upstream(&upstream)
        .dispatch(&hook)
        .toml(toml);
    let app = app.start().await;
    let explain = async |body: Value| app.post("/v1/permissions/explain", &body).await;
    let asked = explain(json!({"tool": "charge", "arguments": {"eur": "5"}}))
        .await
        .json();
    let level =
        |effect: &str, rule: Value| json!([{"level": "server", "effect": effect, "rule": rule}]);
    let expected = json!({"effect": "ask", "rule": {"level": "server", "index": 0}, "reason": "money",
        "levels": level("ask", json!(0))});
    assert_eq!(asked, expected);
    let denied = explain(json!({"tool": "charge"})).await.json();
    assert_eq!(
        denied["effect"], "deny",
        "a value that is missing matches every deny"
    );
    assert_eq!(denied["rule"]["index"], 1);
    let allowed = explain(json!({"tool": "files", "arguments": {}}))
        .await
        .json();
    let expected = json!({"effect": "allow", "rule": null, "reason": null, "levels": level("allow", Value::Null)});
    assert_eq!(allowed, expected);
    for (body, status, param) in [
        (json!({"tool": "no such!"}), 404, "tool"),
        (json!({}), 400, "tool"),
        (
            json!({"tool": "charge", "arguments": "x"}),
            400,
            "arguments",
        ),
        (json!({"tool": "charge", "args": {}}), 400, "args"),
    ] {
        let answer = explain(body).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["error"]["param"]),
            (status, &json!(param))
        );
    }
}
