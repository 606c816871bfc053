//! `${VARIABLE}` in the texts of an MCP server.

use crate::config::{Environment, names};
use tools::settings::mcp::OWNER_PLACEHOLDER;

/// What the text may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placeholders {
    /// Variables.
    Variables,
    /// Variables, and the owner of the process, who is not known yet.
    VariablesAndOwner,
}

/// Replaces `${NAME}` by the variable's value, and `${NAME:-text}` by the text if the variable is not set.
///
/// # Errors
/// When a variable is not set, or `${` begins no name; the text is the problem and its remedy.
pub(super) fn expand(
    text: &str,
    env: Environment<'_>,
    placeholders: Placeholders,
) -> Result<String, String> {
    let mut parts = text.split("${");
    let mut expanded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let Some((inside, rest)) = part.split_once('}') else {
            return Err("`${` has no `}`; write ${NAME}".to_owned());
        };
        if inside == "OWNER" && placeholders == Placeholders::VariablesAndOwner {
            expanded.push_str(OWNER_PLACEHOLDER);
            expanded.push_str(rest);
            continue;
        }
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let name = names::variable_name(name)?;
        match env(&name).or_else(|| default.map(ToOwned::to_owned)) {
            Some(value) => expanded.push_str(&value),
            None => {
                return Err(format!(
                    "the environment variable {name} is not set; set it, or write ${{{name}:-DEFAULT}}"
                ));
            }
        }
        expanded.push_str(rest);
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "t${X}".to_owned())
    }

    #[test]
    fn variables_are_replaced_once() {
        for (text, expected) in [
            ("plain $TOKEN {TOKEN}", "plain $TOKEN {TOKEN}"),
            ("${TOKEN}", "t${X}"),
            ("Bearer ${TOKEN}!", "Bearer t${X}!"),
            ("${OTHER:-else}/${TOKEN}", "else/t${X}"),
            ("${OTHER:-}", ""),
            ("/var/${OWNER}.json", "/var/${OWNER}.json"),
        ] {
            let found = expand(text, &lookup, Placeholders::VariablesAndOwner);
            assert_eq!(found.unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_named() {
        for (text, part) in [
            ("${OTHER}", "OTHER is not set"),
            ("${OWNER}", "OWNER is not set"),
            ("${TOKEN", "no `}`"),
            ("${}", "not the name"),
            ("${a b}", "not the name"),
        ] {
            let refused = expand(text, &lookup, Placeholders::Variables).unwrap_err();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }
}
