//! Server-sent events, read from bytes that arrive in pieces of any size.
//!
//! Pure and incremental: owns the line and event grammar and nothing else. What an event's data means, and when to
//! stop reading, is for the caller.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr2;

/// The byte order mark that may stand at the beginning of a stream.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The event's name, if it has one.
    pub event: Option<Box<str>>,
    /// The data lines, joined with line feeds; no valid UTF-8 is promised.
    pub data: Bytes,
}

/// Why a stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseError {
    /// A line or an event's data is longer than was allowed.
    #[error("an event is larger than {limit} bytes")]
    TooLarge {
        /// The most bytes that one event may have.
        limit: usize,
    },
}

/// Splits a byte stream into events.
///
/// Lines end with LF, CR or CRLF and with nothing else; a CR at the end of one piece and an LF at the beginning of the
/// next are one line end. An event with one data line that lies within one piece shares that piece's memory.
#[derive(Debug)]
pub struct SseDecoder {
    max_event_bytes: usize,
    chunk: Bytes,
    /// The beginning of a line whose end has not arrived.
    partial: BytesMut,
    /// The last line ended with the CR that ended its piece, so an LF that comes next belongs to it.
    after_carriage_return: bool,
    at_start: bool,
    failed: bool,
    event: Option<Box<str>>,
    data: Data,
    foreign: Option<Bytes>,
    resumption: Resumption,
}

/// How a stream is continued after its end: the last values of the fields `id` and `retry`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resumption {
    /// The id of the last event; no valid UTF-8 is promised.
    pub id: Option<Bytes>,
    /// The pause before the stream is opened again, in milliseconds.
    pub retry: Option<u64>,
}

/// The data lines of the event that is being read.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    One(Bytes),
    Joined(BytesMut),
}

