//! The HTTP edge.

pub mod settings;
