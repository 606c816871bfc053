//! OpenAI's hosted tools in `tools[]`: those whose work is done here, and those that are the upstream's business.

use crate::agent::code::{CODE_INTERPRETER, is_code_interpreter};
use crate::agent::web::{is_web_search, names_web_search};
use crate::openai::request::{ChatBody, RequestError};
use crate::openai::tool::{ToolDefinition, ToolDefinitionError};
use crate::tools::python::EXECUTE_PYTHON;
use crate::tools::web::WEB_SEARCH;
use crate::upstream::router::Route;

/// Which of OpenAI's hosted tools have their work done here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own {
    pub(super) code: bool,
    pub(super) web: bool,
}

impl Own {
    /// The tool that does the work of a hosted one.
    pub(super) fn tool(self, kind: &str) -> Option<&'static str> {
        match kind {
            CODE_INTERPRETER if self.code => Some(EXECUTE_PYTHON),
            kind if self.web && names_web_search(kind) => Some(WEB_SEARCH),
            _ => None,
        }
    }
}

/// The function tools that a request declares; hosted ones must be known to the upstream.
pub(super) fn declared(
    body: &ChatBody<'_>,
    route: &Route,
    own: Own,
) -> Result<Vec<ToolDefinition>, RequestError> {
    let (declared, hosted) = body.tools()?;
    let known = &route.quirks.hosted_tools;
    match hosted
        .iter()
        .find(|kind| !known.contains(kind) && own.tool(kind).is_none())
    {
        Some(kind) => {
            let message = format!(
                "the hosted tool type '{kind}' is not offered by this server; leave it out of 'tools'"
            );
            Err(RequestError::field("tools", message))
        }
        None => Ok(declared),
    }
}

/// The entries of `tools[]` that the upstream runs itself; they are offered as they are.
pub(super) fn hosted_entries(body: &ChatBody<'_>, own: Own) -> Result<Vec<String>, RequestError> {
    let hosted = |entry: &&serde_json::value::RawValue| {
        let is_hosted = matches!(
            ToolDefinition::parse(entry),
            Err(ToolDefinitionError::Hosted(_))
        );
        is_hosted && !(own.code && is_code_interpreter(entry)) && !(own.web && is_web_search(entry))
    };
    Ok(body
        .tool_entries()?
        .into_iter()
        .filter(hosted)
        .map(|entry| entry.get().to_owned())
        .collect())
}
