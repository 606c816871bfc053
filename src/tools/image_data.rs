//! The bytes of an image, which may still be the base64 of a tool's answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// Size of a piece of base64 that is checked at a time, in bytes; a multiple of four.
const CHECKED_BYTES: usize = 4096;

/// The bytes of an image; clones share them.
///
/// Base64 stays as the tool sent it until [`Self::decode`]. So only one of many images is in memory twice.
#[derive(Debug, Clone)]
pub struct ImageData(Form);

#[derive(Debug, Clone)]
enum Form {
    Plain(Bytes),
    /// Valid base64.
    Base64(Bytes),
}

impl ImageData {
    /// Bytes from their base64; `None` if it is not valid.
    pub(crate) fn from_base64(text: Bytes) -> Option<Self> {
        let mut decoded = [0; CHECKED_BYTES];
        let mut ended = false;
        for piece in text.chunks(CHECKED_BYTES) {
            if ended || STANDARD.decode_slice(piece, &mut decoded).is_err() {
                return None;
            }
            ended = piece.ends_with(b"=");
        }
        Some(Self(Form::Base64(text)))
    }

    /// The bytes as they are held: the image, or its base64.
    pub fn as_held(&self) -> &[u8] {
        match &self.0 {
            Form::Plain(bytes) | Form::Base64(bytes) => bytes,
        }
    }

    /// The bytes.
    pub fn decode(self) -> Bytes {
        match self.0 {
            Form::Plain(bytes) => bytes,
            // It was checked.
            Form::Base64(text) => STANDARD.decode(text).unwrap_or_default().into(),
        }
    }
}

impl<T: Into<Bytes>> From<T> for ImageData {
    fn from(bytes: T) -> Self {
        Self(Form::Plain(bytes.into()))
    }
}

impl PartialEq for ImageData {
    fn eq(&self, other: &Self) -> bool {
        self.clone().decode() == other.clone().decode()
    }
}

impl Eq for ImageData {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_checked_and_decoded_later() {
        for length in [0, 1, 2, 3, 3071, 3072, 3073, 6144, 10_000] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let text: Bytes = STANDARD.encode(&bytes).into();
            let data = ImageData::from_base64(text.clone()).unwrap();
            assert_eq!(data.decode(), bytes, "{length}");
            for wrong in ["A", "=", "QQ==QQ==", "\u{e4}", "%"] {
                let wrong = [&text, wrong.as_bytes()].concat();
                assert!(ImageData::from_base64(wrong.into()).is_none(), "{length}");
            }
        }
        // Padding in the middle, where a piece ends.
        let padded = STANDARD.encode(vec![7; 3071]);
        let twice = [padded.as_bytes(), padded.as_bytes()].concat();
        assert!(ImageData::from_base64(twice.into()).is_none());
    }
}
