//! Lists of system calls by how they are treated.
//!
//! The allow-list is Docker's default profile (moby `profiles/seccomp/default.json`) without calls that a Python
//! program does not need and an attacker might use: asynchronous I/O rings, memory that no limit counts (memfd, System
//! V and POSIX queues and segments), attributes of other processes, changes of identity.

use std::os::raw::c_int;

/// Number of a call that is missing in `libc`; the same on every architecture.
const FCHMODAT2: i64 = 452;

/// Allowed on every architecture.
#[rustfmt::skip]
const ALLOWED_EVERYWHERE: &[i64] = &[
    libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_brk, libc::SYS_capget, libc::SYS_chdir,
    libc::SYS_clock_getres, libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_clone, libc::SYS_close,
    libc::SYS_close_range, libc::SYS_connect, libc::SYS_copy_file_range, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_eventfd2,
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_faccessat,
    libc::SYS_faccessat2, libc::SYS_fadvise64, libc::SYS_fallocate, libc::SYS_fchdir, libc::SYS_fchmod,
    libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_fcntl, libc::SYS_fdatasync,
    libc::SYS_fgetxattr, libc::SYS_flistxattr, libc::SYS_flock, libc::SYS_fremovexattr, libc::SYS_fsetxattr,
    libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync, libc::SYS_ftruncate, libc::SYS_futex,
    libc::SYS_futex_waitv, libc::SYS_get_robust_list, libc::SYS_getcpu, libc::SYS_getcwd, libc::SYS_getdents64,
    libc::SYS_getegid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getgroups, libc::SYS_getitimer,
    libc::SYS_getpeername, libc::SYS_getpgid, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_getpriority,
    libc::SYS_getrandom, libc::SYS_getresgid, libc::SYS_getresuid, libc::SYS_getrusage, libc::SYS_getsid,
    libc::SYS_getsockname, libc::SYS_getsockopt, libc::SYS_gettid, libc::SYS_gettimeofday, libc::SYS_getuid,
    libc::SYS_getxattr, libc::SYS_ioctl, libc::SYS_ioprio_get, libc::SYS_kill, libc::SYS_lgetxattr, libc::SYS_linkat, libc::SYS_listen,
    libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_lremovexattr, libc::SYS_lseek, libc::SYS_lsetxattr,
    libc::SYS_madvise, libc::SYS_membarrier, libc::SYS_mincore, libc::SYS_mkdirat, libc::SYS_mmap,
    libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_msync, libc::SYS_munmap, libc::SYS_nanosleep,
    libc::SYS_newfstatat, libc::SYS_openat, libc::SYS_openat2, libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_prctl,
    libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_prlimit64, libc::SYS_pselect6,
    libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_read, libc::SYS_readahead,
    libc::SYS_readlinkat, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmmsg, libc::SYS_recvmsg,
    libc::SYS_removexattr, libc::SYS_renameat2, libc::SYS_restart_syscall, libc::SYS_rseq, libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait, libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity, libc::SYS_sched_getattr, libc::SYS_sched_getparam, libc::SYS_sched_getscheduler,
    libc::SYS_sched_rr_get_interval, libc::SYS_sched_yield, libc::SYS_seccomp, libc::SYS_sendfile,
    libc::SYS_sendmmsg, libc::SYS_sendmsg, libc::SYS_sendto, libc::SYS_set_robust_list, libc::SYS_set_tid_address,
    libc::SYS_setitimer, libc::SYS_setpgid, libc::SYS_setsid, libc::SYS_setsockopt, libc::SYS_setxattr,
    libc::SYS_shutdown, libc::SYS_sigaltstack, libc::SYS_signalfd4, libc::SYS_socket, libc::SYS_socketpair,
    libc::SYS_splice, libc::SYS_statfs, libc::SYS_statx, libc::SYS_symlinkat, libc::SYS_sysinfo, libc::SYS_tee,
    libc::SYS_tgkill, libc::SYS_timer_create, libc::SYS_timer_delete, libc::SYS_timer_getoverrun,
    libc::SYS_timer_gettime, libc::SYS_timer_settime, libc::SYS_timerfd_create, libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime, libc::SYS_times, libc::SYS_tkill, libc::SYS_truncate, libc::SYS_umask,
    libc::SYS_uname, libc::SYS_unlinkat, libc::SYS_utimensat, libc::SYS_wait4, libc::SYS_waitid, libc::SYS_write,
    libc::SYS_writev, FCHMODAT2,
];

