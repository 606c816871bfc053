//! The kinds of repairs: their names on the wire and in metrics, and their texts for the model.

use serde::{Deserialize, Serialize};

/// A kind of repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repair {
    /// The name of a tool that does not exist became the one that it surely means.
    NameMatched,
    /// An empty text became an empty object.
    EmptyToObject,
    /// Brackets that were open after the last value were closed.
    TruncationFixed,
    /// A `null` for an optional field was removed.
    NullStripped,
    /// A string that holds an array became that array.
    JsonStringToArray,
    /// An empty object in place of an array became an empty array.
    ObjectToArray,
    /// A string in place of an array became the array's only item.
    BareStringToArray,
    /// A path that was written as a Markdown link became the path.
    MdLinkUnwrapped,
    /// A string that holds a number became that number.
    StringToNumber,
    /// A string that holds `true` or `false` became that boolean.
    StringToBoolean,
    /// An object that was encoded as a JSON string was decoded.
    DoubleEncodingRemoved,
    /// A Markdown code fence around the arguments was removed.
    CodeFenceRemoved,
    /// A wrapper such as `{"arguments": {…}}` was removed.
    WrapperRemoved,
    /// An empty string for an optional object or array was removed.
    EmptyStringRemoved,
}

impl Repair {
    /// Every kind.
    pub const ALL: [Self; 14] = [
        Self::NameMatched,
        Self::EmptyToObject,
        Self::TruncationFixed,
        Self::NullStripped,
        Self::JsonStringToArray,
        Self::ObjectToArray,
        Self::BareStringToArray,
        Self::MdLinkUnwrapped,
        Self::StringToNumber,
        Self::StringToBoolean,
        Self::DoubleEncodingRemoved,
        Self::CodeFenceRemoved,
        Self::WrapperRemoved,
        Self::EmptyStringRemoved,
    ];

    /// The name in responses and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NameMatched => "name_matched",
            Self::EmptyToObject => "empty_to_object",
            Self::TruncationFixed => "truncation_fixed",
            Self::NullStripped => "null_stripped",
            Self::JsonStringToArray => "json_string_to_array",
            Self::ObjectToArray => "object_to_array",
            Self::BareStringToArray => "bare_string_to_array",
            Self::MdLinkUnwrapped => "md_link_unwrapped",
            Self::StringToNumber => "string_to_number",
            Self::StringToBoolean => "string_to_boolean",
            Self::DoubleEncodingRemoved => "double_encoding_removed",
            Self::CodeFenceRemoved => "code_fence_removed",
            Self::WrapperRemoved => "wrapper_removed",
            Self::EmptyStringRemoved => "empty_string_removed",
        }
    }

    /// The text for the model. `None` for an empty text: many servers write it if a model gave no arguments.
    fn lesson(self) -> Option<&'static str> {
        Some(match self {
            Self::EmptyToObject => return None,
            Self::NameMatched => "the name of the tool was corrected",
            Self::TruncationFixed => "JSON that was not closed was closed",
            Self::NullStripped => "null for an optional field was left out",
            Self::JsonStringToArray => "an array in a string became an array",
            Self::ObjectToArray => "an empty object became an empty array",
            Self::BareStringToArray => "a string became an array with that string",
            Self::MdLinkUnwrapped => "a Markdown link became a plain path",
            Self::StringToNumber => "a number in quotes became a number",
            Self::StringToBoolean => "true or false in quotes became a boolean",
            Self::DoubleEncodingRemoved => "an object in a string became an object",
            Self::CodeFenceRemoved => "a code fence around the arguments was removed",
            Self::WrapperRemoved => "an object around the arguments was removed",
            Self::EmptyStringRemoved => {
                "an empty string for an optional object or array was left out"
            }
        })
    }
}

/// The note for the model about the repairs of its call, so that it writes the next one correctly.
pub fn note(repairs: &[Repair]) -> Option<String> {
    let lessons: Vec<&str> = repairs
        .iter()
        .filter_map(|repair| repair.lesson())
        .collect();
    (!lessons.is_empty()).then(|| {
        let list = lessons.join("; ");
        format!("[This call was corrected before it ran: {list}. Write the next one correctly.]")
    })
}
