//! The loop.

pub mod settings;
