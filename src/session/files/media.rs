//! The media type of a file: what its content says, then what its name or the client say if the content allows it.

use super::name;

/// How much of a content's beginning is looked at, in bytes; container formats tell what they hold within this.
const HEAD_BYTES: usize = 8192;
/// Longest media type that is believed, in bytes.
const MAX_TYPE_BYTES: usize = 100;

const PLAIN: &str = "text/plain";
const UNKNOWN: &str = "application/octet-stream";
const ZIP: &str = "application/zip";
const OLE: &str = "application/x-ole-storage";

/// Types of texts by the ending of a name.
const TEXTS: &[(&str, &str)] = &[
    ("c", "text/x-c"),
    ("cpp", "text/x-c++"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("go", "text/x-go"),
    ("h", "text/x-c"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ics", "text/calendar"),
    ("ipynb", "application/x-ipynb+json"),
    ("java", "text/x-java"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/x-ndjson"),
    ("log", PLAIN),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("ndjson", "application/x-ndjson"),
    ("php", "text/x-php"),
    ("py", "text/x-python"),
    ("rb", "text/x-ruby"),
    ("rs", "text/x-rust"),
    ("sh", "text/x-shellscript"),
    ("sql", "application/sql"),
    ("svg", SVG),
    ("tex", "text/x-tex"),
    ("toml", "application/toml"),
    ("ts", "text/x-typescript"),
    ("tsv", "text/tab-separated-values"),
    ("txt", PLAIN),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];
const SVG: &str = "image/svg+xml";

/// Types of zip archives with a meaning of their own, by the ending of a name.
const ZIPS: &[(&str, &str)] = &[
    ("apk", "application/vnd.android.package-archive"),
    (
        "docx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ),
    ("epub", "application/epub+zip"),
    ("jar", "application/java-archive"),
    ("npz", "application/x-npz"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    (
        "pptx",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    ),
    (
        "xlsx",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ),
];

/// Folders inside office documents, and the ending of those that have them.
const OFFICE_FOLDERS: &[(&str, &str)] = &[("word/", "docx"), ("xl/", "xlsx"), ("ppt/", "pptx")];

/// Types of the older office documents, which share one container.
const OLES: &[(&str, &str)] = &[
    ("doc", "application/msword"),
    ("msg", "application/vnd.ms-outlook"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("xls", "application/vnd.ms-excel"),
];

/// What texts begin with that have a type of their own, in lower case.
const TEXT_BEGINNINGS: &[(&str, &str)] = &[
    ("%pdf-", "application/pdf"),
    ("%!ps", "application/postscript"),
    ("{\\rtf", "application/rtf"),
    ("<!doctype html", "text/html"),
    ("<html", "text/html"),
    ("<svg", SVG),
    ("<?xml", "application/xml"),
];

/// Looks at a content while it is written.
#[derive(Debug, Default)]
pub(super) struct Sniffer {
    head: Vec<u8>,
    /// The bytes of a character that is not complete yet.
    partial: Vec<u8>,
    not_utf8: bool,
    has_nul: bool,
}

/// What the bytes can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// UTF-8 without NUL.
    Text,
    /// Nothing that a text in another encoding could not hold.
    PerhapsText,
    Binary,
}

impl Sniffer {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES.saturating_sub(self.head.len());
        self.head.extend(bytes.iter().take(room));
        self.has_nul = self.has_nul || memchr::memchr(0, bytes).is_some();
        if self.not_utf8 || self.has_nul {
            return;
        }
        let mut bytes = bytes;
        while !self.partial.is_empty() {
            let Some((first, rest)) = bytes.split_first() else {
                return;
            };
            self.partial.push(*first);
            bytes = rest;
            match std::str::from_utf8(&self.partial) {
                Ok(_) => self.partial.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => {
                    self.not_utf8 = true;
                    return;
                }
            }
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            self.not_utf8 = error.error_len().is_some();
            self.partial = bytes
                .get(error.valid_up_to()..)
                .unwrap_or_default()
                .to_vec();
        }
    }

    /// The type, given the name and what the client claims.
    pub(super) fn media_type(&self, file_name: &str, claimed: Option<&str>) -> String {
        let ending = name::ending(file_name);
        let claimed = claimed.and_then(well_formed);
        let claimed = claimed.as_deref().filter(|claimed| *claimed != UNKNOWN);
        let found = match self.content() {
            Content::Text => self.text(&ending, claimed),
            Content::PerhapsText => match infer::get(&self.head) {
                Some(found) => self.binary(Some(found.mime_type()), &ending, claimed),
                None => by_ending(TEXTS, &ending).or(claimed).unwrap_or(UNKNOWN),
            },
            Content::Binary => {
                let found = infer::get(&self.head).map(|found| found.mime_type());
                self.binary(found, &ending, claimed)
            }
        };
        found.to_owned()
    }

    fn content(&self) -> Content {
        let other_encoding = [&b"\xff\xfe"[..], b"\xfe\xff"];
        match (self.has_nul, self.not_utf8 || !self.partial.is_empty()) {
            (false, false) => Content::Text,
            (false, true) => Content::PerhapsText,
            (true, _)
                if other_encoding
                    .iter()
                    .any(|mark| self.head.starts_with(mark)) =>
            {
                Content::PerhapsText
            }
            (true, _) => Content::Binary,
        }
    }

    fn text<'a>(&self, ending: &str, claimed: Option<&'a str>) -> &'a str {
        let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        let begins = head.trim_start_matches('\u{feff}').trim_start();
        let begins_like = |(beginning, _): &&(&str, &str)| begins.starts_with(beginning);
        let by_content = TEXT_BEGINNINGS
            .iter()
            .find(begins_like)
            .map(|(_, kind)| *kind);
        let is_svg = by_content == Some(SVG) || head.contains("<svg");
        let believed = |kind: &&str| match *kind {
            SVG => is_svg,
            kind => is_text(kind),
        };
        let by_ending = by_ending(TEXTS, ending).filter(believed);
        match by_content {
            // An XML or HTML text can still be of a kind that only its name tells.
            Some("application/xml" | "text/html") => by_ending.or(by_content).unwrap_or(PLAIN),
            Some(kind) => kind,
            None => claimed
                .filter(believed)
                .filter(|kind| *kind != PLAIN)
                .or(by_ending)
                .unwrap_or(PLAIN),
        }
    }

    /// The type of what is no text; containers are told apart by what they hold, by name or by claim.
    fn binary<'a>(
        &self,
        found: Option<&'a str>,
        ending: &str,
        claimed: Option<&'a str>,
    ) -> &'a str {
        match found {
            Some(ZIP) => self
                .office()
                .or_else(|| within(ZIPS, ending, claimed))
                .unwrap_or(ZIP),
            Some(OLE) => within(OLES, ending, claimed).unwrap_or(OLE),
            Some(found) => found,
            // A type that would have been recognised is not what this is.
            None => claimed
                .filter(|claimed| !is_text(claimed) && !infer::is_mime_supported(claimed))
                .unwrap_or(UNKNOWN),
        }
    }

    /// The kind of office document that an archive is, by the names of its first entries, in whatever order they are.
    fn office(&self) -> Option<&'static str> {
        const NAME_AT: usize = 30;
        memchr::memmem::find_iter(&self.head, b"PK\x03\x04").find_map(|entry| {
            let name = self.head.get(entry + NAME_AT..)?;
            let is_inside = |(folder, _): &&(&str, &str)| name.starts_with(folder.as_bytes());
            let (_, ending) = OFFICE_FOLDERS.iter().find(is_inside)?;
            by_ending(ZIPS, ending)
        })
    }
}

