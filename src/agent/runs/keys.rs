//! The idempotency keys of runs: what a key is, and the keys of runs that are not stored.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use super::log::LOG_TTL;
use protocol::ids::{Owner, RunId};
use quota::RetainedBytes;
use store::KeyClaim;

/// Memory that a key counts of that for runs, in bytes.
pub(super) const KEY_BYTES: usize = 512;

/// The key under which a client may send a request again, with the digest of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The text of the key.
    pub text: String,
    /// A digest of the request.
    pub fingerprint: [u8; 32],
    /// Nothing of the run may be written to the store.
    pub in_memory: bool,
}

/// The keys of all owners.
#[derive(Debug, Default)]
pub(super) struct MemoryKeys(HashMap<Owner, OwnerKeys>);

#[derive(Debug, Default)]
struct OwnerKeys {
    keys: HashMap<String, MemoryKey>,
    /// When keys were claimed, handed over, or their runs ended, oldest first. A key is in it with its last time.
    order: VecDeque<(String, Instant)>,
}

#[derive(Debug)]
struct MemoryKey {
    fingerprint: [u8; 32],
    run: RunId,
    at: Instant,
    state: KeyState,
    _charge: RetainedBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyState {
    /// The run is running or about to start.
    Running,
    /// The run was never started. Another one may take the key over.
    NeverStarted,
    /// The run has ended. It is not run again, even if its answer was dropped.
    Ended,
}

impl MemoryKeys {
    /// Claims a key for a run. `charge` is held as long as the key.
    pub(super) fn claim(
        &mut self,
        owner: &Owner,
        key: &IdempotencyKey,
        run: &RunId,
        charge: RetainedBytes,
    ) -> KeyClaim {
        let now = Instant::now();
        let own = self.0.entry(owner.clone()).or_default();
        own.expire(now);
        match own.keys.get(&key.text) {
            Some(held) if held.fingerprint != key.fingerprint => KeyClaim::Reused,
            Some(held) => KeyClaim::Held {
                run: held.run.clone(),
            },
            None => {
                let held = MemoryKey {
                    fingerprint: key.fingerprint,
                    run: run.clone(),
                    at: now,
                    state: KeyState::Running,
                    _charge: charge,
                };
                own.keys.insert(key.text.clone(), held);
                own.order.push_back((key.text.clone(), now));
                KeyClaim::New
            }
        }
    }

    /// Passes a key on from a run that was never started; returns whether that run still had it.
    pub(super) fn reclaim(
        &mut self,
        owner: &Owner,
        key: &IdempotencyKey,
        from: &RunId,
        to: &RunId,
    ) -> bool {
        self.touch(owner, key, from, |held| {
            let may_start = held.state != KeyState::Ended;
            if may_start {
                (held.run, held.state) = (to.clone(), KeyState::Running);
            }
            may_start
        })
    }

    /// Takes note of the end of the run of a key.
    pub(super) fn ended(&mut self, owner: &Owner, key: &IdempotencyKey, run: &RunId) {
        self.touch(owner, key, run, |held| {
            held.state = KeyState::Ended;
            true
        });
    }

    /// Notes that the run of a key will never start.
    pub(super) fn never_starts(&mut self, owner: &Owner, key: &IdempotencyKey, run: &RunId) {
        self.touch(owner, key, run, |held| {
            held.state = KeyState::NeverStarted;
            true
        });
    }

    /// Gives back the key of a run.
    pub(super) fn release(&mut self, owner: &Owner, key: &IdempotencyKey, run: &RunId) {
        let Some(own) = self.0.get_mut(owner) else {
            return;
        };
        if own.keys.get(&key.text).is_some_and(|held| held.run == *run) {
            own.keys.remove(&key.text);
        }
    }

    /// Forgets the keys whose time is up.
    pub(super) fn expire(&mut self, now: Instant) {
        self.0.retain(|_, own| {
            own.expire(now);
            !own.keys.is_empty()
        });
    }

    /// Forgets the oldest key of an owner whose run has ended; says whether there was one.
    pub(super) fn forget_oldest(&mut self, owner: &Owner) -> bool {
        let Some(own) = self.0.get_mut(owner) else {
            return false;
        };
        let is_oldest = |(text, at): &(String, Instant)| {
            let held = own.keys.get(text);
            held.is_some_and(|held| held.state != KeyState::Running && held.at == *at)
        };
        let Some(place) = own.order.iter().position(is_oldest) else {
            return false;
        };
        let oldest = own.order.remove(place);
        oldest.is_some_and(|(text, _)| own.keys.remove(&text).is_some())
    }

