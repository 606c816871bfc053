//! Signatures of requests by [Standard Webhooks](https://www.standardwebhooks.com).

use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};

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
