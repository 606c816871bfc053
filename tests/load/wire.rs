//! One end of an HTTP/1.1 connection, with just enough parsing for both sides of the load test.
//!
//! Owns the framing of messages: heads, fixed lengths and chunks. It knows neither methods nor what a body means.
//! It is written by hand so that the harness costs little beside what it measures.

use std::{net::SocketAddr, ops::ControlFlow, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use memchr::memmem;
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Enough for most messages in one read; the buffer grows for longer ones.
const BUFFER_BYTES: usize = 16 * 1024;

/// A head longer than this is not one that the load test sends or expects.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// How the end of a body is found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Length {
    /// That many bytes.
    Fixed(usize),
    /// Chunks up to an empty one.
    Chunked,
}

/// A connection and what has been read from it ahead of use.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    first_line: Vec<u8>,
    joined: Vec<u8>,
}

impl Peer {
    /// Takes over an open connection.
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true).context("setting TCP_NODELAY")?;
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            first_line: Vec::new(),
            joined: Vec::new(),
        })
    }

    /// Opens a connection.
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        Self::new(stream)
    }

    /// Sends bytes that are already framed.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await.context("sending")
    }

    /// Ends the connection without a proper end.
    pub(crate) fn reset(&self) -> Result<()> {
        SockRef::from(&self.stream)
            .set_linger(Some(Duration::ZERO))
            .context("setting SO_LINGER")?;
        bail!("reset on purpose")
    }

    /// Reads the next head. `None` when the other side has closed between two messages.
    pub(crate) async fn head(&mut self) -> Result<Option<Length>> {
        let length = loop {
            let unread = self.unread();
            if let Some(at) = memmem::find(unread, b"\r\n\r\n") {
                break at;
            }
            ensure!(unread.len() < MAX_HEAD_BYTES, "the head is too long");
            let clean = unread.is_empty();
            if self.fill().await? == 0 {
                ensure!(clean, "the connection ended within a head");
                return Ok(None);
            }
        };
        let head = self
            .buffer
            .get(self.start..self.start + length)
            .unwrap_or_default();
        let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        self.first_line.clear();
        self.first_line
            .extend_from_slice(lines.next().unwrap_or_default());
        let mut framing = Length::Fixed(0);
        for line in lines {
            let Some(colon) = memchr::memchr(b':', line) else {
                continue;
            };
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            if name.eq_ignore_ascii_case(b"content-length") {
                framing = Length::Fixed(number(value, 10)?);
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                framing = Length::Chunked;
            }
        }
        self.start += length + 4;
        Ok(Some(framing))
    }

    /// The request or status line of the last head.
    pub(crate) fn first_line(&self) -> &[u8] {
        &self.first_line
    }

    /// The status of the last head, 0 when it has none.
    pub(crate) fn status(&self) -> u16 {
        self.first_line
            .get(9..12)
            .and_then(|digits| number(digits, 10).ok())
            .and_then(|status| u16::try_from(status).ok())
            .unwrap_or(0)
    }

    /// Hands over a body piece by piece as it arrives. After a `Break` the connection cannot be used for another message.
    pub(crate) async fn body(
        &mut self,
        length: Length,
        mut piece: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        match length {
            Length::Fixed(bytes) => self.stretch(bytes, &mut piece).await,
            Length::Chunked => loop {
                let bytes = self.chunk_size().await?;
                if bytes == 0 {
                    while self.line().await? > 0 {}
                    return Ok(ControlFlow::Continue(()));
                }
                if self.stretch(bytes, &mut piece).await?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                ensure!(self.line().await? == 0, "a chunk is longer than it says");
            },
        }
    }

    /// Reads a body as one piece.
    pub(crate) async fn whole(&mut self, length: Length) -> Result<&[u8]> {
        match length {
            Length::Fixed(bytes) => {
                while self.end - self.start < bytes {
                    ensure!(self.fill().await? > 0, "the connection ended within a body");
                }
                let from = self.start;
                self.start += bytes;
                Ok(self.buffer.get(from..self.start).unwrap_or_default())
            }
            Length::Chunked => {
                let mut joined = std::mem::take(&mut self.joined);
                joined.clear();
                let _ = self
                    .body(length, |piece| {
                        joined.extend_from_slice(piece);
                        ControlFlow::Continue(())
                    })
                    .await?;
                self.joined = joined;
                Ok(&self.joined)
            }
        }
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    async fn fill(&mut self) -> Result<usize> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.end == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = self.stream.read(room).await.context("reading")?;
        self.end += read;
        Ok(read)
    }

    async fn stretch(
        &mut self,
        mut bytes: usize,
        piece: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        while bytes > 0 {
            let unread = self.unread();
            let here = unread.get(..bytes).unwrap_or(unread);
            let taken = here.len();
            if taken > 0 {
                let flow = piece(here);
                self.start += taken;
                bytes -= taken;
                if flow.is_break() {
                    return Ok(flow);
                }
            } else {
                ensure!(self.fill().await? > 0, "the connection ended within a body");
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Consumes a line and returns its length without the line end.
    async fn line(&mut self) -> Result<usize> {
        loop {
            if let Some(at) = memmem::find(self.unread(), b"\r\n") {
                self.start += at + 2;
                return Ok(at);
            }
            if self.fill().await? == 0 {
                bail!("the connection ended within a chunk");
            }
        }
    }

    async fn chunk_size(&mut self) -> Result<usize> {
        let length = self.line().await?;
        let from = self.start - length - 2;
        let line = self
            .buffer
            .get(from..from + length)
            .unwrap_or_default()
            .split(|byte| *byte == b';')
            .next()
            .unwrap_or_default();
        number(line, 16)
    }
}

fn number(digits: &[u8], radix: u32) -> Result<usize> {
    let text = std::str::from_utf8(digits.trim_ascii()).context("a length is not text")?;
    usize::from_str_radix(text, radix).with_context(|| format!("{text:?} is not a length"))
}
