//! The private root file system of an interpreter.
//!
//! A read-only tmpfs with the interpreter's trees bind-mounted read-only, a generated `/etc`, a few device nodes, a
//! `/proc` that shows processes only, and three writable tmpfs of limited size.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount,
    mount_change, move_mount, open_tree, unmount,
};

use super::spec::{DATA, Spec};
use super::{AtStep, StepResult, raw};
use crate::settings::Network;

/// Where the new root is assembled. It hides what is below it, which has been cloned before.
const STAGE: &str = "/tmp";
/// Size for directories, links and the generated `/etc`.
const ROOT_OPTIONS: &str = "mode=0755,size=2m,nr_inodes=1024";
/// Entries of the host's `/etc` that programs need, and those that only matter with a network.
const ETC: [&str; 4] = ["ld.so.cache", "localtime", "alternatives", "fonts"];
#[rustfmt::skip]
const ETC_NETWORK: [&str; 6] = [
    "resolv.conf", "hosts", "nsswitch.conf", "ssl", "ca-certificates", "pki",
];
const DEVICES: [&str; 4] = ["null", "full", "random", "urandom"];
/// A shared mapping of this device is memory that no process is charged with. Landlock keeps it from being opened for
/// writing; a read-only mount does not.
const ZERO: &str = "zero";
/// Directories of a merged `/usr`; links on most hosts.
const TOP: [&str; 5] = ["bin", "sbin", "lib", "lib64", "lib32"];

/// The result of setting up the root.
#[derive(Debug)]
pub(super) struct PrivateRoot {
    pub(super) proc: bool,
    /// The working directory, `/tmp`, `/dev/shm`.
    pub(super) directories: Vec<OwnedFd>,
}

/// A cloned tree of the host that will be moved into the root.
struct Tree {
    /// Below the new root.
    path: PathBuf,
    is_directory: bool,
    mount: OwnedFd,
}

/// Builds the root and enters it. `id` is the user id that owns the writable directories.
pub(super) fn enter(spec: &Spec, id: u32) -> StepResult<PrivateRoot> {
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .at("making mounts private")?;
    let trees = clone_mounts(spec)?;
    mount_tmpfs(STAGE, ROOT_OPTIONS, MountFlags::NOSUID | MountFlags::NODEV)
        .at("mounting the root")?;
    std::env::set_current_dir(STAGE).at("entering the root")?;
    // First, because an interpreter's tree may lie below a writable directory, which would hide it.
    let proc = mount_writable(spec, id)?;
    attach_mounts(&trees)?;
    make_links().at("linking the system's directories")?;
    link_interpreter(&spec.links).at("linking the interpreter")?;
    make_etc(id).at("making /etc")?;
    rustix::process::pivot_root(".", ".").at("changing the root")?;
    unmount(".", UnmountFlags::DETACH).at("leaving the old root")?;
    std::env::set_current_dir("/").at("entering the new root")?;
    let root = open_directory("/").at("opening the root")?;
    raw::set_mount(root.as_fd(), libc::MOUNT_ATTR_RDONLY, false).at("making the root read-only")?;
    let directories = [DATA, "/tmp", "/dev/shm"]
        .into_iter()
        .map(open_directory)
        .collect::<io::Result<_>>()
        .at("opening the working directory")?;
    std::env::set_current_dir(DATA).at("entering the working directory")?;
    Ok(PrivateRoot { proc, directories })
}

/// Clones the mounts of everything the root will hold, detached and read-only, before anything hides them.
fn clone_mounts(spec: &Spec) -> StepResult<Vec<Tree>> {
    let mut paths: Vec<PathBuf> = vec!["/usr".into()];
    paths.extend(spec.trees.iter().cloned());
    let top = TOP.iter().map(|name| Path::new("/").join(name));
    paths.extend(top.filter(|path| path.is_dir() && !path.is_symlink()));
    let etc = |name: &&str| Path::new("/etc").join(name);
    paths.extend(ETC.iter().map(etc).filter(|path| path.exists()));
    if spec.network == Network::Full {
        paths.extend(ETC_NETWORK.iter().map(etc).filter(|path| path.exists()));
    }
    paths.sort();
    paths.dedup();
    let mut trees: Vec<Tree> = Vec::new();
    let read_only = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    for path in paths {
        // Paths inside a tree that is already cloned come with it.
        if trees
            .iter()
            .any(|tree| path.starts_with(Path::new("/").join(&tree.path)))
        {
            continue;
        }
        trees.push(tree(&path, read_only)?);
    }
    // A device node needs a mount that allows devices; reading and writing the device needs no writable mount.
    let device = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    let zero = (raw::landlock_version() > 0).then_some(ZERO);
    for name in DEVICES.into_iter().chain(zero) {
        trees.push(tree(&Path::new("/dev").join(name), device)?);
    }
    Ok(trees)
}

