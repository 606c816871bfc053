//! The media type of a file.

/// What stands for text, by the end of the name.
const TEXTS: [(&str, &str); 22] = [
    ("csv", "text/csv"),
    ("tsv", "text/tab-separated-values"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("ndjson", "application/jsonl"),
    ("geojson", "application/geo+json"),
    ("md", "text/markdown"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("svg", "image/svg+xml"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("toml", "application/toml"),
    ("py", "text/x-python"),
    ("ipynb", "application/x-ipynb+json"),
    ("js", "text/javascript"),
    ("css", "text/css"),
    ("tex", "text/x-tex"),
    ("sql", "application/sql"),
    ("ics", "text/calendar"),
    ("vcf", "text/vcard"),
];
/// What is a ZIP archive inside, by the end of the name.
const ARCHIVES: [(&str, &str); 9] = [
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("epub", "application/epub+zip"),
    ("npz", "application/zip"),
    ("whl", "application/zip"),
];
/// What no content tells.
const UNKNOWN: &str = "application/octet-stream";

/// The media type of a file: by its content, and by its name only as far as the content leaves it open.
pub fn media_type(name: &str, content: &[u8]) -> &'static str {
    let ending = name
        .rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase())
        .unwrap_or_default();
    let by_name = |known: &[(&str, &'static str)]| {
        known
            .iter()
            .find(|(known, _)| *known == ending)
            .map(|(_, media_type)| *media_type)
    };
    // A ZIP archive may be any of many formats, and guesses from its first bytes depend on the order of what it holds.
    if content.starts_with(b"PK\x03\x04") {
        return by_name(&ARCHIVES).unwrap_or("application/zip");
    }
    let guessed = infer::get(content).map(|kind| kind.mime_type());
    match guessed {
        Some(kind) if !kind.starts_with("text/") => kind,
        _ if is_text(content) => by_name(&TEXTS).unwrap_or("text/plain"),
        _ => UNKNOWN,
    }
}

/// Whether a file, or the beginning of one, can be read as text.
pub(super) fn is_text(content: &[u8]) -> bool {
    let valid = match std::str::from_utf8(content) {
        Ok(_) => true,
        // A character may be cut where the beginning of a file ends.
        Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
    };
    valid && !content.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_goes_before_the_name_and_the_name_tells_texts_and_archives_apart() {
        let png: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        for (name, content, expected) in [
            ("a.txt", png, "image/png"),
            ("A.CSV", b"a,b\n1,2\n", "text/csv"),
            ("a.html", b"<!DOCTYPE html><html>", "text/html"),
            ("noname", "grün".as_bytes(), "text/plain"),
            ("a.csv", b"\0\x01\x02", UNKNOWN),
            ("a.csv", b"\xff\xfe\xfd", UNKNOWN),
            ("a.bin", b"", "text/plain"),
            ("a.zip", b"PK\x03\x04rest", "application/zip"),
            (
                "a.xlsx",
                b"PK\x03\x04rest",
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            ),
            ("a.pdf", b"%PDF-1.7 ", "application/pdf"),
        ] {
            assert_eq!(media_type(name, content), expected, "{name}");
        }
    }

    #[test]
    fn a_character_that_the_end_of_a_page_cuts_is_still_text() {
        assert!(is_text("gr\u{fc}".as_bytes().split_last().unwrap().1));
        assert!(!is_text(b"gr\xfcn"));
        assert!(!is_text(b"\xfc"));
    }
}
