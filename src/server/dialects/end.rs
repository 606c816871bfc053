//! How a run ends: with an answer, or with a failure.

use std::time::Duration;

use http::StatusCode;

use blobs::segments::SegmentedText;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) body: SegmentedText,
    /// The time spent waiting for models and tools.
    pub(crate) waited: Duration,
    /// It is stored as long as its session.
    pub(crate) kept: bool,
}

impl Answer {
    /// An answer that is stored for a limited time.
    pub(super) fn passing((body, waited): (SegmentedText, Duration)) -> Self {
        Self {
            body,
            waited,
            kept: false,
        }
    }
}

/// Writes the body of an error as JSON text in a dialect's own form.
pub(crate) type ErrorForm = fn(&Failure) -> String;

/// An error in the form that a client gets.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    /// `{"error":{…}}` with OpenAI's error object, as JSON text in one line.
    pub(crate) envelope: String,
}
