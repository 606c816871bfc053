//! Event streams, read frame by frame while they arrive.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;
use reqwest::Response;
use serde_json::Value;

use super::collect::Collected;
use super::described::check_line;
use super::stream_check::StreamCheck;
use super::within;

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The `event:` line.
    pub(crate) event: Option<String>,
    /// The `id:` line.
    pub(crate) id: Option<String>,
    /// The `data:` lines, joined.
    pub(crate) data: String,
    /// Comment lines that came before or inside.
    pub(crate) comments: Vec<String>,
    /// Lines that should not be there, in words.
    pub(crate) oddities: Vec<String>,
}

/// Reads an event stream while it arrives. Dropping it closes the connection.
#[derive(Debug)]
pub(crate) struct EventReader {
    response: Response,
    buffer: Vec<u8>,
    lines: VecDeque<String>,
    open: Frame,
    has_data: bool,
    finished: bool,
    check: StreamCheck,
    /// Whether the document of the binary describes the lines.
    described: bool,
}

impl EventReader {
    /// Reads the body of an answer as an event stream.
    pub(crate) fn new(response: Response) -> Self {
        Self {
            response,
            buffer: Vec::new(),
            lines: VecDeque::new(),
            open: Frame::default(),
            has_data: false,
            finished: false,
            check: StreamCheck::default(),
            described: false,
        }
    }

    /// Reads the event log of a run, whose events are numbered.
    pub(crate) fn of_log(response: Response) -> Self {
        let mut reader = Self::new(response);
        reader.check.numbered();
        reader
    }

    /// The same reader; whether it holds the lines against the document of the binary is up to the caller.
    pub(crate) fn described(mut self, described: bool) -> Self {
        self.described = described;
        self
    }

    /// The headers of the answer.
    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next event; `None` at the clean end of the stream.
    pub(crate) async fn next_frame(&mut self) -> Option<Frame> {
        match within("the next event of a stream", self.advance()).await {
            Ok(frame) => frame,
            Err(error) => panic!("the stream broke off: {error}\n{}", self.check.transcript()),
        }
    }

    /// The next event that is JSON; fails the test at the end of the stream.
    pub(crate) async fn next_chunk(&mut self) -> Value {
        let frame = self.next_frame().await.expect("one more event");
        match serde_json::from_str(&frame.data) {
            Ok(chunk) => chunk,
            Err(error) => panic!("no JSON ({error}): {frame:?}"),
        }
    }

    /// Reads events until one has visible text, and gives that text.
    pub(crate) async fn next_text(&mut self) -> String {
        loop {
            let chunk = self.next_chunk().await;
            match chunk["choices"][0]["delta"]["content"].as_str() {
                Some("") | None => {}
                Some(text) => return text.to_owned(),
            }
        }
    }

    /// Reads events until one is a progress event of this type and phase, and gives it.
    pub(crate) async fn next_progress(&mut self, kind: &str, phase: &str) -> Value {
        loop {
            let chunk = self.next_chunk().await;
            if chunk["type"] == kind && chunk["phase"] == phase {
                return chunk;
            }
        }
    }

    /// Waits for a comment line, whether or not an event follows; events before it fail the test.
    pub(crate) async fn next_comment(&mut self) -> String {
        let comments = self.open.comments.len();
        let arrived = async {
            while self.open.comments.len() == comments {
                if self.lines.is_empty() {
                    self.receive().await.unwrap();
                    assert!(!self.finished, "the stream ended before the comment");
                }
                assert!(self.take_line().is_none(), "an event before the comment");
            }
        };
        within("a comment in a stream", arrived).await;
        self.open.comments[comments].clone()
    }

    /// Reads to the end and holds the whole stream against the contract.
    pub(crate) async fn collect(mut self) -> Collected {
        while self.next_frame().await.is_some() {}
        let (collected, problems) = self.check.finish();
        assert!(
            problems.is_empty(),
            "the stream breaks the contract:\n{}\n\n{}",
            problems.join("\n"),
            collected.transcript()
        );
        collected
    }

    /// Reads to the end and says what breaks the contract.
    pub(crate) async fn collect_with_problems(mut self) -> (Collected, Vec<String>) {
        while let Ok(Some(_)) = within("the next event of a stream", self.advance()).await {}
        self.check.finish()
    }

    /// The id of the run, as the head of a streamed answer of the loop has it.
    pub(crate) fn run_id(&self) -> String {
        let id = self.headers().get("x-completion-id");
        let id = id.expect("the head names the run").to_str().unwrap();
        id.to_owned()
    }

    /// Reads the rest as bytes, without a look at it; an error says how the stream broke off.
    pub(crate) async fn raw(mut self) -> (Bytes, Option<reqwest::Error>) {
        let mut bytes = std::mem::take(&mut self.buffer);
        loop {
            match within("the rest of a stream", self.response.chunk()).await {
                Ok(Some(more)) => bytes.extend_from_slice(&more),
                Ok(None) => return (bytes.into(), None),
                Err(error) => return (bytes.into(), Some(error)),
            }
        }
    }

    async fn advance(&mut self) -> Result<Option<Frame>, reqwest::Error> {
        loop {
            while !self.lines.is_empty() {
                if let Some(frame) = self.take_line() {
                    if self.described {
                        check_line(&frame.data);
                    }
                    self.check.feed(&frame);
                    return Ok(Some(frame));
                }
            }
            if self.finished {
                self.check.rest(&self.buffer, &self.open);
                return Ok(None);
            }
            self.receive().await?;
        }
    }

    /// Takes more bytes from the connection and splits off the whole lines.
    async fn receive(&mut self) -> Result<(), reqwest::Error> {
        match self.response.chunk().await? {
            Some(bytes) => self.buffer.extend_from_slice(&bytes),
            None => self.finished = true,
        }
        while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            self.lines.push_back(line.trim_end_matches('\n').to_owned());
        }
        Ok(())
    }

    /// Takes one line; a blank one completes an event.
    fn take_line(&mut self) -> Option<Frame> {
        let line = self.lines.pop_front()?;
        if line.is_empty() {
            if !self.has_data && self.open.event.is_none() {
                self.open
                    .oddities
                    .push("a blank line without an event".to_owned());
                return None;
            }
            if !self.has_data {
                self.open.oddities.push("an event without data".to_owned());
            }
            self.has_data = false;
            return Some(std::mem::take(&mut self.open));
        }
        if let Some(comment) = line.strip_prefix(':') {
            self.open.comments.push(comment.trim_start().to_owned());
        } else if let Some(event) = line.strip_prefix("event: ") {
            self.open.event = Some(event.to_owned());
        } else if let Some(id) = line.strip_prefix("id: ") {
            self.open.id = Some(id.to_owned());
        } else if let Some(data) = line.strip_prefix("data: ") {
            if self.has_data {
                self.open
                    .oddities
                    .push("two data lines in one event".to_owned());
                self.open.data.push('\n');
            }
            self.has_data = true;
            self.open.data.push_str(data);
        } else {
            self.open.oddities.push(format!("the line `{line}`"));
        }
        None
    }
}
