//! Enforces the limits that the kernel does not: measures an interpreter regularly during its whole life, and ends it
//! when a limit is exceeded.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};

use crate::ResourceLimit;
use crate::files::WorkDir;
use crate::launcher::spec::Isolation;
use crate::launcher_socket::KillHandle;
use crate::monitor::{self, DescriptorAccess, DescriptorUsage, KernelObjects};
use crate::plan::Reservation;
use crate::process::launched::LaunchedProcess;
use crate::settings::Settings;

/// Pause between measurements while a call runs.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// Pause between measurements between calls, when all processes are suspended.
/// Tried by `unseen::limits_hold_when_no_cell_runs`.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// How often disk, descriptors, locks and mappings are measured during a call: once in so many measurements of memory.
const THOROUGH_EVERY: u32 = 12;
/// Memory of a socket in the kernel, in bytes, if the kernel's setting cannot be read.
const SOCKET_BYTES: u64 = 208 * 1024;

/// A task that watches an interpreter; stops when dropped.
#[derive(Debug)]
pub(super) struct ResourceWatcher {
    busy: watch::Sender<bool>,
    exceeded: watch::Receiver<Option<ResourceLimit>>,
    counts_descriptors: bool,
    _task: JoinSet<()>,
}

/// What is measured of an interpreter.
#[derive(Debug)]
pub(super) struct WatchTarget {
    launcher: Option<u32>,
    isolation: Isolation,
    settings: Arc<Settings>,
    files: Arc<WorkDir>,
    tmp: Arc<WorkDir>,
    /// Other writable directories, whose usage counts as memory.
    others: Arc<[OwnedFd]>,
    /// How descriptors are read; `None` if that is not allowed.
    access: Option<DescriptorAccess>,
    /// Bytes that one socket counts for.
    socket_bytes: u64,
}

impl ResourceWatcher {
    /// Starts the task. Must be called before user code runs.
    pub(super) async fn start(mut watch: WatchTarget, kill: KillHandle) -> Self {
        let preparing = spawn_blocking(move || {
            watch.find_access();
            watch
        });
        let (busy, is_busy) = watch::channel(false);
        let (found, exceeded) = watch::channel(None);
        let mut task = JoinSet::new();
        let mut counts_descriptors = false;
        if let Ok(watch) = preparing.await {
            counts_descriptors = watch.access.is_some();
            task.spawn(follow(Arc::new(watch), kill, is_busy, found));
        }
        Self {
            busy,
            exceeded,
            counts_descriptors,
            _task: task,
        }
    }

    /// Switches between the two intervals.
    pub(super) fn set_busy(&self, busy: bool) {
        let _nobody_looks_any_more = self.busy.send(busy);
    }

    /// The limit that was exceeded, if any.
    pub(super) fn exceeded(&self) -> Option<ResourceLimit> {
        *self.exceeded.borrow()
    }

    /// Waits until a limit is exceeded.
    ///
    /// # Cancel safety
    /// A dropped future loses no result.
    pub(super) async fn exceeds(&mut self) -> ResourceLimit {
        loop {
            if let Some(limit) = *self.exceeded.borrow_and_update() {
                return limit;
            }
            if self.exceeded.changed().await.is_err() {
                // The task has ended.
                return std::future::pending().await;
            }
        }
    }

    /// Whether deleted open files are counted.
    pub(super) fn counts_descriptors(&self) -> bool {
        self.counts_descriptors
    }
}

/// Measures until a limit is exceeded, then ends everything.
async fn follow(
    watch: Arc<WatchTarget>,
    kill: KillHandle,
    mut busy: watch::Receiver<bool>,
    found: watch::Sender<Option<ResourceLimit>>,
) {
    let (mut count, mut last, mut duration) = (0_u32, Instant::now(), Duration::ZERO);
    loop {
        let is_busy = *busy.borrow_and_update();
        let interval = if is_busy {
            BUSY_INTERVAL
        } else {
            IDLE_INTERVAL
        };
        tokio::select! {
            // Code can make a measurement slow; the wait then grows with it, so that measuring never takes all of a
            // processor.
            () = sleep_until(last + interval.max(duration)) => {}
            changed = busy.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        count = count.wrapping_add(1);
        let thorough = !is_busy || count.is_multiple_of(THOROUGH_EVERY);
        let (began, watch) = (Instant::now(), watch.clone());
        let Ok(exceeded) = spawn_blocking(move || watch.exceeded(thorough)).await else {
            return;
        };
        last = Instant::now();
        duration = last - began;
        if exceeded.is_some() {
            // Sent first, so that the reason is known when the end is noticed.
            let _nobody_asks = found.send(exceeded);
            kill.close();
            return;
        }
    }
}

impl WatchTarget {
    /// Describes the measurements of an interpreter.
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

    /// Finds out whether descriptors can be read.
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

    /// Measures once; returns the limit that is exceeded, if any.
    fn exceeded(&self, thorough: bool) -> Option<ResourceLimit> {
        let processes = monitor::tree(self.root()?);
        let usage = match thorough {
            true => self.descriptor_usage_of(&processes),
            false => None,
        };
        let kernel = match thorough {
            true => KernelObjects {
                locks: monitor::locks(&processes),
                mappings: usage.unwrap_or_default().mappings,
            },
            false => KernelObjects::default(),
        };
        if kernel.too_many() {
            return Some(ResourceLimit::Memory);
        }
        self.memory(&processes, usage.unwrap_or_default(), kernel)
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

    /// The use of descriptors by the code, without the descriptors of the launcher.
    fn descriptor_usage_of(&self, processes: &[Pid]) -> Option<DescriptorUsage> {
        let launchers = if self.isolation.has_namespaces() {
            2
        } else {
            1
        };
        let code = processes.get(launchers..).unwrap_or_default();
        Some(monitor::descriptor_usage(code, self.access.as_ref()?))
    }

    fn memory(
        &self,
        processes: &[Pid],
        usage: DescriptorUsage,
        kernel: KernelObjects,
    ) -> Option<ResourceLimit> {
        let mut directories = Vec::new();
        // Files on a disk of the host are not memory.
        if self.isolation.has_namespaces() {
            directories.extend(self.others.iter().map(AsFd::as_fd));
            directories.extend([self.files.as_fd(), self.tmp.as_fd()]);
        }
        let limits = &self.settings.limits;
        // A process that hides its descriptors counts as if all of them were sockets.
        let hidden = usage.hidden.saturating_mul(limits.open_files);
        let sockets = usage.sockets.saturating_add(hidden);
        let in_sockets = sockets.saturating_mul(self.socket_bytes);
        let besides = in_sockets.saturating_add(kernel.bytes());
        let used = monitor::memory(processes, &directories, besides, limits.memory);
        // The kernel counts all processes of a user id together, so its limit is wider for a shared id.
        let shared = self.isolation == Isolation::SameUser;
        match used {
            used if used.over => Some(ResourceLimit::Memory),
            _ if shared && processes.len() as u64 > limits.processes => {
                Some(ResourceLimit::Processes)
            }
            _ => None,
        }
    }

    /// Measures directories on the host's disk; sized mounts limit themselves.
    fn disk(&self, usage: DescriptorUsage) -> Option<ResourceLimit> {
        if self.isolation.has_namespaces() {
            return None;
        }
        let limits = &self.settings.limits;
        let of = |directory: &WorkDir| directory.usage().unwrap_or_default();
        let (files, tmp) = (of(&self.files), of(&self.tmp));
        // A deleted file cannot be attributed to one of the two directories.
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
