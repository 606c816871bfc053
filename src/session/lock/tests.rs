use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep, timeout};

use super::*;

const LONG: Duration = Duration::from_secs(30);

fn session(id: &str) -> (Owner, SessionId) {
    (Owner::key("me"), SessionId::parse(id).unwrap())
}

impl SessionLocks {
    fn entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

async fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    let mut future = Some(future);
    std::future::poll_fn(|context| {
        let future = future.take().unwrap();
        Poll::Ready(future.poll(context))
    })
    .await
}

fn assert_static_and_send<T: Send + 'static>(_: &T) {}

#[tokio::test(start_paused = true)]
async fn a_second_turn_waits_for_the_first() {
    let locks = SessionLocks::default();
    let (owner, id) = session("s");
    assert!(!locks.is_running(&owner, &id));
    let first = locks.acquire(&owner, &id, LONG).await.unwrap();
    assert_static_and_send(&first);
    assert!(locks.is_running(&owner, &id));
    let started = Instant::now();
    let release = async {
        sleep(Duration::from_secs(7)).await;
        drop(first);
    };
    let (second, ()) = tokio::join!(locks.acquire(&owner, &id, LONG), release);
    assert_eq!(started.elapsed(), Duration::from_secs(7));
    assert!(locks.is_running(&owner, &id));
    drop(second.unwrap());
    assert!(!locks.is_running(&owner, &id));
    assert_eq!(locks.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_bounded() {
    let locks = SessionLocks::default();
    let (owner, id) = session("s");
    let first = locks.acquire(&owner, &id, LONG).await.unwrap();
    let started = Instant::now();
    let second = locks.acquire(&owner, &id, LONG).await;
    assert!(matches!(second, Err(SessionError::Busy)));
    assert_eq!(started.elapsed(), LONG);
    assert_eq!(locks.entries(), 1);
    drop(first);
    assert_eq!(locks.entries(), 0);
    locks.acquire(&owner, &id, Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_wait_means_busy_at_once() {
    let locks = SessionLocks::default();
    let (owner, id) = session("s");
    let first = locks.acquire(&owner, &id, Duration::ZERO).await.unwrap();
    let mut second = pin!(locks.acquire(&owner, &id, Duration::ZERO));
    let answer = poll_once(second.as_mut()).await;
    assert!(matches!(answer, Poll::Ready(Err(SessionError::Busy))));
    drop(first);
    assert_eq!(locks.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn sessions_and_owners_do_not_wait_for_each_other() {
    let locks = SessionLocks::default();
    let (owner, id) = session("s");
    let _first = locks.acquire(&owner, &id, Duration::ZERO).await.unwrap();
    let other = Owner::key("you");
    assert!(!locks.is_running(&other, &id));
    let _second = locks.acquire(&other, &id, Duration::ZERO).await.unwrap();
    let (owner, id) = session("t");
    let _third = locks.acquire(&owner, &id, Duration::ZERO).await.unwrap();
    assert_eq!(locks.entries(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_first_to_come_is_the_first_served() {
    let locks = SessionLocks::default();
    let (owner, id) = session("s");
    let first = locks.acquire(&owner, &id, LONG).await.unwrap();
    let order = Mutex::new(Vec::new());
    let turn = |number: usize| {
        let (locks, owner, id, order) = (&locks, &owner, &id, &order);
        async move {
            let _guard = locks.acquire(owner, id, LONG).await.unwrap();
            order.lock().push(number);
            sleep(Duration::from_secs(1)).await;
        }
    };
    let release = async {
        sleep(Duration::from_secs(1)).await;
        drop(first);
        // The turn went to the first in line; nobody slips in.
        let late = locks.acquire(&owner, &id, Duration::ZERO).await;
        assert!(matches!(late, Err(SessionError::Busy)));
        assert!(locks.is_running(&owner, &id));
    };
    tokio::join!(turn(1), turn(2), turn(3), turn(4), release);
    assert_eq!(*order.lock(), [1, 2, 3, 4]);
    assert_eq!(locks.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_gave_up_leaves_no_trace() {
    let locks = SessionLocks::default();
    let (owner, id) = session("s");
    let first = locks.acquire(&owner, &id, LONG).await.unwrap();
    let gone = timeout(Duration::from_secs(1), locks.acquire(&owner, &id, LONG)).await;
    assert!(gone.is_err());
    {
        let mut dropped = Box::pin(locks.acquire(&owner, &id, LONG));
        assert!(poll_once(dropped.as_mut()).await.is_pending());
        let mut next = pin!(locks.acquire(&owner, &id, LONG));
        assert!(poll_once(next.as_mut()).await.is_pending());
        drop(first);
        // The turn was already his who is gone now; the next one has it.
        drop(dropped);
        assert!(next.await.is_ok());
    }
    assert!(!locks.is_running(&owner, &id));
    assert_eq!(locks.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_guard_outlives_the_locks() {
    let (owner, id) = session("s");
    let locks = SessionLocks::default();
    let copy = locks.clone();
    let guard = locks.acquire(&owner, &id, Duration::MAX).await.unwrap();
    drop(locks);
    assert!(copy.is_running(&owner, &id));
    drop(guard);
    assert_eq!(copy.entries(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_turns_never_overlap() {
    let locks = SessionLocks::default();
    let inside = Arc::new(Mutex::new([0_usize; 3]));
    let mut turns = tokio::task::JoinSet::new();
    for number in 0..300 {
        let (locks, inside) = (locks.clone(), Arc::clone(&inside));
        turns.spawn(async move {
            let (owner, id) = session(&format!("s{}", number % 3));
            let _guard = locks.acquire(&owner, &id, LONG).await.unwrap();
            inside.lock()[number % 3] += 1;
            tokio::task::yield_now().await;
            let mut inside = inside.lock();
            assert_eq!(inside[number % 3], 1);
            inside[number % 3] -= 1;
        });
    }
    while let Some(turn) = turns.join_next().await {
        turn.unwrap();
    }
    assert_eq!(locks.entries(), 0);
}
