//! A connection that its owner polls.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::RequestBody;
use crate::polling::WakeFilter;

type ClientConnection = Connection<TokioIo<TcpStream>, RequestBody>;

/// A connection that makes progress only while its owner polls it.
pub(super) struct DrivenConnection {
    sender: SendRequest<RequestBody>,
    /// `None` once it has ended.
    connection: Option<Pin<Box<ClientConnection>>>,
    wake_filter: WakeFilter,
}

impl DrivenConnection {
    pub(super) async fn new(socket: TokioIo<TcpStream>) -> hyper::Result<Self> {
        let (sender, connection) = http1::handshake(socket).await?;
        Ok(Self {
            sender,
            connection: Some(Box::pin(connection)),
            wake_filter: WakeFilter::default(),
        })
    }

    /// Lets the connection make progress, and polls its result, unless both were pending and nothing has woken them
    /// since.
    pub(super) fn poll_driven<T>(
        &mut self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let connection = &mut self.connection;
        self.wake_filter.poll(context, |context| {
            if let Some(open) = connection
                && open.as_mut().poll(context).is_ready()
            {
                *connection = None;
            }
            poll(context)
        })
    }

    /// Sends a request and waits for the head of the response. A request that was not sent comes back with the error.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let sender = &mut self.sender;
        let sent = self
            .wake_filter
            .before_poll(|| sender.try_send_request(request));
        let mut sent = pin!(sent);
        poll_fn(|context| self.poll_driven(context, |context| sent.as_mut().poll(context))).await
    }

    /// Lets the connection notice that a body has ended, and says whether it is open and has no request.
    pub(super) fn is_usable_after_body(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.wake_filter.before_poll(|| ());
        let _driven = self.poll_driven(&mut context, |_| Poll::Ready(()));
        self.is_usable()
    }

    /// Whether it is open and has no request.
    pub(super) fn is_usable(&self) -> bool {
        self.connection.is_some() && self.sender.is_ready()
    }
}
