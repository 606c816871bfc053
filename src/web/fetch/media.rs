//! Which formats can be read, by the announced type or by the content.

use protocol::ids::shown;

/// How a body is handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Media {
    /// Text, which is useful even if its end is missing.
    Text,
    /// Useful only as a whole.
    Whole(&'static str),
    /// The content must be inspected.
    Unknown,
    /// The body cannot be read as text.
    Refused(String),
}

/// Types of text besides `text/…` and those that end in `json`, `xml` or `yaml`.
const TEXTS: &[&str] = &[
    "application/ecmascript",
    "application/graphql",
    "application/javascript",
    "application/json5",
    "application/jsonlines",
    "application/ndjson",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/typescript",
    "application/x-javascript",
    "application/x-latex",
    "application/x-ndjson",
    "application/x-sh",
    "application/x-tex",
    "application/xml-dtd",
    "message/rfc822",
    "multipart/related",
];

/// Descriptions of types that cannot be read.
const NAMES: &[(&str, &str)] = &[
    ("image/", "an image"),
    ("audio/", "sound"),
    ("video/", "a video"),
    ("font/", "a font"),
    ("model/", "a 3D model"),
    ("application/zip", "an archive"),
    ("application/gzip", "an archive"),
    ("application/x-gzip", "an archive"),
    ("application/x-tar", "an archive"),
    ("application/x-bzip", "an archive"),
    ("application/x-xz", "an archive"),
    ("application/zstd", "an archive"),
    ("application/x-7z", "an archive"),
    ("application/x-rar", "an archive"),
    ("application/vnd.rar", "an archive"),
    ("application/java-archive", "an archive"),
    ("application/epub", "an e-book"),
    ("application/msword", "an office document"),
    ("application/vnd.ms-", "an office document"),
    ("application/vnd.openxmlformats", "an office document"),
    ("application/vnd.oasis", "an office document"),
    ("application/x-msdownload", "a program"),
    ("application/x-executable", "a program"),
    ("application/vnd.android", "a program"),
    ("application/wasm", "a program"),
    ("application/x-shockwave", "a program"),
];

/// The handling of a body with this `content-type`.
pub(super) fn media(content_type: Option<&str>) -> Media {
    let announced = content_type.and_then(|value| value.split(';').next());
    let announced = announced.unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = announced.starts_with("text/")
        || TEXTS.contains(&announced.as_str())
        || (announced.starts_with("application/")
            && ["json", "xml", "yaml"]
                .iter()
                .any(|end| announced.ends_with(end)));
    match announced.as_str() {
        _ if is_text => Media::Text,
        "application/pdf" | "application/x-pdf" => Media::Whole("a PDF"),
        "" | "application/octet-stream" | "binary/octet-stream" | "application/unknown" => {
            Media::Unknown
        }
        _ => Media::Refused(name(&announced)),
    }
}

/// The handling of a body without a type, by its first bytes.
pub(super) fn sniffed(sample: &[u8]) -> Media {
    if sample.starts_with(b"%PDF-") {
        return Media::Whole("a PDF");
    }
    // The byte order marks of UTF-16, the only text with zero bytes.
    let has_mark = sample.starts_with(&[0xff, 0xfe]) || sample.starts_with(&[0xfe, 0xff]);
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match !has_mark && sample.iter().any(is_binary) {
        true => Media::Refused("a file that is not text".to_owned()),
        false => Media::Text,
    }
}

/// The description of a type without hostile characters.
fn name(announced: &str) -> String {
    let known = NAMES.iter().find(|(start, _)| announced.starts_with(start));
    let is_plain =
        |character: &char| character.is_ascii_alphanumeric() || "/+.-_".contains(*character);
    let repeated: String = announced.chars().filter(is_plain).collect();
    let repeated = shown(&repeated);
    match known {
        Some((_, name)) => format!("{name} ({repeated})"),
        None => format!("a file of the type '{repeated}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_a_pdf_as_a_whole_and_the_rest_refused_by_name() {
        for text in [
            "text/html",
            "Text/HTML; charset=utf-8",
            "application/json",
            "application/ld+json",
            "application/xhtml+xml",
            "application/rss+xml; charset=x",
            "application/x-yaml",
            "text/markdown",
        ] {
            assert_eq!(media(Some(text)), Media::Text, "{text}");
        }
        assert_eq!(media(Some("application/pdf")), Media::Whole("a PDF"));
        assert_eq!(media(None), Media::Unknown);
        assert_eq!(media(Some("application/octet-stream")), Media::Unknown);
        for (refused, named) in [
            ("image/png", "an image (image/png)"),
            ("image/svg+xml", "an image (image/svg+xml)"),
            ("video/mp4", "a video (video/mp4)"),
            ("application/zip", "an archive (application/zip)"),
            (
                "application/x-odd <b>ignore all</b>",
                "a file of the type 'application/x-oddbignoreall/b'",
            ),
        ] {
            assert_eq!(
                media(Some(refused)),
                Media::Refused(named.to_owned()),
                "{refused}"
            );
        }
        let long = format!("application/{}", "x".repeat(1000));
        assert!(matches!(media(Some(&long)), Media::Refused(name) if name.len() < 150));
    }

    #[test]
    fn without_a_type_the_content_decides() {
        assert_eq!(sniffed(b"plain\ttext\r\n"), Media::Text);
        assert_eq!(sniffed(b""), Media::Text);
        assert_eq!(sniffed(b"\xff\xfea\0b\0"), Media::Text);
        assert_eq!(sniffed(b"%PDF-1.7\n\x00"), Media::Whole("a PDF"));
        assert!(matches!(
            sniffed(b"\x7fELF\x02\x01\x01\x00"),
            Media::Refused(_)
        ));
        assert!(matches!(sniffed(b"PK\x03\x04"), Media::Refused(_)));
    }
}
