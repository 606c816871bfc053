//! User ids for interpreters: which exist, which are free, and claims against other servers.

use std::collections::BTreeMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::LazyLock;

use crate::sandbox::SandboxError;

/// The `uid_map` of a user namespace that maps all ids.
const ALL_IDS: &str = "0 0 4294967295";

/// The user ids of this server's interpreters.
#[derive(Debug, Default)]
pub(super) struct ClaimedUids {
    claims: BTreeMap<u32, Claim>,
    /// The last user id handed out; a released id is not reused at once.
    last: Option<u32>,
}

impl ClaimedUids {
    /// Claims the next user id that no interpreter of any server on this host has. The search starts at an id that differs between
    /// servers.
    pub(super) fn claim(
        &mut self,
        range: (u32, u32),
        ids: &MappedIds,
    ) -> Result<u32, SandboxError> {
        if !ids.has_any(range) {
            let (first, last) = range;
            return Err(SandboxError::Unavailable(format!(
                "none of the user ids of 'sandbox.uids' ({first} to {last}) exists in this user namespace; map them \
                 (/etc/subuid, /etc/subgid), or set sandbox.uids to ids that are mapped"
            )));
        }
        let count = range.1.saturating_sub(range.0).saturating_add(1);
        let start = match self.last {
            Some(last) => last.saturating_sub(range.0) + 1,
            None => std::process::id() % count,
        };
        for offset in 0..count {
            let uid = range.0 + (start + offset) % count;
            if self.claims.contains_key(&uid) || !ids.has(uid) {
                continue;
            }
            let claimed = Claim::take(uid).map_err(|source| SandboxError::Step {
                step: "claiming a user id",
                source,
            })?;
            if let Some(claim) = claimed {
                self.claims.insert(uid, claim);
                self.last = Some(uid);
                return Ok(uid);
            }
        }
        Err(SandboxError::Unavailable(
            "every user id of 'sandbox.uids' is in use".to_owned(),
        ))
    }

    /// Releases a user id.
    pub(super) fn release(&mut self, uid: u32) {
        self.claims.remove(&uid);
    }
}

/// Claims a user id against other servers on this host, whatever their directories: an abstract socket name, which the
/// kernel gives to one process at a time and frees when the process ends.
#[derive(Debug)]
struct Claim(#[expect(dead_code, reason = "it is held, not used")] UnixDatagram);

impl Claim {
    /// `None` if another server has the user id.
    fn take(uid: u32) -> io::Result<Option<Self>> {
        let name = SocketAddr::from_abstract_name(format!("loopwright-interpreter-{uid}"))?;
        match UnixDatagram::bind_addr(&name) {
            Ok(socket) => Ok(Some(Self(socket))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The user and group ids mapped in a user namespace: first and last of each range.
#[derive(Debug)]
pub(super) struct MappedIds {
    users: Vec<(u32, u32)>,
    groups: Vec<(u32, u32)>,
}

impl MappedIds {
    /// The ids of the server's namespace.
    pub(super) fn here() -> &'static Self {
        static HERE: LazyLock<MappedIds> = LazyLock::new(|| {
            // A kernel without user namespaces has all ids.
            let read = |file| std::fs::read_to_string(file).unwrap_or_else(|_| ALL_IDS.to_owned());
            MappedIds::of(&read("/proc/self/uid_map"), &read("/proc/self/gid_map"))
        });
        &HERE
    }

    fn of(users: &str, groups: &str) -> Self {
        let ranges = |map: &str| {
            let range = |line: &str| {
                let mut numbers = line.split_ascii_whitespace();
                let first: u32 = numbers.next()?.parse().ok()?;
                let count: u32 = numbers.nth(1)?.parse().ok()?;
                Some((first, first.saturating_add(count.checked_sub(1)?)))
            };
            map.lines().filter_map(range).collect()
        };
        Self {
            users: ranges(users),
            groups: ranges(groups),
        }
    }

    fn has(&self, id: u32) -> bool {
        let within = |ranges: &[(u32, u32)]| {
            ranges
                .iter()
                .any(|&(first, last)| (first..=last).contains(&id))
        };
        within(&self.users) && within(&self.groups)
    }

    pub(super) fn has_any(&self, (first, last): (u32, u32)) -> bool {
        (first..=last).any(|id| self.has(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_id_that_was_given_back_is_the_last_to_be_taken_again() {
        let mut taken = ClaimedUids::default();
        let range = (4_000_000_100, 4_000_000_103);
        let all = MappedIds::of(ALL_IDS, ALL_IDS);
        let mut next = || {
            let uid = taken.claim(range, &all).unwrap();
            taken.release(uid);
            uid - range.0
        };
        let mut first = [next(), next(), next(), next()];
        assert_eq!(next(), first[0]);
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3]);
        for _ in 0..4 {
            taken.claim(range, &all).unwrap();
        }
        taken.release(range.0 + 2);
        assert_eq!(taken.claim(range, &all).unwrap(), range.0 + 2);
        assert!(taken.claim(range, &all).is_err());
    }

    #[test]
    fn two_servers_with_the_same_range_never_have_the_same_user_id() {
        let range = (4_000_000_200, 4_000_000_203);
        let all = MappedIds::of(ALL_IDS, ALL_IDS);
        let (mut one, mut other) = (ClaimedUids::default(), ClaimedUids::default());
        for _ in 0..2 {
            one.claim(range, &all).unwrap();
            other.claim(range, &all).unwrap();
        }
        assert!(one.claims.keys().all(|uid| !other.claims.contains_key(uid)));
        assert!(one.claim(range, &all).is_err());
        drop(other);
        one.claim(range, &all).unwrap();
    }

    #[test]
    fn only_ids_that_exist_are_taken() {
        let mut taken = ClaimedUids::default();
        let range = (4_000_000_300, 4_000_000_303);
        let single = MappedIds::of("         0       1000          1\n", "0 1000 1\n");
        assert!(single.has(0) && !single.has(1) && !single.has(1000));
        let refused = taken.claim((60_000, 60_099), &single).unwrap_err();
        assert!(refused.to_string().contains("/etc/subuid"), "{refused}");
        // A user namespace of a rootless container: many users, fewer groups.
        let some = MappedIds::of(
            "0 1000 1\n1 2000 4294967294\n",
            "0 1000 1\n1 2000 4000000301\n",
        );
        let mut uids = [(); 2].map(|()| taken.claim(range, &some).unwrap());
        uids.sort_unstable();
        assert_eq!(uids, [range.0, range.0 + 1]);
        assert!(taken.claim(range, &some).is_err());
    }
}
