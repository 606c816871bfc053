//! MCP servers that want an access token, and the authorization server that gives it.

use serde_json::{Value, json};

use super::far::{Far, Issuer, header};
use super::{in_state, record, result, start_with};
use crate::support::app::TestApp;
use crate::support::server::{HttpReply, Part};
use crate::support::upstream::ScriptedUpstream;

/// A server that gives its own tokens.
async fn with_issuer() -> Far {
    let far = Far::start().await;
    let issuer = Issuer {
        origin: far.origin(),
        secret: "client-secret".to_owned(),
        resource: far.url(),
        scope: "read write".to_owned(),
        expires_in: Some(3600),
        ..Issuer::default()
    };
    let metadata = json!({"resource": far.url(), "authorization_servers": [far.origin()]});
    let mut state = far.state.lock();
    state.tokens.insert("none yet".to_owned());
    state.resource_metadata = Some(metadata.to_string());
    state.issuer = Some(issuer);
    drop(state);
    far
}

fn server(far: &Far, lines: &str) -> String {
    format!(
        "[mcp_servers.far]\nurl = \"{}\"\n[mcp_servers.far.oauth]\nclient_id = \"loop\"\nclient_secret = {{ env = \"SECRET\" }}\nscopes = [\"read\", \"write\"]\n{lines}\n",
        far.url()
    )
}

async fn start(toml: &str, secret: &str) -> (TestApp, ScriptedUpstream) {
    start_with(toml, |builder| builder.env("SECRET", secret)).await
}

fn issued(far: &Far) -> usize {
    far.state.lock().issuer.as_ref().unwrap().issued
}

