//! HTTP/1.1 connections that are driven by the task that waits for the response.
//!
//! A task per connection would cost two wake-ups per request and two per chunk, and chunks that arrive together would be
//! handed over one by one.

mod body;
mod connection;

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HOST;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;

use super::request::{ClientError, RequestBody};

pub(super) use self::body::DirectBody;
use self::connection::DrivenConnection;

/// Most unused connections of a client; others are closed.
const MAX_IDLE: usize = 1024;
/// How long a connection may be silent before the operating system asks whether the peer still exists, and the pause
/// between questions.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Longest time that sent data or questions stay unacknowledged. Then the connection is closed.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends requests to `http` URLs; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct DirectClient(Arc<ConnectionPool>);

#[derive(Debug)]
struct ConnectionPool {
    connector: HttpConnector,
    connect_timeout: Duration,
    idle_timeout: Duration,
    idle: Mutex<IdleConnections>,
}

#[derive(Default)]
struct IdleConnections {
    /// The most recently used ones are last.
    by_origin: HashMap<Authority, Vec<(Instant, DrivenConnection)>>,
    count: usize,
    /// Closes connections that are unused for too long, while there are any.
    reaper: Option<AbortOnDropHandle<()>>,
}

impl DirectClient {
    pub(super) fn new(connect_timeout: Duration, idle_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEP_ALIVE));
        connector.set_keepalive_interval(Some(KEEP_ALIVE));
        connector.set_tcp_user_timeout(Some(USER_TIMEOUT));
        Self(Arc::new(ConnectionPool {
            connector,
            connect_timeout,
            idle_timeout,
            idle: Mutex::default(),
        }))
    }

    /// Sends a request with an absolute URI and waits for the head of the response.
    ///
    /// # Errors
    /// When the server cannot be reached, or the connection fails. A request that was not sent, because the server had closed
    /// an unused connection, is sent on another one.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<DirectBody>, ClientError> {
        let uri = request.uri().clone();
        let origin = uri.authority().cloned().ok_or(ClientError::Uri)?;
        if !request.headers().contains_key(HOST) {
            let host = host(&origin)?;
            request.headers_mut().insert(HOST, host);
        }
        let path = uri.path_and_query().cloned();
        *request.uri_mut() = path
            .unwrap_or_else(|| PathAndQuery::from_static("/"))
            .into();
        loop {
            let unused = poll_fn(|context| Poll::Ready(self.0.take(&origin, context))).await;
            let was_used = unused.is_some();
            let mut connection = match unused {
                Some(connection) => connection,
                None => self.0.connect(&uri).await?,
            };
            match connection.send(request).await {
                Ok(response) => {
                    let pool = Arc::clone(&self.0);
                    return Ok(response
                        .map(|incoming| DirectBody::new(incoming, connection, origin, pool)));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if was_used => request = unsent,
                    Some(_) | None => return Err(ClientError::broken(error.into_error())),
                },
            }
        }
    }
}

/// The `host` header of an origin, without the default port.
fn host(origin: &Authority) -> Result<HeaderValue, ClientError> {
    let host = match origin.port_u16() {
        Some(80) => origin.host(),
        Some(_) | None => origin.as_str(),
    };
    HeaderValue::from_str(host).map_err(|_| ClientError::Uri)
}

impl ConnectionPool {
    /// An unused connection that is still open.
    fn take(&self, origin: &Authority, context: &mut Context<'_>) -> Option<DrivenConnection> {
        loop {
            let (since, mut connection) = self.idle.lock().pop(origin)?;
            if since.elapsed() < self.idle_timeout {
                // Notices that the server has closed it.
                let _driven = connection.poll_driven(context, |_| Poll::Ready(()));
                if connection.is_usable() {
                    return Some(connection);
                }
            }
        }
    }

    async fn connect(&self, uri: &Uri) -> Result<DrivenConnection, ClientError> {
        let connecting = self.connector.clone().oneshot(uri.clone());
        let socket = timeout(self.connect_timeout, connecting)
            .await
            .map_err(|_| ClientError::ConnectTimeout(self.connect_timeout))?
            .map_err(ClientError::unreachable)?;
        let connected = DrivenConnection::new(socket).await;
        connected.map_err(ClientError::unreachable)
    }

    /// Keeps a connection for the next request.
    fn put(self: &Arc<Self>, origin: Authority, connection: DrivenConnection) {
        let mut idle = self.idle.lock();
        if idle.count >= MAX_IDLE {
            return;
        }
        if idle.reaper.is_none() {
            // Without a runtime the process ends.
            let Ok(runtime) = Handle::try_current() else {
                return;
            };
            let reaping = runtime.spawn(reap(Arc::downgrade(self), self.idle_timeout));
            idle.reaper = Some(AbortOnDropHandle::new(reaping));
        }
        idle.count += 1;
        let of_origin = idle.by_origin.entry(origin).or_default();
        of_origin.push((Instant::now(), connection));
    }
}

/// Closes the connections of a pool that are unused for `idle_timeout`. Ends when there are none.
async fn reap(pool: Weak<ConnectionPool>, idle_timeout: Duration) {
    loop {
        sleep(idle_timeout).await;
        let Some(pool) = pool.upgrade() else { return };
        let expired = {
            let mut idle = pool.idle.lock();
            let expired = idle.take_expired(idle_timeout);
            if idle.count == 0 {
                // This task ends by itself.
                idle.reaper.take().map(AbortOnDropHandle::detach);
                return;
            }
            expired
        };
        drop(expired);
    }
}

impl fmt::Debug for IdleConnections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("IdleConnections")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl IdleConnections {
    fn pop(&mut self, origin: &Authority) -> Option<(Instant, DrivenConnection)> {
        let popped = self.by_origin.get_mut(origin)?.pop()?;
        self.count -= 1;
        Some(popped)
    }

    fn take_expired(&mut self, idle_timeout: Duration) -> Vec<(Instant, DrivenConnection)> {
        let mut expired = Vec::new();
        self.by_origin.retain(|_, connections| {
            let fresh = connections.partition_point(|(since, _)| since.elapsed() >= idle_timeout);
            expired.extend(connections.drain(..fresh));
            !connections.is_empty()
        });
        self.count -= expired.len();
        expired
    }
}

#[cfg(test)]
mod tests;
