//! The limits that no kernel keeps: looked at from outside, which blocks for as long as the code can make it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::process::Pid;

use crate::sandbox::Limit;
use crate::sandbox::files::WorkDir;
use crate::sandbox::launcher::spec::Form;
use crate::sandbox::monitor;
use crate::sandbox::settings::Settings;

/// What of an interpreter is looked at.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) launcher: Option<u32>,
    pub(super) form: Form,
    pub(super) settings: Arc<Settings>,
    pub(super) files: Arc<WorkDir>,
    pub(super) tmp: Arc<WorkDir>,
    /// Other writable directories whose use counts as memory.
    pub(super) others: Arc<[OwnedFd]>,
}

impl Watch {
    /// The limit that is passed, if any.
    pub(super) fn passed(&self, disk: bool) -> Option<Limit> {
        self.memory()
            .or_else(|| disk.then(|| self.disk()).flatten())
    }

    fn memory(&self) -> Option<Limit> {
        let root = Pid::from_raw(self.launcher?.try_into().ok()?)?;
        let mut directories = Vec::new();
        // On a disk of the host nothing of it is memory.
        if self.form.has_namespaces() {
            directories.extend(self.others.iter().map(AsFd::as_fd));
            directories.extend([self.files.as_fd(), self.tmp.as_fd()]);
        }
        let limits = &self.settings.limits;
        let used = monitor::memory(root, &directories, limits.memory);
        // The kernel counts all processes of a user id together, so a shared id has a wider limit there.
        let shared = self.form == Form::SameUser;
        match used {
            used if used.over => Some(Limit::Memory),
            used if shared && used.processes as u64 > limits.processes => Some(Limit::Processes),
            _ => None,
        }
    }

    /// Sized mounts bound themselves; directories on the host's disk are measured.
    fn disk(&self) -> Option<Limit> {
        if self.form.has_namespaces() {
            return None;
        }
        let limits = &self.settings.limits;
        let over = |directory: &WorkDir, bytes: u64| {
            directory
                .usage()
                .is_ok_and(|usage| usage.bytes > bytes || usage.inodes > limits.inodes)
        };
        (over(&self.files, limits.disk) || over(&self.tmp, limits.tmp)).then_some(Limit::Disk)
    }
}
