//! The limits that no kernel keeps: somebody looks from outside for as long as an interpreter lives, whatever it does, and
//! ends it where one is passed.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use crate::sandbox::ResourceLimit;
use crate::sandbox::files::WorkDir;
use crate::sandbox::launcher::spec::Isolation;
use crate::sandbox::launcher_socket::KillHandle;
use crate::sandbox::monitor::{self, DescriptorAccess, DescriptorUsage};
use crate::sandbox::plan::Reservation;
use crate::sandbox::process::launched::LaunchedProcess;
use crate::sandbox::settings::Settings;

/// How often somebody looks while a call runs.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// How often between calls, when nothing moves.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// Every so many looks at memory of a busy interpreter, the disk and descriptors are looked at.
const THOROUGH_EVERY: u32 = 12;
/// What the kernel keeps for a socket at most, in bytes, where it does not say otherwise.
const SOCKET_BYTES: u64 = 208 * 1024;

/// Somebody who looks at an interpreter; stops when dropped.
#[derive(Debug)]
pub(super) struct ResourceWatcher {
    busy: watch::Sender<bool>,
    exceeded: watch::Receiver<Option<ResourceLimit>>,
    counts_descriptors: bool,
    _looking: JoinSet<()>,
}

/// What of an interpreter is looked at.
#[derive(Debug)]
pub(super) struct WatchTarget {
    launcher: Option<u32>,
    isolation: Isolation,
    settings: Arc<Settings>,
    files: Arc<WorkDir>,
    tmp: Arc<WorkDir>,
    /// Other writable directories whose use counts as memory.
    others: Arc<[OwnedFd]>,
    /// How descriptors are looked at; none where that is not allowed.
    access: Option<DescriptorAccess>,
    /// What one socket counts for.
    socket_bytes: u64,
}

impl ResourceWatcher {
    /// Begins to look. Code of others must not run yet.
    pub(super) async fn start(mut watch: WatchTarget, kill: KillHandle) -> Self {
        let looking = spawn_blocking(move || {
            watch.find_access();
            watch
        });
        let (busy, is_busy) = watch::channel(false);
        let (found, exceeded) = watch::channel(None);
        let mut task = JoinSet::new();
        let mut counts_descriptors = false;
        if let Ok(watch) = looking.await {
            counts_descriptors = watch.access.is_some();
            task.spawn(follow(Arc::new(watch), kill, is_busy, found));
        }
        Self {
            busy,
            exceeded,
            counts_descriptors,
            _looking: task,
        }
    }

    /// Has somebody look often, or only now and then.
    pub(super) fn set_busy(&self, busy: bool) {
        let _nobody_looks_any_more = self.busy.send(busy);
    }

    /// The limit that was passed, if any.
    pub(super) fn exceeded(&self) -> Option<ResourceLimit> {
        *self.exceeded.borrow()
    }

    /// Waits until a limit is passed.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(super) async fn exceeds(&mut self) -> ResourceLimit {
        loop {
            if let Some(limit) = *self.exceeded.borrow_and_update() {
                return limit;
            }
            if self.exceeded.changed().await.is_err() {
                // Nobody looks any more.
                return std::future::pending().await;
            }
        }
    }

    /// Whether open files without a name are counted.
    pub(super) fn counts_descriptors(&self) -> bool {
        self.counts_descriptors
    }
}