/// Waits until the server is down, and returns the reason.
async fn reason(app: &TestApp) -> String {
    let down = in_state(app.client(), "far", "down").await;
    down["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_token_is_found_used_and_kept() {
    let far = with_issuer().await;
    let (app, _upstream) = start(&server(&far, ""), "client-secret").await;
    in_state(app.client(), "far", "ready").await;
    for _ in 0..3 {
        assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
    }
    assert_eq!(issued(&far), 1);
    far.assert_clean();
    // It is for the server alone.
    let others = far
        .seen()
        .into_iter()
        .filter(|seen| !seen.path.starts_with("/mcp"));
    for seen in others {
        assert_eq!(header(&seen.headers, "authorization"), "", "{seen:?}");
    }
}

#[tokio::test]
async fn a_refused_token_is_replaced() {
    let far = with_issuer().await;
    let (app, _upstream) = start(&server(&far, ""), "client-secret").await;
    in_state(app.client(), "far", "ready").await;
    far.state.lock().tokens.retain(|token| token == "none yet");
    assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
    assert_eq!(issued(&far), 2);
    // A server that refuses every token costs one more for each request, and is an error.
    {
        let mut state = far.state.lock();
        state.tokens.retain(|token| token == "none yet");
        state.issuer.as_mut().unwrap().useless = true;
    }
    let call = record(app.client(), "far__echo", json!({})).await;
    assert_eq!(call["status"], "error", "{call}");
    assert!(
        call["result_content"].to_string().contains("HTTP 401"),
        "{call}"
    );
    assert_eq!(issued(&far), 3);
    far.assert_clean();
}

#[tokio::test]
async fn a_token_is_replaced_before_it_expires() {
    let far = with_issuer().await;
    // All of its time is the margin.
    far.state.lock().issuer.as_mut().unwrap().expires_in = Some(0);
    let (app, _upstream) = start(&server(&far, ""), "client-secret").await;
    in_state(app.client(), "far", "ready").await;
    let before = issued(&far);
    assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
    assert!(issued(&far) > before);
    far.assert_clean();
}

#[tokio::test]
async fn the_token_endpoint_can_be_elsewhere_if_the_operator_says_so() {
    let (far, issuer) = (Far::start().await, with_issuer().await);
    far.state.lock().tokens.insert("token-1".to_owned());
    issuer.state.lock().issuer.as_mut().unwrap().resource = far.url();
    let url = format!("token_url = \"{}/token\"", issuer.origin());
    let (app, _upstream) = start(&server(&far, &url), "client-secret").await;
    in_state(app.client(), "far", "ready").await;
    assert_eq!(result(app.client(), "far__echo", json!({})).await, "echoed");
    let paths: Vec<String> = issuer.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/token"]);
    issuer.assert_clean();
    far.assert_clean();
}

#[tokio::test]
async fn a_server_cannot_send_the_secret_to_an_address_inside() {
    let (far, inside) = (with_issuer().await, with_issuer().await);
    for (metadata, endpoint) in [
        (inside.origin(), format!("{}/token", inside.origin())),
        (far.origin(), format!("{}/token", inside.origin())),
        (far.origin(), "https://10.0.0.1/token".to_owned()),
        (far.origin(), "http://example.org/token".to_owned()),
    ] {
        let metadata = json!({"resource": far.url(), "authorization_servers": [metadata]});
        {
            let mut state = far.state.lock();
            state.resource_metadata = Some(metadata.to_string());
            state.issuer.as_mut().unwrap().token_endpoint = Some(endpoint.clone());
        }
        let (app, _upstream) = start(&server(&far, ""), "client-secret").await;
        let reason = reason(&app).await;
        assert!(reason.contains("public internet"), "{endpoint}: {reason}");
        assert!(!reason.contains("127.0.0.1"), "{reason}");
    }
    assert!(inside.seen().is_empty(), "{:?}", inside.seen());
}

#[tokio::test]
async fn what_an_authorization_server_does_wrong_is_named_within_bounds() {
    let far = with_issuer().await;
    let answers: [(HttpReply, &str); 5] = [
        (
            HttpReply::whole(
                401,
                "application/json",
                r#"{"error":"invalid_client","error_description":"client-secret is bad"}"#,
            ),
            "invalid_client",
        ),
        (
            HttpReply::whole(200, "application/json", "{}"),
            "cannot be used",
        ),
        (
            HttpReply::whole(200, "text/html", "<p>client-secret</p>"),
            "cannot be used",
        ),
        (
            HttpReply::whole(200, "application/json", "x".repeat(300 * 1024)),
            "262144 bytes",
        ),
        (
            HttpReply {
                body: vec![Part::Reset],
                ..HttpReply::default()
            },
            "cannot be reached",
        ),
    ];
    for (answer, words) in answers {
        far.state.lock().issuer.as_mut().unwrap().instead = Some(answer);
        let (app, _upstream) = start(&server(&far, ""), "client-secret").await;
        let reason = reason(&app).await;
        assert!(reason.contains(words), "{words}: {reason}");
        assert!(!reason.contains("client-secret"), "{reason}");
        assert!(!app.logs().contains("client-secret"), "{}", app.logs());
    }
    let redirect = {
        let mut reply = HttpReply::whole(307, "text/plain", "");
        reply
            .headers
            .push(("location".to_owned(), format!("{}/stolen", far.origin())));
        reply
    };
    far.state.lock().issuer.as_mut().unwrap().instead = Some(redirect);
    let (app, _upstream) = start(&server(&far, ""), "client-secret").await;
    reason(&app).await;
    assert!(far.seen().iter().all(|seen| seen.path != "/stolen"));
    // One that does not answer holds the start only so long.
    far.state.lock().issuer.as_mut().unwrap().instead = Some(HttpReply {
        before_head: vec![Part::Hang],
        ..HttpReply::default()
    });
    let silent = format!("mcp_start_timeout = 0.5\n{}", server(&far, ""));
    let (app, _upstream) = start(&silent, "client-secret").await;
    assert!(reason(&app).await.contains("within 0.5 s"));
}

#[tokio::test]
async fn secret_and_token_are_in_no_log_and_no_settings() {
    let far = with_issuer().await;
    let toml = format!("log_level = \"debug\"\n{}", server(&far, ""));
    let (app, _upstream) = start(&toml, "client-secret").await;
    in_state(app.client(), "far", "ready").await;
    // They repeat what they were sent.
    let leak = record(app.client(), "far__leak", json!({})).await;
    let error = record(app.client(), "far__leak_error", json!({})).await;
    assert!(leak.to_string().contains("[hidden]"), "{leak}");
    let mut texts = vec![app.logs(), leak.to_string(), error.to_string()];
    for path in ["/metrics", "/readyz", "/v1/agent/tools"] {
        texts.push(app.client().get(path).await.text());
    }
    let upstream = ScriptedUpstream::start([]).await;
    let checked = TestApp::builder()
        .upstream(&upstream)
        .toml(&server(&far, ""))
        .env("SECRET", "client-secret")
        .run("check-config")
        .await;
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("oauth"), "{}", checked.stdout);
    texts.extend([checked.stdout, checked.stderr]);
    for text in texts {
        assert!(!text.contains("client-secret"), "{text}");
        assert!(!text.contains("token-1"), "{text}");
    }
}

