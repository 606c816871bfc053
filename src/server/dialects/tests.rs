//! A turn that waits in the middle of a batch: one process stores it, another one finishes it.

mod parked;
mod process;
#[cfg(feature = "postgres")]
#[expect(dead_code, reason = "other tests end the server in the middle")]
#[path = "../../../tests/postgres/server.rs"]
mod server;
