//! The end of a turn at a limit. The client gets a notice.

use super::super::AgentError;
use super::super::event::Notice;
use super::super::stop::StopReason;
use super::super::transcript;
use super::{Phase, Run};
use crate::session::StoredMessage;

impl Run {
    /// Adds a notice if the reason is a limit.
    pub(super) fn limit_notice(&mut self, reason: StopReason) {
        if reason.is_limit() {
            let message = format!("the limit {} is reached", reason.as_str());
            self.notify(Notice {
                kind: "limit_reached",
                message,
            });
        }
    }

    /// Fails the turn at a limit; the notice comes first.
    pub(super) fn fail_at_limit(&mut self, reason: StopReason) {
        self.limit_notice(reason);
        self.phase = Phase::Failed(reason);
    }

    /// Ends the turn at a limit with the text so far.
    pub(super) async fn stop_at_limit(&mut self, reason: StopReason) -> Result<(), AgentError> {
        let buffered = std::mem::take(&mut self.last_buffered);
        self.queue_events(buffered);
        self.limit_notice(reason);
        let end = StoredMessage::visible(transcript::text_answer(""));
        self.finish(reason, vec![end]).await
    }
}
