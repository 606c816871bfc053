//! Outgoing HTTP: building clients, the client for model servers and tools, delays between attempts and reading bodies
//! within a limit. Which failures are retried is the policy of the callers.

mod backoff;
mod body;
mod certificates;
mod client;
mod direct;
mod headers;
mod http_client;
mod reach;
mod signing;
mod wait;

pub(crate) use self::backoff::Backoff;
pub(crate) use self::body::{BodyError, CappedBody};
pub use self::certificates::CaCertificates;
pub(crate) use self::certificates::certificate_remedy;
pub(crate) use self::client::{ClientOptions, UntrustedHosts};
pub(crate) use self::headers::with_configured;
pub(crate) use self::http_client::{ClientError, HttpClient, ReceivedBody, RequestBody};
pub(crate) use self::reach::{cause_of, reach};
pub(crate) use self::signing::{SigningKey, sign};
pub(crate) use self::wait::{leading_duration, retry_after, wait};
