//! How interpreters are started on this host, and the user ids and directories reserved for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::Mutex;

use super::SandboxError;
use super::interpreter::Interpreter;
use super::launcher::spec::Isolation;
use super::remove::remove_tree;
use super::run_directory::RunDirectory;
use super::settings::{Settings, Tier};

/// The `uid_map` of a user namespace that maps all ids.
const ALL_IDS: &str = "0 0 4294967295";

/// The isolation methods, strongest first. The user id of an interpreter is chosen per reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsolationMethod {
    /// Root: namespaces and a private root, then a user id per interpreter.
    RootNamespaces,
    /// Namespaces and a private root inside a user namespace.
    UserNamespaces,
    /// Root without namespaces: a user id per interpreter.
    PrivateUser,
    /// No namespaces, and the server's user id.
    SameUser,
    /// A command configured by the operator isolates.
    Command,
}

/// What all interpreters of a server have in common.
#[derive(Debug)]
pub(super) struct LaunchPlan {
    pub(super) settings: Arc<Settings>,
    pub(super) interpreter: Interpreter,
    pub(super) method: IsolationMethod,
    /// The font list that matplotlib has built once for all interpreters.
    pub(super) fonts: OnceLock<PathBuf>,
    reservations: Arc<Reservations>,
}

/// The user ids, slots and directories in use.
#[derive(Debug)]
pub(super) struct Reservations {
    taken: Mutex<Taken>,
    /// Holds the working directories of interpreters without a private root.
    run: RunDirectory,
}

#[derive(Debug, Default)]
struct Taken {
    uids: BTreeMap<u32, Claim>,
    /// The last user id handed out; a released id is not reused at once.
    last_uid: Option<u32>,
    slots: BTreeSet<usize>,
}

/// What one interpreter holds exclusively: slot, user id, directory. Dropping it releases them, so it must outlive the
/// interpreter.
#[derive(Debug)]
pub(super) struct Reservation {
    /// `None` if a command isolates.
    isolation: Option<Isolation>,
    slot: usize,
    uid: Option<u32>,
    directory: Option<PathBuf>,
    reservations: Arc<Reservations>,
}

impl Reservations {
    /// Starts without reservations.
    pub(super) fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            taken: Mutex::default(),
            run: RunDirectory::open(&settings.work_dir)?,
        })
    }
}

impl IsolationMethod {
    /// The methods to try on this host, strongest first.
    pub(super) fn candidates() -> Vec<Self> {
        if rustix::process::geteuid().is_root() {
            vec![
                Self::RootNamespaces,
                Self::UserNamespaces,
                Self::PrivateUser,
            ]
        } else {
            vec![Self::UserNamespaces, Self::SameUser]
        }
    }

    /// The tier that the method reaches if everything about it works.
    pub(super) fn tier(self) -> Tier {
        match self {
            Self::RootNamespaces | Self::UserNamespaces => Tier::Strong,
            Self::PrivateUser => Tier::Medium,
            Self::SameUser => Tier::Basic,
            Self::Command => Tier::External,
        }
    }
}

impl LaunchPlan {
    pub(super) fn new(
        settings: Arc<Settings>,
        interpreter: Interpreter,
        method: IsolationMethod,
        reservations: Arc<Reservations>,
    ) -> Self {
        Self {
            settings,
            interpreter,
            method,
            fonts: OnceLock::new(),
            reservations,
        }
    }

    /// Stores matplotlib's font list for all interpreters.
    pub(super) fn keep_fonts(&self, name: &str, list: &[u8]) -> io::Result<()> {
        let path = self.reservations.run.keep(name, list)?;
        let _first_one_stays = self.fonts.set(path);
        Ok(())
    }