fn within<'a>(
    table: &[(&'static str, &'static str)],
    ending: &str,
    claimed: Option<&'a str>,
) -> Option<&'a str> {
    let claimed = claimed.filter(|claimed| table.iter().any(|(_, kind)| kind == claimed));
    claimed.or_else(|| by_ending(table, ending))
}

fn by_ending(table: &[(&'static str, &'static str)], ending: &str) -> Option<&'static str> {
    let found = table.iter().find(|(known, _)| *known == ending)?;
    Some(found.1)
}

/// Whether things of this type are texts.
fn is_text(kind: &str) -> bool {
    let known = TEXTS.iter().any(|(_, known)| *known == kind);
    known || kind.starts_with("text/") || kind.ends_with("+json") || kind.ends_with("+xml")
}

/// A claimed type in lower case and without its parameters, if it is one.
fn well_formed(claimed: &str) -> Option<String> {
    let kind = claimed.split(';').next()?.trim().to_ascii_lowercase();
    let (class, rest) = kind.split_once('/')?;
    let token = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(allowed)
    };
    let valid = kind.len() <= MAX_TYPE_BYTES && token(class) && token(rest);
    valid.then_some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01";

    fn media_type(name: &str, claimed: &str, content: &[u8]) -> String {
        let mut sniffer = Sniffer::default();
        // In pieces, as it arrives; characters are cut through.
        content.chunks(3).for_each(|piece| sniffer.add(piece));
        let mut whole = Sniffer::default();
        whole.add(content);
        let claimed = (!claimed.is_empty()).then_some(claimed);
        let found = sniffer.media_type(name, claimed);
        assert_eq!(found, whole.media_type(name, claimed), "{name}");
        found
    }

    #[test]
    fn the_content_decides_and_the_name_refines() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let zip = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt";
        let xlsx = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
        let table: &[(&str, &str, &[u8], &str)] = &[
            // Claims that the content contradicts.
            ("a.png", "image/png", b"no image", "text/plain"),
            ("a.csv", "text/csv", PNG, "image/png"),
            ("a.bin", "image/jpeg", b"\0\x01\x02\xff", UNKNOWN),
            ("a.bin", "text/plain", b"\0\x01\x02\xff", UNKNOWN),
            (
                "a.csv",
                "application/vnd.ms-excel",
                b"a,b\n1,2\n",
                "text/csv",
            ),
            ("a.txt", "image/svg+xml", b"no drawing", "text/plain"),
            // Claims that it allows.
            ("a", "text/csv; charset=utf-8", b"a,b\n", "text/csv"),
            ("a", "TEXT/Markdown", b"# a", "text/markdown"),
            (
                "a.bin",
                "application/x-own",
                b"\0\x01\x02\xff",
                "application/x-own",
            ),
            ("a.json", "text/plain", b"{}", "application/json"),
            ("a.json", UNKNOWN, b"{}", "application/json"),
            ("a", "no type", b"x", "text/plain"),
            ("a", "text/<script>", b"x", "text/plain"),
            // Names.
            ("a.py", "", b"print(1)", "text/x-python"),
            ("A.CSV", "", "ä;ö\n".as_bytes(), "text/csv"),
            ("a.csv", "", b"n\xe4me;wert\n", "text/csv"),
            ("a.csv", "", b"\xff\xfea\0;\0b\0", "text/csv"),
            ("a", "", b"n\xe4me", UNKNOWN),
            ("a.svg", "", b"<?xml version='1.0'?><svg/>", SVG),
            ("a.svg", "", b"no drawing", "text/plain"),
            ("a.txt", "", b"", "text/plain"),
            ("a.txt", "", "\u{20ac}".as_bytes(), "text/plain"),
            // Beginnings; a text that begins like a binary format stays a text.
            ("a", "", b"  <!DOCTYPE HTML><p>", "text/html"),
            ("a.md", "", b"<html>in markdown", "text/markdown"),
            ("a.txt", "", b"%PDF-1.4 all ASCII", "application/pdf"),
            ("a.csv", "", b"BM,MZ,II*\n", "text/csv"),
            // Containers.
            ("a", "", &tar, "application/x-tar"),
            ("a.zip", "", zip, ZIP),
            ("a.xlsx", "", zip, xlsx),
            ("a", xlsx, zip, xlsx),
            ("a", "image/png", zip, ZIP),
            ("a.png", "", PNG, "image/png"),
        ];
        for (name, claimed, content, expected) in table {
            let found = media_type(name, claimed, content);
            assert_eq!(found, *expected, "{name} as {claimed:?}");
        }
    }

    #[test]
    fn office_documents_are_recognised_without_their_names() {
        let mut content = Vec::new();
        for name in [
            "[Content_Types].xml",
            "_rels/.rels",
            "docProps/app.xml",
            "xl/workbook.xml",
        ] {
            content.extend(b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
            content.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            content.extend([0, 0]);
            content.extend(name.as_bytes());
        }
        assert_eq!(
            media_type("a", "", &content),
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
        );
    }
}