/// Looks until a limit is passed, and ends everything then.
async fn follow(
    watch: Arc<WatchTarget>,
    kill: KillHandle,
    mut busy: watch::Receiver<bool>,
    found: watch::Sender<Option<ResourceLimit>>,
) {
    let (mut looks, mut last, mut took) = (0_u32, Instant::now(), Duration::ZERO);
    loop {
        let is_busy = *busy.borrow_and_update();
        let interval = if is_busy {
            BUSY_INTERVAL
        } else {
            IDLE_INTERVAL
        };
        tokio::select! {
            // Code can make a look take long; it must not take all of a processor.
            () = sleep_until(last + interval.max(took)) => {}
            changed = busy.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        looks = looks.wrapping_add(1);
        let thorough = !is_busy || looks.is_multiple_of(THOROUGH_EVERY);
        let (began, watch) = (Instant::now(), watch.clone());
        let Ok(exceeded) = spawn_blocking(move || watch.exceeded(thorough)).await else {
            return;
        };
        last = Instant::now();
        took = last - began;
        if exceeded.is_some() {
            // First, so that whoever sees the end knows why.
            let _nobody_asks = found.send(exceeded);
            kill.close();
            return;
        }
    }
}

impl WatchTarget {
    /// All of an interpreter that is looked at.
    pub(super) fn of(
        process: &LaunchedProcess,
        isolation: Isolation,
        reservation: &Reservation,
        settings: Arc<Settings>,
    ) -> Self {
        Self {
            launcher: process.id(),
            isolation,
            settings,
            files: process.files.clone(),
            tmp: process.tmp.clone(),
            others: process.others.clone(),
            access: Some(DescriptorAccess {
                owner: reservation.owner(),
                beneath: reservation.directory().map(Path::to_owned),
            }),
            socket_bytes: SOCKET_BYTES,
        }
    }

    /// Finds out whether descriptors can be looked at.
    fn find_access(&mut self) {
        let size = fs::read_to_string("/proc/sys/net/core/wmem_default").ok();
        if let Some(size) = size.and_then(|size| size.trim().parse().ok()) {
            self.socket_bytes = size;
        }
        if let Some(directory) = self
            .access
            .as_mut()
            .and_then(|access| access.beneath.as_mut())
            && let Ok(real) = fs::canonicalize(&*directory)
        {
            *directory = real;
        }
        if self.descriptor_usage().is_none_or(|usage| usage.hidden > 0) {
            self.access = None;
        }
    }

    /// The limit that is passed, if any.
    fn exceeded(&self, thorough: bool) -> Option<ResourceLimit> {
        let processes = monitor::tree(self.root()?);
        let usage = match thorough {
            true => self.descriptor_usage_of(&processes),
            false => None,
        };
        self.memory(&processes, usage.unwrap_or_default())
            .or_else(|| {
                thorough
                    .then(|| self.disk(usage.unwrap_or_default()))
                    .flatten()
            })
    }

    fn root(&self) -> Option<Pid> {
        Pid::from_raw(self.launcher?.try_into().ok()?)
    }

    fn descriptor_usage(&self) -> Option<DescriptorUsage> {
        self.descriptor_usage_of(&monitor::tree(self.root()?))
    }

    /// What descriptors keep, those of the launcher left out.
    fn descriptor_usage_of(&self, processes: &[Pid]) -> Option<DescriptorUsage> {
        let launchers = if self.isolation.has_namespaces() {
            2
        } else {
            1
        };
        let code = processes.get(launchers..).unwrap_or_default();
        Some(monitor::descriptor_usage(code, self.access.as_ref()?))
    }

    fn memory(&self, processes: &[Pid], usage: DescriptorUsage) -> Option<ResourceLimit> {
        let mut directories = Vec::new();
        // On a disk of the host nothing of it is memory.
        if self.isolation.has_namespaces() {
            directories.extend(self.others.iter().map(AsFd::as_fd));
            directories.extend([self.files.as_fd(), self.tmp.as_fd()]);
        }
        let limits = &self.settings.limits;
        // Whoever does not show its descriptors may have all of them be sockets.
        let hidden = usage.hidden.saturating_mul(limits.open_files);
        let sockets = usage.sockets.saturating_add(hidden);
        let in_sockets = sockets.saturating_mul(self.socket_bytes);
        let used = monitor::memory(processes, &directories, in_sockets, limits.memory);
        // The kernel counts all processes of a user id together, so a shared id has a wider limit there.
        let shared = self.isolation == Isolation::SameUser;
        match used {
            used if used.over => Some(ResourceLimit::Memory),
            _ if shared && processes.len() as u64 > limits.processes => {
                Some(ResourceLimit::Processes)
            }
            _ => None,
        }
    }

    /// Sized mounts bound themselves; directories on the host's disk are measured.
    fn disk(&self, usage: DescriptorUsage) -> Option<ResourceLimit> {
        if self.isolation.has_namespaces() {
            return None;
        }
        let limits = &self.settings.limits;
        let of = |directory: &WorkDir| directory.usage().unwrap_or_default();
        let (files, tmp) = (of(&self.files), of(&self.tmp));
        // Of a file without a name nobody can tell in which of the two it lies.
        let nameless = usage
            .unsized_files
            .saturating_mul(limits.file_size)
            .saturating_add(usage.bytes);
        let bytes = files
            .bytes
            .saturating_add(tmp.bytes)
            .saturating_add(nameless);
        let names = files
            .inodes
            .saturating_add(tmp.inodes)
            .saturating_add(usage.files);
        let over = usage.hidden > 0
            || files.bytes > limits.disk
            || tmp.bytes > limits.tmp
            || files.inodes.max(tmp.inodes) > limits.inodes
            || bytes > limits.disk.saturating_add(limits.tmp)
            || names > limits.inodes.saturating_mul(2);
        over.then_some(ResourceLimit::Disk)
    }
}
