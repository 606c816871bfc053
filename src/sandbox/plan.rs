//! How interpreters are started on this host, and the places that they are given.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::Mutex;

use super::SandboxError;
use super::interpreter::Interpreter;
use super::launcher::spec::Form;
use super::remove::remove_tree;
use super::run_directory::RunDirectory;
use super::settings::{Settings, Tier};

/// What the map of a namespace says that has all ids.
const ALL_IDS: &str = "0 0 4294967295";

/// The ways of isolating, from strongest to weakest; which user id an interpreter gets is decided place by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Root: namespaces and a private root, then a user id of its own.
    RootNamespaces,
    /// Namespaces and a private root within a user namespace.
    UserNamespaces,
    /// Root without namespaces: a user id of its own.
    PrivateUser,
    /// Neither.
    SameUser,
    /// A command of the operator's isolates.
    Command,
}

/// What all interpreters of a server have in common.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) settings: Arc<Settings>,
    pub(super) interpreter: Interpreter,
    pub(super) way: Way,
    /// The list of fonts that matplotlib has made once, for all interpreters.
    pub(super) fonts: OnceLock<PathBuf>,
    places: Arc<Places>,
}

/// User ids and directories that are in use.
#[derive(Debug)]
pub(super) struct Places {
    taken: Mutex<Taken>,
    /// Where working directories are made that no private root holds.
    run: RunDirectory,
}

#[derive(Debug, Default)]
struct Taken {
    uids: BTreeMap<u32, Claim>,
    /// The user id that was taken last: one that was given back is not taken again at once.
    last_uid: Option<u32>,
    slots: BTreeSet<usize>,
}

/// What one interpreter has to itself; given back when it is dropped, which must come after the interpreter's end.
#[derive(Debug)]
pub(super) struct Place {
    /// None where a command isolates.
    form: Option<Form>,
    slot: usize,
    uid: Option<u32>,
    directory: Option<PathBuf>,
    places: Arc<Places>,
}

impl Places {
    /// Nothing is taken yet.
    pub(super) fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            taken: Mutex::default(),
            run: RunDirectory::open(&settings.work_dir)?,
        })
    }
}

impl Way {
    /// What the ways can come to on this host, strongest first.
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

    /// The tier that it reaches when everything about it works.
    pub(super) fn tier(self) -> Tier {
        match self {
            Self::RootNamespaces | Self::UserNamespaces => Tier::Strong,
            Self::PrivateUser => Tier::Medium,
            Self::SameUser => Tier::Basic,
            Self::Command => Tier::External,
        }
    }
}

impl Plan {
    pub(super) fn new(
        settings: Arc<Settings>,
        interpreter: Interpreter,
        way: Way,
        places: Arc<Places>,
    ) -> Self {
        Self {
            settings,
            interpreter,
            way,
            fonts: OnceLock::new(),
            places,
        }
    }

    /// Keeps matplotlib's list of fonts for all interpreters.
    pub(super) fn keep_fonts(&self, name: &str, list: &[u8]) -> io::Result<()> {
        let path = self.places.run.keep(name, list)?;
        let _first_one_stays = self.fonts.set(path);
        Ok(())
    }

    /// Takes a place.
    pub(super) fn place(&self) -> Result<Place, SandboxError> {
        let root = self.way != Way::Command && rustix::process::geteuid().is_root();
        let mut taken = self.places.taken.lock();
        let uid = match root {
            // Root of a user namespace may have no other ids; a further namespace does without.
            true if self.way == Way::UserNamespaces && !Ids::here().has_any(self.settings.uids) => {
                None
            }
            true => Some(free_uid(&mut taken, self.settings.uids, Ids::here())?),
            false => None,
        };
        let slot = (0..).find(|slot| !taken.slots.contains(slot)).unwrap_or(0);
        taken.slots.insert(slot);
        drop(taken);
        let form = match (self.way, uid) {
            (Way::Command, _) => None,
            (Way::RootNamespaces, Some(uid)) => Some(Form::RootNamespaces { uid }),
            (Way::PrivateUser, Some(uid)) => Some(Form::PrivateUser { uid }),
            (Way::UserNamespaces, uid) => Some(Form::UserNamespaces { uid }),
            (Way::RootNamespaces | Way::PrivateUser | Way::SameUser, _) => Some(Form::SameUser),
        };
        let mut place = Place {
            form,
            slot,
            uid,
            directory: None,
            places: self.places.clone(),
        };
        if form.is_some_and(|form| !form.has_namespaces()) {
            let directory = self.places.run.fresh(uid);
            place.directory = Some(directory.map_err(|source| SandboxError::Step {
                step: "making a working directory",
                source,
            })?);
        }
        Ok(place)
    }

    /// Whether an interpreter may start although Landlock is missing.
    pub(super) fn accepts_weak(&self, form: Form) -> bool {
        // A root of its own holds without it; a user id of its own does only if the operator says so.
        form.has_namespaces() || self.settings.require == Tier::Weak
    }
}

impl Place {
    /// How loopwright's launcher isolates; none where a command does.
    pub(super) fn form(&self) -> Option<Form> {
        self.form
    }

    /// Counts the live interpreters from 0, with gaps filled first.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// The directory that holds `data` and `tmp`, where there is no private root.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Who files belong to that the server puts there.
    pub(super) fn owner(&self) -> Option<(u32, u32)> {
        self.uid.map(|uid| (uid, uid))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
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

/// Keeps a user id from the other servers on this host, whatever their directories: a name that the kernel gives to one
/// process only, and frees with it.
#[derive(Debug)]
struct Claim(#[expect(dead_code, reason = "it is held, not used")] UnixDatagram);

impl Claim {
    /// None where another server has the user id.
    fn take(uid: u32) -> io::Result<Option<Self>> {
        let name = SocketAddr::from_abstract_name(format!("loopwright-interpreter-{uid}"))?;
        match UnixDatagram::bind_addr(&name) {
            Ok(socket) => Ok(Some(Self(socket))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The user and group ids that exist in a user namespace: first and last of each range.
#[derive(Debug)]
struct Ids {
    users: Vec<(u32, u32)>,
    groups: Vec<(u32, u32)>,
}

impl Ids {
    /// Those of the server's own namespace.
    fn here() -> &'static Self {
        static HERE: LazyLock<Ids> = LazyLock::new(|| {
            // A kernel without user namespaces has all of them.
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

/// The next user id that no interpreter has, of this server or of another. Begins at one that differs between servers on
/// one host.
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

    /// A place, and whether it is taken.
    pub(in crate::sandbox) fn place(folder: &Path) -> (Place, impl Fn() -> bool + use<>) {
        let places = Arc::new(Places {
            taken: Mutex::default(),
            run: RunDirectory::open(folder).unwrap(),
        });
        places.taken.lock().slots.insert(3);
        let place = Place {
            form: None,
            slot: 3,
            uid: None,
            directory: None,
            places: places.clone(),
        };
        (place, move || places.taken.lock().slots.contains(&3))
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
        // A user namespace of a container without root: many users, and fewer groups.
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
