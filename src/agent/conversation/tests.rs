//! Tests of conversations.

mod turns;
