//! Idempotency keys.

use tokio::task::JoinSet;

use super::runs::answer_of;
use super::*;

const REQUEST: [u8; 32] = [1; 32];
const OTHER_REQUEST: [u8; 32] = [2; 32];

impl TestStore {
    async fn claim(&self, key: &str, fingerprint: &[u8; 32], run: &RunId) -> KeyClaim {
        let claimed = self.store.claim_key(&owner(), key, fingerprint, run).await;
        claimed.unwrap()
    }
}

fn held(run: &RunId) -> KeyClaim {
    KeyClaim::Held { run: run.clone() }
}

pub(crate) async fn a_key_belongs_to_one_request_of_its_owner(subject: TestStore) {
    let (first, second) = (RunId::fresh(), RunId::fresh());
    let key = "~".repeat(255);
    assert_eq!(subject.claim(&key, &REQUEST, &first).await, KeyClaim::New);
    assert_eq!(subject.claim(&key, &REQUEST, &second).await, held(&first));
    let reused = subject.claim(&key, &OTHER_REQUEST, &second).await;
    assert_eq!(reused, KeyClaim::Reused);
    // The refused claims changed nothing, and other keys are free.
    assert_eq!(subject.claim(&key, &REQUEST, &second).await, held(&first));
    assert_eq!(subject.claim("k", &REQUEST, &second).await, KeyClaim::New);
    let bob = Owner::key("bob");
    let claimed = subject.store.claim_key(&bob, &key, &OTHER_REQUEST, &second);
    assert_eq!(claimed.await.unwrap(), KeyClaim::New);
}

pub(crate) async fn two_claims_at_once_give_one_key(subject: TestStore) {
    for number in 0..50 {
        let key = format!("k{number}");
        let mut claiming = JoinSet::new();
        for _ in 0..2 {
            let (store, key) = (subject.store.clone(), key.clone());
            claiming.spawn(async move {
                let run = RunId::fresh();
                let claim = store.claim_key(&owner(), &key, &REQUEST, &run).await;
                (run, claim.unwrap())
            });
        }
        let mut claims = claiming.join_all().await;
        claims.sort_by_key(|(_, claim)| *claim != KeyClaim::New);
        assert_eq!(claims[0].1, KeyClaim::New);
        assert_eq!(claims[1].1, held(&claims[0].0));
    }
}

pub(crate) async fn a_released_key_is_free(subject: TestStore) {
    let store = &subject.store;
    let (first, second) = (RunId::fresh(), RunId::fresh());
    assert_eq!(subject.claim("k", &REQUEST, &first).await, KeyClaim::New);
    store.begin_run(&first, &owner(), None).await.unwrap();
    // Only the run that has it can release it, and only for its owner.
    store.release_key(&owner(), "k", &second).await.unwrap();
    let bob = Owner::key("bob");
    store.release_key(&bob, "k", &first).await.unwrap();
    assert_eq!(subject.claim("k", &REQUEST, &second).await, held(&first));
    store.release_key(&owner(), "k", &first).await.unwrap();
    let claimed = subject.claim("k", &OTHER_REQUEST, &second).await;
    assert_eq!(claimed, KeyClaim::New);
    assert!(store.run(&owner(), &first).await.unwrap().is_some());
    assert!(store.run(&owner(), &second).await.unwrap().is_none());
}

pub(crate) async fn a_key_passes_from_an_interrupted_run_to_the_next(subject: TestStore) {
    let store = &subject.store;
    let (first, second, third) = (RunId::fresh(), RunId::fresh(), RunId::fresh());
    subject.claim("k", &REQUEST, &first).await;
    let session = id("s");
    let begun = store.begin_run(&first, &owner(), Some(&session)).await;
    begun.unwrap();
    // Two retries at the same time: one continues the run.
    let mut reclaiming = JoinSet::new();
    for to in [second, third] {
        let (store, first) = (store.clone(), first.clone());
        reclaiming.spawn(async move {
            let reclaimed = store.reclaim_key(&owner(), "k", &first, &to).await;
            (to, reclaimed.unwrap())
        });
    }
    let reclaims = reclaiming.join_all().await.into_iter();
    let (won, lost): (Vec<_>, Vec<_>) = reclaims.partition(|(_, reclaimed)| *reclaimed);
    assert_eq!((won.len(), lost.len()), (1, 1));
    let (next, _) = &won[0];
    // An attempt whose answer was lost is made again.
    let again = store.reclaim_key(&owner(), "k", &first, next).await;
    assert!(again.unwrap());
    let claim = subject.claim("k", &REQUEST, &RunId::fresh()).await;
    assert_eq!(claim, held(next));
    let record = store.run(&owner(), next).await.unwrap().unwrap();
    assert_eq!(record.state, RunRecordState::Running);
    assert_eq!(record.session_id, Some(session));
    assert!(store.run(&owner(), &lost[0].0).await.unwrap().is_none());
    let bob = Owner::key("bob");
    assert!(!store.reclaim_key(&bob, "k", next, &first).await.unwrap());
    // The key of a run that has ended stays, even when its record has expired.
    let answer = RunAnswer::default();
    store.end_run(next, &owner(), answer).await.unwrap();
    let after = RunId::fresh();
    for _ in 0..2 {
        let passed = store.reclaim_key(&owner(), "k", next, &after).await;
        assert!(!passed.unwrap());
        assert_eq!(subject.claim("k", &REQUEST, &after).await, held(next));
        store.expire_runs(Duration::ZERO).await.unwrap();
    }
    // A run that was never recorded has not ended.
    subject.claim("u", &REQUEST, &first).await;
    store.delete_run(&owner(), &first).await.unwrap();
    let unrecorded = RunId::fresh();
    subject.claim("u", &REQUEST, &unrecorded).await;
    let passed = store.reclaim_key(&owner(), "u", &unrecorded, &after).await;
    assert!(passed.unwrap());
}

