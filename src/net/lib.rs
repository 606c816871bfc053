//! Outgoing HTTP: building clients, the client for model servers and tools, delays between attempts and reading bodies
//! within a limit. Which failures are retried is the policy of the callers.
//!
//! [`cluster`] has requests from one replica to another, and the key that they share. [`polling`] polls futures whose
//! parts wake each other.

mod backoff;
mod body;
mod cause;
mod client;
pub mod cluster;
mod connect_only;
mod direct;
mod headers;
mod http_client;
pub mod polling;
mod reach;
mod request;
mod signing;
mod wait;

pub use self::backoff::Backoff;
pub use self::body::{BodyError, CappedBody};
pub use self::cause::{cause_of, certificate_remedy};
pub use self::client::{CaCertificates, ClientOptions, UntrustedHosts};
pub use self::headers::with_configured;
pub use self::http_client::{HttpClient, ReceivedBody};
pub use self::reach::reach;
pub use self::request::{ClientError, RequestBody};
pub use self::signing::SigningKey;
pub(crate) use self::signing::sign;
pub use self::wait::{leading_duration, retry_after, wait};
