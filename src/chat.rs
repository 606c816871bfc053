//! The dialect of `/v1/chat/completions`, both ways: a request's body becomes a turn, the events of a turn become bytes.
//!
//! Knows no sockets, no status codes and no stores.

pub mod decode;
pub mod encode;
