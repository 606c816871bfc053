//! Lines from an MCP server: one JSON message each, within a bound.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use super::read_rate::{MESSAGE_BYTES, ReadRate};

/// Size of one read, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// Largest buffer that is kept for the next line, in bytes; a larger one is freed.
const KEPT_BYTES: usize = 256 * 1024;
/// Longest id of a message that is too long, in bytes; a longer id is cut.
/// Tried by `line::the_id_of_a_line_that_is_too_long_is_found_wherever_it_stands`.
const MAX_ID_BYTES: usize = 64;

/// Reads lines. Cancel safe: a line that has been read in part is continued.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    max_bytes: usize,
    rate: ReadRate,
    /// Searches a line that is too long for its id. The rest of that line is not stored.
    scan: Option<IdScan>,
    taken: bool,
}

/// What a line holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// The whole line.
    Whole(&'a [u8]),
    /// A line longer than the bound: the JSON text of the `id` in it, if it is the answer to a request.
    TooLong(Option<String>),
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(input: R, max_bytes: usize, rate: ReadRate) -> Self {
        Self {
            input: BufReader::with_capacity(READ_BYTES, input),
            line: Vec::new(),
            max_bytes,
            rate,
            scan: None,
            taken: false,
        }
    }

    /// Reads the next line that is not empty; `None` at the end.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(super) async fn next(&mut self) -> io::Result<Option<()>> {
        if std::mem::take(&mut self.taken) {
            self.line.clear();
            if self.line.capacity() > KEPT_BYTES {
                self.line = Vec::new();
            }
        }
        loop {
            self.rate.ready().await;
            let read = self.input.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = memchr::memchr(b'\n', read);
            let piece = end.and_then(|end| read.get(..end)).unwrap_or(read);
            if let Some(scan) = &mut self.scan {
                scan.push(piece);
            } else if self.line.len() + piece.len() > self.max_bytes {
                let mut scan = IdScan::default();
                scan.push(&self.line);
                scan.push(piece);
                self.line = Vec::new();
                self.scan = Some(scan);
            } else {
                self.line.extend_from_slice(piece);
            }
            let consumed = end.map_or(read.len(), |end| end + 1);
            self.input.consume(consumed);
            let message = end.map_or(0, |_| MESSAGE_BYTES);
            self.rate.take(consumed + message);
            let blank = self.scan.is_none() && self.line.trim_ascii().is_empty();
            if end.is_some() && !blank {
                return Ok(Some(()));
            }
            if end.is_some() {
                self.line.clear();
            }
        }
    }

    /// Takes the line that was read.
    pub(super) fn take(&mut self) -> Line<'_> {
        self.taken = true;
        match self.scan.take() {
            Some(scan) => Line::TooLong(scan.id()),
            None => Line::Whole(self.line.trim_ascii()),
        }
    }
}

/// The JSON text of the `id` in a line that is no JSON, if it looks like an answer to a request.
pub(super) fn id_in(line: &[u8]) -> Option<String> {
    let is_answer = |name: &[u8]| memchr::memmem::find(line, name).is_some();
    if !line.starts_with(b"{") || !(is_answer(b"\"result\"") || is_answer(b"\"error\"")) {
        return None;
    }
    let mut scan = IdScan::default();
    scan.push(line);
    scan.id()
}

/// Finds the member `id` of an object that is not stored.
#[derive(Debug, Default)]
struct IdScan {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The last string of the outermost object, or the number after `"id":`.
    text: Vec<u8>,
    state: ScanState,
    id: Option<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    Key,
    Value,
    IdValue,
}

impl IdScan {
    fn push(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.push_byte(byte));
    }

    fn push_byte(&mut self, byte: u8) {
        if self.in_string {
            let ends = byte == b'"' && !self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            self.keep(byte);
            self.in_string = !ends;
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    self.text.clear();
                }
                self.keep(byte);
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.state = match self.text.as_slice() {
                    br#""id""# => ScanState::IdValue,
                    _ => ScanState::Value,
                };
                self.text.clear();
            }
            b',' if self.depth == 1 => self.end_value(),
            digit if digit.is_ascii_digit() || digit == b'-' => self.keep(digit),
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.text.len() < MAX_ID_BYTES {
            self.text.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.state == ScanState::IdValue && !self.text.is_empty() {
            self.id = String::from_utf8(std::mem::take(&mut self.text)).ok();
        }
        self.text.clear();
        self.state = ScanState::Key;
    }

    fn id(self) -> Option<String> {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &str, max_bytes: usize) -> Vec<String> {
        let rate = ReadRate::new(&"server".into(), 1000);
        let mut reader = LineReader::new(input.as_bytes(), max_bytes, rate);
        let mut found = Vec::new();
        while reader.next().await.unwrap().is_some() {
            found.push(match reader.take() {
                Line::Whole(line) => String::from_utf8(line.to_vec()).unwrap(),
                Line::TooLong(id) => format!("too long: {id:?}"),
            });
        }
        found
    }

    #[test]
    fn the_id_of_an_answer_that_is_no_json_is_found() {
        for (line, id) in [
            (
                r#"{"jsonrpc":"2.0","id":7,"result":{"structuredContent":{"mean":NaN}}}"#,
                Some("7"),
            ),
            (r#"{"result":{"x":Infinity},"id":"a"}"#, Some("\"a\"")),
            (r#"{"id":7,"method":"m","params":NaN}"#, None),
            (r#"[1, 2"#, None),
            ("Starting up: {\"id\": 7, \"result\": 1", None),
        ] {
            assert_eq!(id_in(line.as_bytes()).as_deref(), id, "{line}");
        }
    }

    #[tokio::test]
    async fn lines_come_whole_and_blank_ones_are_left_out() {
        let found = lines("{\"a\":1}\r\n\n  \nnoise\n{\"b\"", 100).await;
        assert_eq!(found, [r#"{"a":1}"#, "noise"]);
    }

    #[tokio::test]
    async fn the_id_of_a_line_that_is_too_long_is_found_wherever_it_stands() {
        let long = "x".repeat(200);
        for (line, id) in [
            (
                format!(r#"{{"id":7,"result":{{"id":8,"text":"{long}"}}}}"#),
                Some("7"),
            ),
            (
                format!(
                    r#"{{"result":{{"id":8,"text":"}}\"{long}"}},"jsonrpc":"2.0","id":"a-1"}}"#
                ),
                Some("\"a-1\""),
            ),
            (
                format!(r#"{{"result":["{long}"], "id" : 12 }}"#),
                Some("12"),
            ),
            (
                format!(r#"{{"method":"m","params":{{"id":1,"t":"{long}"}}}}"#),
                None,
            ),
            (long.clone(), None),
        ] {
            let found = lines(&format!("{line}\n{{}}\n"), 64).await;
            let expected = format!("too long: {:?}", id.map(ToOwned::to_owned));
            assert_eq!(found, [expected, "{}".to_owned()], "{line}");
        }
    }
}
