//! Holds an interpreter's reservation until its launcher has ended, whichever way that happens.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::task::spawn_blocking;

use crate::plan::Reservation;
use crate::process::launched::END_LIMIT;

/// A reservation and the launcher whose exit releases it. Must be dropped after the launcher's socket; dropping it
/// waits on a separate thread.
#[derive(Debug)]
pub(super) struct ReservationGuard {
    /// `None` once it is released.
    rest: Option<Rest>,
}

#[derive(Debug)]
struct Rest {
    /// Released when no other reference is left.
    reservation: Arc<Reservation>,
    /// A pidfd of the launcher; `None` if none was started.
    launcher: Option<OwnedFd>,
}

impl ReservationGuard {
    pub(super) fn new(reservation: Arc<Reservation>) -> Self {
        Self {
            rest: Some(Rest {
                reservation,
                launcher: None,
            }),
        }
    }

    /// From now on the launcher's exit releases the reservation.
    pub(super) fn began(&mut self, launcher: OwnedFd) {
        if let Some(rest) = &mut self.rest {
            rest.launcher = Some(launcher);
        }
    }

    /// Waits until the launcher has ended and releases the reservation. Deleting the directory may take long, so this
    /// runs on a blocking thread.
    pub(super) async fn end(mut self) {
        let Some(rest) = self.rest.take() else { return };
        if let Err(error) = spawn_blocking(move || rest.give_back()).await {
            tracing::error!(%error, "the user id and directory of an interpreter could not be released");
        }
    }
}

impl Rest {
    /// Blocks until the launcher has ended.
    fn give_back(self) {
        let Self {
            reservation,
            launcher,
        } = self;
        if let Some(launcher) = launcher
            && !has_ended(&launcher, Some(END_LIMIT))
        {
            tracing::error!("a code launcher did not end in time and is killed");
            let _may_have_ended = pidfd_send_signal(&launcher, Signal::KILL);
            // A launcher that cannot be killed keeps its user id and directory.
            has_ended(&launcher, None);
        }
        drop(reservation);
    }
}

impl Drop for ReservationGuard {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        if rest.launcher.is_none() {
            return;
        }
        let waiting = std::thread::Builder::new().name("sandbox-place".to_owned());
        if let Err(error) = waiting.spawn(move || rest.give_back()) {
            tracing::error!(%error, "the exit of a code launcher cannot be awaited");
        }
    }
}

/// Waits for the end of a process, for ever without a limit.
fn has_ended(process: &OwnedFd, limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    loop {
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        match poll(&mut polled, limit.as_ref()) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;
    use crate::plan::tests::reserved;

    #[test]
    fn a_place_is_kept_until_the_launcher_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let (reservation, is_taken) = reserved(folder.path());
        let mut launcher = Command::new("/bin/cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(launcher.id().try_into().unwrap()).unwrap();
        let mut tenancy = ReservationGuard::new(Arc::new(reservation));
        tenancy.began(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        drop(tenancy);
        assert!(is_taken());
        drop(launcher.stdin.take());
        launcher.wait().unwrap();
        let deadline = std::time::Instant::now() + END_LIMIT;
        while is_taken() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
    }
}
