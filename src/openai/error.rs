//! The error envelope.

use serde::Serialize;

/// `{"error":{…}}`, the body of every error.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorBody<'a> {
    /// The one entry.
    pub error: ErrorDetail<'a>,
}

/// What went wrong, in OpenAI's four fields.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorDetail<'a> {
    /// For a person: the field, the value's problem and the remedy.
    pub message: &'a str,
    /// The class of error, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The request field at fault, if one is.
    pub param: Option<&'a str>,
    /// The machine-readable reason, if there is one.
    pub code: Option<&'a str>,
}
