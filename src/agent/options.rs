//! The request extensions of the loop: read from the body, checked, unknown keys refused.

use std::time::Duration;

use serde::Deserialize;

use super::settings::{Permission, Settings};
use crate::ids::SessionId;
use crate::openai::raw::RawObject;
use crate::openai::request::{ChatBody, RequestError};
use crate::session::SessionMode;

/// Body fields that are loopwright's own and never sent to an upstream.
pub const EXTENSION_FIELDS: [&str; 6] = [
    "session_id",
    "max_tool_rounds",
    "enable_code_execution",
    "files",
    "agent_permission",
    "agent",
];

/// Keys inside `agent`.
const AGENT_FIELDS: [&str; 9] = [
    "tools",
    "client_tools",
    "on_limit",
    "limits",
    "session_mode",
    "tool_execution",
    "text",
    "on_disconnect",
    "progress",
];
/// Keys inside `agent.limits`.
const LIMIT_FIELDS: [&str; 4] = [
    "max_tool_calls",
    "max_seconds",
    "max_total_tokens",
    "max_cost_usd",
];

/// What a request asks of the loop; the server's caps are already applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The conversation to continue, if the request names one.
    pub session_id: Option<SessionId>,
    /// Most rounds of server-side tools; 0 offers none.
    pub max_tool_rounds: u32,
    /// Other budgets.
    pub limits: Limits,
    /// What happens when a cap or budget is reached.
    pub on_limit: OnLimit,
    /// Whether server-side tools may run.
    pub permission: Permission,
    /// Which server-side tools are offered.
    pub tools: ToolPatterns,
    /// Name patterns of tools that the client runs itself.
    pub client_tools: Option<Vec<String>>,
    /// How the messages relate to the stored history.
    pub session_mode: SessionMode,
    /// Whether calls of one batch overlap.
    pub tool_execution: ToolExecution,
    /// Which rounds' text the client gets.
    pub text: TextMode,
    /// How progress is sent on a stream.
    pub progress: ProgressMode,
    /// `store: false`: nothing outlives the turn.
    pub ephemeral: bool,
}

/// Budgets of one turn.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Most server-side tool calls.
    pub max_tool_calls: Option<u64>,
    /// Longest time.
    pub max_duration: Option<Duration>,
    /// Most tokens, in and out.
    pub max_total_tokens: Option<u64>,
}

/// Name patterns of server-side tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolPatterns {
    /// Only these; absent allows all.
    pub allow: Option<Vec<String>>,
    /// Not these.
    pub deny: Option<Vec<String>>,
}

/// What happens when a cap or budget is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLimit {
    /// One more model call without tools.
    #[default]
    FinalAnswer,
    /// The turn ends with the text so far.
    Stop,
    /// The request fails.
    Error,
}

/// Whether calls of one batch overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolExecution {
    /// They run at the same time.
    #[default]
    Parallel,
    /// One after another.
    Sequential,
}

/// Which rounds' text the client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextMode {
    /// All rounds' text, joined.
    #[default]
    All,
    /// Only the last round's.
    Final,
}

/// How progress is sent on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgressMode {
    /// `Chunk` for the official SDKs, else `Named`.
    #[default]
    Auto,
    /// With an `event:` line.
    Named,
    /// Without one.
    Chunk,
    /// Not at all.
    None,
}

impl Options {
    /// Reads the extensions of a request. `session_header` is the id that a header carried.
    ///
    /// # Errors
    /// When a field has the wrong type, is unknown, or asks for what this version does not have.
    pub fn parse(
        body: &ChatBody<'_>,
        session_header: Option<SessionId>,
        settings: &Settings,
    ) -> Result<Self, RequestError> {
        let session_id = match body.typed::<String>("session_id", "a string")? {
            Some(text) => Some(SessionId::parse(&text).map_err(|problem| {
                RequestError::field("session_id", format!("'session_id' {problem}"))
            })?),
            None => session_header,
        };
        let rounds = body.typed::<u64>("max_tool_rounds", "a whole number of 0 or more")?;
        let agent = AgentFields::parse(body)?;
        let calls_expected = "a whole number of 0 or more";
        let max_tool_calls = match body.typed::<u64>("max_tool_calls", calls_expected) {
            Ok(top_level) => lowest(agent.limits.max_tool_calls, top_level),
            Err(error) => return Err(error),
        };
        Ok(Self {
            session_id,
            max_tool_rounds: rounds.map_or(settings.max_tool_rounds, |asked| {
                u32::try_from(asked).map_or(settings.max_tool_rounds, |asked| {
                    asked.min(settings.max_tool_rounds)
                })
            }),
            limits: Limits {
                max_tool_calls: lowest(max_tool_calls, settings.max_tool_calls),
                max_duration: lowest(agent.limits.max_duration, settings.max_duration),
                max_total_tokens: lowest(agent.limits.max_total_tokens, settings.max_total_tokens),
            },
            on_limit: agent.on_limit,
            permission: permission(body)?.max(settings.permission),
            tools: agent.tools,
            client_tools: agent.client_tools,
            session_mode: agent.session_mode,
            tool_execution: agent.tool_execution,
            text: agent.text,
            progress: agent.progress,
            ephemeral: body.typed::<bool>("store", "true or false")? == Some(false),
        })
    }

