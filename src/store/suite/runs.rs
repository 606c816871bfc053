//! Records of runs and their answers.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::super::answer::NewAnswerHead;
use super::*;

/// More than one piece, and less than two.
const LARGE: usize = 3_000_000;

impl TestStore {
    async fn begin(&self, run: &RunId) {
        self.store.begin_run(run, &owner(), None).await.unwrap();
    }

    async fn end(&self, run: &RunId, answer: RunAnswer) {
        self.store.end_run(run, &owner(), answer).await.unwrap();
    }

    /// Records a run that has ended.
    async fn ended(&self, length: usize) -> RunId {
        let run = RunId::fresh();
        self.begin(&run).await;
        self.end(&run, answer_of(length)).await;
        run
    }

    pub(super) async fn record(&self, run: &RunId) -> Option<RunRecord> {
        self.store.run(&owner(), run).await.unwrap()
    }

    async fn state(&self, run: &RunId) -> RunRecordState {
        self.record(run).await.unwrap().state
    }

    /// The answer of a run that has ended.
    async fn answer(&self, run: &RunId) -> RunAnswer {
        let answer = self.store.answer(&owner(), run).await.unwrap().unwrap();
        let (head, _) = NewAnswerHead::of(answer.clone()).await.unwrap();
        let bytes = head.bytes() as u64;
        assert_eq!(self.state(run).await, RunRecordState::Ended { bytes });
        answer
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    pairs.iter().map(pair).collect()
}

/// An answer whose body differs at every place.
pub(super) fn answer_of(length: usize) -> RunAnswer {
    let number = |place: usize| u8::try_from(place % 251).unwrap();
    RunAnswer {
        headers: headers(&[("content-type", "application/json")]),
        body: (0..length).map(number).collect::<Bytes>().into(),
        ..RunAnswer::default()
    }
}

pub(crate) async fn a_record_has_the_state_of_its_run(subject: TestStore) {
    let run = RunId::fresh();
    assert_eq!(subject.record(&run).await, None);
    // Without a record there is nothing to end.
    subject.end(&run, answer_of(10)).await;
    assert_eq!(subject.record(&run).await, None);
    subject.begin(&run).await;
    let record = subject.record(&run).await.unwrap();
    assert_eq!((&record.id, &record.owner), (&run, &owner()));
    assert_eq!(record.session_id, None);
    assert!((now() - record.created_at).abs() < 5);
    assert_eq!(record.state, RunRecordState::Running);
    // The session may become known later, and stays.
    for session in [Some(id("s")), None] {
        let begun = subject
            .store
            .begin_run(&run, &owner(), session.as_ref())
            .await;
        begun.unwrap();
        let record = subject.record(&run).await.unwrap();
        assert_eq!(record.session_id, Some(id("s")));
    }
    subject.end(&run, answer_of(10)).await;
    let ended = subject.record(&run).await.unwrap();
    assert_eq!(subject.answer(&run).await, answer_of(10));
    assert_eq!(ended.session_id, Some(id("s")));
    assert_eq!(ended.created_at, record.created_at);
}

pub(crate) async fn an_answer_is_stored_once_and_unchanged(subject: TestStore) {
    for length in [0, 1, 200_000, 300_000, LARGE, 2 * 1024 * 1024] {
        let answer = RunAnswer {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            headers: headers(&[("retry-after", "1"), ("x", "a\"\\"), ("x", "b")]),
            ..answer_of(length)
        };
        let run = RunId::fresh();
        subject.begin(&run).await;
        subject.end(&run, answer.clone()).await;
        // The first answer stays, and so does the end.
        subject.end(&run, answer_of(1)).await;
        subject.begin(&run).await;
        assert_eq!(subject.answer(&run).await, answer);
    }
}

pub(crate) async fn an_owner_sees_and_changes_only_its_own_runs(subject: TestStore) {
    let store = &subject.store;
    let bob = Owner::key("bob");
    let run = RunId::fresh();
    subject.begin(&run).await;
    assert_eq!(store.run(&bob, &run).await.unwrap(), None);
    let begun = store.begin_run(&run, &bob, None).await;
    assert!(matches!(begun, Err(StoreError::Exists)), "{begun:?}");
    for length in [10, LARGE] {
        store.end_run(&run, &bob, answer_of(length)).await.unwrap();
    }
    assert!(!store.delete_run(&bob, &run).await.unwrap());
    assert_eq!(subject.state(&run).await, RunRecordState::Running);
    assert_eq!(store.answer(&owner(), &run).await.unwrap(), None);
    assert_eq!(store.run_rows().await, [1, 0, 0]);
    subject.end(&run, answer_of(10)).await;
    assert_eq!(store.answer(&bob, &run).await.unwrap(), None);
}

pub(crate) async fn a_deleted_record_leaves_nothing(subject: TestStore) {
    let store = &subject.store;
    for length in [None, Some(10), Some(300_000), Some(LARGE)] {
        let run = RunId::fresh();
        let claimed = store.claim_key(&owner(), "k", &[0; 32], &run).await;
        assert_eq!(claimed.unwrap(), KeyClaim::New);
        subject.begin(&run).await;
        if let Some(length) = length {
            subject.end(&run, answer_of(length)).await;
        }
        assert!(store.delete_run(&owner(), &run).await.unwrap());
        assert_eq!(subject.record(&run).await, None);
        assert_eq!(store.run_rows().await, [0, 0, 0], "{length:?}");
        assert!(!store.delete_run(&owner(), &run).await.unwrap());
    }
}

pub(crate) async fn a_write_records_its_run(subject: TestStore) {
    let session = id("s");
    let by = |run: &RunId, change: Change| Change {
        run: Some(run.clone()),
        ..change
    };
    // In one piece, and in several.
    let changes = [
        append(0, &[user("a")]),
        append(1, &[user("b")]),
        append(2, &many(1_000)),
    ];
    for change in changes {
        let run = RunId::fresh();
        subject.write(&session, by(&run, change)).await;
        let record = subject.record(&run).await.unwrap();
        assert_eq!(record.state, RunRecordState::Running);
        assert_eq!(record.session_id, Some(session.clone()));
        let stored = subject.loaded(&session).await;
        assert_eq!(stored.last_run.as_ref(), Some(&run));
        assert_eq!(subject.summary(&session).await.last_run, Some(run.clone()));
        // Other changes leave the last run, and a late write leaves the answer.
        let kept = stored.messages.len();
        subject.write(&session, append(kept, &[])).await;
        subject.end(&run, answer_of(10)).await;
        subject.write(&session, by(&run, append(kept, &[]))).await;
        assert_eq!(subject.loaded(&session).await.last_run, Some(run.clone()));
        assert_eq!(subject.answer(&run).await, answer_of(10));
    }
    // A write that is refused records nothing.
    let lease = subject.lease(&session).await;
    let fence = lease.fence().clone();
    subject.store.release(lease).await;
    let run = RunId::fresh();
    let change = Arc::new(by(&run, append(0, &[])));
    let written = subject.store.write(&fence, &change).await;
    assert!(matches!(written, Err(StoreError::LeaseLost)));
    assert_eq!(subject.record(&run).await, None);
}

pub(crate) async fn imports_and_forks_have_no_last_run(subject: TestStore) {
    let session = id("s");
    let change = Change {
        run: Some(RunId::fresh()),
        ..append(0, &[user("a")])
    };
    subject.write(&session, change).await;
    subject.fork(&session, None, &id("fork")).await.unwrap();
    assert_eq!(subject.loaded(&id("fork")).await.last_run, None);
    assert!(subject.loaded(&session).await.last_run.is_some());
    subject.replace(&session, 0, append(0, &[user("b")])).await;
    assert_eq!(subject.loaded(&session).await.last_run, None);
}

pub(crate) async fn ended_records_expire(subject: TestStore) {
    let store = &subject.store;
    let running = RunId::fresh();
    subject.begin(&running).await;
    // More than one batch, and an answer in several pieces.
    for _ in 0..520 {
        subject.ended(1).await;
    }
    subject.ended(LARGE).await;
    store.age_runs(100).await;
    let new = subject.ended(1).await;
    let expire = async |seconds| {
        let age = Duration::from_secs(seconds);
        store.expire_runs(age).await.unwrap()
    };
    assert_eq!(expire(1_000).await, 0);
    assert_eq!(expire(50).await, 521);
    assert_eq!(store.run_rows().await, [2, 1, 0]);
    assert!(subject.record(&new).await.is_some());
    // What runs does not expire.
    assert_eq!(expire(0).await, 1);
    assert_eq!(subject.state(&running).await, RunRecordState::Running);
}

pub(crate) async fn an_answer_that_is_too_large_is_not_stored(subject: TestStore) {
    let store = &subject.store;
    let run = RunId::fresh();
    let claimed = store.claim_key(&owner(), "k", &[0; 32], &run).await;
    assert_eq!(claimed.unwrap(), KeyClaim::New);
    subject.begin(&run).await;
    let limits = AnswerLimits {
        answer: 1_000,
        ..AnswerLimits::default()
    };
    let end = async |run: &RunId, length| {
        let answer = answer_of(length);
        store.end_run_within(run, &owner(), answer, limits).await;
    };
    end(&run, 1_001).await;
    assert_eq!(subject.record(&run).await, None);
    assert_eq!(store.run_rows().await, [0, 0, 1]);
    // The key is kept, so that a retry does not repeat the run.
    let retry = RunId::fresh();
    let claim = store.claim_key(&owner(), "k", &[0; 32], &retry).await;
    assert_eq!(claim.unwrap(), KeyClaim::Held { run });
    // An answer that is already stored stays.
    let other = RunId::fresh();
    subject.begin(&other).await;
    end(&other, 900).await;
    end(&other, 1_001).await;
    assert_eq!(subject.answer(&other).await, answer_of(900));
}

pub(crate) async fn the_oldest_answers_of_the_largest_owner_are_evicted(subject: TestStore) {
    let store = &subject.store;
    let limits = AnswerLimits {
        total: 20_000,
        ..AnswerLimits::default()
    };
    let end = async |owner: &Owner, length: usize| {
        let run = RunId::fresh();
        store.begin_run(&run, owner, None).await.unwrap();
        let answer = answer_of(length);
        store.end_run_within(&run, owner, answer, limits).await;
        run
    };
    let bob = Owner::key("bob");
    let small = end(&bob, 1_000).await;
    let mut runs = Vec::new();
    for _ in 0..8 {
        runs.push(end(&owner(), 3_000).await);
    }
    let mut stored = Vec::new();
    for run in &runs {
        stored.push(subject.record(run).await.is_some());
    }
    // Each of them counts 3,000 bytes, its headers and its row; the small one of the other owner is older.
    assert_eq!(stored, [false, false, false, false, true, true, true, true]);
    assert!(store.run(&bob, &small).await.unwrap().is_some());
    // The answer that was just written is kept, even if it is the largest.
    let large = end(&bob, 19_000).await;
    assert!(store.run(&bob, &large).await.unwrap().is_some());
    assert_eq!(store.run_rows().await, [1, 1, 0]);
    // Small answers are bounded too.
    for _ in 0..40 {
        end(&owner(), 0).await;
    }
    let [records, ..] = store.run_rows().await;
    assert!((15..20).contains(&records), "{records}");
}

pub(crate) async fn a_large_answer_dropped_at_any_point_is_whole_or_absent(subject: TestStore) {
    let store = &subject.store;
    for polls in 0..8 {
        let run = RunId::fresh();
        subject.begin(&run).await;
        {
            let owner = owner();
            let mut ending = Box::pin(store.end_run(&run, &owner, answer_of(LARGE)));
            for _ in 0..polls {
                if ending.as_mut().now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        match subject.state(&run).await {
            RunRecordState::Running => {}
            RunRecordState::Ended { .. } => {
                assert_eq!(subject.answer(&run).await, answer_of(LARGE));
            }
            RunRecordState::RunningElsewhere
            | RunRecordState::Interrupted
            | RunRecordState::Suspended => panic!(),
        }
        // With a second answer, one of them is stored whole.
        let answer = RunAnswer {
            body: vec![7; LARGE].into(),
            ..answer_of(0)
        };
        subject.end(&run, answer).await;
        let stored = subject.answer(&run).await;
        let all_of_second = stored.body == vec![7; LARGE].into();
        assert!(all_of_second || stored == answer_of(LARGE));
    }
    assert_eq!(store.expire_runs(Duration::ZERO).await.unwrap(), 8);
}
