//! Traces: the collector, the variables of OpenTelemetry, and what is refused.

use super::*;
use ::agent::traces::settings::{Sampling, Settings, SpanEncoding};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The settings with these lines and variables.
fn read(lines: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let file = TestFile::new(&format!("{UPSTREAM}{lines}"));
    let env = |name: &str| {
        let entry = variables.iter().find(|(other, _)| *other == name)?;
        Some(entry.1.to_owned())
    };
    let config = Config::load(&file.flags(), &env);
    config.map_err(|error| error.to_string())
}

fn traces(lines: &str, variables: &[(&str, &str)]) -> Option<Settings> {
    read(lines, variables).unwrap().traces
}

fn endpoint(lines: &str, variables: &[(&str, &str)]) -> Option<String> {
    traces(lines, variables).map(|traces| traces.endpoint.to_string())
}

#[test]
fn the_settings_come_before_the_variables_of_opentelemetry() {
    let own = "otlp_endpoint = 'http://own:1/base/'";
    let all = [
        (ENDPOINT, "http://all:2"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:3/x"),
        ("LOOPWRIGHT_OTLP_ENDPOINT", "http://variable:4"),
    ];
    for (lines, variables, expected) in [
        ("", &all[..0], None),
        (own, &all[..2], Some("http://own:1/base/v1/traces")),
        (own, &all[..], Some("http://variable:4/v1/traces")),
        ("", &all[..1], Some("http://all:2/v1/traces")),
        ("", &all[..2], Some("http://traces:3/x")),
    ] {
        assert_eq!(endpoint(lines, variables).as_deref(), expected);
    }
    for off in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ] {
        assert_eq!(endpoint("", &[(ENDPOINT, "http://all:2"), off]), None);
        assert!(endpoint(own, &[off]).is_some());
    }
}

#[test]
fn the_variables_say_how_traces_are_sent() {
    let own = "otlp_endpoint = 'http://own:1'";
    let plain = traces(own, &[]).unwrap();
    assert_eq!(plain.encoding, SpanEncoding::Protobuf);
    assert_eq!(plain.timeout, Duration::from_secs(10));
    assert_eq!(plain.sampling, Sampling::default());
    assert!(!plain.contents && plain.headers.is_empty());
    let variables = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1500"),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20of-collector, x-a = b ,",
        ),
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
    ];
    let config = read(&format!("{own}\notlp_contents = true"), &variables).unwrap();
    let shown = config.summary() + &format!("{config:?}");
    assert!(!shown.contains("of-collector"), "{shown}");
    let traces = config.traces.unwrap();
    assert_eq!(traces.encoding, SpanEncoding::Json);
    assert_eq!(traces.timeout, Duration::from_millis(1500));
    assert_eq!(traces.headers["authorization"], "Bearer of-collector");
    assert_eq!(traces.headers["x-a"], "b");
    let (share, heeds_parent) = (0.25, false);
    assert_eq!(
        traces.sampling,
        Sampling {
            share,
            heeds_parent
        }
    );
    assert!(traces.contents);
}

#[test]
fn what_cannot_be_used_is_refused() {
    let own = "otlp_endpoint = 'http://own:1'";
    for (variable, value, expected) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "thrift", "http/json"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization", "NAME=VALUE"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c", "NAME=VALUE"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "milliseconds"),
        ("OTEL_RESOURCE_ATTRIBUTES", "=x", "NAME=VALUE"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "traceidratio"),
    ] {
        let refused = read(own, &[(variable, value)]).unwrap_err();
        assert!(refused.starts_with(&format!("{variable}: ")), "{refused}");
        assert!(refused.contains(expected), "{refused}");
    }
    for share in ["2", "-1", "half", "NaN"] {
        let variables = [
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", share),
        ];
        let refused = read(own, &variables).unwrap_err();
        assert!(refused.contains("from 0 to 1"), "{refused}");
    }
    let refused = read("", &[(ENDPOINT, "collector:4317")]).unwrap_err();
    assert!(
        refused.starts_with(ENDPOINT) && refused.contains("http://HOST:PORT"),
        "{refused}"
    );
    let refused = read("otlp_endpoint = 'ftp://h'", &[]).unwrap_err();
    assert!(
        refused.contains("otlp_endpoint") && refused.contains("scheme"),
        "{refused}"
    );
    let refused = read("otlp_contents = true", &[]).unwrap_err();
    assert!(
        refused.contains("otlp_contents") && refused.contains("otlp_endpoint"),
        "{refused}"
    );
}

#[test]
fn the_port_of_grpc_is_noted() {
    let config = read("otlp_endpoint = 'http://own:4317'", &[]).unwrap();
    assert!(config.notices[0].contains("4318"), "{:?}", config.notices);
}
