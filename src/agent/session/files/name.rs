//! Sanitizes file names to one path component of printable characters.
//!
//! Unicode characters and leading dots are kept, as in `.gitignore`.

use protocol::media::{MAX_EXTENSION_BYTES, MAX_NAME_BYTES};

/// The name of a file without a usable name.
const DEFAULT_NAME: &str = "file";

/// The sanitized name, as it is stored.
pub(crate) fn sanitize(raw: &str) -> String {
    let component = raw.rsplit(['/', '\\']).next().unwrap_or_default();
    let shown: String = component.chars().filter(|char| is_allowed(*char)).collect();
    match shown.trim() {
        "" | "." | ".." => DEFAULT_NAME.to_owned(),
        name => shortened(name),
    }
}

/// Whether a character is printable. Direction marks are removed: they could disguise a file's extension.
fn is_allowed(char: char) -> bool {
    let orders = matches!(
        char,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let breaks = matches!(char, '\u{2028}' | '\u{2029}' | '\u{feff}');
    !char.is_control() && !orders && !breaks
}

/// Shortens the stem and keeps the extension.
fn shortened(name: &str) -> String {
    if name.len() <= MAX_NAME_BYTES {
        return name.to_owned();
    }
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if ending.len() <= MAX_EXTENSION_BYTES => (stem, format!(".{ending}")),
        Some(_) | None => (name, String::new()),
    };
    let mut short = String::with_capacity(MAX_NAME_BYTES);
    for char in stem.chars() {
        if short.len() + char.len_utf8() + ending.len() > MAX_NAME_BYTES {
            break;
        }
        short.push(char);
    }
    short + &ending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_component_of_printable_characters() {
        let table = [
            ("report.csv", "report.csv"),
            ("Übersicht 2026 – 数据.xlsx", "Übersicht 2026 – 数据.xlsx"),
            ("👩‍💻.txt", "👩‍💻.txt"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\me\\a.txt", "a.txt"),
            ("/", "file"),
            ("a/", "file"),
            ("", "file"),
            (".", "file"),
            ("..", "file"),
            ("x/..", "file"),
            (" \u{202e}.. ", "file"),
            (".gitignore", ".gitignore"),
            ("a\0b\r\nc\u{7f}\u{85}.txt", "abc.txt"),
            ("invoice\u{202e}fdp.exe", "invoicefdp.exe"),
            ("a\u{2066}b\u{2069}\u{feff}\u{2028}.txt", "ab.txt"),
            ("  a b.txt  ", "a b.txt"),
            ("\"quoted\";x=1", "\"quoted\";x=1"),
        ];
        for (raw, expected) in table {
            assert_eq!(sanitize(raw), expected, "{raw:?}");
        }
    }

    #[test]
    fn long_names_keep_their_ending() {
        let long = sanitize(&format!("{}.parquet", "ä".repeat(300)));
        assert!(
            long.len() <= MAX_NAME_BYTES && long.len() > MAX_NAME_BYTES - 2,
            "{}",
            long.len()
        );
        assert!(long.starts_with("ää") && long.ends_with("ä.parquet"));
        let no_ending = sanitize(&format!("a.{}", "x".repeat(400)));
        assert_eq!(no_ending.len(), MAX_NAME_BYTES);
    }
}
