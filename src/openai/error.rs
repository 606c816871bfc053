//! The error envelope.

use schemars::JsonSchema;
use serde::Serialize;

/// `{"error":{…}}`, the body of every error.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub struct ErrorBody<'a> {
    /// The error.
    pub error: ErrorDetail<'a>,
}

/// An error, in OpenAI's four fields.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ErrorDetail<'a> {
    /// The message for people: the field, the problem with its value and the remedy.
    pub message: &'a str,
    /// The class of error, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// The invalid field of the request, if there is one.
    pub param: Option<&'a str>,
    /// The machine-readable reason, if there is one.
    pub code: Option<&'a str>,
}
