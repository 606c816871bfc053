//! Finds the charset of a page.
//!
//! A byte order mark decides. Otherwise the charsets of the header and of the page, and UTF-8, are tried; the one with the
//! fewest invalid characters is taken. A page that declares UTF-8 and is UTF-8 is read so, whatever its header says.
//! Without a declared charset, a page that is not UTF-8 is guessed.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use url::Url;

use super::super::DocumentKind;
use super::RawPage;

/// Most bytes of a page in which its declaration is searched.
const PRESCAN: usize = 4096;
const LABEL: &str = "charset";
const XML_LABEL: &str = "encoding";

/// The page as text.
pub(super) fn decode(page: &RawPage, kind: DocumentKind) -> String {
    let bytes = page.body.as_ref();
    if let Some(encoding) = of_byte_order_mark(bytes) {
        return encoding.decode_with_bom_removal(bytes).0.into_owned();
    }
    let announced = page
        .content_type
        .as_deref()
        .and_then(|header| label(header, LABEL));
    let own = match kind {
        DocumentKind::Html => own(bytes, LABEL).or_else(|| own(bytes, XML_LABEL)),
        DocumentKind::Xml | DocumentKind::Feed => own(bytes, XML_LABEL),
        DocumentKind::Text | DocumentKind::Json | DocumentKind::Pdf => None,
    };
    // Text in another charset is almost never valid UTF-8. In a charset of one byte, any bytes are valid.
    let announced = match own {
        Some(own) if own == UTF_8 && !bytes.is_ascii() && str::from_utf8(bytes).is_ok() => {
            Some(UTF_8)
        }
        Some(_) | None => announced,
    };
    let mut best: Option<(usize, Cow<'_, str>)> = None;
    for encoding in [announced, own, Some(UTF_8)].into_iter().flatten() {
        let text = encoding.decode_without_bom_handling(bytes).0;
        let unreadable = text.chars().filter(|&c| c == '\u{fffd}').count();
        if unreadable == 0 {
            return text.into_owned();
        }
        if best.as_ref().is_none_or(|(fewest, _)| unreadable < *fewest) {
            best = Some((unreadable, text));
        }
    }
    if announced.or(own).is_some() {
        return best.map(|(_, text)| text.into_owned()).unwrap_or_default();
    }
    let encoding = guess(bytes, &page.url);
    encoding.decode_without_bom_handling(bytes).0.into_owned()
}

/// The charset of a byte order mark.
pub(super) fn of_byte_order_mark(bytes: &[u8]) -> Option<&'static Encoding> {
    Encoding::for_bom(bytes).map(|(encoding, _)| encoding)
}

/// Text in a Unicode charset.
pub(super) fn of_json(bytes: &[u8]) -> Cow<'_, str> {
    let encoding = of_byte_order_mark(bytes).unwrap_or(UTF_8);
    encoding.decode_with_bom_removal(bytes).0
}

fn own(bytes: &[u8], key: &str) -> Option<&'static Encoding> {
    let start = bytes.get(..PRESCAN).unwrap_or(bytes);
    let encoding = label(&String::from_utf8_lossy(start), key)?;
    // A declaration that was read as ASCII cannot be in these charsets. HTML defines the replacements.
    if encoding == UTF_16LE || encoding == UTF_16BE {
        Some(UTF_8)
    } else if encoding.name() == "x-user-defined" {
        Some(WINDOWS_1252)
    } else {
        Some(encoding)
    }
}

/// The charset after the first `key=` with a valid one.
fn label(text: &str, key: &str) -> Option<&'static Encoding> {
    let text = text.to_ascii_lowercase();
    text.split(key).skip(1).find_map(|rest| {
        let rest = rest.trim_start().strip_prefix('=')?;
        let rest = rest.trim_start().trim_start_matches(['"', '\'']);
        let ends =
            |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ';' | '>' | '/' | '?' | ',');
        Encoding::for_label(rest.split(ends).next()?.as_bytes())
    })
}

fn guess(bytes: &[u8], url: &str) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(bytes, true);
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::domain);
    let country = host.and_then(|host| host.rsplit('.').next());
    let country = country.filter(|name| {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !name.is_empty() && name.bytes().all(is_plain)
    });
    detector.guess(country.map(str::as_bytes), Utf8Detection::Allow)
}
