//! Accepting connections, and ending them at shutdown.

mod activity;
mod descriptors;
mod refusals;
mod response_body;
mod socket;
mod write_timeout;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::header::CONTENT_LENGTH;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use self::activity::{Activities, ActivityGuard, RequestInProgress};
use self::refusals::Refusals;
use self::response_body::ResponseBody;
use self::write_timeout::WriteTimeout;
use super::AppState;
use super::edge::refused::LOG_INTERVAL;
use super::edge::{REQUEST_ID, RequestPermit, RequestRecord};
use super::settings::Settings;
use agent::runs::InlineRunSlot;
use net::polling::WakeFilter;
use protocol::ids::RequestId;

/// Pause after a failed accept, so that a lack of file descriptors does not cause a busy loop.
/// Tried by `connections::the_soft_limit_of_descriptors_is_raised_and_a_burst_of_failures_is_one_line`.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Share of the connections that are closed at a time when all are in use.
const CLOSED_SHARE: usize = 1024;
/// Least time that a connection has to send the head of a request. Then it may be closed for another.
/// Tried by `connections::idle_connections_and_slow_heads_make_room_for_requests`.
const MIN_WAIT: Duration = Duration::from_millis(250);
/// How long requests that are ended at shutdown have to write the end of their response. Then their connections are
/// closed.
/// Tried by `lifecycle::a_client_that_reads_nothing_cannot_hold_the_process`.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Most connections to the address for metrics; others wait.
const MAX_METRICS_CONNECTIONS: usize = 16;
/// Least number of connections that other replicas may have; others wait.
const MIN_REPLICA_CONNECTIONS: usize = 16;
/// Share of the number of the clients' connections that other replicas may have: a fourth.
const REPLICA_SHARE: usize = 4;

/// The connections of a server that is stopping.
#[derive(Debug)]
pub(crate) struct OpenConnections {
    acceptor: Acceptor,
    /// The connections that were open when the shutdown began.
    connections: TaskTracker,
    /// The connections that came later. The end of the server does not wait for them.
    late: TaskTracker,
}

/// Accepts the connections of one address.
#[derive(Debug)]
struct Acceptor {
    listener: TcpListener,
    router: axum::Router,
    state: AppState,
    permits: Arc<Semaphore>,
    max_connections: usize,
    activities: Activities,
    aborted: CancellationToken,
}

/// Accepts connections until `shutdown` resolves. After that new turns are refused, and running ones continue.
pub(crate) async fn serve(
    listener: TcpListener,
    state: AppState,
    shutdown: impl Future<Output = ()>,
) -> OpenConnections {
    let max_connections = state.max_connections;
    let router = super::router(state.clone());
    let open = OpenConnections {
        acceptor: Acceptor::new(listener, router, state, max_connections),
        connections: TaskTracker::new(),
        late: TaskTracker::new(),
    };
    tokio::select! {
        () = shutdown => {}
        () = open.acceptor.accept(&open.connections) => {}
    }
    open.acceptor.state.draining.cancel();
    open.connections.close();
    tracing::info!(connections = open.connections.len(), "draining");
    open
}

/// Serves the metrics without a key until the server's requests are ended.
pub(crate) async fn serve_metrics(listener: TcpListener, state: AppState) {
    let router = super::metrics_router(state.clone());
    let acceptor = Acceptor::new(listener, router, state, MAX_METRICS_CONNECTIONS);
    acceptor.serve_until_stop(Duration::ZERO).await;
}

/// Answers other replicas until the server's requests are ended, and for a short time in which they read the end of their
/// answers.
pub(crate) async fn serve_replicas(listener: TcpListener, state: AppState) {
    let router = super::replica_router(state.clone());
    let most = state.max_connections / REPLICA_SHARE;
    let acceptor = Acceptor::new(listener, router, state, most.max(MIN_REPLICA_CONNECTIONS));
    acceptor.serve_until_stop(FINAL_WRITE_TIMEOUT).await;
}

