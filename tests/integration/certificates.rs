//! HTTPS to servers with certificates of an authority that the machine does not know. nginx stands in front of them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::replicas::tls::openssl;
use crate::support::app::{Builder, TestApp};
use crate::support::ask::{ask, ask_with};
use crate::support::eventually;
use crate::support::script::{calls, text};
use crate::support::upstream::ScriptedUpstream;
use crate::support::webhook::{self, Webhook};

#[tokio::test]
async fn a_machine_without_root_certificates_serves_and_says_so() {
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let folder = tempfile::tempdir().unwrap();
    let none = folder.path().join("none.pem");
    std::fs::write(&none, "").unwrap();
    let builder = TestApp::builder().upstream(&upstream);
    let builder = builder
        .toml("[[tools]]\nname = \"t\"\ndescription = \"T\"\nurl = \"https://127.0.0.1:9/\"\n");
    let app = builder
        .env("SSL_CERT_FILE", none.to_str().unwrap())
        .start()
        .await;
    assert_eq!(app.post_chat(ask("Hello")).await.content(), "Hello.");
    assert!(app.logs().contains("no root certificates"));
}

/// Nothing of nginx is left behind when this process is killed.
const ONE_PROCESS: &str = "daemon off; master_process off;";

/// A proxy for TLS before plain servers.
struct Encrypted {
    /// The port of each server.
    ports: Vec<u16>,
    folder: TempDir,
    _process: Child,
}

