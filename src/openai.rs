//! The wire vocabulary of the OpenAI chat API.
//!
//! Types name only the fields that loopwright acts on; everything else is kept as the JSON text it came in and
//! written out again untouched. Knows nothing of sockets, sessions or tools that run.

pub mod citation;
pub mod error;
pub mod event;
pub mod file;
pub mod fold;
pub mod message;
pub mod raw;
pub mod request;
pub mod tool;
pub mod usage;
