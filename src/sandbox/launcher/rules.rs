//! Landlock: the files that an interpreter may access, no TCP (with a network only no listening), no signals and no
//! abstract sockets to the outside.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::spec::{DATA, Spec};
use super::{AtStep, StepError, StepResult};
use crate::settings::Network;

/// Files that programs read besides their own trees, if they see the host's files.
#[rustfmt::skip]
const HOST_FILES: [&str; 15] = [
    "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts",
    // Python's `mimetypes`, and libraries that write office files with it, fail if one of these exists but cannot be
    // read.
    "/etc/mime.types", "/etc/apache2/mime.types", "/etc/httpd/conf/mime.types", "/proc/cpuinfo", "/proc/meminfo",
    "/proc/stat", "/sys/devices/system/cpu",
];
#[rustfmt::skip]
const NETWORK_FILES: [&str; 7] = [
    "/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/ca-certificates", "/etc/pki",
    "/run/systemd/resolve",
];
const DEVICES: [&str; 4] = ["/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Applies the rules to this process and its descendants. `version` is the kernel's Landlock version.
pub(super) fn restrict(spec: &Spec, version: i32) -> StepResult<()> {
    let abi = ABI::from(version);
    if abi == ABI::Unsupported {
        return if spec.weak {
            Ok(())
        } else {
            Err(StepError {
                step: "restricting file access (Landlock)",
                source: io::ErrorKind::Unsupported.into(),
            })
        };
    }
    apply(spec, abi)
        .map_err(io::Error::other)
        .at("restricting file access (Landlock)")
}

fn apply(spec: &Spec, abi: ABI) -> Result<(), landlock::RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))?;
    if abi >= ABI::V4 {
        // No rule allows any of these.
        let refused = match spec.network {
            Network::None => AccessNet::from_all(abi),
            Network::Full => AccessNet::BindTcp.into(),
        };
        ruleset = ruleset.handle_access(refused)?;
    }
    if abi >= ABI::V6 {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    let created = ruleset.create()?;
    let read = AccessFs::from_read(abi);
    let created = match &spec.directory {
        None => {
            let created = allow(created, Path::new("/"), read)?;
            let created = allow(created, Path::new("/dev/shm"), writing(abi))?;
            let created = allow(created, Path::new("/tmp"), writing(abi))?;
            allow(created, Path::new(DATA), writing(abi))?
        }
        Some(directory) => {
            let mut created = created;
            for path in host_paths(spec) {
                created = allow(created, &path, read)?;
            }
            // The directory itself stays read-only: files beside these two would not be counted.
            let created = allow(created, &directory.join("tmp"), writing(abi))?;
            allow(created, &directory.join("data"), writing(abi))?
        }
    };
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    allow(created, Path::new("/dev/null"), null)?.restrict_self()?;
    Ok(())
}

/// The paths that an interpreter without a private root may read.
fn host_paths(spec: &Spec) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = vec!["/usr".into()];
    paths.extend(spec.trees.iter().cloned());
    paths.extend(HOST_FILES.iter().map(PathBuf::from));
    paths.extend(DEVICES.iter().map(PathBuf::from));
    if spec.network == Network::Full {
        paths.extend(NETWORK_FILES.iter().map(PathBuf::from));
    }
    // Its own entry only, by number: `/proc/self` would be resolved for the process that reads it.
    paths.push(format!("/proc/{}", rustix::process::getpid().as_raw_pid()).into());
    paths
}

/// All rights except creating device nodes and device ioctls.
fn writing(abi: ABI) -> BitFlags<AccessFs> {
    let mut all = AccessFs::from_all(abi);
    for unwanted in [AccessFs::MakeChar, AccessFs::MakeBlock, AccessFs::IoctlDev] {
        all.remove(unwanted);
    }
    all
}

/// Adds a rule; paths that do not exist are skipped.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(descriptor) = PathFd::new(path) else {
        return Ok(ruleset);
    };
    // Rights that apply only to directories are not allowed in a rule for a file.
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(ABI::V9)
    };
    ruleset.add_rule(PathBeneath::new(descriptor, access))
}
