//! MCP servers in `tools[]`.

use std::collections::BTreeMap;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::ToolEntry;
use super::object::RequestObject;
use super::require_approval::{MAX_TOOLS, REQUIRE_APPROVAL, required_approval};
use agent::draft::ServerDraft;
use protocol::openai::request::RequestError;

/// The type of such entries.
pub(in crate::dialects) const MCP: &str = "mcp";

/// The members of such an entry.
pub(in crate::dialects) const MEMBERS: [&str; 8] = [
    "type",
    "server_label",
    "server_url",
    "server_description",
    "authorization",
    "headers",
    "allowed_tools",
    REQUIRE_APPROVAL,
];

/// Most servers of one request. With more the request is a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
pub(in crate::dialects) const MAX_SERVERS: usize = 8;
/// Longest label, in bytes: it leaves room for the name of a tool. A longer one is a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
pub(in crate::dialects) const MAX_LABEL_BYTES: usize = 40;
/// Longest description of a server, in bytes. A longer one is a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
const MAX_DESCRIPTION_BYTES: usize = 2048;
/// Most bytes of the names and values of the headers of a server, the authorization included. With more the request is
/// a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Headers that belong to the transport. Those that begin with `mcp-` do too.
const TRANSPORT_HEADERS: [&str; 14] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Reads the servers.
///
/// # Errors
/// When an entry is invalid.
pub(super) fn read(entries: &[ToolEntry<'_>]) -> Result<Vec<ServerDraft>, RequestError> {
    let mut servers: Vec<ServerDraft> = Vec::new();
    for entry in entries {
        let Some((MCP, json)) = entry.hosted() else {
            continue;
        };
        let path = &entry.param;
        if servers.len() >= MAX_SERVERS {
            let problem = format!("is one MCP server too many; a request can have {MAX_SERVERS}");
            return Err(RequestError::invalid(path, &problem));
        }
        let declared = ServerEntry::read(json, path)?.server()?;
        if servers.iter().any(|other| other.label == declared.label) {
            let problem = "is the label of another server of this request; write another one";
            return Err(RequestError::invalid(
                &format!("{path}.server_label"),
                problem,
            ));
        }
        servers.push(declared);
    }
    Ok(servers)
}

/// The tools of a server that a request allows.
#[derive(Deserialize)]
#[serde(untagged)]
enum AllowedTools {
    Names(Vec<String>),
    Filter(ToolFilter),
}

/// The tools that have one of these names and these hints; absent members let all through.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolFilter {
    tool_names: Option<Vec<String>>,
    read_only: Option<bool>,
}

impl Default for AllowedTools {
    fn default() -> Self {
        Self::Filter(ToolFilter::default())
    }
}

/// One entry.
struct ServerEntry<'a>(RequestObject<'a>);

impl<'a> ServerEntry<'a> {
    fn read(json: &'a RawValue, path: &'a str) -> Result<Self, RequestError> {
        let example = r#"{"type": "mcp", "server_label": "docs", "server_url": "https://mcp.example.org/mcp", "require_approval": "never"}"#;
        let object = RequestObject::read(json, path, example)?;
        let unknown = object
            .members
            .iter()
            .find(|(name, _)| !MEMBERS.contains(name));
        if let Some((name, _)) = unknown {
            let name: String = name.chars().take(MAX_LABEL_BYTES).collect();
            let known = MEMBERS.join(", ");
            let problem = format!("is not known for an MCP server; the members are {known}");
            return Err(object.invalid(&name, &problem));
        }
        Ok(Self(object))
    }