    /// Reserves a slot and, depending on the method, a user id and a directory.
    pub(super) fn reserve(&self) -> Result<Reservation, SandboxError> {
        let root = self.method != IsolationMethod::Command && rustix::process::geteuid().is_root();
        let mut taken = self.reservations.taken.lock();
        let uid = match root {
            // Root inside a user namespace may have no other ids mapped; a nested namespace works without one.
            true if self.method == IsolationMethod::UserNamespaces
                && !Ids::here().has_any(self.settings.uids) =>
            {
                None
            }
            true => Some(free_uid(&mut taken, self.settings.uids, Ids::here())?),
            false => None,
        };
        let slot = (0..).find(|slot| !taken.slots.contains(slot)).unwrap_or(0);
        taken.slots.insert(slot);
        drop(taken);
        let isolation = match (self.method, uid) {
            (IsolationMethod::Command, _) => None,
            (IsolationMethod::RootNamespaces, Some(uid)) => Some(Isolation::RootNamespaces { uid }),
            (IsolationMethod::PrivateUser, Some(uid)) => Some(Isolation::PrivateUser { uid }),
            (IsolationMethod::UserNamespaces, uid) => Some(Isolation::UserNamespaces { uid }),
            (
                IsolationMethod::RootNamespaces
                | IsolationMethod::PrivateUser
                | IsolationMethod::SameUser,
                _,
            ) => Some(Isolation::SameUser),
        };
        let mut reservation = Reservation {
            isolation,
            slot,
            uid,
            directory: None,
            reservations: self.reservations.clone(),
        };
        if isolation.is_some_and(|isolation| !isolation.has_namespaces()) {
            let directory = self.reservations.run.fresh(uid);
            reservation.directory = Some(directory.map_err(|source| SandboxError::Step {
                step: "making a working directory",
                source,
            })?);
        }
        Ok(reservation)
    }

    /// Whether an interpreter may start without Landlock.
    pub(super) fn accepts_weak(&self, isolation: Isolation) -> bool {
        // A private root isolates without Landlock; a separate user id alone does only if the operator accepts it.
        isolation.has_namespaces() || self.settings.require == Tier::Weak
    }
}

impl Reservation {
    /// How the launcher isolates; `None` if a command isolates.
    pub(super) fn isolation(&self) -> Option<Isolation> {
        self.isolation
    }

