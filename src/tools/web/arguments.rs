//! Arguments of the tools, read strictly; every refusal says what the model should send instead.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::ToolError;
use web::{DomainFilter, Freshness};

/// Longest query, in characters. The model is asked for a shorter one.
/// Tried by `web::arguments::one_or_several_wordings_are_searched`.
const MAX_QUERY_CHARS: usize = 400;
/// Most wordings of one search. The model is asked for fewer.
const MAX_QUERIES: usize = 4;
/// Most domains of one search. The model is asked for fewer.
const MAX_DOMAINS: usize = 20;
/// Default number of results of a search.
const DEFAULT_RESULTS: usize = 6;

/// Arguments of `web_search`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SearchArguments {
    pub(super) queries: Vec<String>,
    pub(super) max_results: usize,
    pub(super) freshness: Option<Freshness>,
    pub(super) domains: Arc<DomainFilter>,
}

impl SearchArguments {
    pub(super) fn read(
        arguments: &Map<String, Value>,
        permitted: &Arc<DomainFilter>,
        most: usize,
    ) -> Result<Self, ToolError> {
        let more = list(arguments, "queries", MAX_QUERIES)?;
        let mut queries: Vec<String> = Vec::new();
        for query in text(arguments, "query")?.into_iter().chain(more) {
            let query = query.split_whitespace().collect::<Vec<_>>().join(" ");
            if query.chars().count() > MAX_QUERY_CHARS {
                return Err(rejected(
                    "a query is longer than 400 characters; search for a few words",
                ));
            }
            if !query.is_empty() && !queries.contains(&query) {
                queries.push(query);
            }
        }
        if queries.is_empty() {
            return Err(rejected(
                "'query' is missing or empty; send what to search for",
            ));
        }
        queries.truncate(MAX_QUERIES);
        let freshness = match text(arguments, "freshness")?.as_deref() {
            None | Some("") => None,
            Some("day") => Some(Freshness::Day),
            Some("week") => Some(Freshness::Week),
            Some("month") => Some(Freshness::Month),
            Some("year") => Some(Freshness::Year),
            Some(_) => {
                return Err(rejected(
                    "'freshness' must be \"day\", \"week\", \"month\" or \"year\"",
                ));
            }
        };
        let max_results = match arguments.get("max_results") {
            None | Some(Value::Null) => DEFAULT_RESULTS.min(most),
            Some(value) => value
                .as_u64()
                .filter(|count| *count > 0)
                .map(|count| usize::try_from(count).map_or(most, |count| count.min(most)))
                .ok_or_else(|| rejected("'max_results' must be a whole number of 1 or more"))?,
        };
        let wanted = list(arguments, "domains", MAX_DOMAINS)?;
        let domains = match wanted.is_empty() {
            true => permitted.clone(),
            false => Arc::new(permitted.narrowed(&hosts(&wanted)?).ok_or_else(|| {
                rejected(&format!(
                    "none of these domains may be searched here; the user allows only {}",
                    permitted.allowed.join(", ")
                ))
            })?),
        };
        Ok(Self {
            queries,
            max_results,
            freshness,
            domains,
        })
    }
}

/// Arguments of `read_page`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadArguments {
    pub(super) url: String,
    pub(super) find: Option<String>,
}

impl ReadArguments {
    pub(super) fn read(arguments: &Map<String, Value>) -> Result<Self, ToolError> {
        let url = text(arguments, "url")?.map(|url| url.trim().to_owned());
        let url = url
            .filter(|url| !url.is_empty())
            .ok_or_else(|| rejected("'url' is missing or empty; send the address of a page"))?;
        let find = text(arguments, "find")?.map(|find| find.trim().to_owned());
        let find = find.filter(|find| !find.is_empty());
        let long = |find: &String| find.chars().count() > MAX_QUERY_CHARS;
        if find.as_ref().is_some_and(long) {
            return Err(rejected(
                "'find' is longer than 400 characters; send a few words",
            ));
        }
        Ok(Self { url, find })
    }
}

