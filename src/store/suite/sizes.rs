//! The bytes of sessions, and their limits.

use super::*;

const KIB: usize = 1024;

/// A message whose stored text has about this many bytes.
fn of_size(bytes: usize) -> StoredMessage {
    user(&"x".repeat(bytes))
}

/// Compares the counted bytes with the bytes of all rows.
pub(crate) async fn check_counts(store: &Store) {
    let sizes = "WITH sizes AS
        (SELECT session, seq, octet_length(json) + coalesce(octet_length(view), 0) + coalesce(octet_length(full_text), 0)
            + coalesce(octet_length(sources), 0) AS bytes FROM messages)";
    let wrong = format!(
        "{sizes} SELECT count(*) FROM sessions s
         WHERE s.bytes <> coalesce((SELECT sum(bytes) FROM sizes m WHERE m.session = s.num), 0)
            + coalesce(octet_length(s.metadata), 0)
            + coalesce((SELECT octet_length(turn) FROM parked_turns t WHERE t.session = s.num), 0)
            + coalesce((SELECT sum(octet_length(tool_call_id) + octet_length(tool) + octet_length(arguments)
                + octet_length(scope) + coalesce(octet_length(reason), 0) + coalesce(octet_length(rule), 0)
                + coalesce(octet_length(message), 0) + coalesce(octet_length(edited), 0))
                FROM approvals a WHERE a.session = s.num), 0)"
    );
    assert_eq!(store.number(&wrong).await, 0, "sessions with a wrong count");
    let wrong = format!(
        "{sizes} SELECT count(*) FROM sessions s
         WHERE s.instruction_count <> (SELECT count(*) FROM sizes m WHERE m.session = s.num AND m.seq < 0)
            OR s.instruction_bytes <> coalesce((SELECT sum(bytes) FROM sizes m WHERE m.session = s.num AND m.seq < 0), 0)"
    );
    assert_eq!(
        store.number(&wrong).await,
        0,
        "sessions with other instructions"
    );
    let of_owners = "SELECT count(*) FROM
        (SELECT owner, count(*) AS n, sum(bytes) AS b FROM sessions GROUP BY owner) s
        FULL JOIN session_usage u ON u.owner = s.owner
        WHERE s.n IS DISTINCT FROM u.sessions OR s.b IS DISTINCT FROM u.bytes";
    assert_eq!(
        store.number(of_owners).await,
        0,
        "owners with a wrong count"
    );
}

async fn limited(subject: &TestStore, session_bytes: usize, total_bytes: usize) {
    let limits = SessionLimits {
        session_bytes: session_bytes as u64,
        total_bytes: total_bytes as u64,
        min_free_disk: 0,
    };
    subject.store.limit_sessions(limits).await;
}

async fn write_as(
    store: &Store,
    owner: &Owner,
    session: &SessionId,
    change: Change,
) -> Result<(), StoreError> {
    let lease = store.acquire(owner, session, LONG).await?;
    store.write(lease.fence(), &Arc::new(change)).await
}

async fn write(store: &Store, session: &SessionId, change: Change) -> Result<(), StoreError> {
    write_as(store, &owner(), session, change).await
}

async fn loaded(store: &Store, session: &SessionId) -> StoredSession {
    store.load(&owner(), session).await.unwrap().unwrap()
}

async fn ids(store: &Store, owner: &Owner) -> Vec<String> {
    let page = store.list(owner, 1000, None).await.unwrap();
    let ids = page.data.iter().map(|entry| entry.id.as_str().to_owned());
    ids.collect()
}

pub(crate) async fn bytes_are_counted_through_every_operation(subject: TestStore) {
    let store = &subject.store;
    let long: Vec<_> = (0..1_300).map(|number| user(&number.to_string())).collect();
    let with_instructions = |change: Change| Change {
        instructions: Some(vec![system("some instructions")]),
        ..change
    };
    let changes = [
        append(0, &[user("a"), answer("b")]),
        append(2, &[hidden_result("c"), answer("d")]),
        with_instructions(append(3, &[])),
        append(1, &[hidden_result("e")]),
        append(2, &long),
        append(700, &[of_size(3 << 20)]),
        with_instructions(append(0, &long[..10])),
        append(5, &[]),
        Change {
            instructions: Some(vec![
                system(&"x".repeat(3 << 20)),
                system(&"y".repeat(20 * KIB)),
            ]),
            ..append(5, &[])
        },
        append(5, &[user("a")]),
        with_instructions(append(6, &[])),
        Change {
            instructions: Some(vec![system("i"); 600]),
            ..append(1, &[])
        },
        append(0, &[]),
        Change {
            instructions: Some(Vec::new()),
            ..append(0, &[user("a")])
        },
    ];
    for change in changes {
        write(store, &id("s"), change).await.unwrap();
        check_counts(store).await;
        let lease = store.acquire(&owner(), &id("s"), LONG).await.unwrap();
        let stored = loaded(store, &id("s")).await;
        let (instructions, messages) = (stored.instructions.len(), stored.messages.len());
        for before in [None, Some(messages / 3), Some(instructions / 2)] {
            let fork = SessionId::fresh();
            store.fork(lease.fence(), before, &fork).await.unwrap();
            check_counts(store).await;
        }
    }
    for change in [append(0, &long), append(0, &[answer("x")])] {
        let lease = store.acquire(&owner(), &id("s"), LONG).await.unwrap();
        let change = Arc::new(with_instructions(change));
        store.replace(lease.fence(), 5, &change).await.unwrap();
        check_counts(store).await;
    }
    let other = Owner::key("bob");
    write_as(store, &other, &id("s"), append(0, &[user("b")]))
        .await
        .unwrap();
    let lease = store.acquire(&owner(), &id("s"), LONG).await.unwrap();
    assert!(store.delete(lease.fence()).await.unwrap());
    check_counts(store).await;
    assert!(store.expire(Some(Duration::ZERO), None).await.unwrap() > 0);
    check_counts(store).await;
    let usage = "SELECT count(*) FROM session_usage";
    assert_eq!(store.number(usage).await, 0);
}

