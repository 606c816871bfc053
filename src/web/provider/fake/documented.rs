//! What each API's documentation asks of a request: method, path, key, content type, and parameters that there are.

use super::{KEY, SeenRequest, USER_AGENT};
use crate::settings::ProviderKind;

const TAVILY_FIELDS: &[&str] = &[
    "query",
    "max_results",
    "search_depth",
    "topic",
    "time_range",
    "include_raw_content",
    "include_domains",
    "exclude_domains",
];
const EXA_FIELDS: &[&str] = &[
    "query",
    "type",
    "numResults",
    "contents",
    "startPublishedDate",
    "userLocation",
    "includeDomains",
    "excludeDomains",
];
const BRAVE_PARAMETERS: &[&str] = &[
    "q",
    "count",
    "country",
    "freshness",
    "result_filter",
    "text_decorations",
];

pub(super) fn check(kind: ProviderKind, request: &SeenRequest) -> Result<(), String> {
    expect(request, "user-agent", |request| {
        request.header("user-agent") == Some(USER_AGENT)
    })?;
    expect(request, "accept-encoding", |request| {
        request.header("accept-encoding") == Some("gzip, deflate")
    })?;
    expect(request, "no cookies", |request| {
        request.header("cookie").is_none()
    })?;
    match kind {
        ProviderKind::SearXng => {
            expect(request, "GET /search as JSON", |request| {
                request.method == "GET"
                    && request.path.ends_with("/search")
                    && request.parameter("format") == Some("json")
            })?;
            parameters(request, &["q", "format", "language", "time_range"])
        }
        ProviderKind::Brave => brave(request),
        ProviderKind::Tavily => {
            posts_json(request, "authorization", &format!("Bearer {KEY}"))?;
            expect(request, "a query of at most 400 characters", |request| {
                let body = request.json();
                body["query"]
                    .as_str()
                    .is_some_and(|query| query.chars().count() <= 400)
            })?;
            fields(request, TAVILY_FIELDS)
        }
        ProviderKind::Exa => {
            posts_json(request, "x-api-key", KEY)?;
            fields(request, EXA_FIELDS)
        }
        ProviderKind::Serper => {
            posts_json(request, "x-api-key", KEY)?;
            fields(request, &["q", "num", "gl", "tbs"])
        }
        ProviderKind::DuckDuckGo => {
            expect(request, "a posted form", |request| {
                request.method == "POST" && request.path == "/html/"
            })?;
            expect(request, "a first page", |request| {
                request.parameter("b") == Some("")
            })?;
            query_within(request, 499)?;
            parameters(request, &["q", "b", "kl", "df"])
        }
    }
}

fn brave(request: &SeenRequest) -> Result<(), String> {
    expect(request, "GET /res/v1/web/search", |request| {
        request.method == "GET" && request.path == "/res/v1/web/search"
    })?;
    expect(request, "its headers", |request| {
        request.header("x-subscription-token") == Some(KEY)
            && request.header("accept") == Some("application/json")
    })?;
    expect(request, "a count from 1 to 20", |request| {
        let count = request
            .parameter("count")
            .and_then(|text| text.parse().ok());
        count.is_some_and(|count| (1..=20).contains(&count))
    })?;
    expect(request, "at most 50 words", |request| {
        let query = request.parameter("q").unwrap_or_default();
        query.split_whitespace().count() <= 50
    })?;
    query_within(request, 400)?;
    parameters(request, BRAVE_PARAMETERS)
}

fn expect(
    request: &SeenRequest,
    what: &str,
    holds: impl FnOnce(&SeenRequest) -> bool,
) -> Result<(), String> {
    if holds(request) {
        return Ok(());
    }
    Err(format!("not as documented ({what}): {request:?}"))
}

fn posts_json(request: &SeenRequest, key_header: &str, key: &str) -> Result<(), String> {
    expect(request, "JSON posted to /search with a key", |request| {
        request.header("content-type") == Some("application/json")
            && request.header(key_header) == Some(key)
            && request.method == "POST"
            && request.path == "/search"
    })
}

fn query_within(request: &SeenRequest, chars: usize) -> Result<(), String> {
    expect(request, "a short query", |request| {
        let query = request.parameter("q");
        query.is_some_and(|query| !query.is_empty() && query.chars().count() <= chars)
    })
}

fn fields(request: &SeenRequest, known: &[&str]) -> Result<(), String> {
    expect(request, "known fields", |request| {
        let body = request.json();
        body.as_object()
            .is_some_and(|fields| fields.keys().all(|name| known.contains(&name.as_str())))
    })
}

fn parameters(request: &SeenRequest, known: &[&str]) -> Result<(), String> {
    expect(request, "known parameters", |request| {
        let mut names = request.parameters.iter().map(|(name, _)| name.as_str());
        names.all(|name| known.contains(&name))
    })
}
