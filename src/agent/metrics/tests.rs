//! What is counted is on the page, and nothing else.

use super::*;

fn metrics() -> Metrics {
    Metrics::new(["get_ticket"], ["gpu-1"], ["completed"])
}

fn value(page: &str, series: &str) -> Option<f64> {
    page.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
        .and_then(|number| number.parse().ok())
}

#[test]
fn everything_counted_is_on_the_page() {
    let metrics = metrics();
    for status in [StatusCode::OK, StatusCode::CREATED] {
        metrics.request_finished(RouteLabel::ChatLoop, status, Duration::from_millis(20));
    }
    metrics.request_finished(RouteLabel::Other, StatusCode::NOT_FOUND, Duration::ZERO);
    metrics.turn_ended(3, "completed");
    metrics.turn_overhead(Duration::from_micros(40));
    metrics.first_token(Duration::from_millis(300));
    let tool = ToolLabel::Configured("get_ticket");
    metrics.tool_finished(tool, ToolStatus::Ok, Duration::from_millis(1));
    metrics.tool_finished(
        ToolLabel::Dispatch,
        ToolStatus::Timeout,
        Duration::from_secs(30),
    );
    metrics.model_call_finished("gpu-1", ModelOutcome::Completed, Duration::from_secs(2));
    metrics.upstream_retried("gpu-1");
    let (model, key) = ("m", "team");
    metrics.tokens(ModelUse { model, key }, 100, 7);
    metrics.session_store_failed();
    metrics.cell_finished(Duration::from_millis(3));

    let page = metrics.encode();
    for (series, expected) in [
        (
            r#"loopwright_requests_total{route="chat_loop",status="2xx"}"#,
            2.0,
        ),
        (
            r#"loopwright_requests_total{route="other",status="4xx"}"#,
            1.0,
        ),
        (
            r#"loopwright_requests_total{route="models",status="5xx"}"#,
            0.0,
        ),
        (
            r#"loopwright_request_duration_seconds_count{route="chat_loop"}"#,
            2.0,
        ),
        (r#"loopwright_turns_total{stop_reason="completed"}"#, 1.0),
        ("loopwright_turn_rounds_sum", 3.0),
        (r#"loopwright_overhead_seconds_bucket{le="0.00004"}"#, 1.0),
        ("loopwright_time_to_first_token_seconds_count", 1.0),
        (
            r#"loopwright_tool_calls_total{tool="get_ticket",status="ok"}"#,
            1.0,
        ),
        (
            r#"loopwright_tool_calls_total{tool="dispatch",status="timeout"}"#,
            1.0,
        ),
        (
            r#"loopwright_tool_duration_seconds_sum{tool="dispatch"}"#,
            30.0,
        ),
        (
            r#"loopwright_model_calls_total{upstream="gpu-1",outcome="completed"}"#,
            1.0,
        ),
        (
            r#"loopwright_upstream_retries_total{upstream="gpu-1"}"#,
            1.0,
        ),
        (
            r#"loopwright_tokens_total{kind="prompt",model="m",key="team"}"#,
            100.0,
        ),
        (
            r#"loopwright_tokens_total{kind="completion",model="m",key="team"}"#,
            7.0,
        ),
        ("loopwright_session_store_errors_total", 1.0),
        ("loopwright_code_cell_duration_seconds_count", 1.0),
    ] {
        assert_eq!(value(&page, series), Some(expected), "{series}\n{page}");
    }
    assert!(page.ends_with("# EOF\n"));
}

#[test]
fn a_stream_counts_as_open_until_its_guard_is_dropped() {
    let metrics = metrics();
    let first = metrics.stream_opened();
    let second = metrics.clone().stream_opened();
    assert_eq!(
        value(&metrics.encode(), "loopwright_open_streams"),
        Some(2.0)
    );
    drop(first);
    assert_eq!(
        value(&metrics.encode(), "loopwright_open_streams"),
        Some(1.0)
    );
    drop(second);
    assert_eq!(
        value(&metrics.encode(), "loopwright_open_streams"),
        Some(0.0)
    );
}

#[test]
fn tools_that_come_later_get_series_up_to_a_bound() {
    let metrics = metrics();
    for number in 0..MAX_LEARNT_TOOLS + 3 {
        let name = format!("t{number}");
        let label = ToolLabel::Configured(&name);
        metrics.tool_finished(label, ToolStatus::Ok, Duration::ZERO);
        metrics.tool_finished(ToolLabel::Configured("t0"), ToolStatus::Ok, Duration::ZERO);
    }
    let page = metrics.encode();
    let calls = |tool: &str| {
        let series = format!(r#"loopwright_tool_calls_total{{tool="{tool}",status="ok"}}"#);
        value(&page, &series)
    };
    assert_eq!(calls("t999"), Some(1.0));
    assert_eq!(calls("t1000"), None);
    assert_eq!(calls("unknown"), Some(3.0));
    assert_eq!(calls("t0"), Some(1004.0));
}