/// Older forms of allowed calls, which only x86-64 has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_access, libc::SYS_alarm, libc::SYS_arch_prctl, libc::SYS_chmod, libc::SYS_chown, libc::SYS_creat,
    libc::SYS_dup2, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_fork,
    libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_getpgrp, libc::SYS_getrlimit, libc::SYS_lchown, libc::SYS_link, libc::SYS_lstat, libc::SYS_mkdir, libc::SYS_open, libc::SYS_pause,
    libc::SYS_pipe, libc::SYS_poll, libc::SYS_readlink, libc::SYS_rename, libc::SYS_renameat, libc::SYS_rmdir,
    libc::SYS_select, libc::SYS_setrlimit, libc::SYS_signalfd, libc::SYS_stat, libc::SYS_symlink,
    libc::SYS_sync_file_range, libc::SYS_time, libc::SYS_unlink, libc::SYS_utime, libc::SYS_utimes, libc::SYS_vfork,
];
/// `renameat`, which the C library uses there; missing in `libc`.
#[cfg(target_arch = "aarch64")]
const ALLOWED_HERE: &[i64] = &[38];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ALLOWED_HERE: &[i64] = &[];

/// Refused, although other programs may need it. Queues of inotify are kernel memory that belongs to no process that could be
/// measured, and they report changes in any readable directory, regardless of Landlock.
#[rustfmt::skip]
const REFUSED_EVERYWHERE: &[i64] = &[
    libc::SYS_acct, libc::SYS_add_key, libc::SYS_adjtimex, libc::SYS_bpf, libc::SYS_capset, libc::SYS_chroot,
    libc::SYS_clock_adjtime, libc::SYS_clock_settime, libc::SYS_delete_module, libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark, libc::SYS_finit_module, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fsopen,
    libc::SYS_fspick, libc::SYS_get_mempolicy, libc::SYS_init_module, libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1, libc::SYS_inotify_rm_watch, libc::SYS_io_cancel, libc::SYS_io_destroy,
    libc::SYS_io_getevents, libc::SYS_io_setup, libc::SYS_io_submit, libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register, libc::SYS_io_uring_setup, libc::SYS_ioprio_set, libc::SYS_kcmp,
    libc::SYS_kexec_file_load, libc::SYS_kexec_load, libc::SYS_keyctl, libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self, libc::SYS_lookup_dcookie, libc::SYS_mbind,
    libc::SYS_memfd_create, libc::SYS_memfd_secret, libc::SYS_migrate_pages, libc::SYS_mknodat, libc::SYS_mlock,
    libc::SYS_mlock2, libc::SYS_mlockall, libc::SYS_mount, libc::SYS_mount_setattr, libc::SYS_move_mount,
    libc::SYS_move_pages, libc::SYS_mq_getsetattr, libc::SYS_mq_notify, libc::SYS_mq_open,
    libc::SYS_mq_timedreceive, libc::SYS_mq_timedsend, libc::SYS_mq_unlink, libc::SYS_msgctl, libc::SYS_msgget,
    libc::SYS_msgrcv, libc::SYS_msgsnd, libc::SYS_name_to_handle_at, libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at, libc::SYS_open_tree, libc::SYS_perf_event_open, libc::SYS_personality,
    libc::SYS_pidfd_getfd, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_pivot_root,
    libc::SYS_process_madvise, libc::SYS_process_mrelease, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev,
    libc::SYS_ptrace, libc::SYS_quotactl, libc::SYS_quotactl_fd, libc::SYS_reboot, libc::SYS_remap_file_pages,
    libc::SYS_request_key, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo, libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr, libc::SYS_sched_setparam, libc::SYS_sched_setscheduler, libc::SYS_seccomp,
    libc::SYS_semctl, libc::SYS_semget, libc::SYS_semop, libc::SYS_semtimedop, libc::SYS_set_mempolicy,
    libc::SYS_setdomainname, libc::SYS_setfsgid, libc::SYS_setfsuid, libc::SYS_setgid, libc::SYS_setgroups,
    libc::SYS_sethostname, libc::SYS_setns, libc::SYS_setpriority, libc::SYS_setregid, libc::SYS_setresgid,
    libc::SYS_setresuid, libc::SYS_setreuid, libc::SYS_settimeofday, libc::SYS_setuid, libc::SYS_shmat,
    libc::SYS_shmctl, libc::SYS_shmdt, libc::SYS_shmget, libc::SYS_swapoff, libc::SYS_swapon, libc::SYS_sync,
    libc::SYS_syncfs, libc::SYS_syslog, libc::SYS_umount2, libc::SYS_unshare, libc::SYS_userfaultfd,
    libc::SYS_vhangup, libc::SYS_vmsplice,
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const REFUSED_HERE: &[i64] = &[
    libc::SYS__sysctl, libc::SYS_inotify_init, libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_mknod, libc::SYS_modify_ldt, libc::SYS_sysfs,
    libc::SYS_uselib, libc::SYS_ustat,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Changes of mode, owner and times by path.
const CHANGES_BY_PATH_EVERYWHERE: &[i64] = &[libc::SYS_fchmodat, libc::SYS_fchownat, FCHMODAT2];
#[cfg(target_arch = "x86_64")]
const CHANGES_BY_PATH_HERE: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_futimesat,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
];
#[cfg(not(target_arch = "x86_64"))]
const CHANGES_BY_PATH_HERE: &[i64] = &[];

/// Changes of mode, owner and times of open files; `utimensat` also works by path.
pub(super) const CHANGES_OF_OPEN_FILES: [i64; 3] =
    [libc::SYS_fchmod, libc::SYS_fchown, libc::SYS_utimensat];

/// Numbers of the `ioctl` requests that change a file that is open for reading only: its flags, version, project id,
/// encryption and immutability (fs-verity).
pub(super) const CHANGES_FLAGS: [u64; 5] = [
    0x4008_6602,
    0x4008_7602,
    0x401c_5820,
    0x800c_6613,
    0x4080_6685,
];

/// Writes of extended attributes.
pub(super) const WRITES_ATTRIBUTES: [i64; 6] = [
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_setxattr,
];

/// Calls that reach a socket by its name.
pub(super) const REACHES_SOCKETS: [i64; 6] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_socket,
];

