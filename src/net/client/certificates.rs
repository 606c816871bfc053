//! Certificate authorities that are trusted in addition to the system's.

use std::fmt;
use std::sync::Arc;

use reqwest::Certificate;

use super::check_certificates;
use crate::cause::cause_of;

/// Certificates of authorities; cheap to clone.
#[derive(Clone, Default)]
pub struct CaCertificates(Arc<[Certificate]>);

impl CaCertificates {
    /// Reads one or more certificates in PEM form.
    ///
    /// # Errors
    /// What is wrong with the text, and how it should be.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let wrong = |how: &str, error: reqwest::Error| {
            let cause = cause_of(&error);
            format!("holds a certificate that cannot be {how}: {cause}")
        };
        let certificates =
            Certificate::from_pem_bundle(text).map_err(|error| wrong("read", error))?;
        if certificates.is_empty() {
            return Err(
                "holds no certificate; it must have one or more in PEM form (-----BEGIN CERTIFICATE-----)"
                    .to_owned(),
            );
        }
        let certificates = Self(certificates.into());
        check_certificates(&certificates).map_err(|error| wrong("used", error))?;
        Ok(certificates)
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
