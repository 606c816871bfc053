//! Decisions about calls that wait for a person.

use super::approvals::{HOUR, approve, deny, ends, keeps, question};
use super::sizes::check_counts;
use super::*;
use protocol::ids::ApprovalId;

pub(crate) async fn a_decision_is_made_once(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let asked = [question("first"), question("second")];
    subject
        .write(&session, keeps(0, &[user("a")], &asked))
        .await;
    let before = subject.bytes(&session).await;
    // The run has the lease.
    let lease = subject.lease(&session).await;
    let decision = ApprovalDecision {
        message: Some("as I said\0".to_owned()),
        remember: Some(Remember::Same),
        ..approve(Some("{\"a\":\"\0\"}"))
    };
    let Decided::Now(first) = subject.decide(&asked[0].id, &decision).await else {
        panic!("nothing was decided");
    };
    assert_eq!(first.state, ApprovalState::Approved);
    assert_eq!(first.message, decision.message);
    assert_eq!(first.edited.as_deref(), decision.verdict.edited());
    assert_eq!(first.remember, Some(Remember::Same));
    assert!(first.decided_at.is_some_and(|at| at >= first.created_at));
    assert_eq!(first.question, asked[0]);
    assert_eq!(subject.bytes(&session).await, before + 10 + 9);
    check_counts(store).await;
    for late in [&decision, &deny("no")] {
        assert_eq!(subject.decide(&asked[0].id, late).await, Decided::Already);
    }
    assert_eq!(subject.asked(&session).await[0], *first);
    let denied = subject.decide(&asked[1].id, &deny("no")).await;
    assert!(
        matches!(&denied, Decided::Now(it) if it.state == ApprovalState::Denied && it.edited.is_none()),
        "{denied:?}"
    );
    store.release(lease).await;
    let unknown = subject.decide(&ApprovalId::fresh(), &deny("no")).await;
    assert_eq!(unknown, Decided::NotFound);
    // The end of the turn and another question change no decision.
    subject.write(&session, ends(1)).await;
    subject.write(&session, keeps(1, &[], &asked)).await;
    let states = [ApprovalState::Approved, ApprovalState::Denied];
    assert_eq!(subject.states(&session).await, states);
    check_counts(store).await;
}

pub(crate) async fn of_several_deciders_one_decides(subject: TestStore) {
    one_decides(&[&subject.store; 2]).await;
}

/// Decides at the same time in stores of one database, while the session is written.
pub(crate) async fn one_decides(stores: &[&Store]) {
    let (first, session) = (stores[0], id("s"));
    let lease = first.acquire(&owner(), &session, LONG).await.unwrap();
    for round in 0..10 {
        let asked = question("t");
        let change = Arc::new(keeps(round, &[user("a")], std::slice::from_ref(&asked)));
        first.write(lease.fence(), &change).await.unwrap();
        let mut deciders = tokio::task::JoinSet::new();
        for (number, store) in (0..4).flat_map(|_| stores.iter().copied()).enumerate() {
            let (store, id) = (store.clone(), asked.id.clone());
            deciders.spawn(async move {
                let decision = match number % 2 {
                    0 => deny(&number.to_string()),
                    _ => approve(Some("{}")),
                };
                let decided = store.decide_approval(None, &id, &decision).await;
                decided.unwrap()
            });
        }
        let write = Arc::new(append(round + 1, &[]));
        first.write(lease.fence(), &write).await.unwrap();
        let outcomes = deciders.join_all().await;
        let mut made = outcomes.iter().filter_map(|outcome| match outcome {
            Decided::Now(approval) => Some(&**approval),
            Decided::Already | Decided::NotFound => None,
        });
        let found = first.find_approval(None, &asked.id).await.unwrap();
        assert_eq!((made.next(), made.next()), (found.as_ref(), None));
        assert!(!outcomes.contains(&Decided::NotFound));
    }
    check_counts(first).await;
}

pub(crate) async fn what_has_expired_is_not_decided(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let long = ApprovalQuestion {
        expires_at: now() + 5 * HOUR,
        ..question("long")
    };
    let asked = [question("short"), long];
    subject
        .write(&session, keeps(0, &[user("a")], &asked))
        .await;
    store.shift_clock(2 * HOUR).await;
    let states = [ApprovalState::Expired, ApprovalState::Waiting];
    assert_eq!(subject.states(&session).await, states);
    let expired = store.find_approval(None, &asked[0].id).await.unwrap();
    assert_eq!(expired.unwrap().state, ApprovalState::Expired);
    let me = owner();
    let waiting = store.waiting_approvals(all_of(Some(&me))).await.unwrap();
    assert_eq!(waiting, subject.asked(&session).await[1..]);
    let late = subject.decide(&asked[0].id, &approve(None)).await;
    assert_eq!(late, Decided::Already);
    // It has not been left, whatever the clock shows later.
    subject.write(&session, ends(1)).await;
    store.shift_clock(0).await;
    let states = [ApprovalState::Expired, ApprovalState::Left];
    assert_eq!(subject.states(&session).await, states);
    for question in &asked {
        let late = subject.decide(&question.id, &approve(None)).await;
        assert_eq!(late, Decided::Already);
    }
    assert_eq!(store.waiting_approvals(all_of(None)).await.unwrap(), []);
}

/// All that waits, of an owner or of any.
fn all_of(owner: Option<&Owner>) -> WaitingFilter<'_> {
    WaitingFilter {
        owner,
        calls: 10,
        bytes: u64::MAX,
    }
}

