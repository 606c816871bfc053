//! The whole of loopwright over real sockets: the built binary between scripted model servers, scripted tool servers
//! and a client that holds every answer against the wire contract.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a test fails by panicking, its support code included"
)]
#![expect(
    clippy::disallowed_methods,
    clippy::large_futures,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tables of cases are long, and a test's tasks end with the test"
)]

mod analysis;
mod approvals;
mod approvals_cli;
mod architecture;
mod backup;
mod bodies;
mod certificates;
mod choices;
mod code;
mod connections;
mod console;
mod demo;
mod direct;
mod edge;
mod external;
mod faults;
#[cfg(feature = "s3")]
mod file_storage;
mod files;
mod forward;
mod front_ends;
mod golden;
mod growth;
mod health;
mod hooks;
mod images;
mod key_reload;
mod launch;
mod lifecycle;
mod limit_list;
mod limits;
mod load_balancer;
mod logs;
mod look;
mod manual;
#[cfg(feature = "mcp")]
mod mcp;
mod metrics;
mod mistakes;
mod neighbours;
mod openapi;
mod operators;
mod passthrough;
mod permissions;
mod quirks;
mod reads;
mod redacted;
mod refused;
mod repeats;
mod replayed;
mod replicas;
mod responses;
mod rounds;
mod runs;
mod sessions;
mod shutdown;
mod starting;
mod store;
#[expect(
    dead_code,
    reason = "the support is a vocabulary; not every word is in use at every moment"
)]
mod support;
mod support_selftest;
mod text_calls;
mod tools;
#[cfg(feature = "otlp")]
mod traces;
mod turn_bytes;
mod unanswered;
mod upgrades;
mod web;
