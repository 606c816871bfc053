//! The dialect of `/v1/chat/completions`: decoding a request's body into a turn, and encoding the events of a turn.
//!
//! It does not depend on connections, status codes and stores.

pub(crate) mod answer;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod position;
