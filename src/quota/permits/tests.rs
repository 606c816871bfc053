use futures_util::FutureExt;

use super::*;

fn owners() -> [Owner; 3] {
    ["a", "b", "c"].map(Owner::key)
}

#[tokio::test]
async fn a_free_permit_goes_to_the_owner_with_the_fewest() {
    let [greedy, other, _] = owners();
    let semaphore = FairSemaphore::new(2);
    let mut held = vec![
        semaphore.try_acquire(&greedy).unwrap(),
        semaphore.try_acquire(&greedy).unwrap(),
    ];
    assert!(semaphore.try_acquire(&other).is_none());
    let mut flood: Vec<_> = (0..100)
        .map(|_| Box::pin(semaphore.acquire(&greedy)))
        .collect();
    for call in &mut flood {
        assert!(call.now_or_never().is_none());
    }
    let mut late = Box::pin(semaphore.acquire(&other));
    assert!(late.as_mut().now_or_never().is_none());
    held.pop();
    let late = late.as_mut().now_or_never();
    assert!(
        late.is_some(),
        "the last to come, and the first to be served"
    );
    drop((late, held));
    let served = flood.iter_mut().filter_map(FutureExt::now_or_never);
    assert_eq!(served.map(drop).count(), 100);
    drop(flood);
    assert!(semaphore.is_idle());
}

#[tokio::test]
async fn owners_take_turns_and_the_calls_of_one_stay_in_order() {
    let [first, second, third] = owners();
    let semaphore = FairSemaphore::new(1);
    let mut held = semaphore.try_acquire(&first);
    let wanted = [&first, &first, &first, &second, &second, &third];
    let mut waiting: Vec<_> = wanted
        .iter()
        .map(|owner| Some(Box::pin(semaphore.acquire(owner))))
        .collect();
    for call in waiting.iter_mut().flatten() {
        assert!(call.now_or_never().is_none());
    }
    let mut order = Vec::new();
    while held.is_some() {
        drop(held.take());
        for (number, place) in waiting.iter_mut().enumerate() {
            let granted = place.as_mut().and_then(FutureExt::now_or_never);
            if let Some(permit) = granted {
                (held, *place) = (Some(permit), None);
                order.push(number);
            }
        }
    }
    assert_eq!(order, [3, 5, 0, 4, 1, 2]);
}

#[tokio::test]
async fn a_full_queue_gives_way_to_an_owner_that_asks_for_less() {
    let [many, few, _] = owners();
    let semaphore = FairSemaphore::new(1);
    let running = semaphore.try_acquire(&many);
    let call = |owner| {
        let mut call = Box::pin(semaphore.acquire_in_queue(owner, 3));
        let at_once = call.as_mut().now_or_never();
        at_once.map_or(Ok(call), |permit| Err(permit.is_some()))
    };
    let refused = |owner| matches!(call(owner), Err(false));
    let mut calls = [(); 3].map(|()| call(&many).ok().unwrap());
    assert!(refused(&many));
    // The newest call is displaced; the call that displaced it cannot be displaced in turn.
    let _other = call(&few).ok().unwrap();
    assert!(calls[2].as_mut().now_or_never().unwrap().is_none());
    assert!(refused(&many));
    let _another = call(&few).ok().unwrap();
    assert!(calls[1].as_mut().now_or_never().unwrap().is_none());
    assert!(refused(&many) && refused(&few));
    assert!(semaphore.should_yield(&many) && !semaphore.should_yield(&few));
    assert_eq!((semaphore.waiting(), semaphore.held(&many)), (3, 1));
    drop(running);
    let served = calls[0].as_mut().now_or_never();
    assert!(served.is_none(), "the other owner was never served");
    // Without a queue only what is free is given.
    let semaphore = FairSemaphore::new(1);
    let without_queue = || semaphore.acquire_in_queue(&many, 0).now_or_never();
    let held = without_queue().unwrap();
    assert!(held.is_some() && without_queue().unwrap().is_none());
}

#[tokio::test]
async fn a_reserve_is_kept_for_owners_that_come_later() {
    let [greedy, second, third] = owners();
    let semaphore = FairSemaphore::with_reserve(10);
    let take = |owner: &Owner| {
        let mut taken = Vec::new();
        taken.extend(std::iter::from_fn(|| semaphore.try_acquire(owner)));
        taken
    };
    let mut all = take(&greedy);
    assert_eq!(all.len(), 5);
    let more = take(&second);
    assert_eq!(more.len(), 3);
    assert_eq!(take(&third).len(), 1);
    // What it returns it does not get again while others have some.
    all.truncate(4);
    let mut waiting = Box::pin(semaphore.acquire(&greedy));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(more);
    assert!(waiting.as_mut().now_or_never().is_some());
    assert_eq!(FairSemaphore::with_reserve(1).0.lock().free, 1);
    assert!(FairSemaphore::with_reserve(1).try_acquire(&third).is_some());
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_the_queue_and_loses_no_permit() {
    let [first, second, _] = owners();
    let semaphore = FairSemaphore::new(1);
    let held = semaphore.try_acquire(&first);
    let mut given_up = Box::pin(semaphore.acquire(&second));
    let mut granted_and_given_up = Box::pin(semaphore.acquire(&second));
    assert!(given_up.as_mut().now_or_never().is_none());
    assert!(granted_and_given_up.as_mut().now_or_never().is_none());
    drop(given_up);
    drop(held);
    // The permit is on its way.
    assert!(semaphore.try_acquire(&first).is_none());
    drop(granted_and_given_up);
    assert!(semaphore.try_acquire(&first).is_some());
    assert!(semaphore.is_idle());
}
