use futures_util::FutureExt;

use super::*;

type Numbers = Turns<u32>;

fn owner(name: &str) -> Owner {
    Owner::key(name)
}

/// What a call has been given by now, if anything.
fn given(turn: &mut Option<Turn<u32>>) -> Option<Given<u32>> {
    let waiting = turn.as_mut()?;
    match waiting.given.try_recv() {
        Ok(given) => {
            *turn = None;
            Some(given)
        }
        Err(_) => None,
    }
}

fn room(turn: &mut Option<Turn<u32>>) -> Option<Room<u32>> {
    match given(turn)? {
        Given::Room(room) => Some(room),
        Given::Ready(_) => None,
    }
}

#[test]
fn an_owner_with_many_calls_does_not_keep_another_from_the_next_interpreter() {
    let turns = Numbers::new(2, 50);
    let (many, few) = (owner("many"), owner("few"));
    let mut calls: Vec<_> = (0..50).map(|_| turns.ask(&many)).collect();
    let mut rooms: Vec<_> = calls.iter_mut().filter_map(room).collect();
    assert_eq!((rooms.len(), turns.held_by(&many)), (2, 2));
    let mut first = turns.ask(&few);
    let mut second = turns.ask(&few);
    assert!(turns.is_outranked(&many) && !turns.is_outranked(&few));
    drop(rooms.pop());
    // Before the 48 that have waited longer.
    let first = room(&mut first).unwrap();
    assert!(room(&mut second).is_none() && !turns.is_outranked(&many));
    // Each has one now, until the other gives its own back.
    drop(rooms.pop());
    let next = room(&mut calls[2]).unwrap();
    assert_eq!((turns.held_by(&many), turns.held_by(&few)), (1, 1));
    drop(first);
    let second = room(&mut second).unwrap();
    assert!(room(&mut calls[3]).is_none());
    drop((second, next));
    assert!(room(&mut calls[3]).is_some() && room(&mut calls[4]).is_some());
}

#[test]
fn an_owners_own_calls_are_served_in_their_order() {
    let turns = Numbers::new(1, 10);
    let mut calls: Vec<_> = (0..5).map(|_| turns.ask(&owner("a"))).collect();
    for call in 0..5 {
        let held = room(&mut calls[call]);
        assert!(held.is_some(), "{call}");
        assert!(calls.iter_mut().all(|call| room(call).is_none()));
    }
}

#[test]
fn a_full_queue_gives_way_to_an_owner_who_asks_for_less() {
    let turns = Numbers::new(1, 3);
    let (many, few) = (owner("many"), owner("few"));
    let mut running = turns.ask(&many);
    let running = room(&mut running).unwrap();
    let mut calls: Vec<_> = (0..3).map(|_| turns.ask(&many)).collect();
    assert!(turns.ask(&many).is_none());
    // The newest goes; who sent it away cannot be sent away in turn.
    let mut other = turns.ask(&few);
    assert_eq!(turns.waiting(), 3);
    assert!(
        calls[2]
            .take()
            .unwrap()
            .given()
            .now_or_never()
            .unwrap()
            .is_none()
    );
    assert!(calls[1].as_mut().is_some() && turns.ask(&many).is_none());
    let mut another = turns.ask(&few);
    assert!(
        calls[1]
            .take()
            .unwrap()
            .given()
            .now_or_never()
            .unwrap()
            .is_none()
    );
    assert!(turns.ask(&many).is_none() && turns.ask(&few).is_none());
    drop(running);
    // Nobody has any now, and this one has waited longest.
    let oldest = room(&mut calls[0]).unwrap();
    assert!(room(&mut other).is_none() && room(&mut another).is_none());
    drop(oldest);
    assert!(room(&mut other).is_some() && room(&mut another).is_some());
}

#[test]
fn without_a_queue_only_what_is_free_is_given() {
    let turns = Numbers::new(1, 0);
    let mut first = turns.ask(&owner("a"));
    let held = room(&mut first).unwrap();
    assert!(turns.ask(&owner("b")).is_none());
    drop(held);
    assert!(room(&mut turns.ask(&owner("b"))).is_some());
}

#[test]
fn a_call_that_is_given_up_leaves_its_place_and_what_it_was_given() {
    let turns = Numbers::new(1, 2);
    let (a, b) = (owner("a"), owner("b"));
    let first = turns.ask(&a);
    let second = turns.ask(&a);
    let mut third = turns.ask(&b);
    assert_eq!((turns.waiting(), turns.held_by(&a)), (2, 1));
    drop(second);
    assert_eq!(turns.waiting(), 1);
    // It had been given room already.
    drop(first);
    assert_eq!((turns.held_by(&a), turns.held_by(&b)), (0, 1));
    let held = room(&mut third).unwrap();
    assert_eq!((turns.workers(), turns.waiting()), (1, 0));
    drop(held);
    assert_eq!((turns.workers(), turns.held_by(&b)), (0, 0));
}

#[test]
fn spares_go_to_the_next_call_and_back() {
    let turns = Numbers::new(2, 2);
    let a = owner("a");
    let (expected, room) = turns.expect(1).unwrap();
    assert!(turns.expect(1).is_none());
    assert!(turns.offer(Counted { worker: 7, room }).is_none());
    drop(expected);
    assert!(turns.expect(1).is_none());
    assert_eq!((turns.spares(), turns.workers()), (1, 1));
    let taken = turns.ask(&a);
    assert_eq!((turns.spares(), turns.held_by(&a)), (0, 1));
    // Given up before it was looked at: it is as fresh as it was.
    drop(taken);
    assert_eq!((turns.spares(), turns.held_by(&a)), (1, 0));
    let mut taken = turns.ask(&a);
    let Some(Given::Ready(counted)) = given(&mut taken) else {
        panic!("no spare");
    };
    assert_eq!(counted.worker, 7);
    let mut other = turns.ask(&a);
    assert!(matches!(given(&mut other), Some(Given::Room(_))));
    drop(counted);
    assert_eq!((turns.workers(), turns.held_by(&a)), (0, 0));
    // None is kept ready once there are none to be served.
    let (_expected, room) = turns.expect(1).unwrap();
    assert!(turns.close().is_empty());
    assert!(turns.offer(Counted { worker: 8, room }).is_some());
    assert!(turns.ask(&a).is_none());
}
