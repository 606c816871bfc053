//! The output of a process: bounded text without control sequences.
//!
//! Invalid UTF-8 becomes U+FFFD; a character that is split between two pieces is reassembled. NUL, other control
//! characters and terminal sequences (CSI, OSC, DCS and similar) are removed. An unterminated sequence ends at the end
//! of its line, so it cannot swallow the following lines. A line that is rewritten after carriage returns, such as a
//! progress bar, is kept in its last state.
//!
//! No terminal parser is used: parsers such as `vte` recognise 7-bit sequences only, let an unterminated
//! sequence run on over line ends, and swallow text after a character that no sequence can hold.

use std::mem;

/// Longest line that a carriage return can rewrite, in bytes. A longer line is kept, and what follows is a new line.
/// Tried by `output::a_long_line_is_not_taken_back`.
const MAX_REWRITTEN_LINE: usize = 4096;

/// One output stream. Its memory stays below a small multiple of what it keeps, regardless of how much is pushed.
#[derive(Debug)]
pub(super) struct OutputBuffer {
    cleaner: Cleaner,
    /// The first bytes of a character that is still incomplete.
    partial: Vec<u8>,
    line: Line,
    retained: HeadAndTail,
    total: u64,
}

/// The retained part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Captured {
    /// The text; a line says how much is left out, if anything.
    pub(super) text: String,
    /// Bytes of cleaned text that are left out.
    pub(super) omitted: u64,
}

impl OutputBuffer {
    /// Retains about `max_bytes` bytes: three quarters from the beginning, the rest from the end.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            cleaner: Cleaner::default(),
            partial: Vec::new(),
            line: Line::default(),
            retained: HeadAndTail::new(max_bytes),
            total: 0,
        }
    }

    /// Adds bytes and returns the text to show at once: complete characters, with a carriage return where a line is
    /// rewritten.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<String> {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let text = self.decode(bytes);
        let mut live = String::new();
        self.cleaner.clean(&text, &mut live);
        self.line.push(&live, &mut self.retained);
        (!live.is_empty()).then_some(live)
    }

    /// Bytes pushed since the last [`OutputBuffer::take`].
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Takes the retained text and starts afresh.
    pub(super) fn take(&mut self) -> Captured {
        if !mem::take(&mut self.partial).is_empty() {
            let mut end = String::new();
            self.cleaner.clean("\u{fffd}", &mut end);
            self.line.push(&end, &mut self.retained);
        }
        self.cleaner = Cleaner::default();
        self.total = 0;
        mem::take(&mut self.line).finish(&mut self.retained);
        self.retained.take()
    }

    /// Decodes the complete characters; at most three bytes wait in `partial`.
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut joined = mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        let mut text = String::with_capacity(joined.len());
        let mut chunks = joined.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_partial(invalid) {
                self.partial = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push('\u{fffd}');
            }
        }
        text
    }
}

/// Removes control characters and terminal sequences and truncates the text to `max_bytes`, with a mark.
pub(super) fn clean(text: &str, max_bytes: usize) -> String {
    let mut cleaned = String::new();
    let mut cleaner = Cleaner::default();
    let mut characters = text.chars();
    // Text beyond the cap is not examined: it may be a thousand times as long.
    let mut buffer = [0; 4];
    while cleaned.len() <= max_bytes {
        let Some(character) = characters.next() else {
            break;
        };
        cleaner.clean(character.encode_utf8(&mut buffer), &mut cleaned);
    }
    let mut cleaned = cleaned.replace('\r', "\n");
    if cleaned.len() > max_bytes {
        cleaned.truncate(cleaned.floor_char_boundary(max_bytes));
        cleaned.push_str(" […]");
    }
    cleaned
}

