//! What a page is: by what its server says, as far as the bytes bear that out.
//!
//! - Bytes that begin as a PDF are a PDF, whatever the server says.
//! - Bytes that are no text are refused by the name that they, or else the server, give them.
//! - `text/plain` and other text that is not shown as markup stays as it is, even if it looks like HTML: whoever serves
//!   source code means it to be seen.
//! - Announced as picture, sound, film or font, but text: refused as announced, as it is neither.
//! - Markup is told apart by its first element: pages and feeds are often announced as one another, or as XML.
//! - Whatever else is announced, or nothing: what the bytes look like.

use serde::de::IgnoredAny;

use super::super::DocumentKind;
use super::Refusal;
use super::charset;

/// How much of the bytes is looked at.
const SAMPLE: usize = 1024;
/// How much of a text is searched for its first element, behind comments and declarations.
const PROLOGUE: usize = 64 * 1024;
/// Longest text that is parsed to see whether it is JSON.
const MAX_JSON: usize = 8 * 1024 * 1024;

/// Elements that a page without a document type may begin with.
const HTML_STARTS: [&str; 17] = [
    "html", "head", "body", "title", "meta", "link", "script", "style", "h1", "h2", "div", "table",
    "p", "a", "br", "center", "article",
];

/// Decides on the kind.
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
            // Markup that says nothing about itself is what the server says that it is.
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

/// The kind of something that turned out to be no feed.
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

/// Whether bytes are in no charset that is compatible with ASCII: these have few control characters.
fn is_binary(bytes: &[u8]) -> bool {
    let sample = sample(bytes);
    // Escape begins the shifts of ISO-2022-JP.
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
    let media_type: String = media_type.chars().take(100).collect();
    Refusal::Unsupported(format!("{what} ({media_type})"))
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

/// What text looks like.
fn seen(bytes: &[u8]) -> DocumentKind {
    match first(bytes) {
        Some(b'<') => markup(bytes),
        Some(b'{' | b'[') if bytes.len() <= MAX_JSON => {
            let text = charset::of_json(bytes);
            if serde_json::from_str::<IgnoredAny>(&text).is_err() {
                DocumentKind::Text
            } else if text.contains("https://jsonfeed.org/version/") {
                DocumentKind::Feed
            } else {
                DocumentKind::Json
            }
        }
        // In two bytes for each character the first may be no `<`.
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
    let start = bytes.get(..PROLOGUE).unwrap_or(bytes);
    let start = String::from_utf8_lossy(start);
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
            // With declarations of its own it goes on to a bracket.
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
