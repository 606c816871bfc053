use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use tokio::time::{Instant, sleep, timeout};

use super::*;

const LONG: Duration = Duration::from_secs(30);

fn session(id: &str) -> (Owner, SessionId) {
    (Owner::key("me"), SessionId::parse(id).unwrap())
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
    let leases = Leases::default();
    let (owner, id) = session("s");
    assert!(!leases.is_leased(&owner, &id));
    let first = leases.acquire(&owner, &id, LONG).await.unwrap();
    assert_static_and_send(&first);
    assert!(leases.is_leased(&owner, &id));
    let started = Instant::now();
    let release = async {
        sleep(Duration::from_secs(7)).await;
        drop(first);
    };
    let (second, ()) = tokio::join!(leases.acquire(&owner, &id, LONG), release);
    assert_eq!(started.elapsed(), Duration::from_secs(7));
    assert!(leases.is_leased(&owner, &id));
    drop(second.unwrap());
    assert!(!leases.is_leased(&owner, &id));
    assert_eq!(leases.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_wait_is_bounded() {
    let leases = Leases::default();
    let (owner, id) = session("s");
    let first = leases.acquire(&owner, &id, LONG).await.unwrap();
    let started = Instant::now();
    let second = leases.acquire(&owner, &id, LONG).await;
    assert!(matches!(second, Err(StoreError::Busy)));
    assert_eq!(started.elapsed(), LONG);
    assert_eq!(leases.entries(), 1);
    drop(first);
    assert_eq!(leases.entries(), 0);
    leases.acquire(&owner, &id, Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_wait_means_busy_at_once() {
    let leases = Leases::default();
    let (owner, id) = session("s");
    let first = leases.acquire(&owner, &id, Duration::ZERO).await.unwrap();
    let mut second = pin!(leases.acquire(&owner, &id, Duration::ZERO));
    let answer = poll_once(second.as_mut()).await;
    assert!(matches!(answer, Poll::Ready(Err(StoreError::Busy))));
    drop(first);
    assert_eq!(leases.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn sessions_and_owners_do_not_wait_for_each_other() {
    let leases = Leases::default();
    let (owner, id) = session("s");
    let _first = leases.acquire(&owner, &id, Duration::ZERO).await.unwrap();
    let other = Owner::key("you");
    assert!(!leases.is_leased(&other, &id));
    let _second = leases.acquire(&other, &id, Duration::ZERO).await.unwrap();
    let (owner, id) = session("t");
    let _third = leases.acquire(&owner, &id, Duration::ZERO).await.unwrap();
    assert_eq!(leases.entries(), 3);
}

#[tokio::test(start_paused = true)]
async fn leases_are_granted_in_order_of_arrival() {
    let leases = Leases::default();
    let (owner, id) = session("s");
    let first = leases.acquire(&owner, &id, LONG).await.unwrap();
    let order = Mutex::new(Vec::new());
    let turn = |number: usize| {
        let (leases, owner, id, order) = (&leases, &owner, &id, &order);
        async move {
            let _lease = leases.acquire(owner, id, LONG).await.unwrap();
            order.lock().push(number);
            sleep(Duration::from_secs(1)).await;
        }
    };
    let release = async {
        sleep(Duration::from_secs(1)).await;
        drop(first);
        // The lease passes to the first waiter, not to a later caller.
        let late = leases.acquire(&owner, &id, Duration::ZERO).await;
        assert!(matches!(late, Err(StoreError::Busy)));
        assert!(leases.is_leased(&owner, &id));
    };
    tokio::join!(turn(1), turn(2), turn(3), turn(4), release);
    assert_eq!(*order.lock(), [1, 2, 3, 4]);
    assert_eq!(leases.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_leaves_the_queue() {
    let leases = Leases::default();
    let (owner, id) = session("s");
    let first = leases.acquire(&owner, &id, LONG).await.unwrap();
    let gone = timeout(Duration::from_secs(1), leases.acquire(&owner, &id, LONG)).await;
    assert!(gone.is_err());
    {
        let mut dropped = Box::pin(leases.acquire(&owner, &id, LONG));
        assert!(poll_once(dropped.as_mut()).await.is_pending());
        let mut next = pin!(leases.acquire(&owner, &id, LONG));
        assert!(poll_once(next.as_mut()).await.is_pending());
        drop(first);
        // The permit was already assigned to the dropped waiter and passes to the next one.
        drop(dropped);
        assert!(next.await.is_ok());
    }
    assert!(!leases.is_leased(&owner, &id));
    assert_eq!(leases.entries(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlives_its_table() {
    let (owner, id) = session("s");
    let leases = Leases::default();
    let copy = leases.clone();
    let lease = leases.acquire(&owner, &id, Duration::MAX).await.unwrap();
    drop(leases);
    assert!(copy.is_leased(&owner, &id));
    drop(lease);
    assert_eq!(copy.entries(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_turns_never_overlap() {
    let leases = Leases::default();
    let inside = Arc::new(Mutex::new([0_usize; 3]));
    let mut turns = tokio::task::JoinSet::new();
    for number in 0..300 {
        let (leases, inside) = (leases.clone(), Arc::clone(&inside));
        turns.spawn(async move {
            let (owner, id) = session(&format!("s{}", number % 3));
            let _lease = leases.acquire(&owner, &id, LONG).await.unwrap();
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
    assert_eq!(leases.entries(), 0);
}
