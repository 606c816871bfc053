//! The settings of the address at which other replicas reach this one.

use std::net::SocketAddr;

use secrecy::SecretString;
use url::Url;

use crate::CaCertificates;

/// The settings of the internal address.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The address to listen on for other replicas.
    pub listen: SocketAddr,
    /// The URL at which other replicas reach that address; `None` is the address itself.
    pub url: Option<Url>,
    /// The key that all replicas have.
    pub key: SecretString,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
}
