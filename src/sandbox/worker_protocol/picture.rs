//! Checks images from an interpreter without decoding them: format, completeness, dimensions.
//!
//! Only PNG and JPEG are accepted. SVG can contain scripts; GIF and WebP are unusual for figures, and every further
//! format exposes one more decoder of the client to hostile bytes.

/// Most pixels of an image; a larger one is refused.
/// Tried by `picture::everything_else_is_refused_with_a_reason`.
const MAX_PIXELS: u64 = 64 * 1024 * 1024;

const PNG_SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

const TRUNCATED: &str = "is not complete";
const DAMAGED: &str = "is damaged";

/// The media type of an image that claims to be `mime`, or what is wrong with it.
pub(super) fn check(bytes: &[u8], mime: &str) -> Result<&'static str, &'static str> {
    let (mime_type, size) = match mime {
        "image/png" => ("image/png", png(bytes)),
        "image/jpeg" => ("image/jpeg", jpeg(bytes)),
        _ => return Err("is neither PNG nor JPEG"),
    };
    let (width, height) = size?;
    if width == 0 || height == 0 {
        return Err("has no pixels");
    }
    let pixels = u64::from(width) * u64::from(height);
    if pixels > MAX_PIXELS {
        return Err("has too many pixels");
    }
    Ok(mime_type)
}

/// Width and height of a PNG; all its chunks must be complete.
fn png(bytes: &[u8]) -> Result<(u32, u32), &'static str> {
    let mut rest = bytes
        .strip_prefix(PNG_SIGNATURE)
        .ok_or("is not the PNG that it claims to be")?;
    let mut size = None;
    let mut has_pixels = false;
    loop {
        let (length, after) = rest.split_first_chunk().ok_or(TRUNCATED)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| DAMAGED)?;
        let (kind, after) = after.split_first_chunk::<4>().ok_or(TRUNCATED)?;
        let (data, after) = after.split_at_checked(length).ok_or(TRUNCATED)?;
        let (_checksum, after) = after.split_first_chunk::<4>().ok_or(TRUNCATED)?;
        rest = after;
        match (kind, size) {
            (b"IHDR", None) if length == 13 => {
                let (width, data) = data.split_first_chunk().ok_or(DAMAGED)?;
                let (height, _) = data.split_first_chunk().ok_or(DAMAGED)?;
                size = Some((u32::from_be_bytes(*width), u32::from_be_bytes(*height)));
            }
            // The header must be the first chunk and unique.
            (b"IHDR", _) | (_, None) => return Err(DAMAGED),
            (b"IDAT", _) => has_pixels = true,
            (b"IEND", Some(size)) => {
                return match (has_pixels, rest) {
                    (true, []) => Ok(size),
                    (false, _) => Err(DAMAGED),
                    (true, _) => Err("is followed by other data"),
                };
            }
            _ => {}
        }
    }
}

