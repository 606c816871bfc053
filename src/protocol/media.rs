//! The media type of a file: the type of its content, refined by its name or by a declared type that the content
//! allows.
//!
//! The tables are our own because the types of source code and data files differ from library to library, and clients
//! see them. Binary formats are recognised by `infer`.

/// Most bytes at the start of a content that are inspected; container formats declare what they hold within this.
const HEAD_BYTES: usize = 8192;
/// Longest declared media type that is accepted, in bytes; a longer one counts as none.
const MAX_TYPE_BYTES: usize = 100;
/// Longest name of a file, in bytes, the limit of common file systems; a longer one is cut.
/// Tried by `name::long_names_keep_their_ending`.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest file extension, in bytes; a longer one counts as none.
/// Tried by `name::long_names_keep_their_ending`.
pub const MAX_EXTENSION_BYTES: usize = 31;

const PLAIN: &str = "text/plain";
const SVG: &str = "image/svg+xml";
const JSON_LINES: &str = "application/jsonl";
const UNKNOWN: &str = "application/octet-stream";
const ZIP: &str = "application/zip";
const OLE: &str = "application/x-ole-storage";

/// Types of text formats by file extension.
#[rustfmt::skip]
const TEXTS: &[(&str, &str)] = &[
    ("c", "text/x-c"), ("cpp", "text/x-c++"), ("css", "text/css"), ("csv", "text/csv"),
    ("geojson", "application/geo+json"), ("go", "text/x-go"), ("h", "text/x-c"), ("htm", "text/html"),
    ("html", "text/html"), ("ics", "text/calendar"), ("ipynb", "application/x-ipynb+json"), ("java", "text/x-java"),
    ("js", "text/javascript"), ("json", "application/json"), ("jsonl", JSON_LINES), ("log", PLAIN),
    ("md", "text/markdown"), ("mjs", "text/javascript"), ("ndjson", JSON_LINES), ("php", "text/x-php"),
    ("py", "text/x-python"), ("rb", "text/x-ruby"), ("rs", "text/x-rust"), ("sh", "text/x-shellscript"),
    ("sql", "application/sql"), ("svg", SVG), ("tex", "text/x-tex"), ("toml", "application/toml"),
    ("ts", "text/x-typescript"), ("tsv", "text/tab-separated-values"), ("txt", PLAIN), ("vcf", "text/vcard"),
    ("xhtml", "application/xhtml+xml"), ("xml", "application/xml"), ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];
/// Other names of [`JSON_LINES`].
const JSON_LINES_SYNONYMS: &[&str] = &["application/x-ndjson", "application/x-jsonlines"];

