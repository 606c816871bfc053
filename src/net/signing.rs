//! Signatures of requests by [Standard Webhooks](https://www.standardwebhooks.com).

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};

/// A secret with which requests are signed.
pub struct SigningKey(Webhook);

impl SigningKey {
    /// Parses a secret; `None` if it does not have the form that Standard Webhooks specifies, or its key is empty.
    pub fn new(secret: &SecretString) -> Option<Self> {
        let text = secret.expose_secret();
        // The library accepts an empty key, but its signatures can be forged.
        if matches!(text, "" | "whsec_") {
            return None;
        }
        Webhook::new(text).ok().map(Self)
    }

    /// Adds the three headers of a signature of now; `None` when the text cannot be signed: it is not UTF-8.
    pub fn sign(&self, id: &str, text: &[u8], headers: &mut HeaderMap) -> Option<()> {
        sign(&self.0, id, text, headers)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SigningKey")
    }
}

/// Adds the three headers of a signature of now; `None` when the text cannot be signed: it is not UTF-8.
pub(crate) fn sign(key: &Webhook, id: &str, text: &[u8], headers: &mut HeaderMap) -> Option<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    let signature = key.sign(id, i64::try_from(now).ok()?, text).ok()?;
    let signature = HeaderValue::try_from(signature).ok()?;
    headers.insert(HEADER_WEBHOOK_ID, HeaderValue::try_from(id).ok()?);
    headers.insert(HEADER_WEBHOOK_TIMESTAMP, now.into());
    headers.insert(HEADER_WEBHOOK_SIGNATURE, signature);
    Some(())
}
