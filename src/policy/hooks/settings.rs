//! Settings of hooks.

use std::time::Duration;

use ::http::HeaderMap;
use secrecy::SecretString;
use url::Url;

pub use super::{HookPoint, OnFailure};
use net::CaCertificates;

/// Settings of hooks.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The `[[hooks]]` entries, in the order in which they are asked.
    pub hooks: Vec<HookSettings>,
    /// The service that is asked for an approval before a person is.
    pub approver: Option<HookServiceSettings>,
    /// The webhook that is notified of calls that wait for a person.
    pub approval_webhook: Option<HookServiceSettings>,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
}

/// One `[[hooks]]` entry.
#[derive(Debug, Clone)]
pub struct HookSettings {
    /// The point of a turn at which it is asked.
    pub on: HookPoint,
    /// Name patterns (globs) of the tools about whose calls it is asked; `None` for all.
    pub tools: Option<Vec<String>>,
    /// Whom it asks.
    pub service: HookServiceSettings,
}

/// A service that hooks ask.
#[derive(Debug, Clone)]
pub struct HookServiceSettings {
    /// The URL.
    pub url: Url,
    /// Headers added to every request; secret ones are marked sensitive.
    pub headers: HeaderMap,
    /// The Standard Webhooks secret (`whsec_…`), if requests are signed.
    pub secret: Option<SecretString>,
    /// Longest time of a request, its answer included.
    pub timeout: Duration,
    /// Largest answer in bytes.
    pub max_answer_bytes: usize,
    /// What a failure means.
    pub on_failure: OnFailure,
}
