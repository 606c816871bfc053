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

use crate::sandbox::Limit;
use crate::sandbox::files::WorkDir;
use crate::sandbox::launcher::spec::Form;
use crate::sandbox::link::End;
use crate::sandbox::monitor::{self, Kept, Sight};
use crate::sandbox::plan::Place;
use crate::sandbox::process::launched::Launched;
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
pub(super) struct Watcher {
    busy: watch::Sender<bool>,
    passed: watch::Receiver<Option<Limit>>,
    sees_descriptors: bool,
    _looking: JoinSet<()>,
}

/// What of an interpreter is looked at.
#[derive(Debug)]
pub(super) struct Watch {
    launcher: Option<u32>,
    form: Form,
    settings: Arc<Settings>,
    files: Arc<WorkDir>,
    tmp: Arc<WorkDir>,
    /// Other writable directories whose use counts as memory.
    others: Arc<[OwnedFd]>,
    /// How descriptors are looked at; none where that is not allowed.
    sight: Option<Sight>,
    /// What one socket counts for.
    socket_bytes: u64,
}

impl Watcher {
    /// Begins to look. Code of others must not run yet.
    pub(super) async fn start(mut watch: Watch, end: End) -> Self {
        let looking = spawn_blocking(move || {
            watch.find_sight();
            watch
        });
        let (busy, is_busy) = watch::channel(false);
        let (found, passed) = watch::channel(None);
        let mut task = JoinSet::new();
        let mut sees_descriptors = false;
        if let Ok(watch) = looking.await {
            sees_descriptors = watch.sight.is_some();
            task.spawn(follow(Arc::new(watch), end, is_busy, found));
        }
        Self {
            busy,
            passed,
            sees_descriptors,
            _looking: task,
        }
    }

    /// Has somebody look often, or only now and then.
    pub(super) fn set_busy(&self, busy: bool) {
        let _nobody_looks_any_more = self.busy.send(busy);
    }

    /// The limit that was passed, if any.
    pub(super) fn passed(&self) -> Option<Limit> {
        *self.passed.borrow()
    }

    /// Waits until a limit is passed.
    ///
    /// # Cancel safety
    /// A dropped future loses nothing.
    pub(super) async fn passes(&mut self) -> Limit {
        loop {
            if let Some(limit) = *self.passed.borrow_and_update() {
                return limit;
            }
            if self.passed.changed().await.is_err() {
                // Nobody looks any more.
                return std::future::pending().await;
            }
        }
    }

    /// Whether open files without a name are counted.
    pub(super) fn sees_descriptors(&self) -> bool {
        self.sees_descriptors
    }
}

/// Looks until a limit is passed, and ends everything then.
async fn follow(
    watch: Arc<Watch>,
    end: End,
    mut busy: watch::Receiver<bool>,
    found: watch::Sender<Option<Limit>>,
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
        let Ok(passed) = spawn_blocking(move || watch.passed(thorough)).await else {
            return;
        };
        last = Instant::now();
        took = last - began;
        if passed.is_some() {
            // First, so that whoever sees the end knows why.
            let _nobody_asks = found.send(passed);
            end.close();
            return;
        }
    }
}

impl Watch {
    /// All of an interpreter that is looked at.
    pub(super) fn of(
        process: &Launched,
        form: Form,
        place: &Place,
        settings: Arc<Settings>,
    ) -> Self {
        Self {
            launcher: process.id(),
            form,
            settings,
            files: process.files.clone(),
            tmp: process.tmp.clone(),
            others: process.others.clone(),
            sight: Some(Sight {
                owner: place.owner(),
                beneath: place.directory().map(Path::to_owned),
            }),
            socket_bytes: SOCKET_BYTES,
        }
    }

    /// Finds out whether descriptors can be looked at.
    fn find_sight(&mut self) {
        let size = fs::read_to_string("/proc/sys/net/core/wmem_default").ok();
        if let Some(size) = size.and_then(|size| size.trim().parse().ok()) {
            self.socket_bytes = size;
        }
        if let Some(directory) = self.sight.as_mut().and_then(|sight| sight.beneath.as_mut())
            && let Ok(real) = fs::canonicalize(&*directory)
        {
            *directory = real;
        }
        if self.kept().is_none_or(|kept| kept.hidden > 0) {
            self.sight = None;
        }
    }

    /// The limit that is passed, if any.
    fn passed(&self, thorough: bool) -> Option<Limit> {
        let processes = monitor::tree(self.root()?);
        let kept = match thorough {
            true => self.kept_by(&processes),
            false => None,
        };
        self.memory(&processes, kept.unwrap_or_default())
            .or_else(|| {
                thorough
                    .then(|| self.disk(kept.unwrap_or_default()))
                    .flatten()
            })
    }

    fn root(&self) -> Option<Pid> {
        Pid::from_raw(self.launcher?.try_into().ok()?)
    }

    fn kept(&self) -> Option<Kept> {
        self.kept_by(&monitor::tree(self.root()?))
    }

    /// What descriptors keep, those of the launcher left out.
    fn kept_by(&self, processes: &[Pid]) -> Option<Kept> {
        let launchers = if self.form.has_namespaces() { 2 } else { 1 };
        let code = processes.get(launchers..).unwrap_or_default();
        Some(monitor::kept(code, self.sight.as_ref()?))
    }

    fn memory(&self, processes: &[Pid], kept: Kept) -> Option<Limit> {
        let mut directories = Vec::new();
        // On a disk of the host nothing of it is memory.
        if self.form.has_namespaces() {
            directories.extend(self.others.iter().map(AsFd::as_fd));
            directories.extend([self.files.as_fd(), self.tmp.as_fd()]);
        }
        let limits = &self.settings.limits;
        // Whoever does not show its descriptors may have all of them be sockets.
        let hidden = kept.hidden.saturating_mul(limits.open_files);
        let sockets = kept.sockets.saturating_add(hidden);
        let in_sockets = sockets.saturating_mul(self.socket_bytes);
        let used = monitor::memory(processes, &directories, in_sockets, limits.memory);
        // The kernel counts all processes of a user id together, so a shared id has a wider limit there.
        let shared = self.form == Form::SameUser;
        match used {
            used if used.over => Some(Limit::Memory),
            _ if shared && processes.len() as u64 > limits.processes => Some(Limit::Processes),
            _ => None,
        }
    }

    /// Sized mounts bound themselves; directories on the host's disk are measured.
    fn disk(&self, kept: Kept) -> Option<Limit> {
        if self.form.has_namespaces() {
            return None;
        }
        let limits = &self.settings.limits;
        let usage = |directory: &WorkDir| directory.usage().unwrap_or_default();
        let (files, tmp) = (usage(&self.files), usage(&self.tmp));
        // Of a file without a name nobody can tell in which of the two it lies.
        let nameless = kept
            .unsized_files
            .saturating_mul(limits.file_size)
            .saturating_add(kept.bytes);
        let bytes = files
            .bytes
            .saturating_add(tmp.bytes)
            .saturating_add(nameless);
        let names = files
            .inodes
            .saturating_add(tmp.inodes)
            .saturating_add(kept.files);
        let over = kept.hidden > 0
            || files.bytes > limits.disk
            || tmp.bytes > limits.tmp
            || files.inodes.max(tmp.inodes) > limits.inodes
            || bytes > limits.disk.saturating_add(limits.tmp)
            || names > limits.inodes.saturating_mul(2);
        over.then_some(Limit::Disk)
    }
}
