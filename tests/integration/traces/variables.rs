//! OpenTelemetry's own variables.

use super::collector::{Collector, Manner, names, soon};
use super::{ask, text};
use crate::support::app::TestApp;
use crate::support::upstream::{MODEL, ScriptedUpstream};

#[tokio::test]
async fn the_variables_of_opentelemetry_suffice() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([text("Hello.")]).await;
    let base = format!("{}/otlp/", collector.url());
    let app = soon(TestApp::builder())
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &base)
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "x-tenant=blue,authorization=Basic%20abc",
        )
        .env("OTEL_SERVICE_NAME", "gateway")
        .env(
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=other,deployment.environment.name=test",
        )
        .upstream(&upstream)
        .start()
        .await;
    app.post_chat(ask("Hi")).await;
    let spans = collector.spans(2).await;
    assert_eq!(
        names(&spans),
        ["POST /v1/chat/completions", &format!("chat {MODEL}")]
    );
    let export = &collector.exports()[0];
    assert_eq!(export.path, "/otlp/v1/traces");
    assert_eq!(export.headers["content-type"], "application/json");
    assert_eq!(export.headers["x-tenant"], "blue");
    assert_eq!(export.headers["authorization"], "Basic abc");
    assert_eq!(export.resource["service.name"], "gateway");
    assert_eq!(export.resource["deployment.environment.name"], "test");
    assert!(!app.logs().contains("abc"), "{}", app.logs());
}

#[tokio::test]
async fn a_sampler_may_record_nothing() {
    let collector = Collector::start().await;
    let upstream = ScriptedUpstream::start([text("Hello."), text("Hello.")]).await;
    let app = collector
        .app()
        .env("OTEL_TRACES_SAMPLER", "parentbased_always_off");
    let app = app.upstream(&upstream).start().await;
    app.post_chat(ask("Hi")).await;
    // Unless the client records.
    super::tracing(app.client()).post_chat(ask("Hi")).await;
    let spans = collector.spans(2).await;
    assert!(spans.iter().all(|span| span.trace == super::TRACE));
}

#[tokio::test]
async fn a_wrong_variable_ends_the_start() {
    let upstream = ScriptedUpstream::start([]).await;
    let builder = TestApp::builder().upstream(&upstream);
    let builder = builder.toml("otlp_endpoint = \"http://127.0.0.1:4318\"");
    let ended = builder
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .run("serve")
        .await;
    assert_eq!(ended.code, Some(2));
    assert!(
        ended
            .stderr
            .contains("OTEL_EXPORTER_OTLP_PROTOCOL: grpc is not spoken"),
        "{}",
        ended.stderr
    );
}

#[tokio::test]
async fn the_check_of_the_settings_asks_the_collector() {
    let upstream = ScriptedUpstream::start([]).await;
    let (takes, fails) = (
        Collector::start().await,
        Collector::with(Manner::Fails).await,
    );
    for (collector, code, line) in [
        (&takes, 0, "# collector of traces: ok"),
        (
            &fails,
            1,
            "# collector of traces: it answered with status 500",
        ),
    ] {
        for protocol in ["http/protobuf", "http/json"] {
            let builder = TestApp::builder()
                .upstream(&upstream)
                .toml(&collector.toml());
            let builder = builder.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
            let ended = builder.args(["--connect"]).run("check-config").await;
            assert!(ended.stdout.contains(line), "{}", ended.stdout);
            assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        }
    }
    assert!(takes.exports().iter().all(|export| export.spans.is_empty()));
}
