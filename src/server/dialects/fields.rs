//! What means the same in all dialects: the heads of requests, loopwright's extensions, and hosted tools.

pub(in crate::dialects) mod extensions;
pub(in crate::dialects) mod field;
pub(crate) mod head;
pub(in crate::dialects) mod hosted;
