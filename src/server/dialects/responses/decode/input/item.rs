//! One item of the input.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::content::{assistant_text, plain_text, tool_output, user_content};
use super::rounds::Messages;
use super::{ADDITIONAL_TOOLS, records, text};
use crate::dialects::responses::decode::KnownHistory;
use crate::dialects::responses::decode::names::offered;
use protocol::openai::raw::{RawObject, quoted};
use protocol::openai::request::RequestError;

/// The type of items that ask.
const REQUEST: &str = "mcp_approval_request";
/// The type of items that decide.
pub(in super::super) const RESPONSE: &str = "mcp_approval_response";

/// One item of the input.
#[derive(Debug)]
pub(in super::super) struct InputItem<'a> {
    index: usize,
    object: RawObject<'a>,
    kind: String,
}

impl<'a> InputItem<'a> {
    pub(super) fn new(index: usize, json: &'a RawValue) -> Result<Self, RequestError> {
        let param = format!("input[{index}]");
        let object = RawObject::parse(json.get())
            .map_err(|_| RequestError::invalid(&param, "must be an object"))?;
        let kind = match text(&object, "type") {
            Some(kind) => kind,
            None if object.get_some("role").is_some() => "message".to_owned(),
            None => return Err(RequestError::invalid(&param, "has no type")),
        };
        Ok(Self {
            index,
            object,
            kind,
        })
    }

    /// The id of a call that the client runs.
    pub(super) fn call_id(&self) -> Option<String> {
        let is_call = matches!(self.kind.as_str(), "function_call" | "custom_tool_call");
        is_call.then(|| text(&self.object, "call_id")).flatten()
    }

