//! The wire types of the OpenAI chat API.
//!
//! Types have fields only for members on which loopwright acts. All other members stay JSON text and are written out
//! unchanged. This module does not depend on connections, sessions and the execution of tools.

pub mod citation;
pub mod content;
pub mod ending;
pub mod error;
pub mod event;
pub mod file;
pub mod fold;
pub mod message;
pub mod metadata;
pub mod raw;
pub mod request;
pub mod surrogates;
pub mod tool;
pub mod usage;
