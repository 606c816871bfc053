//! `agent.permissions`: the rules of a request, which are compiled when it is admitted.

use serde_json::value::RawValue;

use super::{member, object};
use agent::turn::RuleEntry;
use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;

const PARAM: &str = "agent.permissions";
/// Most rules of a request, as each is compiled for it; more are refused.
/// Tried by `permissions::rules_of_a_request_that_cost_too_much_are_refused`.
const MAX_RULES: usize = 64;
/// Most patterns of all rules of a request, as each is compiled for it; more are refused.
/// Tried by `permissions::rules_of_a_request_that_cost_too_much_are_refused`.
const MAX_PATTERNS: usize = 256;
/// Longest text of all rules of a request, as their examples are tried and the rules are stored with a turn that waits; a longer
/// one is refused.
/// Tried by `permissions::rules_of_a_request_that_cost_too_much_are_refused`.
const MAX_BYTES: usize = 64 * 1024;

/// Reads the rules of a request.
///
/// # Errors
/// When a rule cannot be read; the path of the member is in the error.
pub(super) fn read(agent: &RawObject<'_>) -> Result<Vec<RuleEntry>, RequestError> {
    let Some(entries) = member::<Vec<&RawValue>>(agent, PARAM, "a list of rules")? else {
        return Ok(Vec::new());
    };
    let bytes: usize = entries.iter().map(|entry| entry.get().len()).sum();
    if bytes > MAX_BYTES {
        let problem =
            format!("is longer than {MAX_BYTES} bytes; send fewer rules, patterns or examples");
        return Err(RequestError::invalid(PARAM, &problem));
    }
    if entries.len() > MAX_RULES {
        let problem = format!("has more than {MAX_RULES} rules; send fewer");
        return Err(RequestError::invalid(PARAM, &problem));
    }
    let entries = entries.iter().enumerate();
    let entries: Result<Vec<RuleEntry>, RequestError> = entries
        .map(|(index, entry)| rule(&format!("{PARAM}[{index}]"), entry.get()))
        .collect();
    let entries = entries?;
    let patterns: usize = entries.iter().map(|entry| entry.patterns.len()).sum();
    if patterns > MAX_PATTERNS {
        let problem =
            format!("has rules with more than {MAX_PATTERNS} patterns together; send fewer");
        return Err(RequestError::invalid(PARAM, &problem));
    }
    Ok(entries)
}

fn rule(path: &str, json: &str) -> Result<RuleEntry, RequestError> {
    let members = object(path, json, &RuleEntry::FIELDS)?;
    serde_json::from_str(json).map_err(|error| {
        // The member that cannot be read beside nothing else.
        let alone = |key: &str, value: &RawValue| {
            let effect = match key {
                "effect" => "",
                _ => r#""effect":"deny","#,
            };
            let json = format!(r#"{{{effect}"{key}":{}}}"#, value.get());
            serde_json::from_str::<RuleEntry>(&json).err()
        };
        let wrong = members.iter().find_map(|(key, value)| {
            let error = alone(key, value)?;
            Some((key, without_position(&error)))
        });
        match wrong {
            Some((key, problem)) => {
                let param = format!("{path}.{key}");
                RequestError::invalid(&param, &format!("cannot be read: {problem}"))
            }
            None => RequestError::invalid(
                path,
                &format!("cannot be read: {}", without_position(&error)),
            ),
        }
    })
}

/// The text of an error, without a position in a text that the caller has not sent.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((problem, _)) => problem.to_owned(),
        None => text,
    }
}
