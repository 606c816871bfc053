//! Content parts that replace a file in the messages for the model.

use super::super::contents::{MISSING_FILE, note_part};
use super::found::InputFile;

/// The content part that says where in the working directory a file is.
pub(super) fn location_part(input: &InputFile) -> String {
    let file = described(&input.name, &input.mime_type, input.size);
    note_part(&format!("[file {file} is in the working directory]"))
}

/// The content part for a file that does not exist any more.
pub(super) fn missing_part() -> String {
    note_part(MISSING_FILE)
}

/// A file as texts describe it.
pub(in super::super) fn described(name: &str, mime_type: &str, size: u64) -> String {
    format!("'{name}' ({mime_type}, {} bytes)", grouped(size))
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use blobs::Blob;

    #[test]
    fn a_location_part_says_where_a_file_is_and_how_large() {
        let input = InputFile {
            id: "1".into(),
            name: "sales.csv".into(),
            mime_type: "text/csv".into(),
            size: 1_234_567,
            content: Blob::file(std::path::PathBuf::from("/blob/1"), 1_234_567),
            is_produced: false,
        };
        assert_eq!(
            location_part(&input),
            r#"{"text":"[file 'sales.csv' (text/csv, 1,234,567 bytes) is in the working directory]","type":"text"}"#
        );
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (123_456, "123,456"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