pub(crate) async fn a_session_above_its_limit_is_refused_and_nothing_is_changed(
    subject: TestStore,
) {
    limited(&subject, 100 * KIB, usize::MAX).await;
    let (store, session) = (&subject.store, id("s"));
    let change = append(0, &[user("a"), of_size(60 * KIB)]);
    write(store, &session, change).await.unwrap();
    let before = loaded(store, &session).await;
    let long: Vec<_> = (0..700).map(|_| of_size(KIB)).collect();
    let many = vec![of_size(20 * KIB); 3];
    for new in [vec![of_size(60 * KIB)], many, long.clone()] {
        let error = write(store, &session, append(2, &new)).await.unwrap_err();
        match error {
            StoreError::SessionTooLarge { bytes, limit } => {
                assert_eq!(limit, 100 * 1024);
                assert!(bytes > 120_000 && bytes < 900_000, "{bytes}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(loaded(store, &session).await, before);
        let growth = Growth {
            before: Some(61_000),
            after: 120_000,
        };
        let refused = store.check_growth(&owner(), &session, growth).await;
        assert!(matches!(refused, Err(StoreError::SessionTooLarge { .. })));
    }
    for target in [&session, &id("new")] {
        let lease = store.acquire(&owner(), target, LONG).await.unwrap();
        let change = Arc::new(append(0, &long));
        let error = store.replace(lease.fence(), 0, &change).await;
        let too_large = matches!(error, Err(StoreError::SessionTooLarge { .. }));
        assert!(too_large, "{error:?}");
    }
    assert_eq!(loaded(store, &session).await, before);
    // What replaces as much as it adds is no growth. A session above a lowered limit can shrink, but not be forked.
    write(store, &session, append(1, &[of_size(70 * KIB)]))
        .await
        .unwrap();
    limited(&subject, 50 * KIB, usize::MAX).await;
    let lease = store.acquire(&owner(), &session, LONG).await.unwrap();
    let fork = store.fork(lease.fence(), None, &id("fork")).await;
    assert!(matches!(fork, Err(StoreError::SessionTooLarge { .. })));
    let small = store.fork(lease.fence(), Some(1), &id("fork")).await;
    small.unwrap();
    drop(lease);
    write(store, &session, append(1, &[of_size(60 * KIB)]))
        .await
        .unwrap();
    write(store, &session, append(1, &[])).await.unwrap();
    check_counts(store).await;
}

pub(crate) async fn sessions_without_a_clients_id_go_before_a_write_is_refused(subject: TestStore) {
    limited(&subject, usize::MAX, 100 * KIB).await;
    let (store, large, small) = (&subject.store, owner(), Owner::key("bob"));
    let fill = |bytes: usize| append(0, &[of_size(bytes * KIB)]);
    write_as(store, &small, &SessionId::fresh(), nameless(fill(9)))
        .await
        .unwrap();
    let fresh: Vec<_> = (0..5).map(|_| SessionId::fresh()).collect();
    for session in &fresh {
        write(store, session, nameless(fill(10))).await.unwrap();
    }
    write(store, &id("named"), fill(30)).await.unwrap();
    // The oldest one is leased, so the second and third go; the small owner's stays.
    let lease = store.acquire(&large, &fresh[0], LONG).await.unwrap();
    write(store, &id("more"), fill(25)).await.unwrap();
    let expected = [
        "more",
        "named",
        fresh[4].as_str(),
        fresh[3].as_str(),
        fresh[0].as_str(),
    ];
    assert_eq!(ids(store, &large).await, expected);
    assert_eq!(ids(store, &small).await.len(), 1);
    drop(lease);
    check_counts(store).await;
    // An import makes space too. What has to stay is above the share then.
    let lease = store.acquire(&large, &id("import"), LONG).await.unwrap();
    let chunks = Arc::new(append(0, &vec![of_size(KIB / 32); 700]));
    let imported = store.replace(lease.fence(), 0, &chunks).await;
    match imported {
        Err(StoreError::Full(StorageFull::Share { share, total, .. })) => {
            assert_eq!((share, total), (50 * 1024, 100 * 1024));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(ids(store, &large).await, ["more", "named"]);
    let error = write(store, &id("more"), append(1, &[of_size(40 * KIB)])).await;
    let full = matches!(error, Err(StoreError::Full(StorageFull::Share { .. })));
    assert!(full, "{error:?}");
    assert_eq!(loaded(store, &id("more")).await.messages.len(), 1);
    // Another owner can write until it has its share, and a session can always shrink.
    write_as(store, &small, &id("own"), fill(38)).await.unwrap();
    let error = write_as(store, &small, &id("two"), fill(20)).await;
    let full = matches!(error, Err(StoreError::Full(StorageFull::Share { .. })));
    assert!(full, "{error:?}");
    write(store, &id("more"), append(0, &[user("a")]))
        .await
        .unwrap();
    write(store, &id("named"), append(1, &[user("a")]))
        .await
        .unwrap();
    check_counts(store).await;
}

/// A change that makes a session without an id of the client's.
fn nameless(change: Change) -> Change {
    Change {
        id_origin: IdOrigin::Nameless,
        ..change
    }
}