/// Calls by which a socket is given a name, or takes connections from others.
pub(super) const LISTENS: [i64; 4] = [
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_listen,
];

/// `prctl` options that change the rights of other processes over this one, or its filters.
pub(super) const REFUSED_OPTIONS: [c_int; 6] = [
    libc::PR_SET_MM,
    libc::PR_SET_PTRACER,
    libc::PR_SET_SECCOMP,
    libc::PR_SET_DUMPABLE,
    libc::PR_CAP_AMBIENT,
    libc::PR_CAPBSET_DROP,
];

/// `fcntl` commands that lock parts of a file for an open file; `/proc/locks` does not say whose these locks are.
pub(super) const UNOWNED_LOCKS: [c_int; 2] = [libc::F_OFD_SETLK, libc::F_OFD_SETLKW];

/// `clone` flags that create a namespace.
pub(super) const NAMESPACE_FLAGS: [c_int; 8] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    // CLONE_NEWTIME, missing in `libc`.
    0x80,
];

/// The allow-list.
pub(super) fn allowed() -> impl Iterator<Item = i64> {
    both(ALLOWED_EVERYWHERE, ALLOWED_HERE)
}

/// The refused calls.
pub(super) fn refused() -> impl Iterator<Item = i64> {
    both(REFUSED_EVERYWHERE, REFUSED_HERE)
}

/// Changes of mode, owner and times by path.
pub(super) fn changes_by_path() -> impl Iterator<Item = i64> {
    both(CHANGES_BY_PATH_EVERYWHERE, CHANGES_BY_PATH_HERE)
}

fn both(everywhere: &'static [i64], here: &'static [i64]) -> impl Iterator<Item = i64> {
    everywhere.iter().chain(here).copied()
}