    fn server(self) -> Result<ServerDraft, RequestError> {
        let label = self.label()?;
        let required = required_approval(&self.0)?;
        let url: Option<String> = self.0.member("server_url", "must be a string")?;
        let url = url.ok_or_else(|| {
            self.0
                .invalid("server_url", "is missing; write the URL of the MCP server")
        })?;
        let description: Option<String> =
            self.0.member("server_description", "must be a string")?;
        if description
            .as_ref()
            .is_some_and(|text| text.len() > MAX_DESCRIPTION_BYTES)
        {
            let problem = format!("is longer than {MAX_DESCRIPTION_BYTES} bytes; shorten it");
            return Err(self.0.invalid("server_description", &problem));
        }
        let headers = self.headers()?;
        let allowed = self.allowed_tools()?;
        Ok(ServerDraft {
            param: self.0.path.to_owned(),
            label,
            url,
            headers,
            allowed_tools: allowed.tool_names,
            allowed_read_only: allowed.read_only,
            description,
            required,
        })
    }

    fn label(&self) -> Result<String, RequestError> {
        let shape = format!(
            "must be a string of 1 to {MAX_LABEL_BYTES} characters of A-Z, a-z, 0-9, _ and -"
        );
        let label: Option<String> = self.0.member("server_label", &shape)?;
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        label
            .filter(|label| (1..=MAX_LABEL_BYTES).contains(&label.len()))
            .filter(|label| label.bytes().all(is_legal))
            .ok_or_else(|| self.0.invalid("server_label", &shape))
    }

    fn headers(&self) -> Result<HeaderMap, RequestError> {
        let shape = "must be an object of header names and values";
        let given: BTreeMap<String, String> = self.0.member("headers", shape)?.unwrap_or_default();
        let authorization: Option<String> = self
            .0
            .member("authorization", "must be a string: an access token")?;
        let bytes: usize = given
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if bytes > MAX_HEADER_BYTES {
            let problem = format!("has more than {MAX_HEADER_BYTES} bytes");
            return Err(self.0.invalid("headers", &problem));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &given {
            let shown: String = name.chars().take(MAX_LABEL_BYTES).collect();
            let refused = |problem: &str| {
                self.0
                    .invalid("headers", &format!("has the header '{shown}', {problem}"))
            };
            let name: HeaderName = name
                .parse()
                .map_err(|_| refused("which is no name of a header"))?;
            let of_transport = TRANSPORT_HEADERS.contains(&name.as_str());
            if of_transport || name.as_str().starts_with("mcp-") {
                return Err(refused("which this server sets itself; leave it out"));
            }
            let value = secret(value).ok_or_else(|| refused("whose value cannot be sent"))?;
            if headers.insert(name, value).is_some() {
                return Err(refused("which it has twice"));
            }
        }
        let Some(token) = authorization else {
            return Ok(headers);
        };
        let token = token.trim();
        let token = token.strip_prefix("Bearer ").unwrap_or(token);
        let value = match (1..=MAX_HEADER_BYTES).contains(&token.len()) {
            true => secret(&format!("Bearer {token}")),
            false => None,
        };
        let value = value.ok_or_else(|| {
            self.0
                .invalid("authorization", "cannot be sent as an access token")
        })?;
        match headers.insert(AUTHORIZATION, value) {
            Some(_) => {
                let problem = "is given in 'headers' as well; leave one of the two out";
                Err(self.0.invalid("authorization", problem))
            }
            None => Ok(headers),
        }
    }

    fn allowed_tools(&self) -> Result<ToolFilter, RequestError> {
        let shape = format!(
            "must be a list of at most {MAX_TOOLS} names of tools, or an object with such a list as 'tool_names', a boolean \
             'read_only', or both, and nothing else"
        );
        let filter = match self.0.member("allowed_tools", &shape)?.unwrap_or_default() {
            AllowedTools::Names(names) => ToolFilter {
                tool_names: Some(names),
                read_only: None,
            },
            AllowedTools::Filter(filter) => filter,
        };
        let names = filter.tool_names.as_ref().map_or(0, Vec::len);
        match names <= MAX_TOOLS {
            true => Ok(filter),
            false => Err(self.0.invalid("allowed_tools", &shape)),
        }
    }
}

fn secret(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}
