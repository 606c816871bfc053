//! The settings of MCP servers: `[mcp_servers.NAME]` and the JSON file of `mcp_config`.

mod endpoint;
mod expand;
mod json;

use std::collections::BTreeSet;

use secrecy::{ExposeSecret, SecretString};

use self::expand::{Placeholders, expand};
use super::file::File;
use super::file::mcp::{McpKind, McpScopeWord, McpServerSection};
use super::names::MAX_NAME_CHARS;
use super::parse::needs_feature;
use super::text::NamePattern;
use super::validation::Validation;
use super::value::{HeaderText, Headers};
use super::{ConfigError, Origin, names};
use tools::set::Globs;
use tools::settings::mcp::{
    McpCommand, McpRequestSettings, McpScope, McpServerSettings, McpSettings, McpTransport,
};

/// Most servers, as each holds connections and tasks. With more the start fails.
const MAX_SERVERS: usize = 64;
/// Longest prefix of tool names, in characters: it leaves room for a name. With a longer one the start fails.
const MAX_PREFIX_CHARS: usize = 40;
/// Variables of this process that a server's process gets, if it does not get other values for them: without them
/// programs and their caches are not found.
const PASSED_ON: [&str; 2] = ["PATH", "HOME"];

/// A server before its checks.
struct Candidate {
    name: String,
    /// The place of its description.
    origin: Origin,
    section: McpServerSection,
}

pub(super) fn settings(
    file: &mut File,
    checks: &mut Validation<'_>,
) -> Result<McpSettings, ConfigError> {
    let candidates = candidates(file, checks)?;
    if candidates.len() > MAX_SERVERS {
        let problem = format!("there are more than {MAX_SERVERS} MCP servers; remove some");
        return Err(checks.error("mcp_servers", problem));
    }
    let has_keys = !file.api_keys.is_empty();
    let mut names = BTreeSet::new();
    let mut servers = Vec::with_capacity(candidates.len());
    file.mcp_servers.clear();
    for mut candidate in candidates {
        if !names.insert(candidate.name.clone()) {
            let problem = "another MCP server has this name; write another name";
            return Err(ConfigError::invalid(candidate.origin, problem));
        }
        let scope = candidate.section.scope.get_or_insert(match has_keys {
            true => McpScopeWord::Owner,
            false => McpScopeWord::Shared,
        });
        let scope = match scope {
            McpScopeWord::Owner => McpScope::Owner,
            McpScopeWord::Shared => McpScope::Shared,
        };
        let place = Place {
            origin: candidate.origin,
            checks,
        };
        let server = place.server(&candidate.name, &candidate.section, scope)?;
        if bool::from(candidate.section.enabled) {
            if !cfg!(feature = "mcp") {
                return Err(ConfigError::invalid(place.origin, needs_feature("mcp")));
            }
            servers.push(server);
        }
        file.mcp_servers.insert(candidate.name, candidate.section);
    }
    Ok(McpSettings {
        servers,
        search_above: file.tool_search_above.map(usize::from),
        start_timeout: file.mcp_start_timeout.into(),
        guard: "/proc/self/exe".into(),
        requests: requests(file, checks)?,
        certificates: checks.certificates.clone(),
    })
}

/// The servers that requests may declare.
fn requests(file: &File, checks: &Validation<'_>) -> Result<McpRequestSettings, ConfigError> {
    let section = &file.mcp_requests;
    let milliseconds: u64 = section.timeout_ms.into();
    let settings = McpRequestSettings {
        hosts: section.hosts.clone().into(),
        private: section.private.clone().into(),
        ports: section.ports.clone().into(),
        start_timeout: file.mcp_start_timeout.into(),
        timeout: std::time::Duration::from_millis(milliseconds),
        max_connections: section.max_connections.into(),
        max_connections_per_owner: section.max_connections_per_owner.into(),
        idle_ttl: section.idle_ttl.into(),
        max_answer_bytes: section.max_answer_bytes.into(),
    };
    match settings.is_used() && !cfg!(feature = "mcp") {
        true => Err(checks.error("mcp_requests", needs_feature("mcp"))),
        false => Ok(settings),
    }
}

