//! Recorded conversations: what clients, model servers and tool servers get, and what is stored, byte for byte.
//!
//! A golden file changes only together with the product's public behaviour. `INSTA_UPDATE=always` writes the files anew.

mod clients;
mod code;
pub(crate) mod database;
mod every_endpoint;
mod extras;
mod faults;
mod limits;
mod passed_odd;
mod passing;
pub(crate) mod record;
mod refused;
mod refused_fields;
mod refused_responses;
mod response_options;
mod responses;
mod sessions;
mod stable;
mod tools;
mod waits;

use super::support::app::{Builder, TestApp};

/// Nothing in a golden file depends on how busy the machine is.
const CALM: &str =
    "keep_alive = 300\nfirst_byte_wait = 300\nretry = { max_attempts = 3, base_delay = \"1ms\" }";

/// A server whose answers depend on no clock.
pub(crate) fn builder() -> Builder {
    TestApp::builder().toml(CALM)
}
