//! MCP servers in `tools[]`.

use std::collections::BTreeMap;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::extensions::Extensions;
use super::object::RequestObject;
use super::require_approval::{REQUIRE_APPROVAL, RequiredApproval, level};
use super::tools::ToolEntry;
use super::{ChatTurn, PartialRequest};
use agent::offer::{ServerOffer, unavailable};
use agent::turn::McpServerRequest;
use protocol::openai::request::RequestError;

/// The type of such entries.
pub(super) const MCP: &str = "mcp";

/// The members of such an entry.
pub(super) const MEMBERS: [&str; 8] = [
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
pub(super) const MAX_SERVERS: usize = 8;
/// Longest label, in bytes: it leaves room for the name of a tool. A longer one is a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
pub(super) const MAX_LABEL_BYTES: usize = 40;
/// Longest description of a server, in bytes. A longer one is a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
const MAX_DESCRIPTION_BYTES: usize = 2048;
/// Most bytes of the names and values of the headers of a server, the authorization included. With more the request is
/// a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Most names of tools in a filter. With more the request is a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
pub(super) const MAX_TOOLS: usize = 256;
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

/// A request that declares MCP servers.
#[derive(Debug)]
pub struct DeclaringServers<'a> {
    request: PartialRequest<'a>,
    extensions: Extensions,
    servers: Vec<DeclaredServer>,
}

/// A server that a request declares.
#[derive(Debug)]
pub(super) struct DeclaredServer {
    server: McpServerRequest,
    required: RequiredApproval,
}

/// Reads the servers, where the server connects to such at all.
///
/// # Errors
/// When an entry is invalid, or its server may not be connected to.
pub(super) fn read(
    entries: &[ToolEntry<'_>],
    offer: &ServerOffer<'_>,
) -> Result<Vec<DeclaredServer>, RequestError> {
    let mut servers: Vec<DeclaredServer> = Vec::new();
    if !offer.connects_to_servers() {
        return Ok(servers);
    }
    for (index, entry) in entries.iter().enumerate() {
        let ToolEntry::Hosted { kind, json } = entry else {
            continue;
        };
        if kind != MCP {
            continue;
        }
        let path = format!("tools[{index}]");
        if servers.len() >= MAX_SERVERS {
            let problem = format!("is one MCP server too many; a request can have {MAX_SERVERS}");
            return Err(RequestError::invalid(&path, &problem));
        }
        let declared = ServerEntry::read(json, &path)?.server(offer)?;
        let label = &declared.server.label;
        if servers.iter().any(|other| other.server.label == *label) {
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

impl<'a> DeclaringServers<'a> {
    pub(super) fn new(
        request: PartialRequest<'a>,
        extensions: Extensions,
        servers: Vec<DeclaredServer>,
    ) -> Self {
        Self {
            request,
            extensions,
            servers,
        }
    }

    /// Connects to the servers, and turns the request into a turn. A server that cannot be used is left out, and the
    /// client is told. The calls that the request wants approved become rules of its level.
    ///
    /// # Errors
    /// When a field that loopwright acts on is wrong, or a declared tool has the name of a server's.
    pub async fn into_turn(self) -> Result<Box<ChatTurn>, RequestError> {
        let (mut request, mut extensions) = (self.request, self.extensions);
        let servers = self.servers.into_iter();
        let (servers, required): (Vec<_>, Vec<_>) = servers
            .map(|declared| (declared.server, declared.required))
            .unzip();
        let mut connected = Vec::new();
        if extensions.options.max_tool_rounds > 0 {
            let owner = &request.caller.owner;
            connected = request.offer.connect(owner, servers).await;
            request.notices = connected.iter().filter_map(unavailable).collect();
        }
        let tools = request.tool_set(&extensions)?;
        if let Some(level) = level(&connected, &required, &tools) {
            extensions.permissions.push(level);
        }
        let mut decoded = request.turn(extensions, tools)?;
        decoded.servers = connected;
        Ok(decoded)
    }
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

    fn server(self, offer: &ServerOffer<'_>) -> Result<DeclaredServer, RequestError> {
        let label = self.label(offer)?;
        let required = RequiredApproval::read(&self.0)?;
        let url: Option<String> = self.0.member("server_url", "must be a string")?;
        let url = url.ok_or_else(|| {
            self.0
                .invalid("server_url", "is missing; write the URL of the MCP server")
        })?;
        let url = offer.server_url(&url);
        let url = url.map_err(|problem| self.0.invalid("server_url", &problem))?;
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
        let server = McpServerRequest {
            label,
            url,
            headers,
            allowed_tools: allowed.tool_names,
            allowed_read_only: allowed.read_only,
            description,
        };
        Ok(DeclaredServer { server, required })
    }

    fn label(&self, offer: &ServerOffer<'_>) -> Result<String, RequestError> {
        let shape = format!(
            "must be a string of 1 to {MAX_LABEL_BYTES} characters of A-Z, a-z, 0-9, _ and -"
        );
        let label: Option<String> = self.0.member("server_label", &shape)?;
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let label = label
            .filter(|label| (1..=MAX_LABEL_BYTES).contains(&label.len()))
            .filter(|label| label.bytes().all(is_legal))
            .ok_or_else(|| self.0.invalid("server_label", &shape))?;
        match offer.has_server(&label) {
            true => {
                let problem = "is the name of an MCP server of this server, whose tools are offered anyway; write another label, or leave the entry out";
                Err(self.0.invalid("server_label", problem))
            }
            false => Ok(label),
        }
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
