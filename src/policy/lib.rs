//! Rules about what may happen and what may be seen. The modules do not depend on each other.
//!
//! | module | owns |
//! |---|---|
//! | [`redact`] | hiding secrets in texts, whole or in pieces: loopwright's own, and tokens of vendors by their shape |
//! | [`rules`] | permission rules as data: compiled, and decided for a call |
//! | [`hooks`] | policy servers that are asked about calls, results, model calls and ends of turns |

pub mod hooks;
pub mod redact;
pub mod rules;
