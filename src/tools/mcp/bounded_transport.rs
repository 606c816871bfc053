//! A transport that adds what the SDK lacks: progress in order, and bounds for messages that a server sends without a
//! request.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    GetExtensions, GetMeta, JsonRpcMessage, ProgressNotificationParam, ProgressToken, RequestId,
    ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use super::news::ListNews;
use super::read_rate::ReadRate;
use super::secrets::Secrets;
use crate::error_body::MOST_BYTES;
use crate::{ProgressSender, ToolProgress};

/// Most requests of a server that are not answered yet. With one more its connection is closed.
const MAX_OPEN_REQUESTS: usize = 64;
/// Most reports of progress of one call that are passed on at once; further ones at intervals.
/// Tried by `hostile::endless_progress_and_repeated_ids_do_no_harm`.
const PROGRESS_BURST: u32 = 100;
/// Pause between further reports of progress; those in between are left out.
/// Tried by `hostile::endless_progress_and_repeated_ids_do_no_harm`.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Where the progress of a request goes; an extension of the request, which is not sent.
#[derive(Debug, Clone)]
pub(super) struct ProgressSink(pub(super) ProgressSender);

/// A transport with these bounds.
pub(super) struct BoundedTransport<T> {
    inner: T,
    routes: HashMap<ProgressToken, ProgressRoute>,
    /// Requests of the server that are not answered yet.
    open: HashSet<RequestId>,
    news: Arc<ListNews>,
    secrets: Secrets,
    rate: ReadRate,
    /// Tells that the connection has ended, after the process of the server.
    _ended: DropGuard,
}

struct ProgressRoute {
    sink: ProgressSender,
    sent: u32,
    last: Instant,
}

impl<T> BoundedTransport<T> {
    pub(super) fn new(
        inner: T,
        secrets: Secrets,
        rate: ReadRate,
        news: Arc<ListNews>,
        ended: DropGuard,
    ) -> Self {
        Self {
            inner,
            secrets,
            rate,
            routes: HashMap::new(),
            open: HashSet::new(),
            news,
            _ended: ended,
        }
    }

    fn outgoing(&mut self, item: &TxJsonRpcMessage<RoleClient>) {
        match item {
            JsonRpcMessage::Request(request) => {
                self.rate.ask();
                let sink = request.request.extensions().get::<ProgressSink>();
                let token = request.request.get_meta().get_progress_token();
                if let (Some(ProgressSink(sink)), Some(token)) = (sink, token) {
                    self.routes.retain(|_, route| !route.sink.0.is_closed());
                    let route = ProgressRoute {
                        sink: sink.clone(),
                        sent: 0,
                        last: Instant::now(),
                    };
                    self.routes.insert(token, route);
                }
            }
            JsonRpcMessage::Response(response) => {
                self.open.remove(&response.id);
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    self.open.remove(id);
                }
            }
            JsonRpcMessage::Notification(_) => {}
        }
    }

    /// Passes progress on unless the reader is slow or there is too much of it.
    fn progress(&mut self, progress: &ProgressNotificationParam) {
        let Some(route) = self.routes.get_mut(&progress.progress_token) else {
            return;
        };
        if route.sent >= PROGRESS_BURST && route.last.elapsed() < PROGRESS_INTERVAL {
            return;
        }
        route.sent = route.sent.saturating_add(1);
        route.last = Instant::now();
        let progress = ToolProgress {
            text: progress_text(progress),
            stream: "progress",
        };
        let _slow_reader = route.sink.try_send(progress);
    }
}

/// The text of a report: its message and how far the call has come.
fn progress_text(progress: &ProgressNotificationParam) -> String {
    let done = match progress.total {
        Some(total) => format!("{}/{total}", progress.progress),
        None => progress.progress.to_string(),
    };
    match progress.message.as_deref().map(str::trim) {
        None | Some("") => done,
        Some(message) => {
            let end = message.floor_char_boundary(MOST_BYTES);
            format!("{} ({done})", message.get(..end).unwrap_or(message))
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.outgoing(&item);
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let Some(message) = self.secrets.hide(self.inner.receive().await?) else {
                tracing::warn!("a message of an MCP server repeats credentials and is left out");
                continue;
            };
            match &message {
                JsonRpcMessage::Notification(notification) => match &notification.notification {
                    ServerNotification::ProgressNotification(progress) => {
                        self.progress(&progress.params);
                    }
                    ServerNotification::ToolListChangedNotification(_) => {
                        self.news.add();
                    }
                    ServerNotification::CancelledNotification(_) => return Some(message),
                    // Log messages of the server, and notifications that are not used here.
                    _ => {}
                },
                JsonRpcMessage::Request(request) => {
                    if self.open.len() >= MAX_OPEN_REQUESTS {
                        tracing::warn!("an MCP server asks too much; its connection is closed");
                        return None;
                    }
                    self.open.insert(request.id.clone());
                    return Some(message);
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
