//! Splits a byte stream into frames.

use bytes::{Buf, BytesMut};

use super::{MAX_FRAME_BYTES, Violation};

/// Largest empty buffer that is kept, in bytes; a larger one is freed.
/// Tried by `worker_protocol::the_longest_frame_is_held_and_then_given_back`.
pub(super) const MAX_IDLE_BUFFER: usize = 256 * 1024;

/// Splits a stream. After each [`Splitter::push`], call [`Splitter::next`] until it returns `None`. Holds one frame and
/// the piece pushed last.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    buffer: BytesMut,
    flow: Flow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Flow {
    #[default]
    Open,
    /// A frame that is too long was found and not reported yet.
    Broken,
    Closed,
}

impl Splitter {
    /// Adds received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.flow != Flow::Open {
            return;
        }
        self.buffer.extend_from_slice(bytes);
        // The length is checked before the frame is complete, so no more than the cap is held. More than two frames
        // accumulate only if the caller does not take them.
        let too_long = self
            .frame_length()
            .is_some_and(|length| length > MAX_FRAME_BYTES);
        if too_long || self.buffer.len() > 2 * MAX_FRAME_BYTES {
            self.flow = Flow::Broken;
            self.buffer = BytesMut::new();
        }
    }

    /// The kind and payload of the next complete frame.
    pub(crate) fn next(&mut self) -> Option<Result<(u8, BytesMut), Violation>> {
        if self.flow == Flow::Broken {
            self.flow = Flow::Closed;
            return Some(Err(Violation::TooLong));
        }
        let length = self.frame_length()?;
        if length > MAX_FRAME_BYTES {
            self.flow = Flow::Closed;
            self.buffer = BytesMut::new();
            return Some(Err(Violation::TooLong));
        }
        let end = length.checked_add(size_of::<u32>())?;
        if self.buffer.len() < end {
            return None;
        }
        let mut frame = self.buffer.split_to(end);
        frame.advance(size_of::<u32>());
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_IDLE_BUFFER {
            self.buffer = BytesMut::new();
        }
        let Some(kind) = frame.first().copied() else {
            return Some(Err(Violation::Malformed));
        };
        frame.advance(1);
        Some(Ok((kind, frame)))
    }

    /// The claimed length of the first frame in the buffer.
    fn frame_length(&self) -> Option<usize> {
        let length = self.buffer.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*length)).ok()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.buffer.capacity()
    }
}
