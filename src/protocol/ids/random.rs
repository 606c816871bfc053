//! Random texts: ids that cannot be guessed, and hexadecimal digits.

use rand::RngExt;
use rand::distr::{Alphanumeric, SampleString};

use super::CallIdStyle;

/// Number of random characters in a tool-call id: 24 of 62 symbols, about 142 bits.
const CALL_ID_CHARS: usize = 24;
/// Number of characters of a call id for servers that insist on nine alphanumeric ones (Mistral).
pub(super) const SHORT_CALL_ID_CHARS: usize = 9;

/// Hexadecimal digits of random bytes.
pub fn random_hex<const BYTES: usize>() -> String {
    let mut random = [0; BYTES];
    rand::rng().fill(&mut random);
    hex(&random)
}

/// Bytes in hexadecimal, two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits
        .map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or_default())
        .collect()
}

/// Makes a fresh tool-call id that cannot be guessed.
pub fn fresh_call_id(style: CallIdStyle) -> String {
    match style {
        CallIdStyle::Standard => format!("call_{}", random_text(CALL_ID_CHARS)),
        CallIdStyle::Short => random_text(SHORT_CALL_ID_CHARS),
    }
}

/// Makes the id of one webhook delivery, the same over its retries.
pub fn fresh_delivery_id() -> String {
    format!("msg_{}", random_text(CALL_ID_CHARS))
}

/// Makes a `traceparent` (W3C Trace Context, version 00) of a new trace that is marked as not sampled.
pub fn fresh_traceparent() -> String {
    let mut random = rand::rng();
    // Zero is not allowed.
    let (trace, span) = (
        random.random_range(1..=u128::MAX),
        random.random_range(1..=u64::MAX),
    );
    format!("00-{trace:032x}-{span:016x}-00")
}

fn random_text(chars: usize) -> String {
    Alphanumeric.sample_string(&mut rand::rng(), chars)
}