impl SseDecoder {
    /// Makes a decoder that refuses lines and events larger than the given size.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            chunk: Bytes::new(),
            partial: BytesMut::new(),
            after_carriage_return: false,
            at_start: true,
            failed: false,
            event: None,
            data: Data::None,
            foreign: None,
            resumption: Resumption::default(),
        }
    }

    /// Takes the fields about continuing the stream since the last call; `None` if there were none.
    pub fn take_resumption(&mut self) -> Option<Resumption> {
        let said = std::mem::take(&mut self.resumption);
        (said != Resumption::default()).then_some(said)
    }

    /// Takes the first line since the last call that is not of an event stream: its field is not one of the standard.
    pub fn take_foreign_line(&mut self) -> Option<Bytes> {
        self.foreign.take()
    }

    /// Hands over the next piece of the stream.
    pub fn push(&mut self, chunk: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = chunk;
        } else if !chunk.is_empty() {
            let mut joined = BytesMut::with_capacity(self.chunk.len() + chunk.len());
            joined.extend_from_slice(&self.chunk);
            joined.extend_from_slice(&chunk);
            self.chunk = joined.freeze();
        }
    }

    /// Takes the next whole event from the pushed bytes; `None` until more bytes arrive.
    ///
    /// # Errors
    /// When a line or an event is too large; after that there are no more events.
    pub fn next_event(&mut self) -> Option<Result<SseEvent, SseError>> {
        if self.failed {
            return None;
        }
        if self.after_carriage_return && !self.chunk.is_empty() {
            self.after_carriage_return = false;
            if self.chunk.first() == Some(&b'\n') {
                self.chunk.advance(1);
            }
        }
        while let Some(end) = memchr2(b'\n', b'\r', &self.chunk) {
            let line = if self.partial.is_empty() {
                self.chunk.slice(..end)
            } else {
                self.partial.extend_from_slice(&self.chunk[..end]);
                self.partial.split().freeze()
            };
            self.skip_line_end(end);
            match self.take_line(line) {
                Ok(None) => {}
                Ok(Some(event)) => return Some(Ok(event)),
                Err(error) => return Some(Err(self.fail(error))),
            }
        }
        self.partial.extend_from_slice(&self.chunk);
        self.chunk = Bytes::new();
        if self.partial.len() > self.max_event_bytes {
            let limit = self.max_event_bytes;
            return Some(Err(self.fail(SseError::TooLarge { limit })));
        }
        None
    }

    /// Ends the stream: takes out a last event that no blank line ended. To be called once
    /// [`next_event`](Self::next_event) has nothing more.
    ///
    /// # Errors
    /// When that event is too large.
    pub fn finish(&mut self) -> Option<Result<SseEvent, SseError>> {
        if self.failed {
            return None;
        }
        if !self.partial.is_empty() {
            let line = self.partial.split().freeze();
            if let Err(error) = self.take_line(line) {
                return Some(Err(self.fail(error)));
            }
        }
        self.dispatch().map(Ok)
    }

    /// Moves past the line end at the given place.
    fn skip_line_end(&mut self, end: usize) {
        let carriage_return = self.chunk.get(end) == Some(&b'\r');
        let next = self.chunk.get(end + 1).copied();
        self.after_carriage_return = carriage_return && next.is_none();
        let width = if carriage_return && next == Some(b'\n') {
            2
        } else {
            1
        };
        self.chunk.advance(end + width);
    }

    fn take_line(&mut self, mut line: Bytes) -> Result<Option<SseEvent>, SseError> {
        self.check_size(line.len())?;
        let mut start = 0;
        if std::mem::take(&mut self.at_start) && line.starts_with(BOM) {
            start = BOM.len();
        }
        let text = &line[start..];
        if text.is_empty() {
            return Ok(self.dispatch());
        }
        if let Some(rest) = text.strip_prefix(b"data") {
            let skip = match rest {
                [] => 0,
                [b':', b' ', ..] => 2,
                [b':', ..] => 1,
                _ => return Ok(self.keep_foreign(line, start)),
            };
            line.advance(start + 4 + skip);
            self.add_data(line)?;
        } else if let Some(rest) = text.strip_prefix(b"event") {
            let name = match rest {
                [b':', b' ', name @ ..] | [b':', name @ ..] => name,
                _ => rest,
            };
            if rest.is_empty() || rest.first() == Some(&b':') {
                self.event =
                    (!name.is_empty()).then(|| String::from_utf8_lossy(name).as_ref().into());
            } else {
                return Ok(self.keep_foreign(line, start));
            }
        } else {
            line.advance(start);
            self.take_other(line);
        }
        Ok(None)
    }

    /// Takes a comment, a field that is about the stream, or a line that is not of an event stream.
    fn take_other(&mut self, mut line: Bytes) {
        let field = line.iter().position(|byte| *byte == b':');
        match field.map_or(&line[..], |end| &line[..end]) {
            b"" => {}
            name @ (b"id" | b"retry") => {
                let is_id = name == b"id";
                line.advance(field.map_or(line.len(), |end| end + 1));
                if line.first() == Some(&b' ') {
                    line.advance(1);
                }
                if is_id {
                    self.resumption.id = Some(line);
                } else if let Ok(text) = std::str::from_utf8(&line) {
                    self.resumption.retry = text.parse().ok().or(self.resumption.retry);
                }
            }
            _ => {
                self.foreign.get_or_insert(line);
            }
        }
    }

    fn keep_foreign(&mut self, mut line: Bytes, start: usize) -> Option<SseEvent> {
        line.advance(start);
        self.foreign.get_or_insert(line);
        None
    }

    fn add_data(&mut self, value: Bytes) -> Result<(), SseError> {
        self.data = match std::mem::take(&mut self.data) {
            Data::None => Data::One(value),
            Data::One(first) => {
                let mut joined = BytesMut::with_capacity(first.len() + value.len() + 1);
                joined.extend_from_slice(&first);
                append_line(&mut joined, &value);
                Data::Joined(joined)
            }
            Data::Joined(mut joined) => {
                append_line(&mut joined, &value);
                Data::Joined(joined)
            }
        };
        match &self.data {
            Data::Joined(joined) => self.check_size(joined.len()),
            Data::None | Data::One(_) => Ok(()),
        }
    }

    fn check_size(&self, bytes: usize) -> Result<(), SseError> {
        if bytes > self.max_event_bytes {
            return Err(SseError::TooLarge {
                limit: self.max_event_bytes,
            });
        }
        Ok(())
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let event = self.event.take();
        let data = match std::mem::take(&mut self.data) {
            Data::None => return None,
            Data::One(data) => data,
            Data::Joined(data) => data.freeze(),
        };
        Some(SseEvent { event, data })
    }

    fn fail(&mut self, error: SseError) -> SseError {
        self.failed = true;
        self.chunk = Bytes::new();
        self.partial = BytesMut::new();
        self.data = Data::None;
        error
    }
}

