//! Records of runs after the end of the process, and damaged ones.

use super::super::super::answer::PART;
use super::super::super::{KeyClaim, RunAnswer, RunRecordState};
use super::*;

fn answer(body: Vec<u8>) -> RunAnswer {
    RunAnswer {
        body: body.into(),
        ..RunAnswer::default()
    }
}

async fn state(store: &Store, run: &RunId) -> RunRecordState {
    store.run(&owner(), run).await.unwrap().unwrap().state
}

/// The rows of a body of so many bytes.
fn pieces(bytes: usize) -> i64 {
    i64::try_from(bytes.div_ceil(PART)).unwrap()
}

#[tokio::test]
async fn runs_of_a_process_that_is_gone_are_interrupted() {
    let TestStore { store, directory } = file().await;
    let directory = directory.unwrap();
    let (running, ended, unrecorded) = (RunId::fresh(), RunId::fresh(), RunId::fresh());
    for (key, run) in [("a", &running), ("b", &ended), ("c", &unrecorded)] {
        let claimed = store.claim_key(&owner(), key, &[0; 32], run).await;
        assert_eq!(claimed.unwrap(), KeyClaim::New);
    }
    let change = Change {
        run: Some(running.clone()),
        ..append(0, &[user("a")])
    };
    write(&store, &id("s"), change).await.unwrap();
    store.begin_run(&ended, &owner(), None).await.unwrap();
    let body = answer(vec![1; 3_000_000]);
    store.end_run(&ended, &owner(), body.clone()).await.unwrap();
    store.close().await;

    let url = StoreUrl::Sqlite(directory.path().join("sessions.db"));
    let store = Store::open(&url).await.unwrap();
    assert_eq!(state(&store, &running).await, RunRecordState::Interrupted);
    let stored = store.answer(&owner(), &ended).await.unwrap();
    assert_eq!(stored, Some(body));
    let record = store.run(&owner(), &running).await.unwrap().unwrap();
    assert_eq!(record.session_id, Some(id("s")));
    let claims = [("a", Some(&running)), ("b", Some(&ended)), ("c", None)];
    for (key, holder) in claims {
        let run = RunId::fresh();
        let claim = store.claim_key(&owner(), key, &[0; 32], &run).await;
        let expected = match holder.cloned() {
            Some(run) => KeyClaim::Held { run },
            None => KeyClaim::New,
        };
        assert_eq!(claim.unwrap(), expected, "{key}");
    }
    // A write of the same run continues it.
    store.begin_run(&running, &owner(), None).await.unwrap();
    assert_eq!(state(&store, &running).await, RunRecordState::Running);
    store.close().await;
    let store = Store::open(&url).await.unwrap();
    assert_eq!(store.run_rows().await[..2], [2, pieces(3_000_000)]);
    // An interrupted run expires like an ended one.
    store.age_runs(100).await;
    let expired = store.expire_runs(Duration::from_secs(50)).await;
    assert_eq!(expired.unwrap(), 2);
    assert_eq!(store.run_rows().await[..2], [0, 0]);
}

#[tokio::test]
async fn the_usage_of_answers_is_exact() {
    for subject in both().await {
        let store = &subject.store;
        let mut runs = Vec::new();
        for length in [0, 10, 300_000, 3_000_000] {
            let run = RunId::fresh();
            store.begin_run(&run, &owner(), None).await.unwrap();
            let body = answer(vec![1; length]);
            store.end_run(&run, &owner(), body).await.unwrap();
            runs.push(run);
        }
        let bytes = "SELECT coalesce(sum(bytes), 0) FROM run_usage";
        // Each has an empty list of headers.
        assert_eq!(store.number(bytes).await, 3_300_018);
        store.delete_run(&owner(), &runs[2]).await.unwrap();
        assert_eq!(store.number(bytes).await, 3_000_016);
        store.expire_runs(Duration::ZERO).await.unwrap();
        let rows = "SELECT count(*) FROM run_usage";
        assert_eq!(store.number(rows).await, 0);
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_an_error() {
    for subject in both().await {
        let store = &subject.store;
        let run = RunId::fresh();
        store.begin_run(&run, &owner(), None).await.unwrap();
        let body = answer(vec![1; 3_000_000]);
        store.end_run(&run, &owner(), body).await.unwrap();
        for sql in [
            "UPDATE runs SET headers = 'x', bytes = bytes - 1",
            "UPDATE runs SET headers = '[]', bytes = bytes + 1, status = 'lost'",
            "UPDATE runs SET status = 'ended', session_id = 'a b'",
            "DELETE FROM run_bodies WHERE seq = 0",
        ] {
            assert!(store.change_rows(sql).await > 0);
            let read = match store.run(&owner(), &run).await {
                Ok(_) => store.answer(&owner(), &run).await.map(drop),
                Err(error) => Err(error),
            };
            assert!(
                matches!(read, Err(StoreError::Failed(_))),
                "{sql}: {read:?}"
            );
        }
    }
}

#[tokio::test]
async fn the_later_writes_of_a_run_leave_the_indexed_time_for_a_while() {
    for TestStore { store, .. } in both().await {
        let first = Change {
            run: Some(RunId::fresh()),
            ..append(0, &[user("a")])
        };
        write(&store, &id("s"), first).await.unwrap();
        write(&store, &id("s"), append(1, &[user("b")]))
            .await
            .unwrap();
        let times = "SELECT count(*) FROM sessions WHERE created_at = updated_at AND written_at > updated_at";
        assert_eq!(store.number(times).await, 1);
        // It is renewed after the interval, and by the next run.
        let aged = "UPDATE sessions SET created_at = 1, updated_at = updated_at - 10000000";
        for run in [None, Some(RunId::fresh())] {
            store.change_rows(aged).await;
            let renewed = Change {
                run,
                ..append(2, &[])
            };
            write(&store, &id("s"), renewed).await.unwrap();
            let times = "SELECT count(*) FROM sessions WHERE written_at = updated_at";
            assert_eq!(store.number(times).await, 1);
        }
        let shown = store.load(&owner(), &id("s")).await.unwrap().unwrap();
        assert!(shown.updated_at > 1_000);
    }
}