/// The servers in their order: first the servers of the settings, then the servers of the JSON file.
fn candidates(file: &mut File, checks: &mut Validation<'_>) -> Result<Vec<Candidate>, ConfigError> {
    let of_file = std::mem::take(&mut file.mcp_servers);
    let mut found: Vec<Candidate> = of_file
        .into_iter()
        .map(|(name, section)| Candidate {
            origin: checks.origins.of(&format!("mcp_servers.{name}")),
            name,
            section,
        })
        .collect();
    found.sort_by_key(|candidate| match &candidate.origin {
        Origin::Key { line, .. } => *line,
        Origin::Flag(_) | Origin::Variable(_) | Origin::Argument(_) => None,
    });
    let Some(path) = &file.mcp_config else {
        return Ok(found);
    };
    let text = checks.content("mcp_config", path)?;
    let path: std::sync::Arc<str> = path.display().to_string().into();
    let origin = |key: String| Origin::Key {
        file: Some(path.clone()),
        line: None,
        key,
    };
    let servers = json::servers(&text)
        .map_err(|wrong| ConfigError::invalid(origin(wrong.place), wrong.problem))?;
    for server in servers {
        let origin = origin(server.place);
        for member in server.ignored {
            let notice = format!("{origin}: `{member}` is not known here and has no effect");
            checks.notices.push(notice);
        }
        found.push(Candidate {
            name: server.name,
            origin,
            section: server.section,
        });
    }
    Ok(found)
}

/// The place of a server's description, with what its checks need.
struct Place<'a, 'b> {
    origin: Origin,
    checks: &'a Validation<'b>,
}

impl Place<'_, '_> {
    fn server(
        &self,
        name: &str,
        section: &McpServerSection,
        scope: McpScope,
    ) -> Result<McpServerSettings, ConfigError> {
        self.check_name(name)?;
        if let Some(prefix) = &section.tool_prefix {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            if prefix.len() > MAX_PREFIX_CHARS || !prefix.bytes().all(legal) {
                let problem = format!("must be at most {MAX_PREFIX_CHARS} letters, digits and _ -");
                return Err(self.error("tool_prefix", problem));
            }
        }
        let milliseconds: u64 = section.timeout_ms.into();
        let repeatable = Vec::from(section.repeatable.clone());
        Ok(McpServerSettings {
            name: name.to_owned(),
            transport: self.transport(section)?,
            tool_prefix: section.tool_prefix.clone(),
            timeout: std::time::Duration::from_millis(milliseconds),
            allowed_tools: self.globs("allowed_tools", section.allowed_tools.as_deref())?,
            allowed_read_only: None,
            sequential: section.sequential,
            read_only: self.globs("read_only", section.read_only.as_deref())?,
            idempotent: self.globs("idempotent", section.idempotent.as_deref())?,
            repeatable: Globs::new(&repeatable)
                .map_err(|error| self.error("repeatable", error.to_string()))?,
            scope,
            max_instances: section.max_instances.into(),
            idle_ttl: section.idle_ttl.into(),
            keys: self.globs("keys", section.keys.as_deref())?,
            max_answer_bytes: section.max_answer_bytes.into(),
            trim_schemas: section.trim_schemas,
            instructions: section.instructions,
        })
    }

    fn check_name(&self, name: &str) -> Result<(), ConfigError> {
        let length = name.chars().count();
        let blank = name.trim().is_empty();
        if blank || length > MAX_NAME_CHARS || name.chars().any(char::is_control) {
            let problem =
                format!("the name of an MCP server is 1 to {MAX_NAME_CHARS} visible characters");
            return Err(ConfigError::invalid(self.origin.clone(), problem));
        }
        Ok(())
    }

    fn transport(&self, section: &McpServerSection) -> Result<McpTransport, ConfigError> {
        match (&section.command, &section.url, section.kind) {
            (Some(command), None, None | Some(McpKind::Stdio)) => {
                self.command(command, section).map(McpTransport::Stdio)
            }
            (None, Some(url), None | Some(McpKind::Http | McpKind::Sse)) => {
                let endpoint = self.endpoint(url, section)?;
                Ok(McpTransport::Http(Box::new(endpoint)))
            }
            (Some(_), Some(_), _) => {
                Err(self.error("url", "`command` is given as well; remove one of the two"))
            }
            (None, _, Some(McpKind::Stdio)) | (None, None, None) => {
                Err(self.error("command", "is missing; write the program, or `url`"))
            }
            (_, None, Some(McpKind::Http | McpKind::Sse)) => {
                Err(self.error("url", "is missing; write the server's URL"))
            }
        }
    }