    /// Whether a request uses any extension, which keeps it from passing through. `max_tool_rounds: 0` alone does not
    /// count: the request then passes through without that field.
    pub fn used(body: &ChatBody<'_>) -> bool {
        EXTENSION_FIELDS.iter().any(|key| match *key {
            "max_tool_rounds" => body.field(key).is_some_and(|value| value.get() != "0"),
            _ => body.has(key),
        })
    }
}

/// The checked members of `agent`.
#[derive(Debug, Default)]
struct AgentFields {
    tools: ToolPatterns,
    client_tools: Option<Vec<String>>,
    on_limit: OnLimit,
    limits: Limits,
    session_mode: SessionMode,
    tool_execution: ToolExecution,
    text: TextMode,
    progress: ProgressMode,
}

impl AgentFields {
    fn parse(body: &ChatBody<'_>) -> Result<Self, RequestError> {
        let Some(agent) = body.field("agent") else {
            return Ok(Self::default());
        };
        let agent = object("agent", agent.get(), &AGENT_FIELDS)?;
        if member::<String>(&agent, "agent.on_disconnect", "\"cancel\"")?
            .is_some_and(|value| value != "cancel")
        {
            return Err(unavailable(
                "agent.on_disconnect",
                "only \"cancel\" is available; leave the field out",
            ));
        }
        Ok(Self {
            tools: tool_patterns(&agent)?,
            client_tools: member(&agent, "agent.client_tools", "a list of name patterns")?,
            on_limit: member(
                &agent,
                "agent.on_limit",
                "\"final_answer\", \"stop\" or \"error\"",
            )?
            .unwrap_or_default(),
            limits: limits(&agent)?,
            session_mode: member(
                &agent,
                "agent.session_mode",
                "\"auto\", \"append\" or \"replay\"",
            )?
            .unwrap_or_default(),
            tool_execution: member(
                &agent,
                "agent.tool_execution",
                "\"parallel\" or \"sequential\"",
            )?
            .unwrap_or_default(),
            text: member(&agent, "agent.text", "\"all\" or \"final\"")?.unwrap_or_default(),
            progress: member(
                &agent,
                "agent.progress",
                "\"auto\", \"named\", \"chunk\" or \"none\"",
            )?
            .unwrap_or_default(),
        })
    }
}

fn limits(agent: &RawObject<'_>) -> Result<Limits, RequestError> {
    let Some(limits) = agent.get_some("limits") else {
        return Ok(Limits::default());
    };
    let limits = object("agent.limits", limits.get(), &LIMIT_FIELDS)?;
    if limits.get_some("max_cost_usd").is_some() {
        return Err(unavailable(
            "agent.limits.max_cost_usd",
            "leave the field out",
        ));
    }
    let seconds: Option<f64> = member(
        &limits,
        "agent.limits.max_seconds",
        "a number of seconds above 0",
    )?;
    let max_duration = seconds
        .map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|duration| !duration.is_zero())
        })
        .map(|duration| {
            duration.ok_or_else(|| {
                let param = "agent.limits.max_seconds";
                RequestError::field(
                    param,
                    format!("'{param}' must be a number of seconds above 0"),
                )
            })
        })
        .transpose()?;
    Ok(Limits {
        max_tool_calls: member(
            &limits,
            "agent.limits.max_tool_calls",
            "a whole number of 0 or more",
        )?,
        max_duration,
        max_total_tokens: member(
            &limits,
            "agent.limits.max_total_tokens",
            "a whole number of 0 or more",
        )?,
    })
}

fn tool_patterns(agent: &RawObject<'_>) -> Result<ToolPatterns, RequestError> {
    let Some(tools) = agent.get_some("tools") else {
        return Ok(ToolPatterns::default());
    };
    let tools = object("agent.tools", tools.get(), &["allow", "deny"])?;
    let expected = "a list of name patterns";
    Ok(ToolPatterns {
        allow: member(&tools, "agent.tools.allow", expected)?,
        deny: member(&tools, "agent.tools.deny", expected)?,
    })
}

fn permission(body: &ChatBody<'_>) -> Result<Permission, RequestError> {
    match body
        .typed::<String>("agent_permission", "\"auto\" or \"deny\"")?
        .as_deref()
    {
        None | Some("auto") => Ok(Permission::Auto),
        Some("deny") => Ok(Permission::Deny),
        Some("ask") => Err(unavailable(
            "agent_permission",
            "\"ask\" needs approvals; send \"auto\" or \"deny\"",
        )),
        Some(_) => Err(RequestError::field(
            "agent_permission",
            "'agent_permission' must be \"auto\" or \"deny\"",
        )),
    }
}

