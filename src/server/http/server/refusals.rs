//! Gives the refusals of the HTTP library a body. It refuses heads that it cannot parse before any of our code sees the
//! request, with a bare status.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use crate::http::edge::REQUEST_ID;
use crate::http::error::ApiError;
use protocol::ids::RequestId;

/// A stream that replaces the refusals of the HTTP library by error responses of this server.
#[derive(Debug)]
pub(super) struct Refusals<S> {
    stream: S,
    activity: Arc<Activity>,
    /// Whether the last response is written completely, so that the next bytes begin another one.
    settled: bool,
    /// The rest of the text that replaces a refusal.
    replacement: Option<Bytes>,
}

impl<S> Refusals<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            settled: true,
            replacement: None,
        }
    }
}

impl<S: AsyncWrite + Unpin> Refusals<S> {
    /// Writes the replacement of a refusal, which begins with `data`; `None` if this is no refusal. The refusal counts as
    /// written when its replacement is.
    fn poll_replaced(
        &mut self,
        data: &[u8],
        length: usize,
        context: &mut Context<'_>,
    ) -> Option<Poll<io::Result<usize>>> {
        if self.replacement.is_none() {
            // The library refuses before a request begins.
            let may_refuse = std::mem::replace(&mut self.settled, false) && self.activity.waits();
            self.replacement = Some(may_refuse.then(|| replacement(data)).flatten()?);
        }
        Some(self.poll_replacement(length, context))
    }

    fn poll_replacement(
        &mut self,
        length: usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        while let Some(left) = self.replacement.as_mut().filter(Buf::has_remaining) {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, left))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            left.advance(written);
        }
        self.replacement = None;
        Poll::Ready(Ok(length))
    }
}

/// The response in place of a refusal; `None` if the data begins no refusal. Every response of this server has an id, and
/// refusals have none.
fn replacement(data: &[u8]) -> Option<Bytes> {
    let head = std::str::from_utf8(data).ok()?;
    let rest = head.strip_prefix("HTTP/1.1 ")?;
    if !head.ends_with("\r\n\r\n") || head.contains(REQUEST_ID.as_str()) {
        return None;
    }
    let status = StatusCode::from_bytes(rest.as_bytes().get(..3)?).ok()?;
    let error = ApiError::unparsed_head(status)?;
    let status = error.status();
    let body = error.envelope();
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{REQUEST_ID}: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        RequestId::fresh().as_str(),
        body.len(),
    );
    tracing::debug!(%status, "the head of a request cannot be parsed");
    Some(response.into())
}

impl<S: AsyncRead + Unpin> AsyncRead for Refusals<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Refusals<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_replaced(data, data.len(), context) {
            Some(written) => written,
            None => Pin::new(&mut self.stream).poll_write(context, data),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = parts.first().map_or(&[][..], |part| part);
        let length = parts.iter().map(|part| part.len()).sum();
        match self.poll_replaced(first, length, context) {
            Some(written) => written,
            None => Pin::new(&mut self.stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        self.settled = self.activity.waits();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_of_the_library_are_replaced() {
        let bare =
            |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\ndate: x\r\n\r\n");
        for (refusal, status, code) in [
            ("400 Bad Request", "400 Bad Request", "null"),
            (
                "431 Request Header Fields Too Large",
                "431 Request Header Fields Too Large",
                "\"request_header_fields_too_large\"",
            ),
            (
                "414 URI Too Long",
                "431 Request Header Fields Too Large",
                "\"request_header_fields_too_large\"",
            ),
        ] {
            let response = replacement(bare(refusal).as_bytes()).unwrap();
            let response = String::from_utf8(response.to_vec()).unwrap();
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{head}"
            );
            assert!(head.contains("\r\nx-request-id: req_"), "{head}");
            assert!(head.contains(&format!("content-length: {}", body.len())));
            assert!(body.contains(&format!("\"code\":{code}")), "{body}");
        }
        let ours = "HTTP/1.1 400 Bad Request\r\nx-request-id: a\r\ncontent-length: 0\r\n\r\n";
        for kept in [
            ours,
            &bare("200 OK"),
            &bare("502 Bad Gateway"),
            "data: x\r\n\r\n",
            "",
        ] {
            assert_eq!(replacement(kept.as_bytes()), None, "{kept}");
        }
    }
}