/// Whether more bytes can complete a character.
fn is_partial(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Removes control characters and terminal sequences, except tab, line feed and a carriage return that is not part of a
/// line end.
#[derive(Debug, Default)]
struct Cleaner {
    state: State,
    /// A carriage return came last; it may be part of a line end.
    returned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate character; one more character follows.
    Designate,
    /// In a control sequence, until its final character.
    Control,
    /// In a string such as a window title, until BEL or ST.
    Title,
    /// After ESC in such a string.
    TitleEscape,
}

impl Cleaner {
    fn clean(&mut self, text: &str, out: &mut String) {
        let mut rest = text;
        while !rest.is_empty() {
            // Most output is plain text and is copied in runs.
            if self.state == State::Text && !self.returned {
                let plain = rest.find(is_control).unwrap_or(rest.len());
                let (run, after) = rest.split_at(plain);
                out.push_str(run);
                rest = after;
            }
            let mut characters = rest.chars();
            if let Some(character) = characters.next() {
                self.character(character, out);
            }
            rest = characters.as_str();
        }
    }

    fn character(&mut self, character: char, out: &mut String) {
        match self.state.after(character) {
            Some(state) => self.state = state,
            None => self.shown(character, out),
        }
    }

    /// A character outside sequences.
    fn shown(&mut self, character: char, out: &mut String) {
        self.state = State::Text;
        match character {
            '\r' => {
                self.returned = true;
                return;
            }
            '\n' => self.returned = false,
            '\u{1b}' => self.state = State::Escape,
            '\u{9b}' => self.state = State::Control,
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => self.state = State::Title,
            _ => {}
        }
        let kept = matches!(character, '\n' | '\t') || !character.is_control();
        if kept {
            if mem::take(&mut self.returned) {
                out.push('\r');
            }
            out.push(character);
        }
    }
}

fn is_control(character: char) -> bool {
    character.is_control() && character != '\n' && character != '\t'
}

impl State {
    /// The state after a character of a sequence; `None` if the character is text.
    fn after(self, character: char) -> Option<Self> {
        // A line end terminates any open sequence.
        if character == '\n' {
            return None;
        }
        match self {
            Self::Text => None,
            Self::Escape => match character {
                '[' => Some(Self::Control),
                ']' | 'P' | 'X' | '^' | '_' => Some(Self::Title),
                '\u{20}'..='\u{2f}' => Some(Self::Designate),
                '\u{1b}' => Some(Self::Escape),
                '\u{30}'..='\u{7e}' => Some(Self::Text),
                _ => None,
            },
            Self::Designate => Some(Self::Text),
            Self::Control => match character {
                '\u{20}'..='\u{3f}' => Some(Self::Control),
                '\u{40}'..='\u{7e}' => Some(Self::Text),
                '\u{1b}' => Some(Self::Escape),
                // Not part of any sequence.
                _ => None,
            },
            Self::Title => match character {
                '\u{7}' | '\u{9c}' => Some(Self::Text),
                '\u{1b}' => Some(Self::TitleEscape),
                _ => Some(Self::Title),
            },
            Self::TitleEscape if character == '\\' => Some(Self::Text),
            Self::TitleEscape => Some(Self::Title),
        }
    }
}

/// The current line, which a carriage return can rewrite.
#[derive(Debug, Default)]
struct Line {
    text: String,
    /// The beginning of the line has been passed on and cannot be rewritten.
    begun: bool,
}

impl Line {
    fn push(&mut self, text: &str, retained: &mut HeadAndTail) {
        let mut rest = text;
        while let Some(end) = rest.find(['\n', '\r']) {
            let (part, after) = rest.split_at(end);
            self.add(part, retained);
            let mut after = after.chars();
            if after.next() == Some('\n') || self.begun {
                self.end(retained);
            } else {
                self.text.clear();
            }
            rest = after.as_str();
        }
        self.add(rest, retained);
    }

    fn add(&mut self, part: &str, retained: &mut HeadAndTail) {
        if self.begun || self.text.len() + part.len() > MAX_REWRITTEN_LINE {
            self.begun = true;
            retained.push(&mem::take(&mut self.text));
            retained.push(part);
        } else {
            self.text.push_str(part);
        }
    }

    fn end(&mut self, retained: &mut HeadAndTail) {
        self.text.push('\n');
        retained.push(&self.text);
        self.text.clear();
        self.begun = false;
    }

    fn finish(self, retained: &mut HeadAndTail) {
        retained.push(&self.text);
    }
}

/// The beginning and the end of a text.
#[derive(Debug)]
struct HeadAndTail {
    head: String,
    max_head: usize,
    head_is_full: bool,
    tail: String,
    max_tail: usize,
    /// Bytes dropped between head and tail.
    dropped: u64,
}

impl HeadAndTail {
    fn new(max_bytes: usize) -> Self {
        let max_tail = max_bytes / 4;
        Self {
            head: String::new(),
            max_head: max_bytes - max_tail,
            head_is_full: false,
            tail: String::new(),
            max_tail,
            dropped: 0,
        }
    }

    fn push(&mut self, text: &str) {
        let mut rest = text;
        if !self.head_is_full {
            let room = self.max_head - self.head.len();
            let (first, after) = rest.split_at(rest.floor_char_boundary(room));
            self.head.push_str(first);
            self.head_is_full = !after.is_empty();
            rest = after;
        }
        if rest.len() > self.max_tail {
            let (gone, end) = rest.split_at(tail_start(rest, self.max_tail));
            self.dropped += (self.tail.len() + gone.len()) as u64;
            self.tail.clear();
            self.tail.push_str(end);
            return;
        }
        self.tail.push_str(rest);
        // Trimmed at twice its size, so each byte is moved about once.
        if self.tail.len() > 2 * self.max_tail {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let gone = tail_start(&self.tail, self.max_tail);
        self.tail.drain(..gone);
        self.dropped += gone as u64;
    }

    fn take(&mut self) -> Captured {
        self.trim();
        let omitted = mem::take(&mut self.dropped);
        let mut text = mem::take(&mut self.head);
        if omitted > 0 {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!("[… {omitted} bytes left out …]\n"));
        }
        text.push_str(&mem::take(&mut self.tail));
        self.head_is_full = false;
        Captured { text, omitted }
    }
}

/// Start of the last `max` bytes of a text, at a character boundary.
fn tail_start(text: &str, max: usize) -> usize {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> String {
        let mut capture = OutputBuffer::new(1 << 20);
        capture.push(bytes);
        let captured = capture.take();
        assert_eq!(captured.omitted, 0);
        captured.text
    }

    #[test]
    fn text_is_cleaned() {
        for (bytes, expected) in [
            (&b"plain\n\ttext"[..], "plain\n\ttext"),
            (b"a\0b\x07c\x08d\x7fe", "abcde"),
            (b"caf\xc3\xa9 \xff\xfe!", "café \u{fffd}\u{fffd}!"),
            (b"\xe2\x82", "\u{fffd}"),
            (b"\x1b[1;31mred\x1b[0m", "red"),
            (b"\x1b[?25l\x1b[2K\x1b[10;5Hx", "x"),
            (b"\x1b]0;title\x07x", "x"),
            (b"\x1b]8;;http://h/\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1bP1$r q\x1b\\x\x1b_hidden\x1b\\y\x1b^p\x1b\\z", "xyz"),
            (b"\x1b(Bx\x1b=y\x1bMz", "xyz"),
            (b"\xc2\x9b31mred\xc2\x9d0;t\x07x", "redx"),
            (b"\x1b]never ended\nnext", "\nnext"),
            (b"\x1b[12\nnext", "\nnext"),
            (b"\x1b[\xc3\xa9t", "ét"),
            (b"\x1b\x1b[31mx\x1b", "x"),
            (b"\x1b[1\x1b[31mx", "x"),
        ] {
            assert_eq!(whole(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_rewritten_line_is_kept_in_its_last_state() {
        for (text, expected) in [
            ("a\r\nb\r\n", "a\nb\n"),
            ("\r 10%\r 50%\r100%\ndone\n", "100%\ndone\n"),
            ("10%\r20%\r", "20%"),
            ("10%\r\r\n", "10%\n"),
            ("10%\x1b[K\r\x1b[K20%", "20%"),
            ("a\rb\nc\rd", "b\nd"),
        ] {
            assert_eq!(whole(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_long_line_is_not_taken_back() {
        let long = "x".repeat(MAX_REWRITTEN_LINE + 1);
        let text = whole(format!("{long}\rshort\rshorter\n").as_bytes());
        assert_eq!(text, format!("{long}\nshorter\n"));
    }

    #[test]
    fn live_text_comes_at_once_and_shows_returns() {
        let mut capture = OutputBuffer::new(100);
        assert_eq!(capture.push(b"10%").as_deref(), Some("10%"));
        assert_eq!(capture.push(b"\r"), None);
        assert_eq!(capture.push(b"20%\xc3").as_deref(), Some("\r20%"));
        assert_eq!(capture.push(b"\xa9\r").as_deref(), Some("é"));
        assert_eq!(capture.push(b"\n").as_deref(), Some("\n"));
        assert_eq!(capture.push(b"\x1b[3"), None);
        assert_eq!(capture.push(b"1mred").as_deref(), Some("red"));
        assert_eq!(capture.total(), 19);
    }

    #[test]
    fn the_middle_is_left_out_and_counted() {
        let mut capture = OutputBuffer::new(16);
        for byte in b'a'..=b'z' {
            capture.push(&[byte]);
        }
        let captured = capture.take();
        assert_eq!(captured.text, "abcdefghijkl\n[… 10 bytes left out …]\nwxyz");
        assert_eq!(captured.omitted, 10);
    }

    #[test]
    fn taking_begins_anew() {
        let mut capture = OutputBuffer::new(8);
        capture.push(b"a long text that does not fit\x1b[3\xe2\x82");
        capture.take();
        assert_eq!(capture.total(), 0);
        assert_eq!(capture.push(b"1m"), Some("1m".to_owned()));
        assert_eq!(
            capture.take(),
            Captured {
                text: "1m".to_owned(),
                omitted: 0
            }
        );
        assert_eq!(capture.take(), Captured::default());
    }

    #[test]
    fn memory_does_not_grow_with_what_is_pushed() {
        let mut capture = OutputBuffer::new(32 * 1024);
        let held = |capture: &OutputBuffer| {
            capture.retained.head.capacity()
                + capture.retained.tail.capacity()
                + capture.line.text.capacity()
                + capture.partial.capacity()
        };
        let lines = b"0123456789 lines of text\n".repeat(2600);
        for endless in [
            &[b'x'; 65_536][..],
            &lines,
            &[0xff; 65_536],
            &b"\rbar".repeat(16_384),
        ] {
            for _ in 0..64 {
                capture.push(endless);
                assert!(held(&capture) < 128 * 1024, "{}", held(&capture));
            }
        }
        assert_eq!(capture.total(), 64 * (3 * 65_536 + lines.len() as u64));
        let captured = capture.take();
        assert!(captured.text.len() < 33 * 1024);
        assert!(captured.omitted > 16 * 1024 * 1024);
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        assert_eq!(clean("\x1b[1mbold\x1b[0m\0", 100), "bold");
        assert_eq!(clean("a\rb\r\nc", 100), "a\nb\nc");
        assert_eq!(clean("ééé", 6), "ééé");
        assert_eq!(clean("ééé", 5), "éé […]");
        assert_eq!(clean(&"x".repeat(1000), 3), "xxx […]");
    }

    fn fragments() -> impl Strategy<Value = Vec<u8>> {
        let fragment = prop_oneof![
            Just(b"\x1b[31m".to_vec()),
            Just(b"\x1b]0;t\x07".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\n".to_vec()),
            Just("€é\u{9b}\u{1f600}".as_bytes().to_vec()),
            proptest::collection::vec(any::<u8>(), 0..6),
            "[a-z ]{0,12}".prop_map(String::into_bytes),
        ];
        proptest::collection::vec(fragment, 0..24).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(bytes in fragments(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8), kept in 0_usize..64) {
            let mut at_once = OutputBuffer::new(kept);
            let live = at_once.push(&bytes).unwrap_or_default();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut split = OutputBuffer::new(kept);
            let mut split_live = String::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                split_live.push_str(&split.push(&bytes[from..cut]).unwrap_or_default());
                from = cut;
            }
            prop_assert_eq!(&split_live, &live);
            prop_assert_eq!(split.total(), bytes.len() as u64);
            let (split, at_once) = (split.take(), at_once.take());
            prop_assert_eq!(&split, &at_once);
            prop_assert!(at_once.text.len() <= kept + 64);
            let clean = |text: &str| !text.chars().any(|c| c.is_control() && !"\n\t\r".contains(c));
            prop_assert!(clean(&live) && clean(&at_once.text));
        }

        #[test]
        fn text_without_controls_is_the_lossy_text(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let plain: Vec<u8> = bytes.into_iter().filter(|byte| *byte >= 0x20 && *byte != 0x7f).collect();
            let lossy: String = String::from_utf8_lossy(&plain).into_owned();
            prop_assume!(!lossy.chars().any(char::is_control));
            prop_assert_eq!(whole(&plain), lossy);
        }

        #[test]
        fn a_cleaned_text_is_clean_and_short(text in "\\PC*|[\\x00-\\x9f]*", max in 0_usize..40) {
            let cleaned = clean(&text, max);
            prop_assert!(cleaned.len() <= max + " […]".len());
            prop_assert!(!cleaned.chars().any(|c| c.is_control() && !"\n\t".contains(c)));
        }
    }
}