impl OpenConnections {
    /// Waits until every connection and every run has ended; a run may continue without a connection. Meanwhile
    /// connections are accepted, so that running runs can be read.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub(crate) async fn ended(&self) {
        let runs = &self.acceptor.state.runs;
        let ended = async { tokio::join!(self.connections.wait(), runs.ended_all()) };
        tokio::select! {
            _ = ended => {}
            () = self.acceptor.accept(&self.late) => {}
        }
    }

    /// Ends the runs and the requests, which have a short time to write the end of their response. Then every connection is
    /// closed, whether or not its client reads.
    pub(crate) async fn abort(&self) {
        let state = &self.acceptor.state;
        state.runs.close();
        state.stopping.cancel();
        // A late connection serves one request, and ends with it.
        self.late.close();
        let ended = async {
            tokio::join!(
                self.connections.wait(),
                self.late.wait(),
                state.runs.ended_all()
            )
        };
        let in_time = timeout(FINAL_WRITE_TIMEOUT, ended).await.is_ok();
        if !in_time {
            tracing::warn!(connections = self.connections.len(), "closing connections");
        }
        self.acceptor.aborted.cancel();
        let closed = async { tokio::join!(self.connections.wait(), self.late.wait()) };
        let _closed_or_stuck = timeout(ACCEPT_RETRY_DELAY, closed).await;
    }
}

/// How much there may be at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections of clients.
    pub(super) connections: usize,
    pub(super) turns: usize,
}

/// How many connections and turns the file descriptors suffice for, whose limit is raised.
pub(super) fn limits(settings: &Settings) -> Limits {
    let descriptors = descriptors::raise_limit();
    let most = descriptors::max_connections(settings.max_connections, descriptors);
    let turns = descriptors::max_turns(most, descriptors);
    tracing::info!(
        max_connections = most,
        max_turns = turns,
        descriptors,
        "accepting connections"
    );
    if u64::try_from(most).is_ok_and(|most| most >= descriptors) {
        tracing::warn!(
            max_connections = most,
            descriptors,
            "max_connections is not below the limit of file descriptors; lower it or raise the limit"
        );
    }
    Limits {
        connections: most,
        turns,
    }
}

impl Acceptor {
    fn new(
        listener: TcpListener,
        router: axum::Router,
        state: AppState,
        max_connections: usize,
    ) -> Self {
        Self {
            listener,
            router,
            state,
            permits: Arc::new(Semaphore::new(max_connections)),
            max_connections,
            activities: Activities::default(),
            aborted: CancellationToken::new(),
        }
    }

    /// Serves until the server stops; after that, open requests of this address have the time `last` to end.
    async fn serve_until_stop(&self, last: Duration) {
        let connections = TaskTracker::new();
        tokio::select! {
            () = self.state.stopping.cancelled() => {}
            () = self.accept(&connections) => {}
        }
        connections.close();
        let _ended_or_late = timeout(last, connections.wait()).await;
        self.aborted.cancel();
        connections.wait().await;
    }

