use futures_util::FutureExt;

use super::*;

type Numbers = Scheduler<u32>;

fn owner(name: &str) -> Owner {
    Owner::key(name)
}

/// The grant of a call, if it has one by now.
fn given(ticket: &mut Option<Ticket<u32>>) -> Option<Grant<u32>> {
    let waiting = ticket.as_mut()?;
    match waiting.grant.try_recv() {
        Ok(given) => {
            *ticket = None;
            Some(given)
        }
        Err(_) => None,
    }
}

fn permit(ticket: &mut Option<Ticket<u32>>) -> Option<Permit<u32>> {
    match given(ticket)? {
        Grant::Permit(permit) => Some(permit),
        Grant::Spare(_) => None,
    }
}

#[test]
fn an_owner_with_many_calls_does_not_keep_another_from_the_next_interpreter() {
    let scheduler = Numbers::new(2, 50);
    let (many, few) = (owner("many"), owner("few"));
    let mut calls: Vec<_> = (0..50).map(|_| scheduler.enqueue(&many)).collect();
    let mut permits: Vec<_> = calls.iter_mut().filter_map(permit).collect();
    assert_eq!((permits.len(), scheduler.workers_of(&many)), (2, 2));
    let mut first = scheduler.enqueue(&few);
    let mut second = scheduler.enqueue(&few);
    assert!(scheduler.should_yield(&many) && !scheduler.should_yield(&few));
    drop(permits.pop());
    // Before the 48 calls that have waited longer.
    let first = permit(&mut first).unwrap();
    assert!(permit(&mut second).is_none() && !scheduler.should_yield(&many));
    // Each owner has one now, until `many` returns its own.
    drop(permits.pop());
    let next = permit(&mut calls[2]).unwrap();
    assert_eq!(
        (scheduler.workers_of(&many), scheduler.workers_of(&few)),
        (1, 1)
    );
    drop(first);
    let second = permit(&mut second).unwrap();
    assert!(permit(&mut calls[3]).is_none());
    drop((second, next));
    assert!(permit(&mut calls[3]).is_some() && permit(&mut calls[4]).is_some());
}

#[test]
fn an_owners_own_calls_are_served_in_their_order() {
    let scheduler = Numbers::new(1, 10);
    let mut calls: Vec<_> = (0..5).map(|_| scheduler.enqueue(&owner("a"))).collect();
    for call in 0..5 {
        let held = permit(&mut calls[call]);
        assert!(held.is_some(), "{call}");
        assert!(calls.iter_mut().all(|call| permit(call).is_none()));
    }
}

#[test]
fn a_full_queue_gives_way_to_an_owner_who_asks_for_less() {
    let scheduler = Numbers::new(1, 3);
    let (many, few) = (owner("many"), owner("few"));
    let mut running = scheduler.enqueue(&many);
    let running = permit(&mut running).unwrap();
    let mut calls: Vec<_> = (0..3).map(|_| scheduler.enqueue(&many)).collect();
    assert!(scheduler.enqueue(&many).is_none());
    // The newest call is displaced; the call that displaced it cannot be displaced in turn.
    let mut other = scheduler.enqueue(&few);
    assert_eq!(scheduler.waiting(), 3);
    assert!(
        calls[2]
            .take()
            .unwrap()
            .granted()
            .now_or_never()
            .unwrap()
            .is_none()
    );
    assert!(calls[1].as_mut().is_some() && scheduler.enqueue(&many).is_none());
    let mut another = scheduler.enqueue(&few);
    assert!(
        calls[1]
            .take()
            .unwrap()
            .granted()
            .now_or_never()
            .unwrap()
            .is_none()
    );
    assert!(scheduler.enqueue(&many).is_none() && scheduler.enqueue(&few).is_none());
    drop(running);
    // No owner has an interpreter now, and this call has waited longest.
    let oldest = permit(&mut calls[0]).unwrap();
    assert!(permit(&mut other).is_none() && permit(&mut another).is_none());
    drop(oldest);
    assert!(permit(&mut other).is_some() && permit(&mut another).is_some());
}

#[test]
fn without_a_queue_only_what_is_free_is_given() {
    let scheduler = Numbers::new(1, 0);
    let mut first = scheduler.enqueue(&owner("a"));
    let held = permit(&mut first).unwrap();
    assert!(scheduler.enqueue(&owner("b")).is_none());
    drop(held);
    assert!(permit(&mut scheduler.enqueue(&owner("b"))).is_some());
}

#[test]
fn a_call_that_is_given_up_leaves_its_place_and_what_it_was_given() {
    let scheduler = Numbers::new(1, 2);
    let (a, b) = (owner("a"), owner("b"));
    let first = scheduler.enqueue(&a);
    let second = scheduler.enqueue(&a);
    let mut third = scheduler.enqueue(&b);
    assert_eq!((scheduler.waiting(), scheduler.workers_of(&a)), (2, 1));
    drop(second);
    assert_eq!(scheduler.waiting(), 1);
    // It had a permit already.
    drop(first);
    assert_eq!((scheduler.workers_of(&a), scheduler.workers_of(&b)), (0, 1));
    let held = permit(&mut third).unwrap();
    assert_eq!((scheduler.workers(), scheduler.waiting()), (1, 0));
    drop(held);
    assert_eq!((scheduler.workers(), scheduler.workers_of(&b)), (0, 0));
}

#[test]
fn spares_go_to_the_next_call_and_back() {
    let scheduler = Numbers::new(2, 2);
    let a = owner("a");
    let (starting, permit) = scheduler.permit_for_spare(1).unwrap();
    assert!(scheduler.permit_for_spare(1).is_none());
    assert!(
        scheduler
            .add_spare(Permitted { worker: 7, permit })
            .is_none()
    );
    drop(starting);
    assert!(scheduler.permit_for_spare(1).is_none());
    assert_eq!((scheduler.spares(), scheduler.workers()), (1, 1));
    let taken = scheduler.enqueue(&a);
    assert_eq!((scheduler.spares(), scheduler.workers_of(&a)), (0, 1));
    // Dropped unused: the interpreter becomes a spare again.
    drop(taken);
    assert_eq!((scheduler.spares(), scheduler.workers_of(&a)), (1, 0));
    let mut taken = scheduler.enqueue(&a);
    let Some(Grant::Spare(permitted)) = given(&mut taken) else {
        panic!("no spare");
    };
    assert_eq!(permitted.worker, 7);
    let mut other = scheduler.enqueue(&a);
    assert!(matches!(given(&mut other), Some(Grant::Permit(_))));
    drop(permitted);
    assert_eq!((scheduler.workers(), scheduler.workers_of(&a)), (0, 0));
    // A closed scheduler accepts no spares.
    let (_expected, permit) = scheduler.permit_for_spare(1).unwrap();
    assert!(scheduler.close().is_empty());
    assert!(
        scheduler
            .add_spare(Permitted { worker: 8, permit })
            .is_some()
    );
    assert!(scheduler.enqueue(&a).is_none());
}
