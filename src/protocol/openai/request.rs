//! Request bodies as JSON objects, and the errors of requests.

use serde::Deserialize;

use super::raw::RawObject;

/// Why a request is refused, for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The invalid field; `None` for the body as a whole.
    pub param: Option<String>,
    /// The field, the problem with its value and the remedy.
    pub message: String,
    /// Whether the field names an object that does not exist, so that the status is 404.
    pub missing: bool,
    /// The code of the error, where the API has one for the case.
    pub code: Option<&'static str>,
}

impl RequestError {
    /// An error about one field.
    pub fn field(param: &str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.to_owned()),
            message: message.into(),
            missing: false,
            code: None,
        }
    }

    /// An error about one field, whose message is the field's name followed by `problem`.
    pub fn invalid(param: &str, problem: &str) -> Self {
        Self::field(param, format!("'{param}' {problem}"))
    }

    /// An error about the body as a whole.
    pub fn body(message: impl Into<String>) -> Self {
        Self {
            param: None,
            message: message.into(),
            missing: false,
            code: None,
        }
    }
}

/// Parses a request body as an object with unparsed values.
///
/// # Errors
/// When it is not one JSON object in UTF-8.
pub fn body_object(body: &[u8]) -> Result<RawObject<'_>, RequestError> {
    let text = std::str::from_utf8(body)
        .map_err(|_| RequestError::body("the body is not UTF-8; send JSON encoded as UTF-8"))?;
    RawObject::parse(text).map_err(|error| {
        RequestError::body(format!(
            "the body is not a JSON object ({error}); send one JSON object"
        ))
    })
}

/// Refuses an object with a member that is not known: it may be a misspelt one.
///
/// # Errors
/// When there is one; the error names it.
pub fn refuse_unknown(object: &RawObject<'_>, known: &[&str]) -> Result<(), RequestError> {
    match object.iter().find(|(key, _)| !known.contains(key)) {
        None => Ok(()),
        Some((key, _)) => {
            let problem = format!("is not a known field; the fields are {}", known.join(", "));
            Err(RequestError::invalid(key, &problem))
        }
    }
}

/// What one of these words means.
///
/// # Errors
/// When it is none of them.
pub fn one_of<T: Copy>(param: &str, word: &str, words: &[(&str, T)]) -> Result<T, RequestError> {
    let found = words.iter().find(|(known, _)| *known == word);
    let problem = || RequestError::invalid(param, &format!("must be {}", listed(words)));
    found.map(|(_, value)| *value).ok_or_else(problem)
}

/// The words as an error lists them.
pub fn listed<T>(words: &[(&str, T)]) -> String {
    let quoted: Vec<String> = words
        .iter()
        .map(|(word, _)| format!("\"{word}\""))
        .collect();
    match quoted.as_slice() {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        all => all.concat(),
    }
}

/// A member of a body as a type; `None` if it is absent or `null`. `expected` describes the type in the error.
///
/// # Errors
/// When the value is of another type.
pub fn body_member<'a, T: Deserialize<'a>>(
    object: &RawObject<'a>,
    name: &str,
    expected: &str,
) -> Result<Option<T>, RequestError> {
    object
        .get_some(name)
        .map(|value| serde_json::from_str(value.get()))
        .transpose()
        .map_err(|_| RequestError::invalid(name, &format!("must be {expected}")))
}