    /// Changes the key of a run, which counts from now on if that succeeds.
    fn touch(
        &mut self,
        owner: &Owner,
        key: &IdempotencyKey,
        run: &RunId,
        change: impl FnOnce(&mut MemoryKey) -> bool,
    ) -> bool {
        let Some(own) = self.0.get_mut(owner) else {
            return false;
        };
        let held = own.keys.get_mut(&key.text);
        let Some(held) = held.filter(|held| held.run == *run) else {
            return false;
        };
        let changed = change(held);
        if changed {
            held.at = Instant::now();
            own.order.push_back((key.text.clone(), held.at));
        }
        changed
    }
}

impl OwnerKeys {
    /// Drops expired keys. The key of a run that has not ended stays.
    fn expire(&mut self, now: Instant) {
        while let Some((text, at)) = self.order.pop_front_if(|(_, at)| now >= *at + LOG_TTL) {
            let held = self.keys.get_mut(&text).filter(|held| held.at == at);
            match held {
                Some(held) if held.state == KeyState::Running => {
                    held.at = now;
                    self.order.push_back((text, now));
                }
                Some(_) => drop(self.keys.remove(&text)),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> IdempotencyKey {
        IdempotencyKey {
            text: text.to_owned(),
            fingerprint: [1; 32],
            in_memory: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_kept_until_some_time_after_the_end_of_its_run() {
        let (owner, mut keys) = (Owner::key("a"), MemoryKeys::default());
        let (first, second) = (RunId::fresh(), RunId::fresh());
        let claim = |keys: &mut MemoryKeys, run: &RunId| {
            keys.claim(&owner, &key("k"), run, RetainedBytes::default())
        };
        assert!(matches!(claim(&mut keys, &first), KeyClaim::New));
        // It runs for long.
        for _ in 0..3 {
            tokio::time::advance(LOG_TTL).await;
            assert!(matches!(claim(&mut keys, &second), KeyClaim::Held { run } if run == first));
        }
        keys.ended(&owner, &key("k"), &first);
        tokio::time::advance(LOG_TTL / 2).await;
        assert!(matches!(claim(&mut keys, &second), KeyClaim::Held { .. }));
        assert!(
            !keys.reclaim(&owner, &key("k"), &first, &second),
            "it has ended"
        );
        tokio::time::advance(LOG_TTL / 2).await;
        assert!(matches!(claim(&mut keys, &second), KeyClaim::New));
        assert!(keys.reclaim(&owner, &key("k"), &second, &first));
        keys.release(&owner, &key("k"), &second);
        assert!(
            matches!(claim(&mut keys, &second), KeyClaim::Held { .. }),
            "it is of another run"
        );
        keys.never_starts(&owner, &key("k"), &first);
        assert!(keys.reclaim(&owner, &key("k"), &first, &second));
        keys.never_starts(&owner, &key("k"), &second);
        tokio::time::advance(LOG_TTL).await;
        assert!(matches!(claim(&mut keys, &first), KeyClaim::New));
        keys.release(&owner, &key("k"), &first);
        assert!(matches!(claim(&mut keys, &second), KeyClaim::New));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_key_of_an_owner_that_is_not_in_use_makes_space() {
        let (alice, bob, mut keys) = (Owner::key("a"), Owner::key("b"), MemoryKeys::default());
        let run = RunId::fresh();
        for text in ["1", "2", "3"] {
            for owner in [&alice, &bob] {
                keys.claim(owner, &key(text), &run, RetainedBytes::default());
            }
        }
        assert!(!keys.forget_oldest(&alice), "all run");
        for text in ["2", "3"] {
            keys.ended(&alice, &key(text), &run);
        }
        assert!(keys.forget_oldest(&alice));
        let mut is_held = |owner: &Owner, text: &str| {
            let claimed = keys.claim(owner, &key(text), &run, RetainedBytes::default());
            matches!(claimed, KeyClaim::Held { .. })
        };
        assert!(is_held(&alice, "1") && is_held(&alice, "3"));
        assert!(!is_held(&alice, "2"));
        assert!(["1", "2", "3"].iter().all(|text| is_held(&bob, text)));
        // Nothing is left of owners whose keys are forgotten.
        for text in ["1", "2", "3"] {
            keys.ended(&bob, &key(text), &run);
            keys.ended(&alice, &key(text), &run);
        }
        keys.expire(Instant::now() + LOG_TTL);
        assert!(keys.0.is_empty());
    }
}