fn tree(path: &Path, attributes: u64) -> StepResult<Tree> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let is_directory = path.is_dir();
    // Recursive, because a user namespace may not clone a mount without those mounted below it.
    let mount = open_tree(CWD, path, flags | OpenTreeFlags::AT_RECURSIVE)
        .at("cloning the mounts of the interpreter's files")?;
    raw::set_mount(mount.as_fd(), attributes, true)
        .at("making the interpreter's files read-only")?;
    let path = path.strip_prefix("/").unwrap_or(path).to_owned();
    Ok(Tree {
        path,
        is_directory,
        mount,
    })
}

/// Attaches the cloned trees at their paths on the host. The current directory is the new root.
fn attach_mounts(trees: &[Tree]) -> StepResult<()> {
    for tree in trees {
        prepare(tree).at("making a mount point for the interpreter's files")?;
        move_mount(
            &tree.mount,
            "",
            CWD,
            &tree.path,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )
        .at("mounting the interpreter's files")?;
    }
    Ok(())
}

fn prepare(tree: &Tree) -> io::Result<()> {
    if tree.is_directory {
        return directory(&tree.path, 0o755);
    }
    if let Some(parent) = tree.path.parent() {
        directory(parent, 0o755)?;
    }
    fs::File::create(&tree.path).map(drop)
}

/// Creates the links of a merged `/usr`, as on the host.
fn make_links() -> io::Result<()> {
    for name in TOP {
        if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
            symlink(target, name)?;
        }
    }
    symlink("/proc/self/fd", "dev/fd")?;
    for (name, number) in [("stdin", 0), ("stdout", 1), ("stderr", 2)] {
        symlink(
            format!("/proc/self/fd/{number}"),
            Path::new("dev").join(name),
        )?;
    }
    Ok(())
}

/// Creates the links that lead to the interpreter, except those that came with a tree.
fn link_interpreter(links: &[(PathBuf, PathBuf)]) -> io::Result<()> {
    for (link, target) in links {
        let path = link.strip_prefix("/").unwrap_or(link);
        if path.symlink_metadata().is_ok() {
            continue;
        }
        if let Some(parent) = path.parent() {
            directory(parent, 0o755)?;
        }
        symlink(target, path)?;
    }
    Ok(())
}

fn make_etc(id: u32) -> io::Result<()> {
    directory(Path::new("etc"), 0o755)?;
    fs::write(
        "etc/passwd",
        format!("sandbox:x:{id}:{id}:sandbox:/tmp:/usr/sbin/nologin\n"),
    )?;
    fs::write("etc/group", format!("sandbox:x:{id}:\n"))?;
    let made_here = [
        ("etc/hosts", "127.0.0.1 localhost\n"),
        (
            "etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\n",
        ),
    ];
    for (path, text) in made_here {
        if !Path::new(path).exists() {
            fs::write(path, text)?;
        }
    }
    Ok(())
}

/// Mounts `/proc`, if the host allows it, and the writable directories.
fn mount_writable(spec: &Spec, id: u32) -> StepResult<bool> {
    let limits = &spec.limits;
    directory(Path::new("proc"), 0o555).at("making /proc")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Processes only, without the kernel's other files. A host whose own `/proc` is partly hidden, as in containers,
    // refuses this mount; programs then work without `/proc`.
    let proc = mount(
        "proc",
        "proc",
        "proc",
        flags,
        c"subset=pid,hidepid=invisible",
    )
    .is_ok();
    let options = |bytes: u64| {
        let inodes = limits.inodes;
        format!("mode=0700,size={bytes},nr_inodes={inodes},uid={id},gid={id}")
    };
    let executable = MountFlags::NOSUID | MountFlags::NODEV;
    let data = DATA.trim_start_matches('/');
    for (path, bytes, flags) in [
        (data, limits.disk, executable),
        ("tmp", limits.tmp, executable),
        ("dev/shm", limits.tmp, flags),
    ] {
        directory(Path::new(path), 0o755).at("making a writable directory")?;
        mount_tmpfs(path, &options(bytes), flags).at("mounting a writable directory")?;
    }
    Ok(proc)
}

fn mount_tmpfs(path: &str, options: &str, flags: MountFlags) -> io::Result<()> {
    let options = std::ffi::CString::new(options)?;
    mount("tmpfs", path, "tmpfs", flags, options.as_c_str()).map_err(Into::into)
}

fn directory(path: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(Path::new(&path))
}

/// Opens a directory for the server, which accesses it from outside.
pub(super) fn open_directory(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(path.as_ref(), flags, Mode::empty()).map_err(Into::into)
}
