//! Outgoing HTTP: building clients, the client for model servers and tools, delays between attempts and reading bodies
//! within a limit. Which failures are retried is the policy of the callers.

mod backoff;
mod body;
mod client;
mod direct;
mod http_client;

pub(crate) use self::backoff::{Backoff, retry_after};
pub(crate) use self::body::{BodyError, CappedBody};
pub(crate) use self::client::{ClientOptions, UntrustedHosts};
pub(crate) use self::http_client::{ClientError, HttpClient, ReceivedBody, RequestBody};
