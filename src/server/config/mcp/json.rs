//! The JSON file of `mcp_config`: `mcpServers`, as every MCP client has it, or mistral.rs' `servers`.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::config::file::mcp::McpServerSection;

/// Members of an entry that are keys of `[mcp_servers.NAME]`.
const KNOWN: &[&str] = &[
    "allowed_tools",
    "args",
    "bearer_token",
    "command",
    "cwd",
    "enabled",
    "env",
    "headers",
    "idempotent",
    "idle_ttl",
    "instructions",
    "keys",
    "max_answer_bytes",
    "max_instances",
    "read_only",
    "repeatable",
    "scope",
    "sequential",
    "timeout_ms",
    "tool_prefix",
    "trim_schemas",
    "type",
    "url",
];

/// A server of the file.
#[derive(Debug)]
pub(super) struct JsonServer {
    /// Its name.
    pub(super) name: String,
    /// The place in the file, as a path of members.
    pub(super) place: String,
    /// Its keys.
    pub(super) section: McpServerSection,
    /// Members that have no effect.
    pub(super) ignored: Vec<String>,
}

/// What is wrong with the file: the path of the member, and the problem.
#[derive(Debug)]
pub(super) struct JsonProblem {
    pub(super) place: String,
    pub(super) problem: String,
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "mcpServers")]
    mcp_servers: Option<Ordered>,
    servers: Option<Servers>,
    tool_timeout_secs: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Servers {
    List(Vec<Map<String, Value>>),
    Named(Ordered),
}

/// Members in the order of the file.
struct Ordered(Vec<(String, Map<String, Value>)>);

/// Reads the servers of a file, in its order.
///
/// # Errors
/// When the text is not JSON, or a server is not described as it must be.
pub(super) fn servers(text: &str) -> Result<Vec<JsonServer>, JsonProblem> {
    let at = |place: &str, problem: String| JsonProblem {
        place: place.to_owned(),
        problem,
    };
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let form = "write {\"mcpServers\": {\"NAME\": {\"command\": \"…\", \"args\": []}}}";
        at("", format!("{error}; {form}"))
    })?;
    let mut found = Vec::new();
    for (name, entry) in document.mcp_servers.into_iter().flat_map(|named| named.0) {
        found.push((format!("mcpServers.{name}"), name, entry));
    }
    match document.servers {
        None => {}
        Some(Servers::Named(named)) => {
            for (name, entry) in named.0 {
                found.push((format!("servers.{name}"), name, entry));
            }
        }
        Some(Servers::List(list)) => {
            for (index, entry) in list.into_iter().enumerate() {
                let place = format!("servers[{index}]");
                let (name, entry) = of_mistral(entry, document.tool_timeout_secs)
                    .map_err(|problem| at(&place, problem))?;
                found.push((place, name, entry));
            }
        }
    }
    if found.is_empty() {
        let problem = "names no server; write {\"mcpServers\": {…}}";
        return Err(at("", problem.to_owned()));
    }
    found
        .into_iter()
        .map(|(place, name, entry)| {
            let (section, ignored) = section(entry).map_err(|problem| at(&place, problem))?;
            Ok(JsonServer {
                name,
                place,
                section,
                ignored,
            })
        })
        .collect()
}

/// The keys of an entry, and its members that have no effect.
fn section(mut entry: Map<String, Value>) -> Result<(McpServerSection, Vec<String>), String> {
    if let Some(disabled) = entry.remove("disabled") {
        let disabled = disabled
            .as_bool()
            .ok_or("`disabled` is neither true nor false")?;
        entry.entry("enabled").or_insert_with(|| (!disabled).into());
    }
    if let Some(transport) = entry.remove("transport") {
        entry.entry("type").or_insert(transport);
    }
    let mut ignored = Vec::new();
    let mut table = toml::Table::new();
    for (name, value) in entry {
        if !KNOWN.contains(&name.as_str()) {
            ignored.push(name);
        } else if let Some(value) = to_toml(value)? {
            table.insert(name, value);
        }
    }
    let section = McpServerSection::deserialize(table);
    let section = section.map_err(|error| error.message().replace('\n', " "))?;
    Ok((section, ignored))
}

/// An entry of mistral.rs' list: its name, and its members as `mcpServers` has them.
fn of_mistral(
    mut entry: Map<String, Value>,
    tool_timeout_secs: Option<u64>,
) -> Result<(String, Map<String, Value>), String> {
    let Some(Value::String(name)) = entry.remove("name") else {
        return Err("has no `name`; add one".to_owned());
    };
    let Some(Value::Object(mut source)) = entry.remove("source") else {
        return Err(
            "has no `source`; add one, such as {\"type\": \"Http\", \"url\": \"…\"}".to_owned(),
        );
    };
    let kind = source.remove("type");
    let kind = match kind.as_ref().and_then(Value::as_str) {
        Some("Process") => "stdio",
        Some("Http") => "http",
        Some("WebSocket") => {
            return Err("WebSocket is no transport of MCP; use the server's HTTP URL".to_owned());
        }
        Some(_) | None => {
            return Err("the `type` of its `source` must be Process or Http".to_owned());
        }
    };
    if let Some(directory) = source.remove("work_dir") {
        source.insert("cwd".to_owned(), directory);
    }
    let seconds = source.remove("timeout_secs").and_then(|it| it.as_u64());
    if let Some(seconds) = seconds.or(tool_timeout_secs) {
        let milliseconds = seconds.saturating_mul(1000);
        source.insert("timeout_ms".to_owned(), milliseconds.into());
    }
    if let Some(Value::String(prefix)) = entry.remove("tool_prefix") {
        source.insert("tool_prefix".to_owned(), format!("{prefix}_").into());
    }
    // Made by that program, or without meaning for tools.
    entry.remove("id");
    entry.remove("resources");
    source.insert("type".to_owned(), kind.into());
    source.extend(entry);
    Ok((name, source))
}

/// The TOML form, whose readers the keys have; nothing for `null`.
fn to_toml(value: Value) -> Result<Option<toml::Value>, String> {
    Ok(Some(match value {
        Value::Null => return Ok(None),
        Value::Bool(value) => value.into(),
        Value::String(text) => text.into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => return Err(format!("{number} is too large")),
        },
        Value::Array(entries) => {
            let entries = entries.into_iter().map(to_toml);
            let entries: Result<Vec<_>, _> = entries.collect();
            toml::Value::Array(entries?.into_iter().flatten().collect())
        }
        Value::Object(members) => {
            let mut table = toml::Table::new();
            for (name, value) in members {
                if let Some(value) = to_toml(value)? {
                    table.insert(name, value);
                }
            }
            table.into()
        }
    }))
}

impl<'de> Deserialize<'de> for Ordered {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedVisitor;
        impl<'de> Visitor<'de> for OrderedVisitor {
            type Value = Ordered;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of servers by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Ordered, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Ordered(entries))
            }
        }
        deserializer.deserialize_map(OrderedVisitor)
    }
}
