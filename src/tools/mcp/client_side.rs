//! The client's side of a connection: the requests of a server that loopwright answers.

use std::future::ready;

use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, ClientResult, ErrorCode, ErrorData, ServerNotification, ServerRequest,
};
use rmcp::service::{NotificationContext, RequestContext, Service};

/// The client's side of a connection. It has no capability: sampling, roots, elicitation and all other requests except
/// pings are unknown methods.
#[derive(Debug)]
pub(super) struct ClientSide(pub(super) ClientConfig);

impl Service<RoleClient> for ClientSide {
    fn handle_request(
        &self,
        request: ServerRequest,
        _context: RequestContext<RoleClient>,
    ) -> impl Future<Output = Result<ClientResult, ErrorData>> + '_ {
        ready(match request {
            ServerRequest::PingRequest(_) => Ok(ClientResult::empty(())),
            _ => {
                let text = "this client declares no capability that has this method";
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None))
            }
        })
    }

    /// Progress and changes of the list are seen by the transport.
    fn handle_notification(
        &self,
        _notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> impl Future<Output = Result<(), ErrorData>> + '_ {
        ready(Ok(()))
    }

    fn get_info(&self) -> ClientConfig {
        self.0.clone()
    }
}
