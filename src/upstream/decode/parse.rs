//! Parses the text of a chunk.

use super::wire::{self, Chunk, Entries};
use protocol::openai::surrogates::replace_lone_surrogates;

/// Why a chunk cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The upstream reported an error: the value of `error`, or the object that is the error, as JSON text.
    #[error("the server reported an error")]
    Reported(Box<str>),
    /// The data is not a chunk. The text contains no content of it.
    #[error("{0}")]
    Malformed(String),
}

/// Parses a chunk. If that fails, tries again with lone surrogate escapes replaced.
pub(super) fn with_chunk<T>(
    data: &str,
    read: impl FnOnce(&Chunk<'_>) -> Result<T, DecodeError>,
) -> Result<T, DecodeError> {
    let replaced;
    let chunk = match wire::parse(data) {
        Ok(chunk) => chunk,
        Err(error) => {
            replaced = replace_lone_surrogates(data);
            wire::parse(&replaced).map_err(|_| DecodeError::Malformed(describe(&error)))?
        }
    };
    match chunk.reported_error(data) {
        Some(error) => Err(DecodeError::Reported(error.into())),
        None => read(&chunk),
    }
}

/// The error that a text reports as a chunk would, as JSON text.
pub(in super::super) fn reported_error(data: &str) -> Option<Box<str>> {
    let chunk = wire::parse(data).ok()?;
    chunk.reported_error(data).map(Into::into)
}

/// Describes a JSON error without any content of the text.
fn describe(error: &serde_json::Error) -> String {
    let kind = match error.classify() {
        serde_json::error::Category::Eof => "JSON that ends early",
        serde_json::error::Category::Data => "JSON of an unknown shape",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => {
            "text that is not JSON"
        }
    };
    format!("{kind} (column {})", error.column())
}

/// A whole response without the end of a stream, which some servers send behind it.
pub(super) fn without_done(body: &str) -> &str {
    let body = body.trim_ascii();
    body.strip_suffix("[DONE]").map_or(body, |rest| {
        let rest = rest.trim_ascii_end();
        rest.strip_suffix("data:").unwrap_or(rest)
    })
}

/// Fields that do not borrow from their chunk.
pub(super) fn owned(fields: &Entries<'_>) -> Vec<(String, Box<str>)> {
    fields
        .iter()
        .map(|(key, value)| (key.as_ref().to_owned(), value.get().into()))
        .collect()
}

/// Whether fields are these.
pub(super) fn is_same(fields: &Entries<'_>, known: &[(String, Box<str>)]) -> bool {
    fields.len() == known.len()
        && fields
            .iter()
            .zip(known)
            .all(|((key, value), (name, json))| key == name && value.get() == &**json)
}
