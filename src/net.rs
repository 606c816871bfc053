//! Outgoing HTTP, as far as all callers share it: how a client is built, how long to wait between attempts, and how much
//! of a body is read. Which failures are worth another attempt is the caller's policy.

mod backoff;
mod body;
mod client;

pub(crate) use self::backoff::{Backoff, retry_after};
pub(crate) use self::body::{BodyError, CappedBody};
pub(crate) use self::client::{ClientOptions, UntrustedHosts};