pub(crate) async fn an_owner_with_many_questions_leaves_room_for_others(subject: TestStore) {
    let (store, bob) = (&subject.store, Owner::key("bob"));
    let long = |name: &str| ApprovalQuestion {
        arguments: "1".repeat(1000),
        ..question(name)
    };
    let of_alice = [long("a"), long("b"), long("c")];
    let of_bob = [long("d")];
    let change = |asked: &[ApprovalQuestion]| keeps(0, &[user("a")], asked);
    subject.write(&id("s"), change(&of_alice)).await;
    subject.write(&id("t"), change(&[])).await;
    subject.write_as(&bob, &id("s"), change(&of_bob)).await;
    let listed = async |filter: WaitingFilter<'_>| {
        let listed = store.waiting_approvals(filter).await.unwrap();
        let bytes = store.waiting_bytes(filter).await.unwrap();
        assert_eq!(bytes, listed.len() as u64 * 1000);
        let tools = listed.into_iter().map(|one| one.question.tool);
        tools.collect::<Vec<_>>().concat()
    };
    let all = all_of(None);
    assert_eq!(listed(all).await, "abcd");
    for (calls, bytes, tools) in [
        (3, u64::MAX, "abd"),
        (2, u64::MAX, "ad"),
        (9, 2999, "ad"),
        (9, 3000, "abd"),
        (9, 0, "a"),
    ] {
        let filter = WaitingFilter {
            calls,
            bytes,
            ..all
        };
        assert_eq!(listed(filter).await, tools, "{calls} {bytes}");
    }
    for (session, tools) in [("s", "abc"), ("t", "")] {
        let found = store.waiting_in(&owner(), &id(session)).await.unwrap();
        let bytes = store
            .waiting_bytes_in(&owner(), &id(session))
            .await
            .unwrap();
        assert_eq!(bytes, found.len() as u64 * 1000);
        let found = found.into_iter().map(|one| one.question.tool);
        assert_eq!(found.collect::<Vec<_>>().concat(), tools);
    }
}

pub(crate) async fn a_decision_needs_room(subject: TestStore) {
    let (store, session) = (&subject.store, id("s"));
    let asked = [question("first"), question("second")];
    subject
        .write(&session, keeps(0, &[user("a")], &asked))
        .await;
    let before = subject.bytes(&session).await;
    let limits = SessionLimits {
        session_bytes: before + 100,
        ..SessionLimits::default()
    };
    store.limit_sessions(limits).await;
    let me = owner();
    let decide = async |decision| {
        store
            .decide_approval(Some(&me), &asked[0].id, decision)
            .await
    };
    let long = deny(&"n".repeat(101));
    let refused = decide(&long).await;
    assert!(
        matches!(refused, Err(StoreError::SessionTooLarge { .. })),
        "{refused:?}"
    );
    let limits = SessionLimits {
        total_bytes: before + 50,
        ..SessionLimits::default()
    };
    store.limit_sessions(limits).await;
    let short = deny(&"n".repeat(51));
    let refused = decide(&short).await;
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    assert_eq!(subject.bytes(&session).await, before);
    let no = deny("no");
    let decided = decide(&no).await;
    assert!(matches!(decided, Ok(Decided::Now(_))), "{decided:?}");
    assert_eq!(subject.states(&session).await[1], ApprovalState::Waiting);
    check_counts(store).await;
}

pub(crate) async fn an_owner_decides_its_own_and_an_operator_all(subject: TestStore) {
    let (store, session, bob) = (&subject.store, id("s"), Owner::key("bob"));
    let (of_alice, of_bob) = (question("t"), question("t"));
    let change =
        |question: &ApprovalQuestion| keeps(0, &[user("a")], std::slice::from_ref(question));
    subject.write(&session, change(&of_alice)).await;
    subject.write_as(&bob, &session, change(&of_bob)).await;
    let waiting = async |owner: Option<&Owner>, limit: usize| {
        let filter = WaitingFilter {
            calls: limit,
            ..all_of(owner)
        };
        let waiting = store.waiting_approvals(filter).await.unwrap();
        let ids = waiting.into_iter().map(|one| one.question.id);
        ids.collect::<Vec<_>>()
    };
    let [alice_id, bob_id] = [&of_alice.id, &of_bob.id].map(ApprovalId::clone);
    let both = [alice_id.clone(), bob_id.clone()];
    assert_eq!(waiting(Some(&owner()), 9).await, both[..1]);
    assert_eq!(waiting(Some(&bob), 9).await, both[1..]);
    assert_eq!(waiting(None, 9).await, both);
    assert_eq!(waiting(None, 1).await, both[..1]);
    let found = store.find_approval(Some(&bob), &alice_id).await.unwrap();
    assert_eq!(found, None);
    let found = store.find_approval(None, &bob_id).await.unwrap();
    assert_eq!(found.unwrap().owner, bob);
    let of_bobs = store.approvals(&bob, &session).await.unwrap();
    assert_eq!(of_bobs[0].question, of_bob);
    let foreign = store
        .decide_approval(Some(&bob), &alice_id, &approve(None))
        .await;
    assert_eq!(foreign.unwrap(), Decided::NotFound);
    assert_eq!(subject.states(&session).await, [ApprovalState::Waiting]);
    let by_operator = store.decide_approval(None, &bob_id, &approve(None)).await;
    assert!(
        matches!(by_operator, Ok(Decided::Now(_))),
        "{by_operator:?}"
    );
    assert_eq!(waiting(None, 9).await, both[..1]);
}
