//! Collectors that are down.

use std::time::{Duration, Instant};

use super::collector::{Collector, Manner, soon};
use super::{ask, text};
use crate::support::app::TestApp;
use crate::support::server::Gate;
use crate::support::upstream::ScriptedUpstream;
use crate::support::{AT_ONCE, eventually, unreachable_url};

/// What a scrape says of spans that were lost.
async fn lost(app: &TestApp) -> u64 {
    let page = app.get("/metrics").await.text();
    let name = "loopwright_otlp_dropped_spans_total ";
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap_or_else(|| panic!("{page}")).parse().unwrap()
}

async fn start(url: &str, upstream: &ScriptedUpstream) -> TestApp {
    let builder = soon(TestApp::builder()).args(["--otlp-endpoint", url]);
    let builder = builder.env("OTEL_EXPORTER_OTLP_TIMEOUT", "300");
    builder.upstream(upstream).start().await
}

/// How often the log says that spans are lost.
fn complaints(app: &TestApp) -> usize {
    app.logs().matches("spans cannot be sent").count()
}

async fn stop(mut app: TestApp) {
    let began = Instant::now();
    app.terminate().await;
    assert_eq!(app.wait_exit().await.code(), Some(0));
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn lost_spans_are_counted_and_the_log_says_so_once() {
    let failing = Collector::with(Manner::Fails).await;
    let hanging = Collector::with(Manner::Hangs).await;
    for url in [unreachable_url().await, failing.url(), hanging.url()] {
        let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
        let app = start(&url, &upstream).await;
        for expected in [2, 4] {
            assert_eq!(app.post_chat(ask("Hi")).await.content(), "Hello.");
            eventually("lost spans", || async {
                (lost(&app).await == expected).then_some(())
            })
            .await;
        }
        assert_eq!(complaints(&app), 1, "{}", app.logs());
        // One more is not sent yet.
        assert_eq!(app.post_chat(ask("Hi")).await.content(), "Hello.");
        stop(app).await;
    }
}

#[tokio::test]
async fn spans_are_sent_again_once_a_collector_is_back() {
    let gone = Collector::start().await;
    let url = gone.url();
    drop(gone);
    let upstream = ScriptedUpstream::answering(|_| text("Hello.")).await;
    let app = start(&url, &upstream).await;
    app.post_chat(ask("Hi")).await;
    eventually("lost spans", || async {
        (lost(&app).await == 2).then_some(())
    })
    .await;
    let back = Collector::at(&url).await;
    app.post_chat(ask("Hi")).await;
    back.spans(2).await;
    eventually("a line", || async {
        app.logs().contains("spans are sent again").then_some(())
    })
    .await;
    assert_eq!((lost(&app).await, complaints(&app)), (2, 1));
}

#[tokio::test]
async fn spans_beyond_the_queue_of_a_silent_collector_are_counted() {
    let hanging = Collector::with(Manner::Hangs).await;
    let upstream = ScriptedUpstream::start([]).await;
    let builder = soon(TestApp::builder()).toml(&hanging.toml());
    let builder = builder.env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000");
    let app = builder.upstream(&upstream).start().await;
    let asking = (0..16).map(|_| async {
        for _ in 0..200 {
            app.get("/v1/sessions").await;
        }
    });
    futures_util::future::join_all(asking).await;
    // The queue and one batch are kept.
    let lost = lost(&app).await;
    assert!((3200 - 2048 - 512..=3200 - 2048).contains(&lost), "{lost}");
    stop(app).await;
}

#[tokio::test]
async fn what_is_left_is_sent_at_the_end() {
    let collector = Collector::start().await;
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([text("Hello.").gate_head(&gate)]).await;
    let builder = TestApp::builder().toml(&collector.toml());
    let builder = builder.env("OTEL_BSP_SCHEDULE_DELAY", "600000");
    let app = builder.upstream(&upstream).start().await;
    let (answer, ()) = tokio::join!(app.post_chat(ask("Hi")), async {
        gate.reached(1).await;
        app.terminate().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        gate.open();
    });
    assert_eq!(answer.content(), "Hello.");
    stop(app).await;
    collector.spans(2).await;
}