fn unavailable(param: &str, remedy: &str) -> RequestError {
    RequestError::field(
        param,
        format!("'{param}' is not available in this version of loopwright: {remedy}"),
    )
}

fn object<'a>(param: &str, json: &'a str, known: &[&str]) -> Result<RawObject<'a>, RequestError> {
    let object = RawObject::parse(json)
        .map_err(|_| RequestError::field(param, format!("'{param}' must be an object")))?;
    if let Some((key, _)) = object.iter().find(|(key, _)| !known.contains(key)) {
        let name = format!("{param}.{key}");
        let message = format!("'{name}' is unknown; '{param}' takes {}", known.join(", "));
        return Err(RequestError::field(&name, message));
    }
    Ok(object)
}

/// Reads the member that the last part of a dotted path names.
fn member<'a, T: Deserialize<'a>>(
    object: &RawObject<'a>,
    path: &str,
    expected: &str,
) -> Result<Option<T>, RequestError> {
    let key = path.rsplit('.').next().unwrap_or(path);
    object
        .get_some(key)
        .map(|value| serde_json::from_str(value.get()))
        .transpose()
        .map_err(|_| RequestError::field(path, format!("'{path}' must be {expected}")))
}

fn lowest<T: PartialOrd + Copy>(first: Option<T>, second: Option<T>) -> Option<T> {
    match (first, second) {
        (Some(a), Some(b)) => Some(if b < a { b } else { a }),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            max_tool_rounds: 8,
            max_tool_calls: Some(20),
            max_duration: None,
            max_total_tokens: None,
            repeat_threshold: 3,
            permission: Permission::Auto,
        }
    }

    fn parse(json: &str) -> Result<Options, RequestError> {
        Options::parse(
            &ChatBody::parse(json.as_bytes()).unwrap(),
            None,
            &settings(),
        )
    }

    #[test]
    fn a_request_lowers_the_servers_caps_and_never_raises_them() {
        let rounds = |json: &str| parse(json).unwrap().max_tool_rounds;
        assert_eq!(
            (
                rounds("{}"),
                rounds(r#"{"max_tool_rounds":3}"#),
                rounds(r#"{"max_tool_rounds":99}"#)
            ),
            (8, 3, 8)
        );
        let calls = |json: &str| parse(json).unwrap().limits.max_tool_calls;
        assert_eq!(calls(r#"{"max_tool_calls":50}"#), Some(20));
        assert_eq!(
            calls(r#"{"max_tool_calls":5,"agent":{"limits":{"max_tool_calls":4}}}"#),
            Some(4)
        );
        assert_eq!(
            parse(r#"{"agent_permission":"deny"}"#).unwrap().permission,
            Permission::Deny
        );
    }

    #[test]
    fn a_bad_extension_is_named() {
        for (json, param) in [
            (r#"{"session_id":"a b"}"#, "session_id"),
            (r#"{"session_id":7}"#, "session_id"),
            (r#"{"max_tool_rounds":-1}"#, "max_tool_rounds"),
            (r#"{"max_tool_rounds":"3"}"#, "max_tool_rounds"),
            (r#"{"agent":[]}"#, "agent"),
            (r#"{"agent":{"on_limits":"stop"}}"#, "agent.on_limits"),
            (r#"{"agent":{"on_limit":"halt"}}"#, "agent.on_limit"),
            (
                r#"{"agent":{"limits":{"max_rounds":1}}}"#,
                "agent.limits.max_rounds",
            ),
            (
                r#"{"agent":{"limits":{"max_seconds":0}}}"#,
                "agent.limits.max_seconds",
            ),
            (
                r#"{"agent":{"limits":{"max_cost_usd":1}}}"#,
                "agent.limits.max_cost_usd",
            ),
            (
                r#"{"agent":{"tools":{"allowed":[]}}}"#,
                "agent.tools.allowed",
            ),
            (
                r#"{"agent":{"on_disconnect":"finish"}}"#,
                "agent.on_disconnect",
            ),
            (r#"{"agent_permission":"ask"}"#, "agent_permission"),
            (r#"{"store":"no"}"#, "store"),
        ] {
            assert_eq!(
                parse(json).unwrap_err().param.as_deref(),
                Some(param),
                "{json}"
            );
        }
    }

    #[test]
    fn only_extensions_end_pass_through() {
        let used = |json: &str| Options::used(&ChatBody::parse(json.as_bytes()).unwrap());
        assert!(!used(
            r#"{"model":"m","store":true,"max_tool_calls":3,"web_search_options":{}}"#
        ));
        assert!(!used(r#"{"max_tool_rounds":0}"#));
        assert!(used(r#"{"max_tool_rounds":1}"#));
        assert!(used(r#"{"session_id":"a"}"#));
        assert!(used(r#"{"agent":{}}"#));
    }
}