impl Encrypted {
    /// Puts TLS before servers at plain URLs, each with a certificate: of the authority, or `own` for one that the server has
    /// signed itself.
    async fn before(servers: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path());
        let (mut config, mut ports) = (String::new(), Vec::new());
        for (url, certificate) in servers {
            // Free a moment ago; nginx cannot choose a port of its own.
            let free = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = free.local_addr().unwrap().port();
            let origin = url::Url::parse(url).unwrap().origin().ascii_serialization();
            config.push_str(&format!(
                "server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}.pem; ssl_certificate_key \
                 {certificate}.key; location / {{ proxy_pass {origin}; proxy_buffering off; }} }}\n"
            ));
            ports.push(port);
        }
        let own = format!("{}/", folder.path().display());
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {own}{name};\n"));
        let config = format!(
            "pid {own}pid; events {{}} http {{ access_log off; {} {config} }}",
            paths.concat()
        );
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, config).unwrap();
        let process = Command::new("nginx")
            .args(["-e", "stderr", "-g", ONE_PROCESS, "-p", &own, "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        for port in &ports {
            eventually("nginx to listen", async || {
                let address = ("127.0.0.1", *port);
                tokio::net::TcpStream::connect(address).await.ok()
            })
            .await;
        }
        Self {
            ports,
            folder,
            _process: process,
        }
    }

    fn origin(&self, server: usize) -> String {
        format!("https://127.0.0.1:{}", self.ports[server])
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// An authority `ca`, a certificate `server` that it has issued, and a self-signed one, `own`.
fn certificates(folder: &Path) {
    const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    const NAMES: &str = "subjectAltName=IP:127.0.0.1";
    openssl(
        folder,
        &format!("req -x509 {KEY} -days 2 -subj /CN=corp -keyout ca.key -out ca.pem"),
    );
    openssl(
        folder,
        &format!("req {KEY} -subj /CN=server -keyout server.key -out server.csr"),
    );
    std::fs::write(folder.join("names"), NAMES).unwrap();
    openssl(
        folder,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    openssl(
        folder,
        &format!(
            "req -x509 {KEY} -days 2 -subj /CN=own -addext {NAMES} -keyout own.key -out own.pem"
        ),
    );
    let both =
        ["own.pem", "ca.pem"].map(|name| std::fs::read_to_string(folder.join(name)).unwrap());
    std::fs::write(folder.join("both.pem"), both.concat()).unwrap();
}

async fn model() -> ScriptedUpstream {
    ScriptedUpstream::answering(|request| {
        let messages = request.messages();
        match messages.last().is_some_and(|last| last["role"] == "user") {
            true => calls([("t", json!({}))]),
            false => text(messages.last().unwrap()["content"].as_str().unwrap()),
        }
    })
    .await
}

/// Lines of the log in which something failed.
async fn failures(app: &TestApp, part: &str) -> Vec<String> {
    eventually(part, || async { app.logs().contains(part).then_some(()) }).await;
    let logs = app.logs();
    let failed = logs
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"));
    failed.map(ToOwned::to_owned).collect()
}

#[tokio::test]
#[ignore = "needs nginx"]
async fn with_ca_file_servers_of_an_own_authority_are_trusted() {
    let upstream = model().await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let servers = [(upstream.base_url(), "server"), (hook.url(), "server")];
    let servers = servers.each_ref().map(|(url, name)| (url.as_str(), *name));
    let encrypted = Encrypted::before(&servers).await;
    let builder = || {
        let path = url::Url::parse(&hook.url()).unwrap().path().to_owned();
        let builder = TestApp::builder().upstream_url(&format!("{}/v1", encrypted.origin(0)));
        builder.dispatch_url(&format!("{}{path}", encrypted.origin(1)))
    };
    let trusting = |file: &str| format!("ca_file = {:?}", encrypted.file(file));
    let with_variable = |builder: Builder| {
        let file = encrypted.file("ca.pem");
        builder.env("SSL_CERT_FILE", file.to_str().unwrap())
    };
    for builder in [
        builder().toml(&trusting("ca.pem")),
        builder().toml(&trusting("both.pem")),
        // What the machine trusts is still trusted.
        with_variable(builder()),
        with_variable(builder().toml(&trusting("own.pem"))),
    ] {
        let app = builder.start().await;
        let answer = app.post_chat(ask_with("Go", ["t"])).await.content();
        assert_eq!(answer, "r", "{}", app.logs());
    }

    let app = builder().start().await;
    let refused = app.post_chat(ask_with("Go", ["t"])).await;
    assert_eq!(refused.status, 502);
    let failures = failures(&app, "set ca_file to the issuer's CA certificate").await;
    assert!(
        failures.iter().all(|line| !line.contains("ERROR")),
        "{failures:?}"
    );
    let asked = upstream.requests().len();
    assert_eq!(asked, 8, "no request goes to a server that is not trusted");
}

#[tokio::test]
#[ignore = "needs nginx"]
async fn the_log_says_what_helps_when_a_certificate_is_refused() {
    let upstream = model().await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let url = hook.url();
    let encrypted = Encrypted::before(&[(&url, "server"), (&url, "own")]).await;
    let path = url::Url::parse(&url).unwrap().path().to_owned();
    for (server, trusted, remedy) in [
        (0, None, "set ca_file to the issuer's CA certificate"),
        (
            0,
            Some("own.pem"),
            "set ca_file to the issuer's CA certificate",
        ),
        (1, None, "issue a server certificate"),
        (1, Some("own.pem"), "issue a server certificate"),
    ] {
        let mut builder = TestApp::builder().upstream(&upstream);
        if let Some(file) = trusted {
            builder = builder.toml(&format!("ca_file = {:?}", encrypted.file(file)));
        }
        let hook = format!("{}{path}", encrypted.origin(server));
        // An MCP server over HTTPS, too.
        let mcp = format!(
            "[mcp_servers.far]\nurl = \"{}/mcp\"\n",
            encrypted.origin(server)
        );
        let app = builder
            .toml("mcp_start_timeout = 2")
            .dispatch_url(&hook)
            .toml(&mcp)
            .start()
            .await;
        let answer = app.post_chat(ask_with("Go", ["t"])).await.content();
        assert!(answer.contains("could not be reached"), "{answer}");
        assert!(
            !answer.contains("ca_file"),
            "not the model's business: {answer}"
        );
        failures(&app, "tool call failed").await;
        let failures = failures(&app, "MCP server is down").await;
        let named = |part: &str| {
            failures
                .iter()
                .any(|line| line.contains(part) && line.contains(remedy))
        };
        assert!(named("tool call failed"), "{failures:?}");
        assert!(named("MCP server is down"), "{failures:?}");
        assert!(
            failures.iter().all(|line| !line.contains("ERROR")),
            "{failures:?}"
        );
    }
    assert!(hook.calls().is_empty());
}

#[tokio::test]
async fn a_file_without_certificates_is_a_configuration_error_that_names_it() {
    let upstream = ScriptedUpstream::start([]).await;
    let folder = tempfile::tempdir().unwrap();
    let write =
        |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    write("empty.pem", "");
    write("text.pem", "not a certificate");
    write(
        "garbage.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    for (name, problem) in [
        ("missing.pem", "cannot read"),
        ("empty.pem", "is empty"),
        ("text.pem", "holds no certificate"),
        ("garbage.pem", "holds a certificate that cannot be used"),
    ] {
        let file = folder.path().join(name);
        let builder = TestApp::builder().upstream(&upstream);
        let ended = builder
            .toml(&format!("ca_file = {file:?}"))
            .run("serve")
            .await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        for part in ["ca_file", name, problem] {
            assert!(ended.stderr.contains(part), "{part}: {ended:?}");
        }
    }
}