    /// Its type.
    pub(in super::super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether it is an item of an answer, and not a question about a call.
    pub(in super::super) fn is_of_answer(&self) -> bool {
        match self.kind.as_str() {
            "message" => text(&self.object, "role").as_deref() == Some("assistant"),
            "function_call"
            | "custom_tool_call"
            | "reasoning"
            | "web_search_call"
            | "code_interpreter_call"
            | "mcp_call"
            | "mcp_list_tools" => true,
            _ => false,
        }
    }

    pub(in super::super) fn path(&self, member: &str) -> String {
        format!("input[{}].{member}", self.index)
    }

    /// An error about a member.
    pub(in super::super) fn invalid_member(&self, member: &str, problem: &str) -> RequestError {
        RequestError::invalid(&self.path(member), problem)
    }

    /// A member as a type; `None` if it is absent or `null`.
    pub(in super::super) fn member<T: for<'d> Deserialize<'d>>(
        &self,
        key: &str,
        shape: &str,
    ) -> Result<Option<T>, RequestError> {
        let value = self.object.get_some(key);
        let value = value.map(|value| serde_json::from_str(value.get()));
        value
            .transpose()
            .map_err(|_| self.invalid_member(key, shape))
    }

    fn invalid(&self, problem: &str) -> RequestError {
        RequestError::invalid(&format!("input[{}]", self.index), problem)
    }

    pub(in super::super) fn need(&self, key: &str) -> Result<String, RequestError> {
        let problem = format!("must be a text in an item of the type '{}'", self.kind);
        text(&self.object, key)
            .ok_or_else(|| RequestError::invalid(&format!("input[{}].{key}", self.index), &problem))
    }

    pub(super) fn add_to(&self, messages: &mut Messages) -> Result<(), RequestError> {
        match self.kind.as_str() {
            "message" => self.message(messages)?,
            "function_call" | "custom_tool_call" => self.call(messages)?,
            "function_call_output" | "custom_tool_call_output" => {
                let call_id = self.need("call_id")?;
                let output = tool_output(self.object.get("output"), self.index)?;
                messages.output(self.index, &call_id, output);
            }
            "reasoning" => messages.reasoning(text(&self.object, "encrypted_content").as_deref()),
            "web_search_call" => {
                let (name, arguments, result) = self.web();
                self.hosted(messages, name, &arguments, &result);
            }
            "code_interpreter_call" => {
                let code = text(&self.object, "code").unwrap_or_default();
                let arguments = format!("{{\"code\":{}}}", quoted(&code));
                self.hosted(messages, "execute_python", &arguments, &self.logs());
            }
            "mcp_call" => {
                let (name, arguments) = (self.need("name")?, self.need("arguments")?);
                let result = text(&self.object, "output").unwrap_or_else(|| {
                    let error = self.object.get_some("error");
                    error.map_or_else(String::new, |error| error.get().to_owned())
                });
                self.hosted(messages, &name, &arguments, &result);
            }
            // The server has the tools, or reads them with `tools`. Decisions are stored before the turn resumes.
            "mcp_list_tools" | ADDITIONAL_TOOLS | REQUEST | RESPONSE => {}
            other => match records::text_of(other, &self.object) {
                Some(text) => messages.record(self.index, &text),
                None => {
                    let problem =
                        format!("has the type '{other}', which is not supported; leave it out");
                    return Err(self.invalid(&problem));
                }
            },
        }
        Ok(())
    }

    /// The item that this one refers to.
    pub(super) fn referred<'k>(
        &self,
        known: &'k KnownHistory,
    ) -> Result<&'k RawValue, RequestError> {
        let id = self.need("id")?;
        known.items.get(&id).map(|item| &**item).ok_or_else(|| {
            let message = format!(
                "'input[{}]' refers to the item '{id}', which does not exist; send the item itself",
                self.index
            );
            RequestError {
                code: Some("item_not_found"),
                missing: true,
                ..RequestError::field("input", message)
            }
        })
    }

    fn message(&self, messages: &mut Messages) -> Result<(), RequestError> {
        let content = self.object.get_some("content");
        let content = content.ok_or_else(|| self.invalid("has no content"))?;
        match self.need("role")?.as_str() {
            "user" => {
                let content = user_content(content, self.index)?;
                messages.user(self.index, &content);
            }
            "assistant" => {
                let (text, refusal) = assistant_text(content, self.index)?;
                messages.assistant(self.index, text, refusal);
            }
            "system" | "developer" => {
                let text = plain_text(content, self.index)?;
                messages.instructions(self.index, &text);
            }
            _ => {
                let problem = "must be \"user\", \"assistant\", \"system\" or \"developer\"";
                let param = format!("input[{}].role", self.index);
                return Err(RequestError::invalid(&param, problem));
            }
        }
        Ok(())
    }

    fn call(&self, messages: &mut Messages) -> Result<(), RequestError> {
        let (call_id, name) = (self.need("call_id")?, self.need("name")?);
        let namespace = text(&self.object, "namespace");
        let name = offered(namespace.as_deref(), &name);
        let arguments = match self.kind.as_str() {
            "function_call" => self.need("arguments")?,
            _ => format!("{{\"input\":{}}}", quoted(&self.need("input")?)),
        };
        messages.call(self.index, &call_id, &name, &arguments);
        Ok(())
    }

    /// Adds a call of a hosted tool, with its result, if the history does not have it.
    fn hosted(&self, messages: &mut Messages, name: &str, arguments: &str, result: &str) {
        let id = text(&self.object, "id").unwrap_or_else(|| format!("call_{}", self.index));
        messages.hosted(self.index, &id, name, arguments, result);
    }

    /// The tool, arguments and result of a search or of a page.
    fn web(&self) -> (&'static str, String, String) {
        let action = self.object.get_some("action");
        let action = action.and_then(|action| RawObject::parse(action.get()).ok());
        let action = action.unwrap_or_default();
        if let Some(url) = text(&action, "url") {
            let arguments = format!("{{\"url\":{}}}", quoted(&url));
            return ("read_page", arguments, format!("The page {url} was read."));
        }
        let query = text(&action, "query").unwrap_or_default();
        let sources: Vec<RawObject<'_>> = action
            .get_some("sources")
            .and_then(|sources| serde_json::from_str(sources.get()).ok())
            .unwrap_or_default();
        let urls: Vec<String> = sources.iter().filter_map(|one| text(one, "url")).collect();
        let result = match urls.is_empty() {
            true => "The search was made.".to_owned(),
            false => format!("Found:\n{}", urls.join("\n")),
        };
        let arguments = format!("{{\"query\":{}}}", quoted(&query));
        ("web_search", arguments, result)
    }

    /// The outputs of code.
    fn logs(&self) -> String {
        let outputs = self.object.get_some("outputs");
        let outputs: Vec<RawObject<'_>> = outputs
            .and_then(|outputs| serde_json::from_str(outputs.get()).ok())
            .unwrap_or_default();
        let logs: Vec<String> = outputs.iter().filter_map(|one| text(one, "logs")).collect();
        match logs.is_empty() {
            true => "The code was run.".to_owned(),
            false => logs.join("\n"),
        }
    }
}
