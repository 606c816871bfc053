//! The dialect of `/v1/chat/completions`: decoding a request's body into a turn, and encoding the events of a turn.
//!
//! It does not depend on connections, status codes and stores.

pub mod decode;
pub mod encode;
pub mod position;
