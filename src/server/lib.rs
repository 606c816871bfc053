//! The server: HTTP, the dialects, the settings and the commands.
//!
//! | module | owns |
//! |---|---|
//! | [`dialects`] | the dialects that clients speak |
//! | [`commands`] | what the program does besides serving |
//! | [`http`] | the edge: routes and their description, keys, pass-through, encoders, errors |
//! | [`telemetry`] | the log |
//! | [`shutdown`] | signals to the process |
//! | [`config`] | flags, environment and file, checked, as the settings types of every part |
//! | [`app`] | wiring, start, end |

pub mod app;
pub mod commands;
pub mod config;
pub(crate) mod dialects;
pub mod http;
pub mod shutdown;
pub mod telemetry;
