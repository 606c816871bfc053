//! System calls without a safe wrapper in any crate.
#![expect(
    unsafe_code,
    reason = "fork, mount_setattr, close_range, signalfd and the Landlock version have no safe wrapper"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::FdFlags;
use rustix::process::Pid;

use super::server_socket::ServerSocket;

/// The result of a fork.
pub(super) enum Forked {
    Parent(Pid),
    Child,
}

/// Forks. The process must have one thread, as the launcher has.
pub(super) fn fork() -> io::Result<Forked> {
    // SAFETY: the process has a single thread, so the child's memory is consistent.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Pid::from_raw(pid)
            .map(Forked::Parent)
            .ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// Leaves the namespaces of the server, the user namespace included.
pub(super) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    // SAFETY: descriptors are not unshared (`FILES` is never asked for), and there is one thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Closes every descriptor except the standard three and the server socket.
pub(super) fn close_all_but(server: &ServerSocket) -> io::Result<()> {
    let server = u32::try_from(server.raw()).map_err(io::Error::other)?;
    close_range(3, server.saturating_sub(1))?;
    close_range(server.saturating_add(1), u32::MAX)
}

/// Closes the descriptors of a range, both ends included.
pub(crate) fn close_range(first: u32, last: u32) -> io::Result<()> {
    if first > last {
        return Ok(());
    }
    // SAFETY: called before the process has opened anything that it will use.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    check(result)
}

/// Occupies a free number, so that nothing in this process gets it before [`place_at`].
pub(super) fn reserve(number: RawFd) -> io::Result<()> {
    let null = std::fs::File::open("/dev/null")?;
    // The lowest free number is given out first.
    if null.as_raw_fd() != number {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let _never_closed = null.into_raw_fd();
    Ok(())
}

/// Duplicates a descriptor to a reserved number, where it survives exec.
pub(super) fn place_at(descriptor: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    if descriptor.as_raw_fd() == number {
        // A duplicate of itself would keep the flag that closes it on exec.
        return rustix::io::fcntl_setfd(descriptor, FdFlags::empty()).map_err(Into::into);
    }
    // SAFETY: the number is reserved, so no value in this process owns it.
    check(unsafe { libc::dup2(descriptor.as_raw_fd(), number) }.into())
}

/// Sets attributes of a mount and, with `recursive`, of those below it.
pub(super) fn set_mount(mount: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let mut flags = libc::AT_EMPTY_PATH;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: the path is an empty C string and the structure has the size that is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(result)
}

/// A descriptor that is readable when a child has ended; blocks the signal.
pub(super) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is used.
    let descriptor = unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    check(descriptor.into())?;
    // SAFETY: the descriptor is fresh and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Unblocks every signal, as a fresh program expects.
pub(super) fn unblock_signals() -> io::Result<()> {
    // SAFETY: the set is initialised by sigemptyset before it is used.
    let result = unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
    };
    check(result.into())
}

/// The version of the kernel's Landlock interface; 0 if there is none.
pub(crate) fn landlock_version() -> i32 {
    /// Number of the flag that asks for the version of Landlock.
    const VERSION: u32 = 1;
    // SAFETY: with the version flag the kernel reads neither pointer nor size.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    i32::try_from(version.max(0)).unwrap_or(0)
}

/// Ends the process at once, without destructors: for forked children and compute processes.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(status) }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_descriptor_that_is_already_in_place_survives_exec() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let closes = || {
            rustix::io::fcntl_getfd(&file)
                .unwrap()
                .contains(FdFlags::CLOEXEC)
        };
        assert!(closes());
        place_at(file.as_fd(), file.as_raw_fd()).unwrap();
        assert!(!closes());
    }
}
