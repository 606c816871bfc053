//! A connection to an MCP server: list of tools, calls, end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ListToolsRequest,
    PaginatedRequestParams, PingRequest, RequestMetaObject, ServerResult, SubscriptionFilter,
    SubscriptionsListenRequest, SubscriptionsListenRequestParams, Tool as RemoteTool,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bounded_transport::ProgressSink;
use super::client_side::ClientSide;
use super::failure::RequestFailure;
use super::listed::{self, ListLimits, Listing, ToolCollector};
use super::news::ListNews;
use super::result;
use super::stdio::Ending;
use crate::ToolInvocation;

/// Most pages of a list of tools; the others are left out.
/// Tried by `hostile::endless_pages_and_floods_of_tools_are_cut`.
const MAX_PAGES: usize = 100;
/// How long a notification may take to be sent. After it the notification is dropped.
const NOTIFY_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may take to end. After it the connection is dropped.
const CLOSE_LIMIT: Duration = Duration::from_secs(6);
/// The reason that the server gets when a call is cancelled.
const CANCELLED: &str = "nobody waits for the result any more";

/// An open connection. When this is dropped, the connection is closed.
#[derive(Debug)]
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    running: Mutex<Option<RunningService<RoleClient, ClientSide>>>,
    ended: CancellationToken,
    ending: Ending,
    news: Arc<ListNews>,
    /// The subscription to changes of the list, which versions without a handshake need. It lasts as long as the
    /// connection.
    listening: Mutex<Option<PendingRequest>>,
    /// The list of tools as it was read last, for [`Self::kept_list`].
    kept_list: tokio::sync::Mutex<Option<Arc<Listing>>>,
    /// It has answered a call.
    answered: AtomicBool,
    tasks: TaskTracker,
}

