//! Calls that wait for a person's decision.

use super::sizes::check_counts;
use super::*;
use protocol::ids::ApprovalId;

pub(super) const HOUR: i64 = 60 * 60;

pub(super) fn question(tool: &str) -> ApprovalQuestion {
    ApprovalQuestion {
        id: ApprovalId::fresh(),
        run: RunId::fresh(),
        round: 3,
        tool_call_id: "call_1\0".to_owned(),
        tool: tool.to_owned(),
        arguments: "{\"a\":\"\u{e9}\"}".to_owned(),
        digest: "0123".to_owned(),
        scope: "/path\0".to_owned(),
        reason: Some("system files".to_owned()),
        rule: Some("{\"level\":\"server\",\"index\":0}".to_owned()),
        expires_at: now() + HOUR,
    }
}

pub(super) fn approve(edited: Option<&str>) -> ApprovalDecision {
    ApprovalDecision {
        verdict: ApprovalVerdict::Approve {
            edited: edited.map(str::to_owned),
        },
        message: None,
        remember: None,
    }
}

pub(super) fn deny(message: &str) -> ApprovalDecision {
    ApprovalDecision {
        verdict: ApprovalVerdict::Deny,
        message: Some(message.to_owned()),
        remember: Some(Remember::Tool),
    }
}

pub(super) fn keeps(
    keep: usize,
    messages: &[StoredMessage],
    questions: &[ApprovalQuestion],
) -> Change {
    Change {
        turn: TurnChange::Suspend {
            turn: "{}".to_owned(),
            questions: questions.to_vec(),
        },
        ..append(keep, messages)
    }
}

pub(super) fn ends(keep: usize) -> Change {
    Change {
        turn: TurnChange::End,
        ..append(keep, &[])
    }
}

impl TestStore {
    pub(super) async fn asked(&self, session: &SessionId) -> Vec<Approval> {
        self.store.approvals(&owner(), session).await.unwrap()
    }

    pub(super) async fn states(&self, session: &SessionId) -> Vec<ApprovalState> {
        let asked = self.asked(session).await;
        asked.iter().map(|approval| approval.state).collect()
    }

    pub(super) async fn decide(&self, id: &ApprovalId, decision: &ApprovalDecision) -> Decided {
        let owner = owner();
        let decided = self.store.decide_approval(Some(&owner), id, decision);
        decided.await.unwrap()
    }

    pub(super) async fn bytes(&self, session: &SessionId) -> u64 {
        let head = self.store.head(&owner(), session).await.unwrap();
        head.unwrap().bytes
    }
}

pub(crate) async fn questions_are_kept_with_their_turn(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    subject.write(&session, append(0, &[user("a")])).await;
    let plain = subject.bytes(&session).await;
    let asked = [question("first"), question("second"), question("third")];
    let lease = subject.lease(&session).await;
    let keep = async |questions: &[ApprovalQuestion]| {
        let kept = store.suspend_turn(lease.fence(), "{}", questions).await;
        kept.unwrap();
    };
    keep(&asked[..2]).await;
    let counted = subject.bytes(&session).await;
    assert!(counted > plain + 2);
    check_counts(store).await;
    // An existing question is not changed.
    let changed = ApprovalQuestion {
        tool: "another".repeat(1_000),
        ..asked[0].clone()
    };
    keep(std::slice::from_ref(&changed)).await;
    assert_eq!(subject.bytes(&session).await, counted);
    keep(&[]).await;
    keep(&[changed, asked[2].clone()]).await;
    store.release(lease).await;
    let found = subject.asked(&session).await;
    for (found, asked) in found.iter().zip(&asked) {
        let expected = Approval {
            owner: owner(),
            session: session.clone(),
            question: asked.clone(),
            created_at: found.created_at,
            state: ApprovalState::Waiting,
            message: None,
            edited: None,
            remember: None,
            decided_at: None,
        };
        assert_eq!(*found, expected);
        assert!((now() - 60..=now()).contains(&found.created_at));
        let one = store.find_approval(Some(&owner()), &asked.id).await;
        assert_eq!(one.unwrap(), Some(expected));
    }
    assert_eq!(found.len(), 3);
    check_counts(store).await;
    // A write of the session leaves them, a fork has none.
    subject.write(&session, append(1, &[user("b")])).await;
    subject.fork(&session, None, &id("fork")).await.unwrap();
    assert_eq!(subject.asked(&session).await, found);
    assert_eq!(subject.asked(&id("fork")).await, []);
    check_counts(store).await;
    assert!(subject.delete(&session).await);
    assert_eq!(store.rows_of(["approvals"]).await, [0]);
}

