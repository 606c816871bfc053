//! Tools behind HTTP.
