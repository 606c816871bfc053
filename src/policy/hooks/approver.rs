//! The service that is asked for an approval before a person is.

use std::sync::Arc;

use super::answer::ApproverAnswer;
use super::client::ToolUse;
use super::digest::arguments_sha256;
use super::event::HookEvent;
use super::record::HookedTurn;
use super::service::{HookService, HookSetupError};
use super::settings::HookServiceSettings;
use super::{HookMeter, OnFailure};
use net::CaCertificates;

/// The reason of a denial because the approver failed.
const UNDECIDED: &str = "the service that decides about it could not be asked";

/// The service that is asked for an approval before a person is.
#[derive(Debug)]
pub struct Approver(HookService);

impl Approver {
    /// The approver of these settings. No connection is opened.
    ///
    /// # Errors
    /// When the URL or the secret cannot be used, or the HTTP client cannot be created.
    pub fn new(
        settings: &HookServiceSettings,
        certificates: &CaCertificates,
        meter: &Arc<dyn HookMeter>,
    ) -> Result<Self, HookSetupError> {
        HookService::alone("approver", settings, certificates, meter).map(Self)
    }

    /// Asks about a call that needs a permission. If the approver fails, a person decides, or the call is denied, as
    /// `on_failure` says. If it ends the turn, the record of the turn says so.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request.
    pub async fn ask(&self, turn: HookedTurn<'_>, call: ToolUse<'_>) -> ApproverAnswer {
        let sha256 = arguments_sha256(call.arguments);
        let event = HookEvent::PermissionRequest(call.hooked(&sha256));
        let read = |body: &[u8]| Ok(ApproverAnswer::parse(body)?);
        let answer = self.0.ask(&turn, event, read).await;
        match (answer, self.0.on_failure) {
            (Ok(answer), _) => {
                if let ApproverAnswer::Deny {
                    ends_turn: Some(text),
                    ..
                } = &answer
                {
                    turn.record.end_turn(text.clone());
                }
                answer
            }
            (Err(failure), OnFailure::Continue) => {
                turn.record.passed_over(&self.0.name, &failure);
                ApproverAnswer::Person
            }
            (Err(_), OnFailure::Block) => ApproverAnswer::Deny {
                reason: Some(UNDECIDED.to_owned()),
                ends_turn: None,
            },
        }
    }
}