    /// The number of the reservation, from 0; the lowest free number is used.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// The directory that holds `data` and `tmp`, if there is no private root.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// User and group that own the files that the server places.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        self.uid.map(|uid| (uid, uid))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut taken = self.reservations.taken.lock();
        taken.slots.remove(&self.slot);
        if let Some(uid) = self.uid {
            taken.uids.remove(&uid);
        }
        drop(taken);
        if let Some(directory) = &self.directory
            && let Err(error) = remove_tree(directory)
        {
            tracing::warn!(%error, "a working directory could not be deleted");
        }
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
struct Ids {
    users: Vec<(u32, u32)>,
    groups: Vec<(u32, u32)>,
}

impl Ids {
    /// The ids of the server's namespace.
    fn here() -> &'static Self {
        static HERE: LazyLock<Ids> = LazyLock::new(|| {
            // A kernel without user namespaces has all ids.
            let read = |file| std::fs::read_to_string(file).unwrap_or_else(|_| ALL_IDS.to_owned());
            Ids::of(&read("/proc/self/uid_map"), &read("/proc/self/gid_map"))
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

    fn has_any(&self, (first, last): (u32, u32)) -> bool {
        (first..=last).any(|id| self.has(id))
    }
}

/// The next user id that no interpreter of any server on this host has. The search starts at an id that differs between
/// servers.
fn free_uid(taken: &mut Taken, range: (u32, u32), ids: &Ids) -> Result<u32, SandboxError> {
    if !ids.has_any(range) {
        let (first, last) = range;
        return Err(SandboxError::Unavailable(format!(
            "none of the user ids of 'sandbox.uids' ({first} to {last}) exists in this user namespace; map them \
             (/etc/subuid, /etc/subgid), or set sandbox.uids to ids that are mapped"
        )));
    }
    let count = range.1.saturating_sub(range.0).saturating_add(1);
    let start = match taken.last_uid {
        Some(last) => last.saturating_sub(range.0) + 1,
        None => std::process::id() % count,
    };
    for offset in 0..count {
        let uid = range.0 + (start + offset) % count;
        if taken.uids.contains_key(&uid) || !ids.has(uid) {
            continue;
        }
        let claimed = Claim::take(uid).map_err(|source| SandboxError::Step {
            step: "claiming a user id",
            source,
        })?;
        if let Some(claim) = claimed {
            taken.uids.insert(uid, claim);
            taken.last_uid = Some(uid);
            return Ok(uid);
        }
    }
    Err(SandboxError::Unavailable(
        "every user id of 'sandbox.uids' is in use".to_owned(),
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A reservation, and a function that tells whether it is still held.
    pub(in crate::sandbox) fn reserved(folder: &Path) -> (Reservation, impl Fn() -> bool + use<>) {
        let reservations = Arc::new(Reservations {
            taken: Mutex::default(),
            run: RunDirectory::open(folder).unwrap(),
        });
        reservations.taken.lock().slots.insert(3);
        let reservation = Reservation {
            isolation: None,
            slot: 3,
            uid: None,
            directory: None,
            reservations: reservations.clone(),
        };
        (reservation, move || {
            reservations.taken.lock().slots.contains(&3)
        })
    }

    #[test]
    fn a_user_id_that_was_given_back_is_the_last_to_be_taken_again() {
        let mut taken = Taken::default();
        let range = (4_000_000_100, 4_000_000_103);
        let all = Ids::of(ALL_IDS, ALL_IDS);
        let mut next = || {
            let uid = free_uid(&mut taken, range, &all).unwrap();
            taken.uids.remove(&uid);
            uid - range.0
        };
        let mut first = [next(), next(), next(), next()];
        assert_eq!(next(), first[0]);
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2, 3]);
        for _ in 0..4 {
            free_uid(&mut taken, range, &all).unwrap();
        }
        taken.uids.remove(&(range.0 + 2));
        assert_eq!(free_uid(&mut taken, range, &all).unwrap(), range.0 + 2);
        assert!(free_uid(&mut taken, range, &all).is_err());
    }

    #[test]
    fn two_servers_with_the_same_range_never_have_the_same_user_id() {
        let range = (4_000_000_200, 4_000_000_203);
        let all = Ids::of(ALL_IDS, ALL_IDS);
        let (mut one, mut other) = (Taken::default(), Taken::default());
        for _ in 0..2 {
            free_uid(&mut one, range, &all).unwrap();
            free_uid(&mut other, range, &all).unwrap();
        }
        assert!(one.uids.keys().all(|uid| !other.uids.contains_key(uid)));
        assert!(free_uid(&mut one, range, &all).is_err());
        drop(other);
        free_uid(&mut one, range, &all).unwrap();
    }

    #[test]
    fn only_ids_that_exist_are_taken() {
        let mut taken = Taken::default();
        let range = (4_000_000_300, 4_000_000_303);
        let single = Ids::of("         0       1000          1\n", "0 1000 1\n");
        assert!(single.has(0) && !single.has(1) && !single.has(1000));
        let refused = free_uid(&mut taken, (60_000, 60_099), &single).unwrap_err();
        assert!(refused.to_string().contains("/etc/subuid"), "{refused}");
        // A user namespace of a rootless container: many users, fewer groups.
        let some = Ids::of(
            "0 1000 1\n1 2000 4294967294\n",
            "0 1000 1\n1 2000 4000000301\n",
        );
        let mut uids = [(); 2].map(|()| free_uid(&mut taken, range, &some).unwrap());
        uids.sort_unstable();
        assert_eq!(uids, [range.0, range.0 + 1]);
        assert!(free_uid(&mut taken, range, &some).is_err());
    }
}
