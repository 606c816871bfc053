//! `metadata`: texts that a client stores with an object.

use serde_json::{Map, Value};

use super::raw::RawObject;
use super::request::{RequestError, body_member};

/// Most entries of metadata. With more the request is a 400.
/// Tried by `conversations::a_conversation_keeps_its_metadata`.
const MAX_METADATA: usize = 16;
/// Longest key of metadata, in characters. With a longer one the request is a 400.
/// Tried by `conversations::a_conversation_keeps_its_metadata`.
const MAX_METADATA_KEY: usize = 64;
/// Longest text of metadata, in characters. With a longer one the request is a 400.
/// Tried by `conversations::a_conversation_keeps_its_metadata`.
const MAX_METADATA_VALUE: usize = 512;

/// The `metadata` of a body, if it has some.
///
/// # Errors
/// When they are too many or too long, or not texts.
pub fn metadata(object: &RawObject<'_>) -> Result<Option<Map<String, Value>>, RequestError> {
    let shape = format!(
        "an object of at most {MAX_METADATA} texts of {MAX_METADATA_VALUE} characters, with keys of {MAX_METADATA_KEY}"
    );
    let metadata: Option<Map<String, Value>> = body_member(object, "metadata", &shape)?;
    let fits = |(key, value): (&String, &Value)| {
        let length = value.as_str().map(|text| text.chars().count());
        key.chars().count() <= MAX_METADATA_KEY
            && length.is_some_and(|length| length <= MAX_METADATA_VALUE)
    };
    let all_fit =
        |metadata: &Map<String, Value>| metadata.len() <= MAX_METADATA && metadata.iter().all(fits);
    if metadata.as_ref().is_none_or(all_fit) {
        return Ok(metadata);
    }
    let problem = format!("must be {shape}");
    Err(RequestError::invalid("metadata", &problem))
}
