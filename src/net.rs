//! Outgoing HTTP: building clients, delays between attempts and reading bodies within a limit. Which failures are retried
//! is the policy of the callers.

mod backoff;
mod body;
mod client;

pub(crate) use self::backoff::{Backoff, retry_after};
pub(crate) use self::body::{BodyError, CappedBody};
pub(crate) use self::client::{ClientOptions, UntrustedHosts};
