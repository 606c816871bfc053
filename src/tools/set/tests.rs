use std::time::Duration;

use ::http::{HeaderMap, Method};
use serde_json::value::RawValue;

use super::*;
use crate::ToolSource;
use crate::configured::{self, ConfiguredToolsError};
use crate::requested::RequestedTools;
use crate::settings::{DispatchSettings, EndpointSettings, HttpToolSettings, Settings};
use crate::source::{Source, SourceList, Sources};

const PARAMETERS: &str = r#"{"type":"object","properties":{}}"#;

fn endpoint() -> EndpointSettings {
    EndpointSettings {
        url: "http://127.0.0.1:9/run?key=secret".parse().unwrap(),
        method: Method::POST,
        headers: HeaderMap::new(),
        secret: None,
        timeout: Duration::from_secs(30),
        max_answer_bytes: 1024,
        max_retries: 2,
    }
}

fn entry(name: &str) -> HttpToolSettings {
    HttpToolSettings {
        name: name.into(),
        description: "d".into(),
        parameters_json: PARAMETERS.into(),
        endpoint: endpoint(),
        sequential: true,
        idempotent: false,
        read_only: false,
        destructive: true,
        open_world: true,
        repeatable: false,
    }
}

fn settings(configured: &[&str], dispatch: Option<&[&str]>) -> Settings {
    Settings {
        dispatch: dispatch.map(|patterns| DispatchSettings {
            tools: Some(strings(patterns)),
            client_tool_names: Vec::new(),
            endpoint: endpoint(),
            sequential: false,
            idempotent: true,
        }),
        http_tools: configured.iter().copied().map(entry).collect(),
        max_parallel_tools: 8,
        max_result_chars: 1000,
        connect_timeout: Duration::from_secs(1),
        code_by_default: false,
        certificates: net::CaCertificates::default(),
    }
}

fn registry(configured: &[&str], dispatch: Option<&[&str]>) -> Arc<SourceList> {
    build(&settings(configured, dispatch)).unwrap()
}

