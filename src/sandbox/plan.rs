//! How interpreters are started on this host, and the user ids and directories reserved for them.

mod uids;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use self::uids::{ClaimedUids, MappedIds};
use super::SandboxError;
use super::interpreter::Interpreter;
use super::launcher::spec::Isolation;
use super::remove::remove_tree;
use super::run_directory::RunDirectory;
use super::settings::{Settings, Tier};

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

#[derive(Debug)]
struct Taken {
    uids: ClaimedUids,
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

impl Taken {
    fn new(work_dir: &Path) -> Self {
        Self {
            uids: ClaimedUids::new(work_dir),
            slots: BTreeSet::new(),
        }
    }
}

impl Reservations {
    /// Starts without reservations.
    pub(super) fn open(settings: &Settings) -> io::Result<Self> {
        Ok(Self {
            taken: Mutex::new(Taken::new(&settings.work_dir)),
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
                && !MappedIds::here().has_any(self.settings.uids) =>
            {
                None
            }
            true => Some(taken.uids.claim(self.settings.uids, MappedIds::here())?),
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
            taken.uids.release(uid);
        }
        drop(taken);
        if let Some(directory) = &self.directory
            && let Err(error) = remove_tree(directory)
        {
            tracing::warn!(%error, "a working directory could not be deleted");
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A reservation, and a function that returns whether it is still held.
    pub(crate) fn reserved(folder: &Path) -> (Reservation, impl Fn() -> bool + use<>) {
        let reservations = Arc::new(Reservations {
            taken: Mutex::new(Taken::new(folder)),
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
}
