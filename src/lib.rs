//! loopwright: an OpenAI-compatible inference proxy that finishes the tool loop.

pub mod agent;
pub mod config;
pub mod http;
pub mod ids;
pub mod openai;
pub mod session;
pub mod sse;
pub mod tools;
pub mod upstream;
