//! Finds the format of a page from its announced type and its bytes.
//!
//! - Bytes with the signature of PDF are a PDF.
//! - Binary data is refused under its recognised type, or else under the announced one.
//! - `text/plain` and similar types remain plain text, even if it looks like HTML: source code is served this way.
//! - Text that is announced as image, audio, video or font is refused.
//! - HTML, feeds and XML are distinguished by their first element, since they are often announced as one another.
//! - Any other type, and a missing one: the content decides.

use serde::de::IgnoredAny;

use super::super::DocumentKind;
use super::Refusal;
use super::charset;
use protocol::ids::shown;

/// Most bytes that are inspected for binary data.
const SAMPLE: usize = 1024;

/// First elements of pages without a document type.
const HTML_STARTS: [&str; 17] = [
    "html", "head", "body", "title", "meta", "link", "script", "style", "h1", "h2", "div", "table",
    "p", "a", "br", "center", "article",
];

/// The format of a page.
pub(super) fn of(announced: Option<&str>, bytes: &[u8]) -> Result<DocumentKind, Refusal> {
    let announced = announced.map(essence).unwrap_or_default();
    if is_pdf(&announced, bytes) {
        return Ok(DocumentKind::Pdf);
    }
    if charset::of_byte_order_mark(bytes).is_none() && is_binary(bytes) {
        return Err(refuse_binary(&announced, bytes));
    }
    let (class, subtype) = announced.split_once('/').unwrap_or_default();
    match class {
        "image" | "audio" | "video" | "font" | "model" => Err(unsupported(&announced)),
        "text" if !matches!(subtype, "html" | "xml" | "json" | "x-json" | "") => {
            Ok(DocumentKind::Text)
        }
        _ => {
            let seen = seen(bytes);
            // The announced type decides for markup of no known kind.
            Ok(match (subtype, seen) {
                ("html" | "xhtml+xml", DocumentKind::Text) | ("html", DocumentKind::Xml) => {
                    DocumentKind::Html
                }
                ("pdf", DocumentKind::Text) => return Err(broken_pdf()),
                (_, seen) => seen,
            })
        }
    }
}

/// The format of a page that is not a feed after all.
pub(super) fn without_feeds(bytes: &[u8]) -> DocumentKind {
    match first(bytes) {
        Some(b'{') => DocumentKind::Json,
        _ => DocumentKind::Xml,
    }
}

/// A media type without its parameters.
fn essence(announced: &str) -> String {
    let essence = announced.split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

fn is_pdf(announced: &str, bytes: &[u8]) -> bool {
    let mark = b"%PDF-";
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let sample = sample(bytes);
    sample.trim_ascii_start().starts_with(mark)
        || (announced == "application/pdf" && sample.windows(mark.len()).any(|part| part == mark))
}

fn sample(bytes: &[u8]) -> &[u8] {
    bytes.get(..SAMPLE).unwrap_or(bytes)
}

/// Whether bytes are binary data: text in charsets that extend ASCII has few control characters.
fn is_binary(bytes: &[u8]) -> bool {
    let sample = sample(bytes);
    // Escape starts the shift sequences of ISO-2022-JP.
    let is_odd = |byte: u8| byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    let odd = sample.iter().filter(|&&byte| is_odd(byte)).count();
    sample.contains(&0) || odd * 20 > sample.len()
}

fn refuse_binary(announced: &str, bytes: &[u8]) -> Refusal {
    match infer::get(bytes) {
        Some(kind) => unsupported(kind.mime_type()),
        None if announced.is_empty() || announced == "application/octet-stream" => {
            Refusal::Unsupported("binary data".to_owned())
        }
        None if announced.starts_with("text/") || announced.ends_with("html") => {
            Refusal::Unsupported(format!(
                "binary data, though it is announced as {announced}"
            ))
        }
        None => unsupported(announced),
    }
}

fn unsupported(media_type: &str) -> Refusal {
    let what = match media_type.split_once('/') {
        Some(("image", _)) => "an image",
        Some(("audio", _)) => "a sound recording",
        Some(("video", _)) => "a video",
        Some(("font", _)) => "a font",
        _ if is_archive(media_type) => "an archive",
        _ if media_type.contains("officedocument") || media_type.contains("msword") => {
            "an office document"
        }
        _ => "a file",
    };
    Refusal::Unsupported(format!("{what} ({})", shown(media_type)))
}

fn is_archive(media_type: &str) -> bool {
    [
        "zip",
        "tar",
        "compressed",
        "rar",
        "7z",
        "bzip",
        "xz",
        "zstd",
    ]
    .iter()
    .any(|word| media_type.contains(word))
}

fn broken_pdf() -> Refusal {
    Refusal::Broken("PDF".to_owned(), "it does not begin as one".to_owned())
}

/// The first byte that is not white space.
fn first(bytes: &[u8]) -> Option<u8> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes.trim_ascii_start().first().copied()
}

/// The format that a text resembles.
fn seen(bytes: &[u8]) -> DocumentKind {
    match first(bytes) {
        Some(b'<') => markup(bytes),
        Some(b'{' | b'[') => {
            let text = charset::of_json(bytes);
            if serde_json::from_str::<IgnoredAny>(&text).is_err() {
                DocumentKind::Text
            } else if text.contains("https://jsonfeed.org/version/") {
                DocumentKind::Feed
            } else {
                DocumentKind::Json
            }
        }
        // In UTF-16 the first byte may differ from `<`.
        _ if charset::of_byte_order_mark(bytes).is_some() => {
            let text = charset::of_json(bytes);
            if text.starts_with('<') {
                markup(text.as_bytes())
            } else {
                DocumentKind::Text
            }
        }
        _ => DocumentKind::Text,
    }
}

fn markup(bytes: &[u8]) -> DocumentKind {
    let start = String::from_utf8_lossy(bytes);
    let mut rest = start.trim_start_matches('\u{feff}').trim_start();
    let mut is_xml = false;
    loop {
        let behind = |text: &'static str| rest.split_once(text).map(|(_, rest)| rest.trim_start());
        let next = if rest.starts_with("<!--") {
            behind("-->")
        } else if rest.starts_with("<?") {
            is_xml = true;
            behind("?>")
        } else if rest.starts_with("<!") {
            if rest
                .get(2..14)
                .is_some_and(|name| name.to_ascii_lowercase().starts_with("doctype html"))
            {
                return DocumentKind::Html;
            }
            // A document type with an internal subset ends after its bracket.
            let end = rest.find('>').unwrap_or(rest.len());
            let within = rest.get(..end).unwrap_or_default();
            behind(if within.contains('[') { "]>" } else { ">" })
        } else {
            break;
        };
        match next {
            Some(next) => rest = next,
            None => break,
        }
    }
    let tag = rest.split('>').next().unwrap_or_default();
    let name = rest.strip_prefix('<').unwrap_or_default();
    let ends = |character: char| character.is_whitespace() || matches!(character, '>' | '/');
    let name = name.split(ends).next().unwrap_or_default();
    match name.to_ascii_lowercase().as_str() {
        "rss" | "feed" | "rdf:rdf" => DocumentKind::Feed,
        "html" => DocumentKind::Html,
        name if !is_xml && !tag.contains("xmlns") && HTML_STARTS.contains(&name) => {
            DocumentKind::Html
        }
        _ if is_xml || tag.contains("xmlns") => DocumentKind::Xml,
        _ => DocumentKind::Text,
    }
}
