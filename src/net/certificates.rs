//! Authorities that are trusted besides those of the system, and what helps when the certificate of a server is refused.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use reqwest::{Certificate, Client};

/// Certificates of authorities; cheap to clone.
#[derive(Clone, Default)]
pub struct CaCertificates(Arc<[Certificate]>);

impl CaCertificates {
    /// Reads one or more certificates in PEM form.
    ///
    /// # Errors
    /// What is wrong with the text, and how it should be.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let certificates = Certificate::from_pem_bundle(text).map_err(|error| {
            format!("holds a certificate that cannot be read: {}", last(&error))
        })?;
        if certificates.is_empty() {
            return Err(
                "holds no certificate; it must have one or more in PEM form (-----BEGIN CERTIFICATE-----)"
                    .to_owned(),
            );
        }
        let certificates = Self(certificates.into());
        certificates.check().map_err(|error| {
            format!("holds a certificate that cannot be used: {}", last(&error))
        })?;
        Ok(certificates)
    }

    /// Checks that they can be trusted, whatever the machine has.
    fn check(&self) -> Result<(), reqwest::Error> {
        let builder = Client::builder().tls_certs_only(self.iter());
        builder.build().map(drop)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Certificate> {
        self.0.iter().cloned()
    }
}

impl fmt::Debug for CaCertificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} certificates", self.0.len())
    }
}

/// What the operator can do about the certificate of a server, if that is why a request failed.
pub fn certificate_remedy(error: &(dyn Error + 'static)) -> Option<&'static str> {
    // The library for TLS is known to the HTTP library only. Its errors are the last of the chain.
    let text = last(error);
    let remedies = [
        (
            "UnknownIssuer",
            "the server's certificate is of an unknown issuer; set ca_file to the issuer's CA certificate",
        ),
        (
            "CaUsedAsEndEntity",
            "the server presents a CA certificate as its own; issue a server certificate for it",
        ),
    ];
    let remedy = remedies.iter().find(|(name, _)| text.contains(name));
    remedy.map(|(_, remedy)| *remedy)
}

/// The last cause of an error.
fn last(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused_with_the_form() {
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let cut = "-----BEGIN CERTIFICATE-----\nAAAA\n";
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for (text, part) in [
            ("", "holds no certificate"),
            ("a text", "holds no certificate"),
            (key, "holds no certificate"),
            (garbage, "cannot be used"),
            (cut, "cannot be read"),
        ] {
            let problem = CaCertificates::from_pem(text.as_bytes()).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        }
    }
}
