//! Reading pages: what is kept of realistic ones, and what hostile ones can do.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, its support code included; what it prints is its report"
)]

mod corpus;
mod hostile;
mod sites;