fn build(settings: &Settings) -> Result<Arc<SourceList>, ConfiguredToolsError> {
    Ok(Sources::new(configured::sources(settings)?)?.snapshot())
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn function(name: &str) -> ToolDefinition {
    declared("function", name)
}

fn declared(kind: &str, name: &str) -> ToolDefinition {
    // The white space shows that the entry's own text is kept.
    let json = format!(r#"{{"type": "{kind}", "{kind}": {{"name":"{name}"}}}}"#);
    ToolDefinition::parse(&RawValue::from_string(json).unwrap()).unwrap()
}

fn functions(names: &[&str]) -> Vec<ToolDefinition> {
    names.iter().copied().map(function).collect()
}

fn filter(allow: Option<&[&str]>, deny: &[&str], client_tools: &[&str]) -> ToolFilter {
    let globs = |patterns: &[&str]| Globs::new(&strings(patterns)).unwrap();
    ToolFilter::new(allow.map(globs), globs(deny), globs(client_tools), true)
}

fn everything() -> ToolFilter {
    filter(None, &[], &[])
}

fn nothing() -> ToolFilter {
    let none = || Globs::new(&[]).unwrap();
    ToolFilter::new(None, none(), none(), false)
}

/// Who runs each of the names: `server`, `http`, `client` or `-`.
fn owners(set: &ToolSet, names: &[&str]) -> String {
    let owner = |name: &&str| match set.lookup(name) {
        Lookup::Server(tool) => match tool.policy().source {
            ToolSource::Dispatch => "dispatch",
            ToolSource::Http => "http",
            ToolSource::Mcp | ToolSource::BuiltIn => "built_in",
        },
        Lookup::Client => "client",
        Lookup::Denied(_) => "denied",
        Lookup::Unknown => "-",
    };
    names.iter().map(owner).collect::<Vec<_>>().join(" ")
}

fn check(registry: &SourceList, filter: &ToolFilter, expected: &str) {
    let mut tools = functions(&["a", "b_1", "b_2"]);
    tools.push(declared("custom", "b_c"));
    let set = registry
        .tool_set(tools, &RequestedTools::default(), filter)
        .unwrap();
    let names = ["a", "b_1", "b_2", "b_c", "h", "nobody"];
    assert_eq!(owners(&set, &names), expected);
    let server = expected.contains("dispatch") || expected.contains("http");
    assert_eq!(set.has_server_tools(), server);
    let offered: Vec<&str> = set.names().collect();
    let expected: Vec<&str> = names
        .into_iter()
        .zip(expected.split(' '))
        .filter(|(_, owner)| *owner != "-")
        .map(|(name, _)| name)
        .collect();
    assert_eq!(offered, expected);
}

#[test]
fn a_declared_function_goes_to_dispatch_if_it_may_and_else_to_the_client() {
    let all = registry(&["h"], Some(&["*"]));
    check(
        &all,
        &everything(),
        "dispatch dispatch dispatch client http -",
    );
    let some = registry(&["h"], Some(&["x", "b_*"]));
    check(
        &some,
        &everything(),
        "client dispatch dispatch client http -",
    );
    let none = registry(&["h"], None);
    check(&none, &everything(), "client client client client http -");
    let own = filter(None, &[], &["b_{1,c}"]);
    check(&all, &own, "dispatch client dispatch client http -");
}

#[test]
fn a_server_side_tool_that_the_request_leaves_out_is_offered_to_nobody() {
    let registry = registry(&["h"], Some(&["b_*"]));
    let check = |filter, expected| check(&registry, &filter, expected);
    check(
        filter(None, &["b_2", "h"], &[]),
        "client dispatch - client - -",
    );
    check(
        filter(Some(&["b_1"]), &[], &[]),
        "client dispatch - client - -",
    );
    check(
        filter(Some(&["b_*", "h"]), &["b_*"], &[]),
        "client - - client http -",
    );
    check(filter(Some(&[]), &[], &[]), "client - - client - -");
    // What the client runs itself is none of the filter's business.
    check(
        filter(Some(&[]), &["*"], &["b_1"]),
        "client client - client - -",
    );
}

#[test]
fn without_server_side_tools_everything_is_the_clients() {
    let registry = registry(&["h", "a"], Some(&["*"]));
    check(&registry, &nothing(), "client client client client - -");
}

#[test]
fn the_list_is_the_declared_entries_as_they_came_then_the_configured_ones_then_hosted_ones() {
    let registry = registry(&["h", "g"], Some(&["*"]));
    let set = registry
        .tool_set(
            functions(&["z", "a"]),
            &RequestedTools::default(),
            &everything(),
        )
        .unwrap();
    let own = |name| format!(r#"{{"type": "function", "function": {{"name":"{name}"}}}}"#);
    let configured = |name| {
        format!(
            r#"{{"type":"function","function":{{"name":"{name}","description":"d","parameters":{PARAMETERS}}}}}"#
        )
    };
    let list = [own("z"), own("a"), configured("h"), configured("g")].join(",");
    assert_eq!(*set.tools_json().unwrap(), *format!("[{list}]"));
    assert!(Arc::ptr_eq(
        &set.tools_json().unwrap(),
        &set.clone().tools_json().unwrap()
    ));
    let set = set.with_hosted(&strings(&[r#"{"type":"web_search"}"#, "{}"]));
    let expected = format!(r#"[{list},{{"type":"web_search"}},{{}}]"#);
    assert_eq!(*set.tools_json().unwrap(), *expected);
    assert_eq!(set.names().count(), 4);
}

#[test]
fn an_empty_list_is_none_until_hosted_entries_come() {
    let registry = registry(&[], Some(&["*"]));
    let set = registry
        .tool_set(Vec::new(), &RequestedTools::default(), &everything())
        .unwrap();
    assert_eq!(set.tools_json(), None);
    let set = set.with_hosted(&[]);
    assert_eq!(set.tools_json(), None);
    let set = set.with_hosted(&strings(&["{}"]));
    assert_eq!(set.tools_json().as_deref(), Some("[{}]"));
    let left_out = filter(None, &["a"], &[]);
    let set = registry
        .tool_set(functions(&["a"]), &RequestedTools::default(), &left_out)
        .unwrap();
    assert_eq!(set.tools_json(), None);
}

fn error(registry: &SourceList, tools: Vec<ToolDefinition>, filter: &ToolFilter) -> ToolSetError {
    registry
        .tool_set(tools, &RequestedTools::default(), filter)
        .unwrap_err()
}

#[test]
fn the_name_of_an_active_configured_tool_is_taken() {
    let plain = registry(&["h"], None);
    let dispatching = registry(&["h"], Some(&["*"]));
    let conflict = ToolSetError::Conflict("h".into());
    assert_eq!(error(&plain, functions(&["h"]), &everything()), conflict);
    let custom = vec![declared("custom", "h")];
    assert_eq!(error(&plain, custom, &everything()), conflict);
    assert_eq!(
        error(&dispatching, functions(&["h"]), &everything()),
        ToolSetError::DispatchConflict("h".into())
    );
    let own = filter(None, &[], &["h"]);
    assert_eq!(error(&dispatching, functions(&["h"]), &own), conflict);
    assert!(conflict.to_string().contains("'h'"), "{conflict}");
    assert!(
        conflict.to_string().contains("agent.tools.deny"),
        "{conflict}"
    );

    for (registry, filter, expected) in [
        (&plain, filter(None, &["h"], &[]), "client"),
        (&plain, nothing(), "client"),
        (&dispatching, filter(None, &["h"], &["h"]), "client"),
        (&dispatching, filter(None, &["h"], &[]), "-"),
    ] {
        let set = registry
            .tool_set(functions(&["h"]), &RequestedTools::default(), &filter)
            .unwrap();
        assert_eq!(owners(&set, &["h"]), expected);
    }
}

#[test]
fn names_are_checked_where_the_server_takes_part() {
    let registry = registry(&[], Some(&["a*"]));
    let (long, blank) = ("a".repeat(65), "a b");
    for (names, expected) in [
        (["a", "a"], ToolSetError::Duplicate("a".into())),
        (["a", blank], ToolSetError::Name(blank.into())),
        (["a", &long], ToolSetError::Name(long.clone())),
        (["a", "é"], ToolSetError::Name("é".into())),
    ] {
        let tools = || functions(&names);
        assert_eq!(error(&registry, tools(), &everything()), expected);
        assert!(
            registry
                .tool_set(tools(), &RequestedTools::default(), &nothing())
                .is_ok()
        );
    }
    let good = ["a.b-C_9", &"a".repeat(64)];
    assert!(
        registry
            .tool_set(functions(&good), &RequestedTools::default(), &everything())
            .is_ok()
    );
    let clients = functions(&["x y", "x y"]);
    assert!(
        registry
            .tool_set(clients, &RequestedTools::default(), &everything())
            .is_ok()
    );
}

#[test]
fn a_glob_that_cannot_be_read_is_named() {
    let error = Globs::new(&strings(&["ok", "bad["])).unwrap_err();
    assert!(error.to_string().contains("'bad['"), "{error}");
    assert!(Globs::new(&vec!["x".to_owned(); 257]).is_err());
    let error = Globs::new(&["x".repeat(257)]).unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
}

#[test]
fn the_registry_knows_its_tools() {
    let with_both = registry(&["h", "g"], Some(&["*"]));
    assert!(with_both.offers_by_default());
    assert!(registry(&["h"], None).offers_by_default());
    assert!(registry(&[], Some(&["*"])).offers_by_default());
    assert!(!registry(&[], None).offers_by_default());
    let tools: Vec<_> = with_both.iter().flat_map(Source::tools).collect();
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.definition().name).collect();
    assert_eq!(names, ["h", "g"]);
    assert!(with_both.has("h") && !with_both.has("a"));
    let policy = tools[0].policy();
    assert!(policy.sequential && !policy.idempotent);
    assert_eq!(policy.timeout, Duration::from_secs(30));
}

#[test]
fn settings_that_cannot_be_used_are_named_without_their_secrets() {
    type Spoil = fn(&mut Settings);
    let cases: [(Spoil, &str); 11] = [
        (|s| s.http_tools[0].name = "a b".into(), "'a b'"),
        (|s| s.http_tools[0].name = "x".repeat(65), "'xxx"),
        (
            |s| s.http_tools[0].name = "g".into(),
            "'g' is configured twice",
        ),
        (|s| s.http_tools[0].parameters_json = "{".into(), "'h'"),
        (
            |s| s.http_tools[0].parameters_json = r#"{"type":"array"}"#.into(),
            "'h'",
        ),
        (|s| s.http_tools[0].parameters_json = "[]".into(), "'h'"),
        (
            |s| s.http_tools[0].endpoint.url = "ftp://h/key".parse().unwrap(),
            "'h'",
        ),
        (
            |s| s.http_tools[0].endpoint.url = "http://u:key@h/".parse().unwrap(),
            "'h'",
        ),
        (
            |s| s.http_tools[0].endpoint.secret = Some("whsec_key!".into()),
            "'h'",
        ),
        (
            |s| dispatch(s).endpoint.secret = Some("whsec_".into()),
            "the dispatch URL",
        ),
        (|s| dispatch(s).tools = Some(strings(&["{a"])), "'{a'"),
    ];
    for (spoil, named) in cases {
        let mut settings = settings(&["h", "g"], Some(&["*"]));
        spoil(&mut settings);
        let error = build(&settings).unwrap_err();
        let mut text = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            text = format!("{text}: {source}");
        }
        assert!(text.contains(named), "{text}");
        assert!(!text.contains("key"), "{text}");
    }
}

fn dispatch(settings: &mut Settings) -> &mut DispatchSettings {
    settings.dispatch.as_mut().unwrap()
}

#[test]
fn what_is_printed_for_debugging_holds_no_secret() {
    let mut settings = settings(&["h"], Some(&["*"]));
    settings.http_tools[0].endpoint.secret = Some("whsec_aaaabbbb".into());
    let registry = build(&settings).unwrap();
    let printed = format!("{registry:?}");
    assert!(
        !printed.contains("secret") && !printed.contains("aaaabbbb"),
        "{printed}"
    );
}

#[test]
fn a_set_may_allow_some_of_its_tools_only() {
    let registry = registry(&["h"], Some(&["b*"]));
    let declared = functions(&["a", "b"]);
    let set = registry.tool_set(declared, &RequestedTools::default(), &everything());
    let set = set.unwrap();
    let names = ["a", "b", "h", "nobody"];
    let only = |allowed: &[&str]| {
        let allowed = allowed.iter().map(|name| (*name).to_owned()).collect();
        set.clone().only(Some(allowed))
    };
    for (allowed, expected) in [
        (&names[..], "client dispatch http -"),
        (&["a"], "client - - -"),
        (&["b", "h"], "- dispatch http -"),
        (&["nobody"], "- - - -"),
        (&[], "- - - -"),
    ] {
        let limited = only(allowed);
        assert_eq!(owners(&limited, &names), expected);
        assert_eq!(limited.tools_json(), set.tools_json(), "all are sent");
        assert!(names[..3].iter().all(|name| limited.offers(name)));
        let count = expected.split(' ').filter(|owner| *owner != "-").count();
        assert_eq!(limited.names().count(), count);
        assert_eq!(limited.forbids_calls(), count == 0);
    }
    assert!(!set.clone().only(None).forbids_calls());
    let nothing = ToolSet::default().only(Some(HashSet::new()));
    assert!(!nothing.forbids_calls(), "there is nothing to forbid");
}