pub(crate) async fn the_end_of_a_turn_leaves_what_it_asked(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let asked = [question("first"), question("second")];
    subject
        .write(&session, keeps(0, &[user("a")], &asked))
        .await;
    subject.decide(&asked[0].id, &approve(None)).await;
    let bytes = subject.bytes(&session).await;
    subject.write(&session, ends(1)).await;
    let states = [ApprovalState::Approved, ApprovalState::Left];
    assert_eq!(subject.states(&session).await, states);
    let left = subject.decide(&asked[1].id, &approve(None)).await;
    assert_eq!(left, Decided::Already);
    let ended = subject.loaded(&session).await;
    assert_eq!((ended.turn, ended.messages.len()), (None, 1));
    assert_eq!(subject.bytes(&session).await, bytes - 2);
    // So does a replacement, unless it keeps a turn itself.
    let third = [question("third")];
    subject.write(&session, keeps(1, &[], &third)).await;
    subject.replace(&session, 0, append(0, &[user("b")])).await;
    assert_eq!(subject.states(&session).await[2..], [ApprovalState::Left]);
    assert_eq!(subject.loaded(&session).await.turn, None);
    let fourth = keeps(0, &[user("c")], &[question("fourth")]);
    subject.replace(&session, 0, fourth).await;
    let states = subject.states(&session).await;
    assert_eq!(states[2..], [ApprovalState::Left, ApprovalState::Waiting]);
    assert!(subject.loaded(&session).await.turn.is_some());
    check_counts(store).await;
}

pub(crate) async fn a_changed_message_is_stored_with_its_turn(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let run = RunId::fresh();
    let first = question("first");
    let change = Change {
        run: Some(run.clone()),
        ..keeps(0, &[user("a"), answer("b")], std::slice::from_ref(&first))
    };
    subject.write(&session, change).await;
    assert_eq!(subject.loaded(&session).await.last_run, Some(run));
    check_counts(store).await;
    subject.decide(&first.id, &approve(Some("{}"))).await;
    let changed = Change {
        turn: TurnChange::Suspend {
            turn: "{\"edited\":true}".to_owned(),
            questions: vec![first, question("second")],
        },
        ..append(1, &[answer("another")])
    };
    subject.write(&session, changed).await;
    let stored = subject.loaded(&session).await;
    assert_eq!(stored.messages, [user("a"), answer("another")]);
    assert_eq!(stored.turn.as_deref(), Some("{\"edited\":true}"));
    let states = [ApprovalState::Approved, ApprovalState::Waiting];
    assert_eq!(subject.states(&session).await, states);
    check_counts(store).await;
}

pub(crate) async fn a_turn_that_is_too_large_changes_nothing(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let limits = SessionLimits {
        session_bytes: 3_000,
        ..SessionLimits::default()
    };
    let keep = |turn: usize, arguments: usize| Change {
        turn: TurnChange::Suspend {
            turn: "x".repeat(turn),
            questions: vec![ApprovalQuestion {
                arguments: "y".repeat(arguments),
                ..question("t")
            }],
        },
        ..append(1, &[user("b")])
    };
    subject.write(&session, append(0, &[user("a")])).await;
    let small = keep(1_500, 10);
    subject.write(&session, small).await;
    store.limit_sessions(limits).await;
    let before = (
        subject.loaded(&session).await,
        subject.asked(&session).await,
        subject.bytes(&session).await,
    );
    let lease = subject.lease(&session).await;
    for (turn, arguments) in [(4_000, 10), (10, 4_000), (2_000, 1_500)] {
        let change = Arc::new(keep(turn, arguments));
        let refused = store.write(lease.fence(), &change).await;
        assert!(
            matches!(refused, Err(StoreError::SessionTooLarge { .. })),
            "{refused:?}"
        );
        let (turn, questions) = change.turn.kept().unwrap();
        let refused = store.suspend_turn(lease.fence(), turn, questions).await;
        assert!(
            matches!(refused, Err(StoreError::SessionTooLarge { .. })),
            "{refused:?}"
        );
        let after = (
            subject.loaded(&session).await,
            subject.asked(&session).await,
            subject.bytes(&session).await,
        );
        assert_eq!(after, before);
    }
    // What the earlier turn leaves counts.
    let fitting = Arc::new(keep(10, 2_000));
    store.write(lease.fence(), &fitting).await.unwrap();
    check_counts(store).await;
    store.release(lease).await;
    let lost = id("lost");
    let lease = subject.lease(&lost).await;
    let fence = lease.fence().clone();
    store.release(lease).await;
    let late = store.write(&fence, &fitting).await;
    assert!(matches!(late, Err(StoreError::LeaseLost)), "{late:?}");
    assert_eq!(subject.asked(&lost).await, []);
}

