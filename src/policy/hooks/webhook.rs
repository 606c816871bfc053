//! The webhook that is notified of calls that wait for a person.

use std::sync::Arc;

use serde::Serialize;

use super::HookMeter;
use super::failure::HookFailure;
use super::service::{HookService, HookSetupError};
use super::settings::HookServiceSettings;
use net::CaCertificates;
use protocol::ids::{ApprovalId, Owner, SessionId, WorkspaceId};

/// The webhook that is notified of calls that wait for a person.
#[derive(Debug)]
pub struct ApprovalWebhook(HookService);

/// A notification of the webhook. It does not have the arguments of the call.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalNotification<'a> {
    /// What has happened, such as `approval.requested`.
    pub event: &'static str,
    /// The question.
    pub id: &'a ApprovalId,
    /// The run that asked, by the id of its answer.
    pub run_id: &'a str,
    /// The conversation.
    pub session: &'a SessionId,
    /// Its owner.
    pub owner: &'a Owner,
    /// The name of the tool.
    pub tool: &'a str,
    /// Why a person is asked.
    pub reason: Option<&'a str>,
    /// Until when the call can be decided, in seconds since 1970.
    pub expires_at: i64,
}

/// The body of a request.
#[derive(Serialize)]
struct NotificationBody<'a> {
    r#type: &'static str,
    approval_id: &'a str,
    run_id: &'a str,
    session_id: &'a str,
    session_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    tool: &'a str,
    reason: Option<&'a str>,
    expires_at: i64,
}

impl ApprovalWebhook {
    /// The webhook of these settings. No connection is opened.
    ///
    /// # Errors
    /// When the URL or the secret cannot be used, or the HTTP client cannot be created.
    pub fn new(
        settings: &HookServiceSettings,
        certificates: &CaCertificates,
        meter: &Arc<dyn HookMeter>,
    ) -> Result<Self, HookSetupError> {
        HookService::alone("approval_webhook", settings, certificates, meter).map(Self)
    }

    /// Notifies the webhook once. Only the status of its answer counts.
    ///
    /// # Errors
    /// When the webhook cannot be notified.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub async fn notify(&self, notification: ApprovalNotification<'_>) -> Result<(), HookFailure> {
        let session_key = WorkspaceId::of(notification.owner, notification.session);
        let body = NotificationBody {
            r#type: notification.event,
            approval_id: notification.id.as_str(),
            run_id: notification.run_id,
            session_id: notification.session.as_str(),
            session_key: session_key.as_str(),
            owner: notification.owner.name(),
            tool: notification.tool,
            reason: notification.reason,
            expires_at: notification.expires_at,
        };
        let body = serde_json::to_vec(&body).map_err(|_| HookFailure::Unwritten)?;
        self.0.send(notification.event, body).await
    }
}
