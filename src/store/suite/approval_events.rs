//! Events of waiting calls for a webhook.

use super::approvals::{HOUR, approve, ends, keeps, question};
use super::*;
use crate::ApprovalEvent;

/// The events that are taken now, each with the tool of its call.
async fn taken(store: &Store, since: i64, limit: usize) -> Vec<(ApprovalEvent, String)> {
    let events = store.take_approval_events(since, limit).await.unwrap();
    let events = events.into_iter();
    events
        .map(|(event, approval)| (event, approval.question.tool))
        .collect()
}

pub(crate) async fn each_event_of_an_approval_is_taken_once(subject: TestStore) {
    use ApprovalEvent::{Decided, Expired, Requested};

    let (store, session) = (&subject.store, id("s"));
    let since = now();
    let mut asked = ["decided", "expired", "left"].map(question);
    asked[2].expires_at += 5 * HOUR;
    subject
        .write(&session, keeps(0, &[user("a")], &asked))
        .await;
    let named = |event, tool: &str| (event, tool.to_owned());
    assert_eq!(taken(store, since, 1).await, [named(Requested, "decided")]);
    let others = [named(Requested, "expired"), named(Requested, "left")];
    assert_eq!(taken(store, since, 9).await, others);
    assert_eq!(taken(store, since, 9).await, []);
    subject.decide(&asked[0].id, &approve(None)).await;
    assert_eq!(taken(store, since, 9).await, [named(Decided, "decided")]);
    store.shift_clock(2 * HOUR).await;
    assert_eq!(taken(store, since, 9).await, [named(Expired, "expired")]);
    store.shift_clock(0).await;
    subject.write(&session, ends(1)).await;
    assert_eq!(taken(store, since, 9).await, [named(Expired, "left")]);
    assert_eq!(taken(store, since, 9).await, []);
}

pub(crate) async fn a_call_that_was_decided_early_has_both_events(subject: TestStore) {
    use ApprovalEvent::{Decided, Requested};

    let (store, session) = (&subject.store, id("s"));
    let asked = [question("old"), question("open")];
    subject
        .write(&session, keeps(0, &[user("a")], &asked))
        .await;
    subject.decide(&asked[0].id, &approve(None)).await;
    // A process that begins to notify now begins with the calls that still wait.
    let later = now() + HOUR;
    let open = [(Requested, "open".to_owned())];
    assert_eq!(taken(store, later, 9).await, open);
    let earlier = now() - HOUR;
    for event in [Requested, Decided] {
        assert_eq!(taken(store, earlier, 9).await, [(event, "old".to_owned())]);
    }
    assert_eq!(taken(store, earlier, 9).await, []);
}
