//! Bodies that the decoders take or refuse, and turns that wait in the middle of a batch: one process stores them, another one
//! finishes them.

mod decoding;
mod process;
#[cfg(feature = "postgres")]
#[expect(dead_code, reason = "other tests end the server in the middle")]
#[path = "../../../tests/postgres/server.rs"]
mod server;
mod suspended;
