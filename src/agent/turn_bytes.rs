//! The bytes of images, files and full results that a turn keeps.

use serde::{Deserialize, Serialize};

/// The bytes that a turn may still keep of images, files and full results.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct TurnBytes {
    left: u64,
}

impl TurnBytes {
    /// A turn that may keep `most` bytes.
    pub(super) fn new(most: u64) -> Self {
        Self { left: most }
    }

    /// Takes the bytes of a text from the budget. Returns whether there are enough.
    pub(super) fn take_text(&mut self, bytes: usize) -> bool {
        self.take(bytes as u64)
    }

    /// Takes from the budget the bytes of a content that answers carry as base64. Returns whether there are enough.
    pub(super) fn take_base64(&mut self, bytes: usize) -> bool {
        self.take_content(bytes as u64)
    }

    /// As [`Self::take_base64`].
    pub(super) fn take_content(&mut self, bytes: u64) -> bool {
        self.take(bytes.div_ceil(3).saturating_mul(4))
    }

    fn take(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let mut bytes = TurnBytes::new(10);
        assert!(bytes.take_text(2));
        assert!(!bytes.take_text(9));
        // Four bytes of base64 for each three.
        assert!(!bytes.take_base64(7));
        assert!(bytes.take_base64(6));
        assert!(bytes.take_text(0) && !bytes.take_text(1));
    }
}
