//! `require_approval` of an MCP server: about which of its calls a person is asked.

use serde::Deserialize;

use super::object::RequestObject;
use agent::draft::RequiredApproval;
use protocol::openai::request::RequestError;

/// Most names of tools in a filter. With more the request is a 400.
/// Tried by `requested::refused::what_cannot_be_used_is_refused_by_name`.
pub(super) const MAX_TOOLS: usize = 256;
/// The member.
pub(super) const REQUIRE_APPROVAL: &str = "require_approval";

/// What a request may write.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenApproval {
    Word(ApprovalWord),
    Lists(ApprovalLists),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ApprovalWord {
    Always,
    Never,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalLists {
    always: Option<ApprovalTools>,
    never: Option<ApprovalTools>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApprovalTools {
    tool_names: Vec<String>,
}

/// Reads the member of a server. Without it, a person is asked about every call.
///
/// # Errors
/// When it has another shape, or too many names.
pub(super) fn required_approval(
    server: &RequestObject<'_>,
) -> Result<RequiredApproval, RequestError> {
    let shape = format!(
        "must be \"always\", \"never\", or an object whose members 'always' and 'never' each have a list 'tool_names' of at \
         most {MAX_TOOLS} names, and nothing else"
    );
    let written: Option<WrittenApproval> = server.member(REQUIRE_APPROVAL, &shape)?;
    let lists = match written {
        None | Some(WrittenApproval::Word(ApprovalWord::Always)) => {
            return Ok(RequiredApproval::Always);
        }
        Some(WrittenApproval::Word(ApprovalWord::Never)) => return Ok(RequiredApproval::Never),
        Some(WrittenApproval::Lists(lists)) => lists,
    };
    let names = |list: Option<ApprovalTools>| list.map(|list| list.tool_names);
    let (always, never) = (names(lists.always), names(lists.never));
    let mut both = always.iter().chain(&never);
    if both.any(|list| list.len() > MAX_TOOLS) {
        return Err(server.invalid(REQUIRE_APPROVAL, &shape));
    }
    Ok(match (always, never) {
        (None, None) => RequiredApproval::Always,
        // If a client names the tools that need an approval, the others need none.
        (Some(always), None) => RequiredApproval::Of(always),
        (always, Some(mut never)) => {
            let always = always.unwrap_or_default();
            never.retain(|name| !always.contains(name));
            RequiredApproval::AllBut(never)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Result<RequiredApproval, RequestError> {
        let server = RawValue::from_string(json!({"require_approval": value}).to_string()).unwrap();
        required_approval(&RequestObject::read(&server, "tools[0]", "{}").unwrap())
    }

    #[test]
    fn the_lists_say_which_tools_are_asked_about() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let list = |names: &[&str]| json!({"tool_names": names});
        for (value, expected) in [
            (Value::Null, RequiredApproval::Always),
            (json!("always"), RequiredApproval::Always),
            (json!("never"), RequiredApproval::Never),
            (json!({}), RequiredApproval::Always),
            (
                json!({"always": list(&["a"])}),
                RequiredApproval::Of(names(&["a"])),
            ),
            (
                json!({"always": list(&[])}),
                RequiredApproval::Of(Vec::new()),
            ),
            (
                json!({"never": list(&["a"])}),
                RequiredApproval::AllBut(names(&["a"])),
            ),
            (
                json!({"always": list(&["a", "b"]), "never": list(&["b", "c"])}),
                RequiredApproval::AllBut(names(&["c"])),
            ),
        ] {
            assert_eq!(read(&value).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn other_shapes_are_refused() {
        let many: Vec<String> = (0..=MAX_TOOLS).map(|number| number.to_string()).collect();
        for value in [
            json!("sometimes"),
            json!(true),
            json!(["a"]),
            json!({"always": ["a"]}),
            json!({"always": {"tool_names": "a"}}),
            json!({"always": {}}),
            json!({"never": {"tool_names": [], "read_only": true}}),
            json!({"often": {"tool_names": []}}),
            json!({"never": {"tool_names": many}}),
        ] {
            let error = read(&value).unwrap_err();
            assert_eq!(
                error.param.as_deref(),
                Some("tools[0].require_approval"),
                "{value}"
            );
        }
    }
}
