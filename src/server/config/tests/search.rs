//! Web search: its defaults, and what is refused.

use super::*;
use web::settings::ProviderKind;

const ON: &str = "upstream = \"http://h/v1\"\nenable_search = true\n";

/// Lines after the switch, the key at fault and a part of the remedy.
const IMPOSSIBLE: &[(&str, &str, &str)] = &[
    (
        "search_provider = \"google\"",
        "search_provider",
        "searxng, brave, tavily",
    ),
    (
        "search_provider = \"searxng\"",
        "search_provider",
        "--search-url",
    ),
    (
        "search_provider = \"exa\"",
        "search_provider",
        "EXA_API_KEY",
    ),
    ("search_url = \"ftp://s\"", "search_url", "http://"),
    (
        "search_provider = \"brave\"\n[[search.providers]]\nname = \"duckduckgo\"",
        "search_provider",
        "remove one of the two",
    ),
    (
        "[[search.providers]]\nname = \"bing\"",
        "search.providers[0].name",
        "duckduckgo",
    ),
    (
        "[[search.providers]]\nname = \"searxng\"",
        "search.providers[0]",
        "give it as url",
    ),
    (
        "[[search.providers]]\nname = \"tavily\"",
        "search.providers[0]",
        "TAVILY_API_KEY",
    ),
    (
        "[[search.providers]]\nname = \"tavily\"\napi_key_env = \"NOT_SET\"",
        "search.providers[0].api_key_env",
        "NOT_SET is not set",
    ),
    (
        "[[search.providers]]\nname = \"duckduckgo\"\nrequests_per_minute = 0",
        "search.providers[0].requests_per_minute",
        "1 or more",
    ),
    (
        "[search]\nmax_results = 0",
        "search.max_results",
        "1 or more",
    ),
    (
        "[search]\nmax_results = 21",
        "search.max_results",
        "20 or less",
    ),
    ("[search]\ntimeout = 0", "search.timeout", "longer than 0"),
    (
        "[search]\npages_timeout = 0",
        "search.pages_timeout",
        "longer than 0",
    ),
    ("[search]\nparsers = 0", "search.parsers", "1 or more"),
    (
        "[search]\nparser_memory = \"1MiB\"",
        "search.parser_memory",
        "67108864 or more",
    ),
    (
        "[search]\nembedding_upstream = \"gpu\"",
        "search.embedding_upstream",
        "embedding_model",
    ),
    (
        "[search]\nembedding_model = \"e\"\nembedding_upstream = \"gpu\"",
        "search.embedding_upstream",
        "[[upstreams]]",
    ),
    (
        "[search.pages]\nports = [80, 0]",
        "search.pages.ports[1]",
        "1 or more",
    ),
    (
        "[search.pages]\nports = [70000]",
        "search.pages.ports[0]",
        "65535 or less",
    ),
    (
        "[search.pages]\nallow = [\"a[\"]",
        "search.pages.allow[0]",
        "a[",
    ),
    (
        "[search.pages]\nuser_agent = \"a\\nb\"",
        "search.pages.user_agent",
        "visible ASCII",
    ),
    (
        "[search.pages]\nmax_bytes = 10",
        "search.pages.max_bytes",
        "1024 or more",
    ),
    (
        "[search.pages]\nper_host = 0",
        "search.pages.per_host",
        "1 or more",
    ),
];

#[test]
fn impossible_settings_are_refused_by_name_and_remedy() {
    for (lines, key, remedy) in IMPOSSIBLE {
        check(&format!("{ON}{lines}"), key, remedy);
    }
}

#[test]
#[cfg_attr(not(feature = "mcp"), ignore = "needs the feature")]
fn the_examples_of_the_shipped_file_are_the_defaults() {
    let text = shipped_examples().replace("enable_search = false", "enable_search = true");
    let text = without_short_forms(&text);
    let shipped = load(&text).unwrap().web.unwrap().web;
    let defaults = load(ON).unwrap().web.unwrap().web;
    let pages = |settings: &web::settings::Settings| {
        let mut pages = settings.fetch.clone();
        // The default names the version.
        pages.user_agent.clear();
        format!("{:?} {pages:?} {:?}", settings.search, settings.extractor)
    };
    assert_eq!(pages(&shipped), pages(&defaults));
    let kinds: Vec<ProviderKind> = shipped.providers.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [ProviderKind::Brave, ProviderKind::SearXng]);
    assert_eq!(shipped.embeddings.unwrap().url.path(), "/v1/embeddings");
    assert!(defaults.embeddings.is_none());
}

#[test]
fn search_is_off_on_request_or_always_on() {
    let offered = |text: &str| load(text).unwrap().web.map(|web| web.by_default);
    let base = "upstream = \"http://h/v1\"\n";
    assert_eq!(offered(base), None);
    assert_eq!(offered(ON), Some(true));
    assert_eq!(
        offered(&format!("{base}[search]\non_request = true")),
        Some(false)
    );
    let off = load(&format!("{base}[search]\nmax_pages = 3")).unwrap();
    assert!(off.web.is_none());
    assert!(
        off.notices[0].contains("search has no effect without --enable-search"),
        "{:?}",
        off.notices
    );
    assert!(off.summary().contains("enable_search = false"));
}

#[test]
fn a_provider_is_named_guessed_or_the_one_without_a_key() {
    let first = |lines: &str| {
        load(&format!("{ON}{lines}"))
            .unwrap()
            .web
            .unwrap()
            .web
            .providers
            .remove(0)
    };
    assert_eq!(first("").kind, ProviderKind::DuckDuckGo);
    let searxng = first("search_url = \"http://searxng:8080\"");
    assert_eq!(searxng.kind, ProviderKind::SearXng);
    assert_eq!(searxng.url.unwrap().as_str(), "http://searxng:8080/");
    let brave = first("search_provider = \"brave\"");
    assert_eq!(brave.api_key.unwrap().expose_secret(), "brave-secret");
    // What is switched off needs no key.
    load("upstream = \"http://h/v1\"\nsearch_provider = \"exa\"").unwrap();
}