pub(crate) async fn a_session_stays_while_something_can_be_decided(subject: TestStore) {
    let store = &subject.store;
    let asked = [question("a"), question("b")];
    for (name, question) in ["decided", "undecided"].into_iter().zip(&asked) {
        let change = Change {
            id_origin: IdOrigin::Nameless,
            ..keeps(
                0,
                &[user(&"x".repeat(5_000))],
                std::slice::from_ref(question),
            )
        };
        subject.write(&id(name), change).await;
        store.set_updated_at(&owner(), &id(name), now() - 900).await;
    }
    let expire = async || {
        let age = Some(Duration::from_secs(600));
        store.expire(age, age).await.unwrap()
    };
    assert_eq!(expire().await, 0);
    let total = |total_bytes: u64| SessionLimits {
        total_bytes,
        ..SessionLimits::default()
    };
    store.limit_sessions(total(12_000)).await;
    let lease = subject.lease(&id("new")).await;
    let large = Arc::new(append(0, &[user(&"x".repeat(5_000))]));
    let full = store.write(lease.fence(), &large).await;
    assert!(matches!(full, Err(StoreError::Full(_))), "{full:?}");
    subject.decide(&asked[0].id, &approve(None)).await;
    store.write(lease.fence(), &large).await.unwrap();
    assert!(subject.is_gone(&id("decided")).await);
    assert!(!subject.is_gone(&id("undecided")).await);
    store.shift_clock(2 * HOUR).await;
    assert_eq!(expire().await, 2);
    assert_eq!(store.rows_of(["approvals"]).await, [0]);
}

/// Approvals are the same in a copy of their store.
pub(crate) async fn they_are_copied(source: &StoreUrl, target: &StoreUrl) {
    let store = Store::open(source).await.unwrap();
    let subject = TestStore {
        store: store.clone(),
        directory: None,
    };
    let asked = [question("first"), question("second")];
    subject
        .write(&id("s"), keeps(0, &[user("a")], &asked))
        .await;
    subject.decide(&asked[0].id, &deny("no")).await;
    let before = subject.asked(&id("s")).await;
    store.close().await;
    let copied = copy(source, target, &mut |_| {}).await.unwrap();
    let table = copied.iter().find(|copied| copied.table == "approvals");
    assert_eq!(table.unwrap().rows, 2);
    let store = Store::open(target).await.unwrap();
    let there = store.approvals(&owner(), &id("s")).await.unwrap();
    assert_eq!(there, before);
    let decision = approve(None);
    let decided = store.decide_approval(None, &asked[1].id, &decision);
    assert!(matches!(decided.await, Ok(Decided::Now(_))));
    check_counts(&store).await;
    store.close().await;
}

/// What a store of the schema before has stays as it is. `undo` makes a closed store one of that schema.
pub(crate) async fn an_older_store_gets_them(url: &StoreUrl, undo: impl AsyncFn()) {
    let store = Store::open(url).await.unwrap();
    let subject = TestStore {
        store: store.clone(),
        directory: None,
    };
    subject
        .write(&id("s"), append(0, &[user("a"), answer("b")]))
        .await;
    let lease = subject.lease(&id("s")).await;
    store.suspend_turn(lease.fence(), "{}", &[]).await.unwrap();
    store.release(lease).await;
    let before = subject.loaded(&id("s")).await;
    store.close().await;
    undo().await;
    let store = Store::open(url).await.unwrap();
    assert!(store.was_upgraded());
    let subject = TestStore {
        store: store.clone(),
        directory: None,
    };
    assert_eq!(subject.loaded(&id("s")).await, before);
    assert_eq!(subject.asked(&id("s")).await, []);
    check_counts(&store).await;
    subject
        .write(&id("s"), keeps(2, &[], &[question("t")]))
        .await;
    assert_eq!(subject.states(&id("s")).await, [ApprovalState::Waiting]);
    check_counts(&store).await;
    store.close().await;
}
