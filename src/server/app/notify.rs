//! Telling the webhook of calls that wait for a person.

use std::time::Duration;

use futures_util::future::join_all;

use agent::session::{Approval, ApprovalEvent, Sessions};
use agent::unix_seconds;
use policy::hooks::webhook::{ApprovalNotification, ApprovalWebhook};

/// How often events are looked for.
/// Tried by `announced::it_hears_of_a_question_and_of_its_decision`.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Most events of one look, which are told at the same time. The next look finds the others.
/// Tried by `approval_events::each_event_of_an_approval_is_taken_once`.
const EVENTS_PER_CHECK: usize = 32;
/// Pause before each further attempt. After the last the event is given up.
/// Tried by `announced::a_receiver_that_fails_holds_nothing_up_and_is_told_again`.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Tells the webhook of each event once, for ever. A webhook that fails holds nothing up but later events.
pub(super) async fn notify_of_approvals(sessions: Sessions, webhook: ApprovalWebhook) {
    let since = unix_seconds();
    let mut interval = tokio::time::interval(CHECK_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        match sessions
            .store
            .take_approval_events(since, EVENTS_PER_CHECK)
            .await
        {
            Ok(events) => {
                let notified = events
                    .iter()
                    .map(|(event, call)| notify(&webhook, *event, call));
                join_all(notified).await;
            }
            Err(error) => {
                tracing::warn!(%error, "the approvals cannot be read; the webhook is told later");
            }
        }
    }
}

async fn notify(webhook: &ApprovalWebhook, event: ApprovalEvent, approval: &Approval) {
    let question = &approval.question;
    let run_id = question.run.completion_id();
    let notification = ApprovalNotification {
        event: match event {
            ApprovalEvent::Requested => "approval.requested",
            ApprovalEvent::Decided => "approval.decided",
            ApprovalEvent::Expired => "approval.expired",
        },
        id: &question.id,
        run_id: &run_id,
        session: &approval.session,
        owner: &approval.owner,
        tool: &question.tool,
        reason: question.reason.as_deref(),
        expires_at: question.expires_at,
    };
    for pause in RETRY_PAUSES {
        if webhook.notify(notification).await.is_ok() {
            return;
        }
        tokio::time::sleep(pause).await;
    }
    let _notified_or_logged = webhook.notify(notification).await;
}
