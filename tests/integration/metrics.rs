//! `GET /metrics` of a fresh server: which series there are, so that dashboards and alerts go on working.

use std::collections::BTreeSet;

use crate::support::app::TestApp;

/// A server with every part on that has series of its own, but code execution, whose isolation depends on the host.
const CONFIGURATION: &str = r#"
enable_search = true
search_url = "http://127.0.0.1:1/"
[[tools]]
name = "get_ticket"
description = "Reads a ticket."
url = "http://127.0.0.1:1/ticket"
"#;

/// The series of a page without their values; a histogram's buckets are one series.
fn series(page: &str) -> BTreeSet<String> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (series, _value) = line.rsplit_once(' ').unwrap();
            let series = match (series.find("le=\""), series.contains("_bucket{")) {
                (Some(at), true) => format!("{}le=…}}", &series[..at]),
                _ => series.to_owned(),
            };
            series.replace(env!("CARGO_PKG_VERSION"), "VERSION")
        })
        .collect()
}

#[tokio::test]
async fn a_fresh_server_shows_every_series() {
    let app = TestApp::builder()
        .upstream_url("http://127.0.0.1:1/v1")
        .toml(CONFIGURATION)
        .start()
        .await;
    let page = app.get("/metrics").await.text();
    let found: Vec<String> = series(&page).into_iter().collect();
    insta::assert_snapshot!(found.join("\n"));
    let described = page.lines().filter(|line| line.starts_with("# HELP"));
    assert_eq!(described.count(), 25, "{page}");
}