/// Domains as models write them: also with a scheme, a star or a path.
fn hosts(wanted: &[String]) -> Result<Vec<String>, ToolError> {
    let wrong = || rejected("'domains' must be a list of domains such as \"example.org\"");
    let host = |domain: &String| {
        let plain = domain.trim().trim_start_matches("*.");
        let plain = plain.split_once("://").map_or(plain, |(_, rest)| rest);
        let plain = plain.split(['/', ':', '?', '#']).next().unwrap_or_default();
        match url::Host::parse(plain.trim_end_matches('.')) {
            Ok(url::Host::Domain(domain)) => Ok(domain),
            Ok(url::Host::Ipv4(address)) => Ok(address.to_string()),
            Ok(url::Host::Ipv6(_)) | Err(_) => Err(wrong()),
        }
    };
    wanted.iter().map(host).collect()
}

fn text(arguments: &Map<String, Value>, name: &str) -> Result<Option<String>, ToolError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(rejected(&format!("'{name}' must be a string"))),
    }
}

fn list(arguments: &Map<String, Value>, name: &str, most: usize) -> Result<Vec<String>, ToolError> {
    let wrong = || {
        rejected(&format!(
            "'{name}' must be a list of at most {most} strings"
        ))
    };
    let entries = match arguments.get(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) if entries.len() <= most => entries,
        Some(Value::String(one)) => return Ok(vec![one.clone()]),
        Some(_) => return Err(wrong()),
    };
    let text = |entry: &Value| entry.as_str().map(str::to_owned).ok_or_else(wrong);
    entries.iter().map(text).collect()
}

fn rejected(text: &str) -> ToolError {
    ToolError::Rejected(text.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn search(arguments: &Value, permitted: &[&str]) -> Result<SearchArguments, ToolError> {
        let permitted = DomainFilter {
            allowed: permitted.iter().map(|&domain| domain.to_owned()).collect(),
            blocked: vec!["bad.test".to_owned()],
        };
        SearchArguments::read(arguments.as_object().unwrap(), &Arc::new(permitted), 10)
    }

    #[test]
    fn one_or_several_wordings_are_searched() {
        let read = search(
            &json!({"query": " a  b ", "queries": ["c", "a b", ""]}),
            &[],
        )
        .unwrap();
        assert_eq!(read.queries, ["a b", "c"]);
        assert_eq!((read.max_results, read.freshness), (6, None));
        let read = search(
            &json!({"queries": ["c"], "max_results": 99, "freshness": "week"}),
            &[],
        )
        .unwrap();
        assert_eq!(
            (read.max_results, read.freshness),
            (10, Some(Freshness::Week))
        );
        for wrong in [
            json!({}),
            json!({"query": "  "}),
            json!({"query": 1}),
            json!({"query": "x".repeat(401)}),
            json!({"query": "a", "queries": [1]}),
            json!({"query": "a", "queries": vec!["b"; 5]}),
            json!({"query": "a", "max_results": 0}),
            json!({"query": "a", "max_results": "3"}),
            json!({"query": "a", "freshness": "hour"}),
            json!({"query": "a", "domains": ["[::1]"]}),
            json!({"query": "a", "domains": {"a": 1}}),
        ] {
            let error = search(&wrong, &[]).unwrap_err();
            assert!(matches!(error, ToolError::Rejected(_)), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_model_can_narrow_the_domains_and_not_widen_them() {
        let allowed = |arguments: &Value, permitted: &[&str]| {
            search(arguments, permitted).map(|read| read.domains.allowed.clone())
        };
        let ask = |domains: Value| json!({"query": "a", "domains": domains});
        assert_eq!(
            allowed(&ask(json!(["https://www.A.test/x", "*.b.test"])), &[]).unwrap(),
            ["www.a.test", "b.test"]
        );
        assert_eq!(
            allowed(&ask(json!(["docs.a.test", "c.test"])), &["a.test"]).unwrap(),
            ["docs.a.test"]
        );
        assert_eq!(
            allowed(&ask(json!(["test"])), &["a.test"]).unwrap(),
            ["a.test"]
        );
        assert!(allowed(&ask(json!(["c.test"])), &["a.test"]).is_err());
        let blocked = search(&ask(json!(["a.test"])), &[]).unwrap();
        assert_eq!(blocked.domains.blocked, ["bad.test"]);
    }

    #[test]
    fn a_page_needs_its_address() {
        let read = |arguments: &Value| ReadArguments::read(arguments.as_object().unwrap());
        let page = read(&json!({"url": " https://a.test/ ", "find": " "})).unwrap();
        assert_eq!((&*page.url, page.find), ("https://a.test/", None));
        for wrong in [
            json!({}),
            json!({"url": ""}),
            json!({"url": ["a"]}),
            json!({"url": "https://a.test", "find": "x".repeat(401)}),
        ] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