    fn command(
        &self,
        command: &str,
        section: &McpServerSection,
    ) -> Result<McpCommand, ConfigError> {
        if !section.headers.is_empty() || section.bearer_token.is_some() || section.oauth.is_some()
        {
            let problem = "a server with a `command` has no headers and tokens; give it what it needs in `env`";
            return Err(self.error("headers", problem));
        }
        let program = self.expanded("command", command)?;
        if program.trim().is_empty() || program.contains('\0') {
            return Err(self.error("command", "names no program; write a path or a name"));
        }
        let args = section.args.0.iter().enumerate();
        let args: Result<Vec<SecretString>, ConfigError> = args
            .map(|(index, arg)| {
                let member = format!("args[{index}]");
                let text = self.expanded(&member, arg.expose_secret())?;
                self.without_nul(&member, text)
            })
            .collect();
        let cwd = section.cwd.as_deref();
        let cwd = cwd.map(|cwd| self.expanded("cwd", cwd)).transpose()?;
        Ok(McpCommand {
            program,
            args: args?,
            env: self.environment(&section.env)?,
            cwd: cwd.map(Into::into),
        })
    }

    /// The whole environment of a server's process.
    fn environment(&self, given: &Headers) -> Result<Vec<(String, SecretString)>, ConfigError> {
        let mut env = Vec::new();
        for name in PASSED_ON {
            let value = (self.checks.env)(name).filter(|_| !given.contains_key(name));
            env.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        for (name, text) in given {
            let member = format!("env.{name}");
            let name =
                names::variable_name(name).map_err(|problem| self.error(&member, problem))?;
            let value = self.text(&member, text)?;
            env.push((name, self.without_nul(&member, value)?));
        }
        Ok(env)
    }

    /// A text, or the secret that it refers to.
    fn text(&self, member: &str, text: &HeaderText) -> Result<String, ConfigError> {
        match text {
            HeaderText::Literal(text) => self.expanded(member, text.expose_secret()),
            HeaderText::Secret(place) => match (&place.env, &place.file) {
                (Some(variable), None) => self.checks.variable(&self.key(member), variable),
                (None, Some(path)) => self.checks.secret_content(&self.key(member), path),
                (Some(_), Some(_)) | (None, None) => {
                    let forms = "write a text, { env = \"NAME\" } or { file = \"PATH\" }";
                    Err(self.error(member, forms))
                }
            },
        }
    }

    /// The key of a member of this server, for checks that only read the settings' file.
    fn key(&self, member: &str) -> String {
        match &self.origin {
            Origin::Key { key, .. } => format!("{key}.{member}"),
            Origin::Flag(_) | Origin::Variable(_) | Origin::Argument(_) => member.to_owned(),
        }
    }

    fn expanded(&self, member: &str, text: &str) -> Result<String, ConfigError> {
        // A server elsewhere is the same for all owners.
        let placeholders = match member.split(['.', '[']).next() {
            Some("args" | "env" | "cwd") => Placeholders::VariablesAndOwner,
            Some(_) | None => Placeholders::Variables,
        };
        let secrets = &self.checks.secrets;
        let env = |name: &str| {
            let value = (self.checks.env)(name);
            value.inspect(|value| secrets.add_named(name, value))
        };
        let expanded = expand(text, &env, placeholders);
        let expanded = expanded.map_err(|problem| self.error(member, problem))?;
        secrets.add_named(member, &expanded);
        Ok(expanded)
    }

    fn without_nul(&self, member: &str, text: String) -> Result<SecretString, ConfigError> {
        match text.contains('\0') {
            true => Err(self.error(member, "must not hold a NUL character")),
            false => Ok(text.into()),
        }
    }

    fn globs(
        &self,
        member: &str,
        patterns: Option<&[NamePattern]>,
    ) -> Result<Option<Globs>, ConfigError> {
        let Some(patterns) = patterns else {
            return Ok(None);
        };
        let patterns: Vec<String> = patterns.iter().cloned().map(Into::into).collect();
        let globs = Globs::new(&patterns);
        globs
            .map(Some)
            .map_err(|error| self.error(member, error.to_string()))
    }

    /// The refusal of a member of this server.
    fn error(&self, member: &str, problem: impl Into<String>) -> ConfigError {
        let origin = match &self.origin {
            Origin::Key { file, line, key } => Origin::Key {
                file: file.clone(),
                line: *line,
                key: format!("{key}.{member}"),
            },
            other @ (Origin::Flag(_) | Origin::Variable(_) | Origin::Argument(_)) => other.clone(),
        };
        ConfigError::invalid(origin, problem)
    }
}