/// Types of zip archives that are formats of their own, by file extension.
#[rustfmt::skip]
const ZIPS: &[(&str, &str)] = &[
    ("apk", "application/vnd.android.package-archive"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("epub", "application/epub+zip"),
    ("jar", "application/java-archive"),
    ("npz", "application/x-npz"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
];

/// Directories inside office documents, and the extension of the format that has them.
const OFFICE_DIRECTORIES: &[(&str, &str)] = &[("word/", "docx"), ("xl/", "xlsx"), ("ppt/", "pptx")];

/// Types of the older office formats, which share one container.
const OLES: &[(&str, &str)] = &[
    ("doc", "application/msword"),
    ("msg", "application/vnd.ms-outlook"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("xls", "application/vnd.ms-excel"),
];

/// Prefixes of text contents, in lower case, that determine the type.
const TEXT_PREFIXES: &[(&str, &str)] = &[
    ("%pdf-", "application/pdf"),
    ("%!ps", "application/postscript"),
    ("{\\rtf", "application/rtf"),
    ("<!doctype html", "text/html"),
    ("<html", "text/html"),
    ("<svg", SVG),
    ("<?xml", "application/xml"),
];

/// Finds the media type of a content that arrives in pieces.
#[derive(Debug, Default)]
pub struct MediaSniffer {
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
    /// Possibly text in another encoding.
    PerhapsText,
    Binary,
}

/// The media type of a whole file, by its content and its name.
pub fn media_type(file_name: &str, content: &[u8]) -> String {
    let mut sniffer = MediaSniffer::default();
    sniffer.add(content);
    sniffer.media_type(file_name, None)
}

/// Whether a file, or its first part, is UTF-8 text.
pub fn is_utf8_text(content: &[u8]) -> bool {
    let valid = match std::str::from_utf8(content) {
        Ok(_) => true,
        // The end of a first part may cut a character.
        Err(error) => error.error_len().is_none() && error.valid_up_to() > 0,
    };
    valid && !content.contains(&0)
}

impl MediaSniffer {
    /// Takes the next piece of the content.
    pub fn add(&mut self, bytes: &[u8]) {
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

    /// The type, given the file's name and the type that its sender declares.
    pub fn media_type(&self, file_name: &str, declared: Option<&str>) -> String {
        let extension = extension(file_name);
        let declared = declared.and_then(normalized);
        let declared = declared.as_deref().filter(|declared| *declared != UNKNOWN);
        let found = match self.content() {
            Content::Text => self.text(&extension, declared),
            Content::PerhapsText => match infer::get(&self.head) {
                Some(found) => self.binary(Some(found.mime_type()), &extension, declared),
                None => by_extension(TEXTS, &extension)
                    .or(declared)
                    .unwrap_or(UNKNOWN),
            },
            Content::Binary => {
                let found = infer::get(&self.head).map(|found| found.mime_type());
                self.binary(found, &extension, declared)
            }
        };
        found.to_owned()
    }

    fn content(&self) -> Content {
        let utf16_marks = [&b"\xff\xfe"[..], b"\xfe\xff"];
        let is_utf16 = || utf16_marks.iter().any(|mark| self.head.starts_with(mark));
        match (self.has_nul, self.not_utf8 || !self.partial.is_empty()) {
            (false, false) => Content::Text,
            (false, true) => Content::PerhapsText,
            (true, _) if is_utf16() => Content::PerhapsText,
            (true, _) => Content::Binary,
        }
    }

    fn text<'a>(&self, extension: &str, declared: Option<&'a str>) -> &'a str {
        let head = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        let start = head.trim_start_matches('\u{feff}').trim_start();
        let matches_start = |(prefix, _): &&(&str, &str)| start.starts_with(prefix);
        let by_content = TEXT_PREFIXES
            .iter()
            .find(matches_start)
            .map(|(_, kind)| *kind);
        let is_svg = by_content == Some(SVG) || head.contains("<svg");
        let allowed = |kind: &&str| match *kind {
            SVG => is_svg,
            kind => is_text_type(kind),
        };
        let by_extension = by_extension(TEXTS, extension).filter(allowed);
        match by_content {
            // XML and HTML can hold formats that only the name identifies.
            Some("application/xml" | "text/html") => by_extension.or(by_content).unwrap_or(PLAIN),
            Some(kind) => kind,
            None => declared
                .filter(allowed)
                .filter(|kind| *kind != PLAIN)
                .or(by_extension)
                .unwrap_or(PLAIN),
        }
    }

    /// The type of binary content. The format inside a container is found by its entries, the name or the declaration.
    fn binary<'a>(
        &self,
        found: Option<&'a str>,
        extension: &str,
        declared: Option<&'a str>,
    ) -> &'a str {
        match found {
            Some(ZIP) => self
                .office()
                .or_else(|| within(ZIPS, extension, declared))
                .unwrap_or(ZIP),
            Some(OLE) => within(OLES, extension, declared).unwrap_or(OLE),
            Some(found) => found,
            // A declared type that `infer` supports is wrong: `infer` would have recognised the content.
            None => declared
                .filter(|declared| !is_text_type(declared) && !infer::is_mime_supported(declared))
                .unwrap_or(UNKNOWN),
        }
    }

    /// The office format of an archive, by the names of its first entries in any order.
    fn office(&self) -> Option<&'static str> {
        /// Number of bytes before the name in the header of an entry.
        const NAME_AT: usize = 30;
        memchr::memmem::find_iter(&self.head, b"PK\x03\x04").find_map(|entry| {
            let name = self.head.get(entry + NAME_AT..)?;
            let is_inside = |(directory, _): &&(&str, &str)| name.starts_with(directory.as_bytes());
            let (_, extension) = OFFICE_DIRECTORIES.iter().find(is_inside)?;
            by_extension(ZIPS, extension)
        })
    }
}

