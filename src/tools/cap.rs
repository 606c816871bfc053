//! Cutting a long result to size.

use std::borrow::Cow;

/// Cuts.
pub fn cap_result(text: &str, max_chars: usize) -> Cow<'_, str> {
    todo!()
}