/// Width and height of a JPEG; it must have an end marker.
fn jpeg(bytes: &[u8]) -> Result<(u32, u32), &'static str> {
    let mut rest = bytes
        .strip_prefix(b"\xff\xd8")
        .filter(|rest| rest.first() == Some(&0xff))
        .ok_or("is not the JPEG that it claims to be")?;
    let mut size = None;
    loop {
        let (marker, after) = rest.split_first_chunk().ok_or(TRUNCATED)?;
        let [0xff, kind] = *marker else {
            return Err(DAMAGED);
        };
        match kind {
            // A fill byte: the marker begins one later.
            0xff => {
                rest = rest.get(1..).ok_or(TRUNCATED)?;
                continue;
            }
            // Markers that are not allowed before the first scan.
            0x00 | 0xd0..=0xd9 => return Err(DAMAGED),
            0x01 => {
                rest = after;
                continue;
            }
            _ => {}
        }
        let (length, _) = after.split_first_chunk().ok_or(TRUNCATED)?;
        let (segment, after) = after
            .split_at_checked(u16::from_be_bytes(*length).into())
            .ok_or(TRUNCATED)?;
        let data = segment.get(2..).ok_or(DAMAGED)?;
        match (kind, size) {
            (0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf, None) => {
                let [_precision, h1, h0, w1, w0, ..] = *data else {
                    return Err(DAMAGED);
                };
                let side = |high, low| u32::from(u16::from_be_bytes([high, low]));
                size = Some((side(w1, w0), side(h1, h0)));
            }
            (0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf, Some(_)) => {
                return Err(DAMAGED);
            }
            (0xda, None) => return Err(DAMAGED),
            (0xda, Some(size)) => {
                return match after {
                    [.., 0xff, 0xd9] => Ok(size),
                    _ => Err(TRUNCATED),
                };
            }
            _ => {}
        }
        rest = after;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A formally valid PNG; its checksums and pixels are never checked.
    pub(in super::super) fn png_of(width: u32, height: u32) -> Vec<u8> {
        let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
        header.extend([8, 2, 0, 0, 0]);
        let mut png = PNG_SIGNATURE.to_vec();
        for (kind, data) in [(b"IHDR", &header[..]), (b"IDAT", b"pixels"), (b"IEND", b"")] {
            png.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
            png.extend(kind);
            png.extend(data);
            png.extend([0; 4]);
        }
        png
    }

    fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
        let mut jpeg = b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff".to_vec();
        jpeg.extend(b"\xff\xc0\x00\x0b\x08");
        jpeg.extend(height.to_be_bytes());
        jpeg.extend(width.to_be_bytes());
        jpeg.extend(b"\x01\x01\x11\0\xff\xda\x00\x08\x01\x01\0\0\x3f\0scan\xff\x00data\xff\xd9");
        jpeg
    }

    #[test]
    fn whole_images_of_a_fair_size_pass() {
        assert_eq!(check(&png_of(640, 480), "image/png"), Ok("image/png"));
        assert_eq!(check(&jpeg_of(640, 480), "image/jpeg"), Ok("image/jpeg"));
        assert_eq!(check(&png_of(16_384, 4096), "image/png"), Ok("image/png"));
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        let appended = [png_of(1, 1), b"<script>".to_vec()].concat();
        let mut no_pixels = png_of(1, 1);
        no_pixels[37..41].copy_from_slice(b"tEXt");
        let mut late_header = png_of(1, 1);
        late_header[12..16].copy_from_slice(b"tEXt");
        for (bytes, mime, expected) in [
            (png_of(100_000, 100_000), "image/png", "too many pixels"),
            (png_of(16_384, 4097), "image/png", "too many pixels"),
            (png_of(0, 5), "image/png", "no pixels"),
            (jpeg_of(65_535, 1025), "image/jpeg", "too many pixels"),
            (jpeg_of(5, 0), "image/jpeg", "no pixels"),
            (jpeg_of(5, 5), "image/png", "not the PNG"),
            (png_of(5, 5), "image/jpeg", "not the JPEG"),
            (b"<svg/>".to_vec(), "image/svg+xml", "neither PNG nor JPEG"),
            (b"GIF89a".to_vec(), "image/gif", "neither PNG nor JPEG"),
            (b"RIFF".to_vec(), "image/webp", "neither PNG nor JPEG"),
            (png_of(5, 5), "IMAGE/PNG\n", "neither PNG nor JPEG"),
            (appended, "image/png", "followed by other data"),
            (no_pixels, "image/png", "damaged"),
            (late_header, "image/png", "damaged"),
            (
                b"\xff\xd8\xff\xda\x00\x02\xff\xd9".to_vec(),
                "image/jpeg",
                "damaged",
            ),
            (b"\xff\xd8\xff\xd9".to_vec(), "image/jpeg", "damaged"),
            (
                b"\xff\xd8\xff\xe0\x00\x00\xff\xd9".to_vec(),
                "image/jpeg",
                "damaged",
            ),
            (Vec::new(), "image/png", "not the PNG"),
        ] {
            let refused = check(&bytes, mime).unwrap_err();
            assert!(refused.contains(expected), "{expected}: {refused}");
        }
    }

    #[test]
    fn an_image_cut_anywhere_is_refused() {
        for (whole, mime) in [(png_of(5, 5), "image/png"), (jpeg_of(5, 5), "image/jpeg")] {
            for end in 0..whole.len() {
                assert!(check(&whole[..end], mime).is_err(), "{mime} {end}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), kind in 0..3) {
            let (mut image, mime) = match kind {
                0 => (png_of(5, 5), "image/png"),
                1 => (jpeg_of(5, 5), "image/jpeg"),
                _ => (Vec::new(), "image/png"),
            };
            image.truncate(at.index(image.len() + 1));
            image.append(&mut bytes);
            let _ = check(&image, mime);
        }
    }
}
