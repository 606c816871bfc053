//! An HTTP/1.1 server on a loopback port whose answers can wait, stall, break off or reset the connection.
//!
//! Knows nothing of what is said: the scripted model server and the scripted webhook put their words on top.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use async_stream::stream;
use bytes::Bytes;
use futures_util::future::{BoxFuture, pending};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::within;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Makes the answer to one request.
pub(crate) type Handler = Arc<dyn Fn(Arrived) -> BoxFuture<'static, Outgoing> + Send + Sync>;

/// A request that has come in; its body may still be on the way.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// The request.
    pub(crate) request: Request<Incoming>,
    /// Tells how the exchange ends.
    pub(crate) outcome: watch::Receiver<Outcome>,
}

/// How an exchange stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The answer is not complete yet.
    Running,
    /// The answer was given to its end, or to where the script breaks it off.
    Complete,
    /// The peer went away before.
    Dropped,
}

/// What goes back.
pub(crate) enum Outgoing {
    /// A scripted answer.
    Scripted(HttpReply),
    /// A ready response, for echoes that must not be held back.
    Response(Response<Body>),
}

/// A scripted answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpReply {
    /// The status; 0 is 200.
    pub(crate) status: u16,
    /// The headers.
    pub(crate) headers: Vec<(String, String)>,
    /// What happens before the head is sent; bytes are not allowed here.
    pub(crate) before_head: Vec<Part>,
    /// The body, part by part; a body of one piece of bytes is sent with its length, anything else in chunks.
    pub(crate) body: Vec<Part>,
}

/// A step of an answer.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// Sends bytes.
    Bytes(Bytes),
    /// Waits until the test lets one pass.
    Wait(Gate),
    /// Says nothing more and keeps the connection open.
    Hang,
    /// Closes the connection in the middle of the answer.
    Cut,
    /// Resets the connection (RST) in the middle of the answer.
    Reset,
}

/// A point where an answer waits until the test lets it go on. Clones are the same gate.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    permits: Semaphore,
    arrived: watch::Sender<usize>,
}

/// A running server; it ends with this handle.
#[derive(Debug)]
pub(crate) struct Server {
    addr: SocketAddr,
    _tasks: JoinSet<()>,
}

/// Marks an exchange as dropped unless it has been completed.
#[derive(Debug)]
struct Guard(watch::Sender<Outcome>);

/// A socket that can be told to end with a reset.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Gate {
    /// A closed gate.
    pub(crate) fn new() -> Self {
        Self(Arc::new(GateState {
            permits: Semaphore::new(0),
            arrived: watch::Sender::new(0),
        }))
    }

    /// Lets `count` waiters pass, now or later.
    pub(crate) fn release(&self, count: usize) {
        self.0.permits.add_permits(count);
    }

    /// Lets everybody pass from now on.
    pub(crate) fn open(&self) {
        self.0.permits.close();
    }

    /// Waits until `count` answers in all have come to the gate.
    pub(crate) async fn reached(&self, count: usize) {
        let mut arrived = self.0.arrived.subscribe();
        within(
            &format!("a gate to be reached {count} times"),
            arrived.wait_for(|seen| *seen >= count),
        )
        .await
        .unwrap();
    }

    pub(crate) async fn pass(&self) {
        self.0.arrived.send_modify(|seen| *seen += 1);
        if let Ok(permit) = self.0.permits.acquire().await {
            permit.forget();
        }
    }
}

impl Server {
    /// Starts a server on a free loopback port.
    pub(crate) async fn start(handler: Handler) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), handler).await
    }

    /// Starts a server where another one was.
    pub(crate) async fn start_at(addr: SocketAddr, handler: Handler) -> Self {
        let listener = TcpListener::bind(addr).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, handler));
        Self {
            addr,
            _tasks: tasks,
        }
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl HttpReply {
    /// An answer of one piece.
    pub(crate) fn whole(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: vec![Part::Bytes(body.into())],
            ..Self::default()
        }
    }
}

/// Waits for the end of an exchange.
pub(crate) async fn ended(mut outcome: watch::Receiver<Outcome>) -> Outcome {
    match outcome.wait_for(|state| *state != Outcome::Running).await {
        Ok(state) => *state,
        Err(_) => Outcome::Dropped,
    }
}

async fn accept(listener: TcpListener, handler: Handler) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                connections.spawn(serve(stream, handler.clone()));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn serve(stream: TcpStream, handler: Handler) {
    // Small frames must leave at once, as they do from every model server.
    stream.set_nodelay(true).unwrap();
    let reset = Arc::new(AtomicBool::new(false));
    let socket = Socket {
        stream,
        reset: reset.clone(),
    };
    let service = service_fn(move |request| answer(request, handler.clone(), reset.clone()));
    // The error is the break-off that the script asked for, or a peer that went away.
    let _ended = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(socket), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    handler: Handler,
    reset: Arc<AtomicBool>,
) -> Result<Response<Body>, io::Error> {
    let sender = watch::Sender::new(Outcome::Running);
    let outcome = sender.subscribe();
    let guard = Guard(sender);
    let reply = match handler(Arrived { request, outcome }).await {
        Outgoing::Response(response) => {
            guard.complete();
            return Ok(response);
        }
        Outgoing::Scripted(reply) => reply,
    };
    for part in &reply.before_head {
        act(part, &guard, &reset).await?;
    }
    let status = if reply.status == 0 { 200 } else { reply.status };
    let mut response = Response::builder().status(status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    let body = match reply.body.as_slice() {
        [] => {
            guard.complete();
            whole(Bytes::new())
        }
        [Part::Bytes(bytes)] => {
            guard.complete();
            whole(bytes.clone())
        }
        _ => parts(reply.body, guard, reset),
    };
    Ok(response.body(body).unwrap())
}

/// A body of known length.
pub(crate) fn whole(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

fn parts(parts: Vec<Part>, guard: Guard, reset: Arc<AtomicBool>) -> Body {
    let stream = stream!({
        let last = parts.len();
        for (position, part) in parts.into_iter().enumerate() {
            if let Part::Bytes(bytes) = part {
                if position + 1 == last {
                    guard.complete();
                }
                yield Ok(Frame::data(bytes));
            } else if let Err(error) = act(&part, &guard, &reset).await {
                yield Err(error);
                return;
            }
        }
        guard.complete();
    });
    StreamBody::new(stream).boxed_unsync()
}

/// Does one step that sends nothing; an error breaks the connection off.
async fn act(part: &Part, guard: &Guard, reset: &AtomicBool) -> Result<(), io::Error> {
    match part {
        Part::Bytes(_) => Ok(()),
        Part::Wait(gate) => {
            gate.pass().await;
            Ok(())
        }
        Part::Hang => pending().await,
        Part::Cut | Part::Reset => {
            // Being pending once makes hyper write out what was sent before.
            tokio::task::yield_now().await;
            reset.store(matches!(part, Part::Reset), Ordering::SeqCst);
            guard.complete();
            Err(io::Error::other("the script breaks off here"))
        }
    }
}

impl Guard {
    fn complete(&self) {
        self.0.send_replace(Outcome::Complete);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.send_if_modified(|outcome| {
            let dropped = *outcome == Outcome::Running;
            if dropped {
                *outcome = Outcome::Dropped;
            }
            dropped
        });
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::SeqCst) {
            // Closing with a zero linger time is what makes the kernel send RST.
            let _closed = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
