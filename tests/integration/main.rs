//! The whole of loopwright over real sockets: the built binary between scripted model servers, scripted tool servers
//! and a client that holds every answer against the wire contract.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, its support code included"
)]

mod architecture;
mod edge;
mod faults;
mod lifecycle;
mod limits;
mod passthrough;
mod rounds;
mod sessions;
#[expect(
    dead_code,
    reason = "the support is a vocabulary; not every word is in use at every moment"
)]
mod support;
mod support_selftest;
mod tools;
