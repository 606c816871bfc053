//! Writing events, each in one piece.

use bytes::BytesMut;

use protocol::openai::raw::push_string;

/// Memory reserved for an event besides its text, in bytes.
const EVENT_OVERHEAD: usize = 256;

/// Writes events, which count from 0.
#[derive(Debug, Default)]
pub(super) struct EventWriter {
    next: u64,
    /// Reused for the texts of deltas.
    buffer: String,
}

impl EventWriter {
    /// Writes an event with these members.
    pub(super) fn write(&mut self, kind: &str, members: &str, out: &mut BytesMut) {
        self.write_parts(kind, &[members], out);
    }

    /// Writes an error. Its `type` is the event's type, not the error's.
    pub(super) fn write_error(&mut self, members: &str, out: &mut BytesMut) {
        // The members begin with the class of the error, which only the inner object has.
        let flat = members
            .split_once(",\"code\":")
            .map_or("", |(_, rest)| rest);
        self.write_parts("error", &["\"code\":", flat], out);
    }

    /// Writes a delta of a text: the members before it, the text, and those after it.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of an event are written without a copy"
    )]
    pub(super) fn write_text(
        &mut self,
        kind: &str,
        before: &str,
        text: &str,
        after: &str,
        out: &mut BytesMut,
    ) {
        let mut quoted = std::mem::take(&mut self.buffer);
        quoted.clear();
        push_string(&mut quoted, text);
        self.write_parts(kind, &[before, &quoted, after], out);
        self.buffer = quoted;
    }

    fn write_parts(&mut self, kind: &str, members: &[&str], out: &mut BytesMut) {
        let length: usize = members.iter().map(|part| part.len()).sum();
        out.reserve(length + EVENT_OVERHEAD);
        for part in [
            "event: ",
            kind,
            "\ndata: {\"type\":\"",
            kind,
            "\",\"sequence_number\":",
        ] {
            out.extend_from_slice(part.as_bytes());
        }
        push_number(self.next, out);
        self.next += 1;
        out.extend_from_slice(b",");
        for part in members {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(b"}\n\n");
    }
}

/// Appends a number as decimal digits.
fn push_number(mut number: u64, out: &mut BytesMut) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        at -= 1;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(at..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_from_zero() {
        let mut writer = EventWriter::default();
        let mut out = BytesMut::new();
        for _ in 0..12 {
            out.clear();
            writer.write_text("t", "\"delta\":", "a\n\"", "", &mut out);
        }
        let expected =
            "event: t\ndata: {\"type\":\"t\",\"sequence_number\":11,\"delta\":\"a\\n\\\"\"}\n\n";
        assert_eq!(&out[..], expected.as_bytes());
    }
}
