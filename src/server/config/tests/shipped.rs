//! The shipped file: it shows every key with its default, and its examples are valid.

use super::*;
use upstream::settings::Quirks;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/loopwright.toml");

#[test]
fn the_shipped_file_says_what_holds_without_it() {
    let from_file = ServeFlags {
        config: Some(SHIPPED.into()),
        ..ServeFlags::default()
    };
    let nothing = |_: &str| None;
    let mut shipped = Config::load(&from_file, &nothing).unwrap();
    let without = flags(&["--upstream=http://127.0.0.1:8000/v1".to_owned()]);
    let defaults = Config::load(&without, &nothing).unwrap();
    // Where the values come from differs.
    shipped.given.clone_from(&defaults.given);
    assert_eq!(format!("{shipped:?}"), format!("{defaults:?}"));
    assert_eq!(shipped.notices, Vec::<String>::new());
}

/// The shipped file with its examples switched on.
pub(super) fn shipped_examples() -> String {
    let text = std::fs::read_to_string(SHIPPED).unwrap();
    let switched_on = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest)
            if rest.starts_with(|first: char| first.is_ascii_lowercase() || first == '[') =>
        {
            rest
        }
        _ => line,
    });
    switched_on.map(|line| format!("{line}\n")).collect()
}

/// Without the keys that stand for a list with one entry.
pub(super) fn without_short_forms(text: &str) -> String {
    let short = |line: &&str| {
        ["upstream", "search_provider", "search_url"]
            .iter()
            .any(|key| line.starts_with(key))
    };
    text.lines()
        .filter(|line| !short(line))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
#[cfg_attr(not(feature = "mcp"), ignore = "needs the feature")]
fn the_examples_of_the_shipped_file_are_valid() {
    let text = shipped_examples();
    let refused = load(&text).unwrap_err();
    assert!(refused.contains("[[upstreams]]"), "two forms: {refused}");

    let config = load(&without_short_forms(&text)).unwrap();
    let upstream = &config.upstreams[0];
    assert_eq!(upstream.name, "gpu");
    assert_eq!(
        upstream.api_key.as_ref().unwrap().expose_secret(),
        "gpu-secret"
    );
    assert_eq!(
        upstream.model_map,
        [("fast".to_owned(), "Qwen/Qwen3-8B".to_owned())]
    );
    let quirks = Quirks {
        hosted_tools: vec!["web_search".to_owned()],
        ..Quirks::default()
    };
    assert_eq!(upstream.quirks.settle(upstream.kind), quirks);
    assert_eq!(config.agent.max_duration, Some(Duration::from_secs(1800)));
    let dispatch = config.tools.dispatch.as_ref().unwrap();
    assert!(dispatch.endpoint.headers["authorization"].is_sensitive());
    assert!(dispatch.endpoint.secret.is_some());
    assert_eq!(
        config.tools.http_tools[0].parameters_json,
        r#"{"properties":{"number":{"minimum":1,"type":"integer"}},"required":["number"],"type":"object"}"#
    );
    let hook = &config.hooks.hooks[0];
    assert!(hook.service.headers["authorization"].is_sensitive());
    assert!(hook.service.secret.is_some());
    let names: Vec<_> = config
        .http
        .api_keys
        .iter()
        .map(|key| key.name.as_str())
        .collect();
    assert_eq!(names, ["alice", "bob"]);
    let operators = config.http.api_keys.iter().map(|key| key.operator);
    assert_eq!(operators.collect::<Vec<_>>(), [true, false]);

    let shown = config.summary() + &format!("{config:?}");
    assert!(!shown.contains("-secret"), "{shown}");
    assert!(!shown.contains("whsec"), "{shown}");
}

#[test]
fn the_shipped_file_shows_every_key() {
    let shipped = std::fs::read_to_string(SHIPPED).unwrap();
    for header in [
        "",
        "[sandbox]",
        "[sandbox.limits]",
        "[search]",
        "[search.pages]",
        "[[search.providers]]",
        "[retry]",
        "[[upstreams]]",
        "[upstreams.quirks]",
        "[[tools]]",
        "[[permissions]]",
        "[mcp_servers.files]",
        "[mcp_requests]",
        "[[hooks]]",
        "[file_urls]",
        "[[api_keys]]",
    ] {
        let parent = if header == "[upstreams.quirks]" {
            "[[upstreams]]\n"
        } else {
            ""
        };
        let unknown = format!("{parent}{header}\nbogus = 1");
        let refused = toml::from_str::<file::File>(&unknown).unwrap_err();
        let known = refused.message().split_once("expected one of ").unwrap().1;
        let section = section(&shipped, header);
        for key in known.split(", ").map(|key| key.trim_matches('`')) {
            let is_table = [
                "sandbox",
                "limits",
                "search",
                "pages",
                "providers",
                "retry",
                "upstreams",
                "tools",
                "mcp_servers",
                "mcp_requests",
                "hooks",
                "file_urls",
                "api_keys",
                "permissions",
                "approver",
                "approval_webhook",
                "quirks",
            ]
            .contains(&key);
            let written = section
                .iter()
                .any(|line| line.starts_with(&format!("{key} =")));
            assert!(written || is_table, "`{key}` is not shown below `{header}`");
        }
    }
}

/// Keys whose example is not the default: the default is empty, or depends on the version.
const OTHER_THAN_DEFAULT: &[&str] = &[
    "api_keys",
    "dispatch_headers",
    "permissions",
    "file_urls.hosts",
    "hooks[0].tools",
    "hooks[0].url",
    "mcp_requests.hosts",
    "search.pages.user_agent",
    "search.providers",
    "upstreams[0].base_url",
    "upstreams[0].headers",
    "upstreams[0].model_map",
    "upstreams[0].models",
    "upstreams[0].name",
    "upstreams[0].quirks.hosted_tools",
    "tools[0].description",
    "tools[0].headers",
    "tools[0].idempotent",
    "tools[0].name",
    "tools[0].url",
];

#[test]
fn every_example_of_the_shipped_file_is_the_default() {
    let table = |text: &str| {
        let file: file::File = toml::from_str(text).unwrap();
        toml::Value::try_from(file).unwrap()
    };
    let examples = table(&without_short_forms(&shipped_examples()));
    let defaults = table(
        "[sandbox]\n[search]\n[[upstreams]]\nname = \"u\"\nbase_url = \"http://u\"\n\
         [[tools]]\nname = \"t\"\ndescription = \"d\"\nurl = \"http://t\"\n[mcp_servers.files]\n\
         [[hooks]]\non = \"before_tool\"\nurl = \"http://h\"",
    );
    let mut compared = 0;
    compare(&defaults, &examples, "", &mut compared);
    assert!(compared > 80, "only {compared} keys were compared");
}

fn compare(default: &toml::Value, example: &toml::Value, key: &str, compared: &mut usize) {
    if OTHER_THAN_DEFAULT.contains(&key) {
        return;
    }
    match (default, example) {
        (toml::Value::Table(defaults), toml::Value::Table(examples)) => {
            for (name, default) in defaults {
                let dot = if key.is_empty() { "" } else { "." };
                compare(
                    default,
                    &examples[name],
                    &format!("{key}{dot}{name}"),
                    compared,
                );
            }
        }
        (toml::Value::Array(defaults), toml::Value::Array(examples))
            if defaults.iter().any(toml::Value::is_table) =>
        {
            compare(&defaults[0], &examples[0], &format!("{key}[0]"), compared);
        }
        (default, example) => {
            assert_eq!(default, example, "{key}");
            *compared += 1;
        }
    }
}

/// The lines below the headers of that text, without comment marks.
fn section<'a>(text: &'a str, header: &str) -> Vec<&'a str> {
    let mut current = "";
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.trim_start_matches('#').trim_start();
        if line.starts_with('[') {
            current = line;
        }
        if current == header {
            lines.push(line);
        }
    }
    lines
}
