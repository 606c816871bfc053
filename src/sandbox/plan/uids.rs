//! User ids for interpreters: which exist, which are free, and claims against other servers.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use crate::SandboxError;

/// Holds a file for each claimed user id. Only root can make files in `/run`, so nobody else can take the ids away.
const SHARED: &str = "/run/loopwright-uids";
/// Takes its place below the directory for working files where that cannot be used.
const OWN: &str = "uids";

/// The `uid_map` of a user namespace that maps all ids.
const ALL_IDS: &str = "0 0 4294967295";

/// The user ids of this server's interpreters.
#[derive(Debug)]
pub(super) struct ClaimedUids {
    /// Where the files of claims may be, the best place first.
    directories: Vec<PathBuf>,
    /// A locked file for each; the kernel frees the lock when the process ends.
    claims: BTreeMap<u32, File>,
    /// The last user id handed out; a released id is not reused at once.
    last: Option<u32>,
}

impl ClaimedUids {
    /// Claims user ids among all servers on this host. If that is not possible, among the servers with the same
    /// directory for working files.
    pub(super) fn new(work_dir: &Path) -> Self {
        Self::within(vec![SHARED.into(), work_dir.join(OWN)])
    }

    /// Claims that are files in the first of these directories that can be used.
    pub(super) fn within(directories: Vec<PathBuf>) -> Self {
        Self {
            directories,
            claims: BTreeMap::new(),
            last: None,
        }
    }

    /// Claims the next user id that no interpreter of any server has. The search starts at an id that differs between
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
        let at = |step| move |source| SandboxError::Step { step, source };
        let directory = self
            .directory()
            .map_err(at("making a directory for user ids in use"))?;
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
            let claimed = locked(&directory.join(uid.to_string()));
            let claimed = claimed.map_err(at("claiming a user id"))?;
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

    /// The directory with the files of claims.
    fn directory(&mut self) -> io::Result<PathBuf> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        while let Some(directory) = self.directories.first() {
            match make_private(directory) {
                Ok(()) => return Ok(directory.clone()),
                Err(error) => failed = error,
            }
            if self.directories.len() == 1 {
                break;
            }
            self.directories.remove(0);
        }
        Err(failed)
    }

    /// Releases a user id.
    pub(super) fn release(&mut self, uid: u32) {
        self.claims.remove(&uid);
    }
}

/// A lock on a file that all servers use; `None` if another process has it. The file stays, because a server that deletes
/// it could delete one that another has locked meanwhile.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    let file = options.custom_flags(flags).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Makes a directory in which only this user can make files.
fn make_private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = fs::symlink_metadata(path)?;
    let is_private = found.is_dir()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0;
    match is_private {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
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
            let read = |file| fs::read_to_string(file).unwrap_or_else(|_| ALL_IDS.to_owned());
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
        let folder = tempfile::tempdir().unwrap();
        let mut taken = ClaimedUids::within(vec![folder.path().join(OWN)]);
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
        let folder = tempfile::tempdir().unwrap();
        let [mut one, mut other] =
            [(); 2].map(|()| ClaimedUids::within(vec![folder.path().join(OWN)]));
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
    fn a_directory_that_others_could_write_to_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let [open, link, own] = ["open", "link", "own"].map(|name| folder.path().join(name));
        DirBuilder::new().create(&open).unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&open, everybody).unwrap();
        std::os::unix::fs::symlink(&open, &link).unwrap();
        let range = (4_000_000_400, 4_000_000_400);
        let all = MappedIds::of(ALL_IDS, ALL_IDS);
        let mut taken = ClaimedUids::within(vec![open.clone(), link, own.clone()]);
        taken.claim(range, &all).unwrap();
        assert!(own.join("4000000400").is_file());
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
        let mut nowhere = ClaimedUids::within(vec![open]);
        assert!(nowhere.claim(range, &all).is_err());
    }

    #[test]
    fn only_ids_that_exist_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let mut taken = ClaimedUids::within(vec![folder.path().join(OWN)]);
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