#[tokio::test]
async fn credentials_that_cannot_work_are_refused() {
    for (lines, place, words) in [
        (
            "url = \"http://h/mcp\"\noauth = { client_secret = \"s\" }",
            "oauth.client_id",
            "is missing",
        ),
        (
            "url = \"http://h/mcp\"\noauth = { client_id = \"c\" }",
            "oauth.client_secret",
            "is missing",
        ),
        (
            "url = \"http://h/mcp\"\noauth = { client_id = \"c\", client_secret = { env = \"NOT_SET\" } }",
            "oauth.client_secret",
            "NOT_SET",
        ),
        (
            "url = \"http://h/mcp\"\noauth = { client_id = \"c\", client_secret = \"s\", token_url = \"h\" }",
            "oauth.token_url",
            "URL",
        ),
        (
            "url = \"http://h/mcp\"\noauth = { client_id = \"c\", client_secret = \"s\", scopes = [\"a b\"] }",
            "oauth.scopes",
            "no scope",
        ),
        (
            "url = \"http://h/mcp\"\nbearer_token = \"t\"\noauth = { client_id = \"c\", client_secret = \"s\" }",
            "oauth",
            "remove one",
        ),
        (
            "command = \"x\"\noauth = { client_id = \"c\", client_secret = \"s\" }",
            "headers",
            "`env`",
        ),
    ] {
        let upstream = ScriptedUpstream::start([]).await;
        let ended = TestApp::builder()
            .upstream(&upstream)
            .toml(&format!("[mcp_servers.far]\n{lines}\n"))
            .run("check-config")
            .await;
        assert_eq!(ended.code, Some(2), "{lines}");
        let said = &ended.stderr;
        assert!(
            said.contains(&format!("mcp_servers.far.{place}")) && said.contains(words),
            "{said}"
        );
    }
}

impl Issuer {
    /// Answers a request for a token, or for its own description.
    pub(super) fn answer(
        &mut self,
        path: &str,
        body: &str,
        content_type: &str,
    ) -> Option<IssuerAnswer> {
        if path == "/.well-known/oauth-authorization-server" {
            let own = format!("{}/token", self.origin);
            let metadata = json!({
                "issuer": self.origin,
                "authorization_endpoint": format!("{}/authorize", self.origin),
                "token_endpoint": self.token_endpoint.clone().unwrap_or(own),
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
            });
            return Some(IssuerAnswer::Reply(super::far::json_reply(200, &metadata)));
        }
        if path != "/token" {
            return None;
        }
        if let Some(reply) = &self.instead {
            return Some(IssuerAnswer::Reply(reply.clone()));
        }
        let form: Vec<(String, String)> = url::form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        let expected = [
            ("grant_type", "client_credentials"),
            ("client_id", "loop"),
            ("client_secret", &*self.secret),
            ("scope", &*self.scope),
            ("resource", &*self.resource),
        ];
        let mut wrong = Vec::new();
        for (name, value) in expected {
            let given: Vec<&str> = form
                .iter()
                .filter(|(given, _)| given == name)
                .map(|(_, value)| value.as_str())
                .collect();
            if given != [value] {
                wrong.push(format!("{name}: {given:?}"));
            }
        }
        if content_type != "application/x-www-form-urlencoded" {
            wrong.push(format!("content-type {content_type}"));
        }
        if !wrong.is_empty() {
            return Some(IssuerAnswer::Violations(wrong));
        }
        self.issued += 1;
        let token = format!("token-{}", self.issued);
        let mut granted = json!({"access_token": token, "token_type": "Bearer"});
        if let Some(seconds) = self.expires_in {
            granted["expires_in"] = Value::from(seconds);
        }
        let reply = super::far::json_reply(200, &granted);
        Some(match self.useless {
            true => IssuerAnswer::Reply(reply),
            false => IssuerAnswer::Granted(token, reply),
        })
    }
}

/// What an authorization server does with a request.
pub(super) enum IssuerAnswer {
    Reply(HttpReply),
    Granted(String, HttpReply),
    Violations(Vec<String>),
}
