//! Landlock: which files an interpreter may touch, no TCP, and no signals or abstract sockets to the outside.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::super::settings::Network;
use super::spec::{DATA, Spec};
use super::{AtStep, StepError, StepResult};

/// What programs read besides their own trees where they see the host's files.
const HOST_FILES: [&str; 15] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/fonts",
    // Python's mimetypes fails, and with it what writes office files, on one that is there and cannot be read.
    "/etc/mime.types",
    "/etc/apache2/mime.types",
    "/etc/httpd/conf/mime.types",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/sys/devices/system/cpu",
];
const NETWORK_FILES: [&str; 7] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/ssl",
    "/etc/ca-certificates",
    "/etc/pki",
    "/run/systemd/resolve",
];
const DEVICES: [&str; 4] = ["/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Applies the rules to this process and all that it starts. `version` is the kernel's.
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
    if abi >= ABI::V4 && spec.network == Network::None {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
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
            // Not the directory itself: nobody counts what lies beside these two.
            let created = allow(created, &directory.join("tmp"), writing(abi))?;
            allow(created, &directory.join("data"), writing(abi))?
        }
    };
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    allow(created, Path::new("/dev/null"), null)?.restrict_self()?;
    Ok(())
}

/// Where an interpreter sees the host's files: those that it needs.
fn host_paths(spec: &Spec) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = vec!["/usr".into()];
    paths.extend(spec.trees.iter().cloned());
    paths.extend(HOST_FILES.iter().map(PathBuf::from));
    paths.extend(DEVICES.iter().map(PathBuf::from));
    if spec.network == Network::Full {
        paths.extend(NETWORK_FILES.iter().map(PathBuf::from));
    }
    // Its own entry only, by number: the link would be another process's for another reader.
    paths.push(format!("/proc/{}", rustix::process::getpid().as_raw_pid()).into());
    paths
}

/// Everything but making device nodes and talking to devices.
fn writing(abi: ABI) -> BitFlags<AccessFs> {
    let mut all = AccessFs::from_all(abi);
    for unwanted in [AccessFs::MakeChar, AccessFs::MakeBlock, AccessFs::IoctlDev] {
        all.remove(unwanted);
    }
    all
}

/// Adds a rule; what the host does not have needs none.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(descriptor) = PathFd::new(path) else {
        return Ok(ruleset);
    };
    // Rights that only a directory can have are no part of a rule for a file.
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(ABI::V9)
    };
    ruleset.add_rule(PathBeneath::new(descriptor, access))
}