pub(crate) async fn the_oldest_keys_of_the_largest_owner_go_after_its_answers(subject: TestStore) {
    let store = &subject.store;
    let limits = AnswerLimits {
        total: 20_000,
        ..AnswerLimits::default()
    };
    let run = async |owner: &Owner, key: &str| {
        let run = RunId::fresh();
        let claimed = store.claim_key(owner, key, &REQUEST, &run).await.unwrap();
        assert_eq!(claimed, KeyClaim::New);
        store.begin_run(&run, owner, None).await.unwrap();
        run
    };
    let end = async |owner: &Owner, run: &RunId| {
        let answer = answer_of(100);
        store.end_run_within(run, owner, answer, limits).await;
    };
    let running = run(&owner(), "running").await;
    let bob = Owner::key("bob");
    let small = run(&bob, "k0").await;
    end(&bob, &small).await;
    let mut runs = Vec::new();
    for number in 0..40 {
        let next = run(&owner(), &format!("k{number}")).await;
        end(&owner(), &next).await;
        runs.push(next);
    }
    // Bob's answer is older, and the key of the run that has not ended too.
    assert!(store.run(&bob, &small).await.unwrap().is_some());
    let claimed = store.claim_key(&bob, "k0", &REQUEST, &running).await;
    assert_eq!(claimed.unwrap(), held(&small));
    let retry = RunId::fresh();
    assert_eq!(
        subject.claim("running", &REQUEST, &retry).await,
        held(&running)
    );
    // Keys outlive their answers, the newest ones.
    let [.., before, last] = &runs[..] else {
        panic!("there are runs")
    };
    assert!(subject.record(before).await.is_none());
    assert!(subject.record(last).await.is_some());
    assert_eq!(subject.claim("k38", &REQUEST, &retry).await, held(before));
    assert_eq!(subject.claim("k39", &REQUEST, &retry).await, held(last));
    let [records, _, keys] = store.run_rows().await;
    assert_eq!(records, 3);
    assert!((12..18).contains(&keys), "{keys}");
    assert_eq!(subject.claim("k0", &REQUEST, &retry).await, KeyClaim::New);
}

pub(crate) async fn keys_expire(subject: TestStore) {
    const DAY: i64 = 24 * 60 * 60;
    let store = &subject.store;
    let (first, second) = (RunId::fresh(), RunId::fresh());
    subject.claim("k", &REQUEST, &first).await;
    store.begin_run(&first, &owner(), None).await.unwrap();
    store.age_runs(DAY - 60).await;
    assert_eq!(subject.claim("k", &REQUEST, &second).await, held(&first));
    store.age_runs(120).await;
    // An expired key is free before it is deleted, for any request, and cannot be passed on.
    let passed = store.reclaim_key(&owner(), "k", &first, &second).await;
    assert!(!passed.unwrap());
    let claim = subject.claim("k", &OTHER_REQUEST, &second).await;
    assert_eq!(claim, KeyClaim::New);
    // More than one batch.
    for number in 0..600 {
        let key = format!("old{number}");
        subject.claim(&key, &REQUEST, &RunId::fresh()).await;
    }
    store.age_runs(DAY + 60).await;
    subject.claim("new", &REQUEST, &second).await;
    assert_eq!(store.expire_runs(Duration::MAX).await.unwrap(), 0);
    assert_eq!(store.run_rows().await, [1, 0, 1]);
}
