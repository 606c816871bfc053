//! Reasoning in the messages of the model: most servers ignore it, some refuse it, and some insist on it.

use serde_json::value::RawValue;

use super::Changes;
use super::blank::is_blank;
use crate::settings::{MissingReasoning, Quirks, ReasoningField};
use protocol::openai::message::REASONING_FIELDS;
use protocol::openai::raw::RawObject;

/// Whether the server takes reasoning in any form.
pub(super) fn stays_as_it_came(quirks: &Quirks) -> bool {
    quirks.reasoning_field == ReasoningField::AsItCame
        && quirks.missing_reasoning == MissingReasoning::LeaveOut
}

/// Leaves all reasoning out.
pub(super) fn leave_out(object: &RawObject<'_>, changes: &mut Changes) {
    for field in REASONING_FIELDS
        .into_iter()
        .filter(|field| object.get(field).is_some())
    {
        changes.replace(field, None);
    }
}

/// Moves reasoning to the field that the server reads, or writes its placeholder there.
pub(super) fn settle(object: &RawObject<'_>, quirks: &Quirks, changes: &mut Changes) {
    let target = match quirks.reasoning_field {
        ReasoningField::Reasoning => "reasoning",
        ReasoningField::ReasoningContent | ReasoningField::AsItCame => "reasoning_content",
    };
    let is_text = |value: &&str| value.starts_with('"') && !is_blank(value);
    let mut found = [target]
        .into_iter()
        .chain(REASONING_FIELDS)
        .filter_map(|field| object.get(field).map(RawValue::get));
    let value = found.find(is_text).or(match quirks.missing_reasoning {
        MissingReasoning::LeaveOut => None,
        MissingReasoning::Empty => Some("\"\""),
        MissingReasoning::Space => Some("\" \""),
    });
    if object.get(target).map(RawValue::get) != value {
        changes.replace(target, value.map(str::to_owned));
    }
    let others = REASONING_FIELDS
        .into_iter()
        .filter(|field| *field != target);
    for field in others.filter(|field| object.get(field).is_some()) {
        changes.replace(field, None);
    }
}