    /// Accepts connections without end.
    async fn accept(&self, connections: &TaskTracker) {
        let (mut failures, mut full) = (LogLimit::default(), LogLimit::default());
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    if self.permits.available_permits() == 0 && full.permits_line() {
                        tracing::warn!(
                            max_connections = self.max_connections,
                            "every connection is in use; those that wait for a request or do not read a refusal are closed, and new ones wait"
                        );
                    }
                    let Some(permit) = self.permit().await else {
                        return;
                    };
                    connections.spawn(self.connection(stream, permit));
                }
                Err(error) => {
                    if failures.permits_line() {
                        tracing::warn!(%error, "accepting connections fails");
                    }
                    self.close_oldest();
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Waits for a permit. While there is none, connections that wait for a request are closed.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        let mut permit = pin!(self.permits.clone().acquire_owned());
        let mut wait = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                permit = permit.as_mut() => return permit.ok(),
                () = sleep(wait) => self.close_oldest(),
            }
            wait = ACCEPT_RETRY_DELAY;
        }
    }

    fn close_oldest(&self) {
        // Several at a time, because finding them reads the whole list.
        let count = (self.max_connections / CLOSED_SHARE).max(1);
        self.activities.close_oldest(count, MIN_WAIT);
    }

    /// Serves the requests of one connection, which holds its permit.
    fn connection(
        &self,
        stream: TcpStream,
        permit: OwnedSemaphorePermit,
    ) -> impl Future<Output = ()> + use<> {
        let (state, aborted) = (self.state.clone(), self.aborted.clone());
        let router = self.router.clone();
        let guard = self.activities.add();
        // The server half of a connection and the handler of its request wake each other.
        WakeFilter::run(async move {
            let _permit = permit;
            let served = served(stream, router, &state, &guard, &aborted);
            let ended = tokio::select! {
                biased;
                ended = served => ended,
                () = guard.activity().closed() => Ok(()),
            };
            if let Err(error) = ended {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::debug!(%error, cause, "connection ended early");
            }
        })
    }
}

/// Limits a log line that a burst of events would repeat to one in [`LOG_INTERVAL`].
#[derive(Debug, Default)]
struct LogLimit(Option<Instant>);

impl LogLimit {
    fn permits_line(&mut self) -> bool {
        let permits = self.0.is_none_or(|last| last.elapsed() >= LOG_INTERVAL);
        if permits {
            self.0 = Some(Instant::now());
        }
        permits
    }
}

async fn served(
    stream: TcpStream,
    router: axum::Router,
    state: &AppState,
    guard: &ActivityGuard,
    aborted: &CancellationToken,
) -> hyper::Result<()> {
    let settings = &state.settings;
    if let Err(error) = socket::configure(&stream, settings.write_timeout) {
        tracing::debug!(%error, "an option of a socket could not be set");
    }
    let run = InlineRunSlot::default();
    let activity = guard.activity();
    let stream = WriteTimeout::new(
        stream,
        settings.write_timeout,
        run.clone(),
        activity.clone(),
    );
    let stream = Refusals::new(stream, activity.clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut router = router.clone();
        let in_progress = activity.request_begins();
        request.extensions_mut().insert(run.clone());
        async move { Ok::<_, Infallible>(answer(&mut router, request, in_progress).await) }
    });
    let is_late = state.draining.is_cancelled();
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        // The middleware applies the exact limit. This limit is larger and bounds the memory.
        .max_buf_size(settings.max_header_bytes.saturating_mul(2))
        .half_close(false)
        // A connection that is opened during the shutdown serves one request.
        .keep_alive(!is_late);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let draining: CancellationToken = state.draining.child_token();
    if !is_late {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = draining.cancelled() => {}
        }
        connection.as_mut().graceful_shutdown();
    }
    tokio::select! {
        ended = connection => ended,
        () = aborted.cancelled() => Ok(()),
    }
}

async fn answer(
    router: &mut axum::Router,
    request: Request<Incoming>,
    in_progress: RequestInProgress,
) -> http::Response<ResponseBody> {
    let mut response = match router.call(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    // By its id a response differs from a refusal of the HTTP library.
    if !response.headers().contains_key(REQUEST_ID)
        && let Ok(id) = HeaderValue::from_str(RequestId::fresh().as_str())
    {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    let permit = response.extensions_mut().remove::<RequestPermit>();
    if permit.is_none() {
        in_progress.answers_stranger();
    }
    let permit = permit.and_then(|RequestPermit(permit)| permit);
    let record = response.extensions_mut().remove::<Arc<RequestRecord>>();
    let length = response.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    response.map(|body| ResponseBody::new(body, in_progress, permit, record, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_one_log_line() {
        let mut limit = LogLimit::default();
        assert!(limit.permits_line());
        for _ in 0..100 {
            assert!(!limit.permits_line());
        }
        tokio::time::advance(LOG_INTERVAL).await;
        assert!(limit.permits_line());
        assert!(!limit.permits_line());
    }
}
