//! What is read from others and written to them. Nothing here does I/O.
//!
//! | module | owns |
//! |---|---|
//! | [`ids`] | identifiers, how they are read and made |
//! | [`media`] | media types of files |
//! | [`openai`] | the wire vocabulary: requests, messages, tools, events, usage; unknown fields stay as they came |
//! | [`sse`] | decoding event streams |

pub mod ids;
pub mod media;
pub mod openai;
pub mod sse;