fn within<'a>(
    table: &[(&'static str, &'static str)],
    extension: &str,
    declared: Option<&'a str>,
) -> Option<&'a str> {
    let declared = declared.filter(|declared| table.iter().any(|(_, kind)| kind == declared));
    declared.or_else(|| by_extension(table, extension))
}

fn by_extension(table: &[(&'static str, &'static str)], extension: &str) -> Option<&'static str> {
    let found = table.iter().find(|(known, _)| *known == extension)?;
    Some(found.1)
}

/// The extension of a file name without its dot, in lower case; empty if there is none.
fn extension(file_name: &str) -> String {
    match file_name.rsplit_once('.') {
        Some((_, extension)) if extension.len() <= MAX_EXTENSION_BYTES => {
            extension.to_ascii_lowercase()
        }
        Some(_) | None => String::new(),
    }
}

/// Whether contents of this type are text.
fn is_text_type(kind: &str) -> bool {
    let known = TEXTS.iter().any(|(_, known)| *known == kind);
    known || kind.starts_with("text/") || kind.ends_with("+json") || kind.ends_with("+xml")
}

/// A declared type in lower case, without parameters and under its usual name; none if it is malformed.
fn normalized(declared: &str) -> Option<String> {
    let kind = declared.split(';').next()?.trim().to_ascii_lowercase();
    let (class, rest) = kind.split_once('/')?;
    let token = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !text.is_empty() && text.bytes().all(allowed)
    };
    let valid = kind.len() <= MAX_TYPE_BYTES && token(class) && token(rest);
    match JSON_LINES_SYNONYMS.contains(&kind.as_str()) {
        true => Some(JSON_LINES.to_owned()),
        false => valid.then_some(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01";

    fn sniffed(name: &str, declared: &str, content: &[u8]) -> String {
        let mut sniffer = MediaSniffer::default();
        // Pieces of three bytes cut characters.
        content.chunks(3).for_each(|piece| sniffer.add(piece));
        let mut whole = MediaSniffer::default();
        whole.add(content);
        let declared = (!declared.is_empty()).then_some(declared);
        let found = sniffer.media_type(name, declared);
        assert_eq!(found, whole.media_type(name, declared), "{name}");
        found
    }

    #[test]
    fn the_content_decides_and_the_name_refines() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        let zip = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0a.txt";
        let xlsx = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
        let table: &[(&str, &str, &[u8], &str)] = &[
            // Declarations that the content contradicts.
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
            // Declarations that it allows.
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
            ("a.jsonl", "application/x-ndjson", b"{}\n", JSON_LINES),
            // Names.
            ("a.jsonl", "", b"{}\n", JSON_LINES),
            ("a.ndjson", "", b"{}\n", JSON_LINES),
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
        for (name, declared, content, expected) in table {
            let found = sniffed(name, declared, content);
            assert_eq!(found, *expected, "{name} as {declared:?}");
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
            sniffed("a", "", &content),
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
        );
    }

    #[test]
    fn a_character_cut_by_the_end_of_a_part_is_still_text() {
        assert!(is_utf8_text("gr\u{fc}".as_bytes().split_last().unwrap().1));
        assert!(!is_utf8_text(b"gr\xfcn"));
        assert!(!is_utf8_text(b"\xfc"));
    }
}
