//! The dialects. Each decodes the body of a request, and encodes the events of a turn. None knows sockets, stores and tools.
//!
//! | module | owns |
//! |---|---|
//! | [`chat`] | the dialect of chat completions: bodies of requests into turns, events into bytes |
//! | [`responses`] | the dialect of the Responses API, which reads a request as the chat request that asks for the same |

pub mod chat;
pub mod responses;
#[cfg(test)]
mod tests;
