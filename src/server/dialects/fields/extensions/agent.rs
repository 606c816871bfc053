//! The members of `agent`. Unknown keys are refused.

mod permissions;

use std::time::Duration;

use serde::Deserialize;

use super::super::field::Field;
use agent::draft::DraftFilter;
use agent::options::{
    CitationStyle, ImageStyle, OnDisconnect, OnLimit, Options, TextMode, ToolExecution, TurnLimits,
};
use agent::turn::{RuleEntry, SessionMode};
use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, listed, one_of};

/// Keys inside `agent`.
pub(in crate::dialects) const AGENT_FIELDS: [&str; 14] = [
    "tools",
    "permissions",
    "client_tools",
    "on_limit",
    "limits",
    "session_mode",
    "tool_execution",
    "repeat_threshold",
    "text",
    "citations",
    "images",
    "on_disconnect",
    "background",
    "progress",
];
/// Values of `agent.repeat_threshold`.
const THRESHOLDS: &str = "0 (off) or a whole number from 2 to 8";
/// Keys inside `agent.limits`.
pub(in crate::dialects) const LIMIT_FIELDS: [&str; 4] = [
    "max_tool_calls",
    "max_seconds",
    "max_total_tokens",
    "max_cost_usd",
];

/// The words of `agent.on_disconnect`.
pub(in crate::dialects) const ON_DISCONNECT: [(&str, OnDisconnect); 2] = [
    ("cancel", OnDisconnect::Cancel),
    ("finish", OnDisconnect::Finish),
];
/// The words of `agent.on_limit`.
pub(in crate::dialects) const ON_LIMIT: [(&str, OnLimit); 3] = [
    ("final_answer", OnLimit::FinalAnswer),
    ("stop", OnLimit::Stop),
    ("error", OnLimit::Error),
];
/// The words of `agent.session_mode`.
pub(in crate::dialects) const SESSION_MODE: [(&str, SessionMode); 3] = [
    ("auto", SessionMode::Auto),
    ("append", SessionMode::Append),
    ("replay", SessionMode::Replay),
];
/// The words of `agent.tool_execution`.
pub(in crate::dialects) const TOOL_EXECUTION: [(&str, ToolExecution); 2] = [
    ("parallel", ToolExecution::Parallel),
    ("sequential", ToolExecution::Sequential),
];
/// The words of `agent.text`.
pub(in crate::dialects) const TEXT: [(&str, TextMode); 2] =
    [("all", TextMode::All), ("final", TextMode::Final)];
/// The words of `agent.citations`.
pub(in crate::dialects) const CITATIONS: [(&str, CitationStyle); 2] = [
    ("marks", CitationStyle::Marks),
    ("links", CitationStyle::Links),
];
/// The words of `agent.images`.
pub(in crate::dialects) const IMAGES: [(&str, ImageStyle); 2] =
    [("none", ImageStyle::None), ("inline", ImageStyle::Inline)];
/// The checked members of `agent`.
#[derive(Debug, Default)]
pub(super) struct AgentFields {
    pub(super) options: Options,
    pub(super) filter: DraftFilter,
    pub(super) permissions: Vec<RuleEntry>,
    /// `None`: as the form of the answer says.
    pub(super) text: Option<TextMode>,
    /// Its words differ between the dialects.
    pub(super) progress: Option<String>,
}

impl AgentFields {
    pub(super) fn read(field: Field<'_>) -> Result<Self, RequestError> {
        let Some(agent) = field.raw() else {
            return Ok(Self::default());
        };
        let agent = &object("agent", agent.get(), &AGENT_FIELDS)?;
        let (allow, deny) = tool_patterns(agent)?;
        let permissions = permissions::read(agent)?;
        let client_tools = member(agent, "agent.client_tools", "a list of name patterns")?;
        Ok(Self {
            options: Options {
                background: member(agent, "agent.background", "true or false")?.unwrap_or_default(),
                on_disconnect: word(agent, "agent.on_disconnect", &ON_DISCONNECT)?
                    .unwrap_or_default(),
                on_limit: word(agent, "agent.on_limit", &ON_LIMIT)?.unwrap_or_default(),
                limits: limits(agent)?,
                session_mode: word(agent, "agent.session_mode", &SESSION_MODE)?.unwrap_or_default(),
                tool_execution: word(agent, "agent.tool_execution", &TOOL_EXECUTION)?
                    .unwrap_or_default(),
                repeat_threshold: repeat_threshold(agent)?,
                citations: word(agent, "agent.citations", &CITATIONS)?,
                images: word(agent, "agent.images", &IMAGES)?,
                ..Options::default()
            },
            filter: DraftFilter {
                allow,
                deny: deny.unwrap_or_default(),
                client_tools: client_tools.unwrap_or_default(),
            },
            permissions,
            text: word(agent, "agent.text", &TEXT)?,
            // What is no string is none of the words.
            progress: agent
                .get_some("progress")
                .map(|word| serde_json::from_str(word.get()).unwrap_or_default()),
        })
    }
}

fn repeat_threshold(agent: &RawObject<'_>) -> Result<Option<u32>, RequestError> {
    let param = "agent.repeat_threshold";
    match member(agent, param, THRESHOLDS)? {
        None => Ok(None),
        Some(asked @ (0 | 2..=8)) => Ok(Some(asked)),
        Some(_) => Err(RequestError::invalid(
            param,
            &format!("must be {THRESHOLDS}"),
        )),
    }
}

fn limits(agent: &RawObject<'_>) -> Result<TurnLimits, RequestError> {
    let Some(limits) = agent.get_some("limits") else {
        return Ok(TurnLimits::default());
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
            let problem = "must be a number of seconds above 0";
            duration.ok_or_else(|| RequestError::invalid("agent.limits.max_seconds", problem))
        })
        .transpose()?;
    Ok(TurnLimits {
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
        max_output_tokens: None,
    })
}

/// Name patterns of server-side tools: `allow` and `deny`.
type Patterns = (Option<Vec<String>>, Option<Vec<String>>);

fn tool_patterns(agent: &RawObject<'_>) -> Result<Patterns, RequestError> {
    let Some(tools) = agent.get_some("tools") else {
        return Ok((None, None));
    };
    let tools = object("agent.tools", tools.get(), &["allow", "deny"])?;
    let expected = "a list of name patterns";
    Ok((
        member(&tools, "agent.tools.allow", expected)?,
        member(&tools, "agent.tools.deny", expected)?,
    ))
}

/// Reads a member that is one of the given words.
fn word<T: Copy>(
    object: &RawObject<'_>,
    path: &str,
    words: &[(&str, T)],
) -> Result<Option<T>, RequestError> {
    let asked: Option<String> = member(object, path, &listed(words))?;
    asked.map(|word| one_of(path, &word, words)).transpose()
}

fn unavailable(param: &str, remedy: &str) -> RequestError {
    let problem = format!("is not available in this version of loopwright: {remedy}");
    RequestError::invalid(param, &problem)
}

/// Reads an object and refuses unknown keys.
fn object<'a>(param: &str, json: &'a str, known: &[&str]) -> Result<RawObject<'a>, RequestError> {
    let object =
        RawObject::parse(json).map_err(|_| RequestError::invalid(param, "must be an object"))?;
    if let Some((key, _)) = object.iter().find(|(key, _)| !known.contains(key)) {
        let name = format!("{param}.{key}");
        let message = format!(
            "'{name}' is not a known field; the fields of '{param}' are {}",
            known.join(", ")
        );
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
        .map_err(|_| RequestError::invalid(path, &format!("must be {expected}")))
}
