//! `input`: items, which become chat messages.
//!
//! In a session, a response is one assistant message, as in the history, and calls of hosted tools are the calls of the
//! history. Without a session, every round is a message, and such calls are rebuilt from their items.

mod content;
pub(super) mod item;
mod records;
mod rounds;

use serde_json::value::RawValue;

pub(super) use self::item::InputItem;
use self::rounds::Messages;
use super::KnownHistory;
use super::approvals::decisions;
use agent::event::Notice;
use agent::turn::ClientDecision;
use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;

/// The messages of a request.
#[derive(Debug, Default)]
pub(super) struct InputFields {
    /// JSON texts of chat messages.
    pub(super) messages: Vec<String>,
    /// The item that each message comes from.
    pub(super) positions: Vec<usize>,
    /// Calls that are answered and that the input does not hold.
    pub(super) unknown_calls: Vec<String>,
    /// Decisions about calls that wait.
    pub(super) decisions: Vec<ClientDecision>,
    /// The items that record calls that other servers ran.
    records: Vec<usize>,
}

/// Items that declare tools.
const ADDITIONAL_TOOLS: &str = "additional_tools";

/// The tools that items of the input declare, each with the path of its field.
///
/// # Errors
/// When the tools of such an item are no list.
pub(super) fn tools_of_input<'a>(
    object: &RawObject<'a>,
) -> Result<Vec<(String, &'a RawValue)>, RequestError> {
    let input = object.get_some("input").map_or("", RawValue::get);
    if !input.starts_with('[') || !input.contains(ADDITIONAL_TOOLS) {
        return Ok(Vec::new());
    }
    let items: Vec<&RawValue> = serde_json::from_str(input).unwrap_or_default();
    let mut tools = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let item = RawObject::parse(item.get()).unwrap_or_default();
        if text(&item, "type").as_deref() != Some(ADDITIONAL_TOOLS) {
            continue;
        }
        let param = format!("input[{index}].tools");
        let list = item.get_some("tools").map_or("[]", RawValue::get);
        let list: Vec<&RawValue> = serde_json::from_str(list)
            .map_err(|_| RequestError::invalid(&param, "must be a list of tools"))?;
        let list = list.into_iter().enumerate();
        tools.extend(list.map(|(at, tool)| (format!("{param}[{at}]"), tool)));
    }
    Ok(tools)
}

impl InputFields {
    /// Reads the input.
    ///
    /// # Errors
    /// When it is missing or empty, or an item is not usable.
    pub(super) fn read(
        object: &RawObject<'_>,
        known: &KnownHistory,
        in_session: bool,
    ) -> Result<Self, RequestError> {
        let missing = || {
            let message = "'input' is missing or empty; send a text or a list of items";
            RequestError::field("input", message)
        };
        let input = object.get_some("input").ok_or_else(missing)?;
        if input.get().starts_with('"') {
            if input.get() == "\"\"" {
                return Err(missing());
            }
            let message = format!(r#"{{"role":"user","content":{}}}"#, input.get());
            return Ok(Self {
                messages: vec![message],
                positions: vec![0],
                ..Self::default()
            });
        }
        let items: Vec<&RawValue> = serde_json::from_str(input.get())
            .map_err(|_| RequestError::invalid("input", "must be a text or a list of items"))?;
        if items.is_empty() {
            // The session may have a suspended turn that this request resumes.
            return match in_session {
                true => Ok(Self::default()),
                false => Err(missing()),
            };
        }
        let items = items.into_iter().enumerate();
        let items = items.map(|(index, item)| match InputItem::new(index, item)? {
            item if item.kind() == "item_reference" => InputItem::new(index, item.referred(known)?),
            item => Ok(item),
        });
        let items: Vec<InputItem<'_>> = items.collect::<Result<_, RequestError>>()?;
        let calls = items.iter().filter_map(InputItem::call_id).collect();
        let mut messages = Messages::new(in_session, calls);
        for item in &items {
            item.add_to(&mut messages)?;
        }
        let fields = Self {
            decisions: decisions(&items)?,
            ..messages.finish()
        };
        match fields.messages.is_empty() && fields.decisions.is_empty() {
            true => Err(RequestError::invalid(
                "input",
                "holds nothing for the model; send a message",
            )),
            false => Ok(fields),
        }
    }

    /// The notice for the client about the items that record calls of other servers.
    pub(super) fn notice(&self) -> Option<Notice> {
        let (first, more) = self.records.split_first()?;
        let which = match more.len() {
            0 => format!("'input[{first}]' records"),
            more => format!("'input[{first}]' and {more} more items record"),
        };
        Some(Notice {
            kind: "input_as_text".into(),
            message: format!(
                "{which} what the client or another service ran; the model gets it as text"
            ),
        })
    }
}

fn text(object: &RawObject<'_>, key: &str) -> Option<String> {
    serde_json::from_str(object.get_some(key)?.get()).ok()
}

#[cfg(test)]
mod tests;
