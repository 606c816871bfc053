//! The fields of web search: `web_search_options`, and `web_search` in `tools[]`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use url::Host;

use super::super::field::Field;
use super::ToolEntry;
use super::object::RequestObject;
use agent::turn::{Capability, ContextSize, DomainFilter, Location, WebOptions};
use protocol::openai::request::RequestError;

/// The field that requests web search.
pub(in crate::dialects) const OPTIONS: &str = "web_search_options";
/// Most entries of a list of domains or of ids of files. A longer list is a 400.
/// Tried by `hosted::web::errors_name_the_invalid_field`.
pub(in crate::dialects) const MAX_LIST: usize = 100;
/// Longest string of a location, in bytes. A longer one is a 400.
const MAX_LOCATION_BYTES: usize = 128;
/// Longest description of a tool, in bytes. A longer one is a 400.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

/// Reads the request for web search; `None` if the request does not ask for it.
///
/// # Errors
/// When a field is invalid.
pub(super) fn read(
    options: Field<'_>,
    entries: &[ToolEntry<'_>],
) -> Result<Option<WebOptions>, RequestError> {
    if let Some(options) = options.raw() {
        return read_options(options, OPTIONS).map(Some);
    }
    let is_search = |kind| Capability::of_type(kind) == Some(Capability::Web);
    let mut hosted = entries
        .iter()
        .filter_map(|entry| Some((entry, entry.hosted()?)));
    match hosted.find(|(_, (kind, _))| is_search(kind)) {
        Some((entry, (_, json))) => read_options(json, &entry.param).map(Some),
        None => Ok(None),
    }
}

fn read_options(value: &RawValue, path: &str) -> Result<WebOptions, RequestError> {
    let example = r#"{"search_context_size": "medium"}"#;
    let options = RequestObject::read(value, path, example)?;
    let text = |name: &str| -> Result<Option<String>, RequestError> {
        let text: Option<String> = options.member(name, "must be a string")?;
        match text {
            Some(text) if text.len() > MAX_DESCRIPTION_BYTES => {
                Err(options.invalid(name, "is longer than 16 KiB; shorten it"))
            }
            text => Ok(text),
        }
    };
    let context_size = match text("search_context_size")?.as_deref() {
        None | Some("medium") => ContextSize::Medium,
        Some("low") => ContextSize::Low,
        Some("high") => ContextSize::High,
        Some(_) => {
            let problem = "must be \"low\", \"medium\" or \"high\"";
            return Err(options.invalid("search_context_size", problem));
        }
    };
    let live_access = options.members.get_some("external_web_access");
    if live_access.is_some_and(|access| access.get() == "false") {
        let problem =
            "is false, but this server can search the live web only; leave out the web search";
        return Err(options.invalid("external_web_access", problem));
    }
    let location = match options.members.get_some("user_location") {
        Some(value) => Some(Arc::new(read_location(
            value,
            &format!("{path}.user_location"),
        )?)),
        None => None,
    };
    let domains = match options.members.get_some("filters") {
        Some(value) => read_domains(value, &format!("{path}.filters"))?,
        None => DomainFilter::default(),
    };
    Ok(WebOptions {
        context_size,
        location,
        domains: Arc::new(domains),
        search_description: text("search_description")?,
        extract_description: text("extract_description")?,
    })
}

#[derive(Deserialize)]
struct RawLocation {
    #[serde(rename = "type")]
    kind: Option<String>,
    /// The place in requests of the chat completions API; the Responses API has its members beside `type`.
    approximate: Option<ApproximateLocation>,
    #[serde(flatten)]
    flat: ApproximateLocation,
}

#[derive(Default, Deserialize)]
struct ApproximateLocation {
    country: Option<String>,
    region: Option<String>,
    city: Option<String>,
    timezone: Option<String>,
}

fn read_location(value: &RawValue, path: &str) -> Result<Location, RequestError> {
    let invalid = |problem: &str| RequestError::invalid(path, problem);
    let shape = r#"must be an object such as {"type": "approximate", "approximate": {"country": "GB", "city": "London"}}"#;
    let raw: RawLocation = serde_json::from_str(value.get()).map_err(|_| invalid(shape))?;
    if raw.kind.is_some_and(|kind| kind != "approximate") {
        return Err(invalid(shape));
    }
    let location = raw.approximate.unwrap_or(raw.flat);
    let clean = |text: Option<String>| -> Result<Option<String>, RequestError> {
        match text {
            Some(text) if text.len() > MAX_LOCATION_BYTES || text.chars().any(char::is_control) => {
                Err(invalid(
                    "has a string of more than 128 bytes or with control characters",
                ))
            }
            text => Ok(text.filter(|text| !text.trim().is_empty())),
        }
    };
    let country = clean(location.country)?.map(|country| country.to_ascii_uppercase());
    let two_letters =
        |country: &String| country.len() == 2 && country.bytes().all(|b| b.is_ascii_alphabetic());
    if !country.as_ref().is_none_or(two_letters) {
        return Err(invalid(
            "has a 'country' that is not a two-letter code such as \"GB\"",
        ));
    }
    Ok(Location {
        country,
        region: clean(location.region)?,
        city: clean(location.city)?,
        timezone: clean(location.timezone)?,
    })
}

fn read_domains(value: &RawValue, path: &str) -> Result<DomainFilter, RequestError> {
    let filters = RequestObject::read(value, path, r#"{"allowed_domains": ["example.org"]}"#)?;
    let list = |name: &str| -> Result<Vec<String>, RequestError> {
        let shape = "must be a list of at most 100 domains such as \"example.org\", without scheme, port or path";
        let entries: Vec<String> = filters.member(name, shape)?.unwrap_or_default();
        if entries.len() > MAX_LIST {
            return Err(filters.invalid(name, shape));
        }
        let read = |entry: String| domain(&entry).ok_or_else(|| filters.invalid(name, shape));
        entries.into_iter().map(read).collect()
    };
    Ok(DomainFilter {
        allowed: list("allowed_domains")?,
        blocked: list("blocked_domains")?,
    })
}

/// The domain in the normal form of a host in a URL; `None` if it is not a domain or an IPv4 address.
fn domain(entry: &str) -> Option<String> {
    let entry = entry.trim().trim_end_matches('.');
    let plain = !entry.is_empty() && !entry.contains(['/', ':', '@', '?', '#', '*', ' ']);
    match Host::parse(entry).ok().filter(|_| plain)? {
        Host::Domain(domain) => Some(domain),
        Host::Ipv4(address) => Some(address.to_string()),
        Host::Ipv6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::read_tools;
    use super::*;
    use agent::draft::FaultScope;

    fn read(json: &str) -> Result<Option<WebOptions>, RequestError> {
        let (tools, faults) = read_tools(json);
        faults.check(FaultScope::Web).map(|()| tools.web)
    }

    #[test]
    fn web_search_is_requested_by_the_field_or_a_hosted_tool() {
        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(
            read(r#"{"tools":[{"type":"web_searching"}]}"#).unwrap(),
            None
        );
        for json in [
            r#"{"web_search_options":{}}"#,
            r#"{"tools":[{"type":"web_search"}]}"#,
            r#"{"tools":[{"type":"web_search_preview"}]}"#,
            r#"{"tools":[{"type":"code_interpreter"},{"type":"web_search_2025_08_26"}]}"#,
        ] {
            assert_eq!(read(json).unwrap(), Some(WebOptions::default()), "{json}");
        }
    }

    #[test]
    fn both_shapes_of_a_location_are_read() {
        let nested = r#"{"web_search_options":{"search_context_size":"high","user_location":{"type":"approximate","approximate":{"country":"gb","city":"London"}},
            "filters":{"allowed_domains":["Example.org","bücher.test."],"blocked_domains":["x.example.org"]},"search_description":"s","extract_description":"e"}}"#;
        let flat = r#"{"tools":[{"type":"web_search","search_context_size":"high","user_location":{"type":"approximate","country":"gb","city":"London"},
            "filters":{"allowed_domains":["example.org","xn--bcher-kva.test"],"blocked_domains":["x.example.org"]},"search_description":"s","extract_description":"e"}]}"#;
        let ask = read(nested).unwrap().unwrap();
        assert_eq!(read(flat).unwrap().unwrap(), ask);
        assert_eq!(ask.context_size, ContextSize::High);
        let location = ask.location.unwrap();
        assert_eq!(location.country.as_deref(), Some("GB"));
        assert_eq!(location.city.as_deref(), Some("London"));
        assert_eq!(ask.domains.allowed, ["example.org", "xn--bcher-kva.test"]);
    }

    #[test]
    fn errors_name_the_invalid_field() {
        let options = |inner: &str| format!(r#"{{"web_search_options":{inner}}}"#);
        for (json, param) in [
            (options("true"), "web_search_options"),
            (
                options(r#"{"search_context_size":"huge"}"#),
                "web_search_options.search_context_size",
            ),
            (
                options(r#"{"search_context_size":1}"#),
                "web_search_options.search_context_size",
            ),
            (
                options(r#"{"user_location":"here"}"#),
                "web_search_options.user_location",
            ),
            (
                options(r#"{"user_location":{"type":"exact"}}"#),
                "web_search_options.user_location",
            ),
            (
                options(r#"{"user_location":{"country":"Germany"}}"#),
                "web_search_options.user_location",
            ),
            (
                options(r#"{"user_location":{"city":"a\nb"}}"#),
                "web_search_options.user_location",
            ),
            (options(r#"{"filters":[]}"#), "web_search_options.filters"),
            (
                options(r#"{"filters":{"allowed_domains":"a"}}"#),
                "web_search_options.filters.allowed_domains",
            ),
            (
                options(r#"{"filters":{"allowed_domains":["https://a.test"]}}"#),
                "web_search_options.filters.allowed_domains",
            ),
            (
                options(r#"{"filters":{"blocked_domains":["*.test"]}}"#),
                "web_search_options.filters.blocked_domains",
            ),
            (
                options(r#"{"external_web_access":false}"#),
                "web_search_options.external_web_access",
            ),
            (
                r#"{"tools":[{"type":"web_search","filters":1}]}"#.to_owned(),
                "tools[0].filters",
            ),
        ] {
            let error = read(&json).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{json}");
        }
        let many = vec!["\"a.test\""; 101].join(",");
        let json = options(&format!(r#"{{"filters":{{"allowed_domains":[{many}]}}}}"#));
        assert!(read(&json).is_err());
    }
}
