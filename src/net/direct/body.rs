//! Bodies of responses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::uri::Authority;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::ConnectionPool;
use super::connection::DrivenConnection;

/// Size up to which a frame takes what else has arrived, in bytes and about.
const FULL_FRAME: usize = 16 * 1024;
/// Size of a frame that takes more than one chunk, in bytes and at first.
const JOINED_FRAME: usize = 4 * 1024;

/// The body of a response. Reading it drives the connection, which goes back to the pool at the end of the body.
pub(crate) struct DirectBody {
    incoming: Incoming,
    connection: Option<DrivenConnection>,
    origin: Authority,
    pool: Arc<ConnectionPool>,
    /// What follows the last frame.
    end: Option<Result<(), hyper::Error>>,
}

impl DirectBody {
    pub(super) fn new(
        incoming: Incoming,
        connection: DrivenConnection,
        origin: Authority,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        Self {
            incoming,
            connection: Some(connection),
            origin,
            pool,
            end: None,
        }
    }

    /// Drives the connection and polls for the next chunk.
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        let incoming = &mut self.incoming;
        match &mut self.connection {
            Some(connection) => {
                connection.poll_driven(context, |context| poll_data(incoming, context))
            }
            None => poll_data(incoming, context),
        }
    }

    /// Joins further data that has arrived to a chunk.
    fn join(&mut self, first: Bytes, context: &mut Context<'_>) -> Bytes {
        let mut joined: Option<BytesMut> = None;
        let mut size = first.len();
        while size < FULL_FRAME && self.end.is_none() {
            match self.poll_chunk(context) {
                Poll::Ready(Some(Ok(more))) => {
                    size += more.len();
                    let joined = joined.get_or_insert_with(|| {
                        let mut joined = BytesMut::with_capacity(size.max(JOINED_FRAME));
                        joined.extend_from_slice(&first);
                        joined
                    });
                    joined.extend_from_slice(&more);
                }
                Poll::Ready(Some(Err(error))) => self.end = Some(Err(error)),
                Poll::Ready(None) => self.finish(),
                Poll::Pending => break,
            }
        }
        joined.map_or(first, BytesMut::freeze)
    }

    /// Ends the body. A connection that can take another request goes back to the pool.
    fn finish(&mut self) {
        self.end = Some(Ok(()));
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        // A connection that waits for more is not usable.
        if connection.is_usable_after_body() {
            self.pool.put(self.origin.clone(), connection);
        }
    }
}

/// Polls for the next data of a body; trailers are left out.
fn poll_data(
    body: &mut Incoming,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, hyper::Error>>> {
    loop {
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => return Poll::Ready(Some(Ok(data))),
            Some(Ok(Err(_trailers))) => {}
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        }
    }
}

impl Body for DirectBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.end.take() {
            None => {}
            Some(Ok(())) => {
                self.end = Some(Ok(()));
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                self.end = Some(Ok(()));
                return Poll::Ready(Some(Err(error)));
            }
        }
        match ready!(self.poll_chunk(context)) {
            Some(Ok(first)) => {
                if self.incoming.is_end_stream() {
                    self.finish();
                }
                let data = self.join(first, context);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Some(Err(error)) => {
                self.end = Some(Ok(()));
                Poll::Ready(Some(Err(error)))
            }
            None => {
                self.finish();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, Some(Ok(())))
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for DirectBody {
    fn drop(&mut self) {
        if self.incoming.is_end_stream() {
            self.finish();
        }
    }
}
