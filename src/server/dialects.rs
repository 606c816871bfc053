//! The dialects. Each decodes the body of a request, and encodes the events of a turn. None of them uses sockets,
//! stores or tools.
//!
//! | module | owns |
//! |---|---|
//! | [`answer`] | the one place that tells dialects apart: the form of an answer, its encoder, its errors |
//! | [`chat`] | the dialect of chat completions: bodies of requests into drafts, events into bytes |
//! | [`responses`] | the dialect of the Responses API |
//! | [`fields`] | what means the same in all of them: heads of requests, loopwright's extensions, hosted tools |

pub(crate) mod answer;
pub(crate) mod chat;
pub(crate) mod end;
pub(crate) mod fields;
pub(crate) mod responses;
#[cfg(test)]
mod tests;