fn append_line(joined: &mut BytesMut, line: &[u8]) {
    joined.extend_from_slice(b"\n");
    joined.extend_from_slice(line);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Read = Vec<Result<(Option<String>, Vec<u8>), SseError>>;

    fn read(pieces: &[&[u8]], max: usize) -> Read {
        let mut decoder = SseDecoder::new(max);
        let mut events = Vec::new();
        for piece in pieces {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(event) = decoder.next_event() {
                events.push(event);
            }
        }
        events.extend(decoder.finish());
        events
            .into_iter()
            .map(|event| event.map(|event| (event.event.map(String::from), event.data.to_vec())))
            .collect()
    }

    fn check(stream: &str, expected: &[(Option<&str>, &str)]) {
        let expected: Read = expected
            .iter()
            .map(|(name, data)| Ok((name.map(str::to_owned), data.as_bytes().to_vec())))
            .collect();
        assert_eq!(read(&[stream.as_bytes()], 1024), expected, "{stream:?}");
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes, 1024), expected, "{stream:?} byte by byte");
    }

    #[test]
    fn the_grammar_is_read_as_the_standard_has_it() {
        check("data: a\n\ndata:b\n\n", &[(None, "a"), (None, "b")]);
        check("data: a\r\n\r\ndata: b\r\r", &[(None, "a"), (None, "b")]);
        check("data: a\r\rdata: b\n\r\n", &[(None, "a"), (None, "b")]);
        check("data: a\ndata:  b\ndata\ndata:\n\n", &[(None, "a\n b\n\n")]);
        check(
            "event: x\ndata: 1\n\ndata: 2\n\n",
            &[(Some("x"), "1"), (None, "2")],
        );
        check(
            "event: x\n\ndata: 2\nevent\n\nevent:y\ndata:3\n\n",
            &[(None, "2"), (Some("y"), "3")],
        );
        check(
            ": hi\nid: 7\nretry: 9\ndatax: 1\neventx: 2\nfoo\ndata: a\n\n",
            &[(None, "a")],
        );
        check("\u{feff}data: a\n\n", &[(None, "a")]);
        check("data: a\n\n\u{feff}data: b\n\n", &[(None, "a")]);
        check(
            "data: a\u{2028}b\u{2029}c\u{85}d\u{b}\n\n",
            &[(None, "a\u{2028}b\u{2029}c\u{85}d\u{b}")],
        );
        check("data:\n\n", &[(None, "")]);
        check("\n\n\r\n", &[]);
    }

    #[test]
    fn the_first_line_that_is_not_of_the_standard_is_kept() {
        for (stream, expected) in [
            (": a\nid: 1\nretry\n:\ndata: x\nevent: y\n\n", None),
            ("data: x\nerror: {}\nfoo\n\n", Some("error: {}")),
            ("\u{feff}<html>\n", Some("<html>")),
            ("datax: 1\n", Some("datax: 1")),
            ("eventx", Some("eventx")),
        ] {
            let mut decoder = SseDecoder::new(1024);
            decoder.push(Bytes::from(stream));
            while decoder.next_event().is_some() {}
            decoder.finish();
            let line = decoder.take_foreign_line();
            assert_eq!(line.as_deref(), expected.map(str::as_bytes), "{stream:?}");
            assert_eq!(decoder.take_foreign_line(), None);
        }
    }

    #[test]
    fn an_unterminated_last_event_is_flushed() {
        check("data: a\n\ndata: b", &[(None, "a"), (None, "b")]);
        check("data: a\ndata: b\n", &[(None, "a\nb")]);
        check("data: a\r", &[(None, "a")]);
        check("event: x\n", &[]);
    }

    #[test]
    fn an_event_ends_with_the_first_half_of_a_line_end() {
        let mut decoder = SseDecoder::new(100);
        decoder.push("data: a\r\n\r".into());
        assert_eq!(
            decoder.next_event().unwrap().unwrap().data,
            Bytes::from("a")
        );
        decoder.push("\ndata: b\n\n".into());
        assert_eq!(
            decoder.next_event().unwrap().unwrap().data,
            Bytes::from("b")
        );
    }

    #[test]
    fn data_within_one_piece_is_not_copied() {
        let piece = Bytes::from("data: hello\n\n".to_owned());
        let mut decoder = SseDecoder::new(100);
        decoder.push(piece.clone());
        let event = decoder.next_event().unwrap().unwrap();
        assert_eq!(event.data.as_ptr(), piece.slice(6..).as_ptr());
    }

    #[test]
    fn what_is_too_large_ends_the_stream_with_an_error() {
        let error = Err(SseError::TooLarge { limit: 10 });
        for stream in [
            "data: 1\n\ndata: 34567890\n\ndata: 2\n\n",
            "data: 1\n\ndata: 34567890",
            "data: 1\n\ndata: 345\ndata: 345\ndata: 3456\n\n",
        ] {
            let expected = vec![Ok((None, b"1".to_vec())), error.clone()];
            assert_eq!(read(&[stream.as_bytes()], 10), expected, "{stream:?}");
        }
    }

    #[test]
    fn pieces_pushed_before_reading_are_joined() {
        let mut decoder = SseDecoder::new(100);
        decoder.push("data: a\n".into());
        decoder.push("\ndata: b\n\n".into());
        assert_eq!(
            decoder.next_event().unwrap().unwrap().data,
            Bytes::from("a")
        );
        assert_eq!(
            decoder.next_event().unwrap().unwrap().data,
            Bytes::from("b")
        );
        assert_eq!(decoder.next_event(), None);
    }

    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            Just(b"data:".to_vec()),
            Just(b"data: ".to_vec()),
            Just(b"event: e".to_vec()),
            Just(b"\n".to_vec()),
            Just(b"\r".to_vec()),
            Just(b"\r\n".to_vec()),
            Just(b"\n\n".to_vec()),
            Just(b":".to_vec()),
            Just(BOM.to_vec()),
            Just("\u{2028}".as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..6),
            "[a-z{}\"]{0,8}".prop_map(String::into_bytes),
        ];
        prop::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn any_split_gives_the_events_of_the_whole(
            stream in stream(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
            max in prop_oneof![Just(8_usize), Just(1024)],
        ) {
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            places.extend([0, stream.len()]);
            places.sort_unstable();
            let pieces: Vec<&[u8]> = places.windows(2).map(|pair| &stream[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces, max), read(&[&stream], max));
        }
    }
}