impl Connection {
    /// A connection whose handshake is complete.
    pub(super) fn new(
        running: RunningService<RoleClient, ClientSide>,
        ended: CancellationToken,
        ending: Ending,
        news: Arc<ListNews>,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            peer: running.peer().clone(),
            running: Mutex::new(Some(running)),
            ended,
            ending,
            news,
            listening: Mutex::default(),
            kept_list: tokio::sync::Mutex::default(),
            answered: AtomicBool::new(false),
            tasks,
        }
    }

    /// Resolves when the connection has ended.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Why it ended.
    pub(super) fn ending(&self) -> String {
        let ending = self.ending.lock();
        match ending.is_empty() {
            true => "the connection ended".to_owned(),
            false => ending.clone(),
        }
    }

    /// Whether it has answered a call.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// What the server says of its list of tools.
    pub(super) fn news(&self) -> &ListNews {
        &self.news
    }

    /// Subscribes to changes of the list of tools, if the version of the protocol needs a subscription.
    pub(super) async fn listen(&self) {
        let wants_to_be_asked = self.peer.peer_info().is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            let changes = tools.and_then(|tools| tools.list_changed) == Some(true);
            changes && !info.protocol_version.has_initialize()
        });
        if !wants_to_be_asked {
            return;
        }
        let news = SubscriptionFilter::builder().tools_list_changed().build();
        let params = SubscriptionsListenRequestParams::new(news);
        let request = SubscriptionsListenRequest::new(params);
        let request = ClientRequest::SubscriptionsListenRequest(request);
        let options = PeerRequestOptions::no_options();
        // Without an answer the list stays as it is.
        if let Ok(handle) = self.peer.send_cancellable_request(request, options).await {
            *self.listening.lock() = Some(PendingRequest {
                handle: Some(handle),
                tasks: self.tasks.clone(),
            });
        }
    }

    /// The tools that the server has, within bounds.
    ///
    /// # Errors
    /// When the server does not list them.
    pub(super) async fn list(
        &self,
        server: &str,
        limits: ListLimits,
    ) -> Result<Listing, RequestFailure> {
        let info = self.peer.peer_info();
        let instructions = info.as_ref().and_then(|info| info.instructions.as_deref());
        Ok(Listing {
            instructions: instructions.map(listed::instructions),
            tools: self.tools(server, limits).await?,
        })
    }

    /// The tools that the server has; they are listed anew only once it says that they have changed.
    ///
    /// # Errors
    /// When the server does not list them.
    pub(super) async fn kept_list(
        &self,
        server: &str,
        limits: ListLimits,
    ) -> Result<Arc<Listing>, RequestFailure> {
        let mut kept = self.kept_list.lock().await;
        let has_changed = self.news.notified().now_or_never().is_some();
        if let Some(listing) = kept.as_ref().filter(|_| !has_changed) {
            return Ok(listing.clone());
        }
        let listing = Arc::new(self.list(server, limits).await?);
        *kept = Some(listing.clone());
        Ok(listing)
    }

    async fn tools(
        &self,
        server: &str,
        limits: ListLimits,
    ) -> Result<Vec<RemoteTool>, RequestFailure> {
        let mut found = ToolCollector::new(server, limits);
        let info = self.peer.peer_info();
        if info.is_some_and(|info| info.capabilities.tools.is_none()) {
            return Ok(found.finish());
        }
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
            let next = match self
                .request(request, PeerRequestOptions::no_options())
                .await?
            {
                ServerResult::ListToolsResult(page) => {
                    page.tools.into_iter().for_each(|tool| found.add(tool));
                    page.next_cursor
                }
                // One entry of the page is malformed, so that the page as a whole is.
                ServerResult::CustomResult(page) => {
                    let entries = page.0.get("tools").and_then(Value::as_array);
                    let Some(entries) = entries else {
                        let text = "it is no list of tools".to_owned();
                        return Err(RequestFailure::Unusable(text));
                    };
                    entries.iter().for_each(|entry| found.add_json(entry));
                    let next = page.0.get("nextCursor").and_then(Value::as_str);
                    next.map(ToOwned::to_owned)
                }
                _ => {
                    let text = "it is no list of tools".to_owned();
                    return Err(RequestFailure::Unusable(text));
                }
            };
            if next.is_none() || next == cursor || found.is_full() {
                return Ok(found.finish());
            }
            cursor = next;
        }
        found.cut("pages");
        Ok(found.finish())
    }

    /// Calls a tool. Dropping the future cancels the call at the server.
    ///
    /// # Errors
    /// When there is no result.
    pub(super) async fn call(
        &self,
        tool: &str,
        invocation: &ToolInvocation,
    ) -> Result<CallToolResult, RequestFailure> {
        let params = CallToolRequestParams::new(tool.to_owned())
            .with_arguments(invocation.arguments.clone());
        let mut request = CallToolRequest::new(params);
        let sink = ProgressSink(invocation.progress.clone());
        request.extensions.insert(sink);
        let mut options = PeerRequestOptions::no_options();
        options.meta = trace(invocation);
        let request = ClientRequest::CallToolRequest(request);
        match self.request(request, options).await? {
            ServerResult::CallToolResult(result) => {
                self.answered.store(true, Ordering::Relaxed);
                Ok(result)
            }
            // One member is malformed, so that the result as a whole is.
            ServerResult::CustomResult(custom) => {
                self.answered.store(true, Ordering::Relaxed);
                result::read(&custom.0)
                    .ok_or_else(|| RequestFailure::Unusable("it is no result of a tool".to_owned()))
            }
            // Without any member of its own a result has this form.
            ServerResult::EmptyResult(_) => Ok(CallToolResult::default()),
            _ => Err(RequestFailure::Unusable(
                "it is no result of a tool".to_owned(),
            )),
        }
    }

    /// Asks the server whether it responds.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn ping(&self) -> Result<(), RequestFailure> {
        let request = ClientRequest::PingRequest(PingRequest::default());
        let answer = self.request(request, PeerRequestOptions::no_options());
        match answer.await {
            // Some servers do not support pings, but answer.
            Ok(_) | Err(RequestFailure::Answered(_)) => Ok(()),
            // They may say so in a way of their own. The session may be lost as well.
            Err(RequestFailure::Status { .. } | RequestFailure::Unusable(_)) => {
                let params = PaginatedRequestParams::default();
                let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
                let listed = self.request(request, PeerRequestOptions::no_options());
                listed.await.map(drop)
            }
            Err(failure) => Err(failure),
        }
    }

    async fn request(
        &self,
        request: ClientRequest,
        options: PeerRequestOptions,
    ) -> Result<ServerResult, RequestFailure> {
        let sent = self.peer.send_cancellable_request(request, options).await;
        let mut pending = PendingRequest {
            handle: Some(sent.map_err(|error| self.failure(error))?),
            tasks: self.tasks.clone(),
        };
        let answer = pending.answer().await;
        answer.map_err(|error| self.failure(error))
    }

    fn failure(&self, error: ServiceError) -> RequestFailure {
        match error {
            ServiceError::TransportClosed => RequestFailure::Ended(self.ending()),
            other => RequestFailure::of_request(other),
        }
    }

    /// Closes the connection and waits until the server's process has ended.
    pub(super) async fn close(&self) {
        let running = self.running.lock().take();
        if let Some(mut running) = running {
            let _task_may_have_failed = running.close_with_timeout(CLOSE_LIMIT).await;
        }
    }
}

/// `traceparent` and `tracestate` of the call.
fn trace(invocation: &ToolInvocation) -> Option<RequestMetaObject> {
    let header = |name| invocation.trace().get(name)?.to_str().ok();
    let mut meta = RequestMetaObject::new();
    meta.set_traceparent(header("traceparent")?);
    if let Some(state) = header("tracestate") {
        meta.set_tracestate(state);
    }
    Some(meta)
}

/// A request that is not answered yet. Dropping it cancels the request at the server.
#[derive(Debug)]
struct PendingRequest {
    handle: Option<RequestHandle<RoleClient>>,
    tasks: TaskTracker,
}

impl PendingRequest {
    async fn answer(&mut self) -> Result<ServerResult, ServiceError> {
        let Some(handle) = &mut self.handle else {
            return Err(ServiceError::TransportClosed);
        };
        let answer = (&mut handle.rx).await;
        self.handle = None;
        answer.unwrap_or(Err(ServiceError::TransportClosed))
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let cancel = handle.cancel(Some(CANCELLED.to_owned()));
            self.tasks.spawn(async move {
                let _connection_may_have_ended = tokio::time::timeout(NOTIFY_LIMIT, cancel).await;
            });
        }
    }
}
