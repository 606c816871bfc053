//! The request body.
