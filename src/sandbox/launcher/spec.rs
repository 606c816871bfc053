//! What the server orders and what the launcher answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::settings::{InterpreterLimits, Network};

/// How an interpreter is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::sandbox) enum Isolation {
    /// As root: namespaces without a user namespace, a private root made by root, then the user id.
    RootNamespaces {
        /// The user id.
        uid: u32,
    },
    /// Namespaces inside a user namespace; as root the user id is taken first.
    UserNamespaces {
        /// The user id, where the server is root.
        uid: Option<u32>,
    },
    /// As root, without namespaces: a user id of its own.
    PrivateUser {
        /// The user id.
        uid: u32,
    },
    /// The server's own user id.
    SameUser,
}

/// One launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::sandbox) struct Spec {
    pub(in crate::sandbox) isolation: Isolation,
    /// The interpreter, an absolute path.
    pub(in crate::sandbox) python: PathBuf,
    pub(in crate::sandbox) arguments: Vec<String>,
    pub(in crate::sandbox) environment: Vec<(String, String)>,
    /// Files and directories that the interpreter needs, read-only: absolute paths.
    pub(in crate::sandbox) trees: Vec<PathBuf>,
    /// Links that lead to the interpreter, and what each says.
    pub(in crate::sandbox) links: Vec<(PathBuf, PathBuf)>,
    /// The directory that holds `data` and `tmp`, where there is no private root.
    pub(in crate::sandbox) directory: Option<PathBuf>,
    pub(in crate::sandbox) limits: InterpreterLimits,
    pub(in crate::sandbox) network: Network,
    /// The processor that the interpreter is bound to counts from here.
    pub(in crate::sandbox) slot: usize,
    /// Start without Landlock where the kernel has none or an old one.
    pub(in crate::sandbox) weak: bool,
}

/// What the server tells a launcher once the interpreter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::sandbox) enum LauncherCommand {
    /// Stop the interpreter and everything that it started where they are.
    Pause,
    /// Have them go on.
    Resume,
}

/// What the launcher tells the server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::sandbox) enum LauncherMessage {
    /// The interpreter was started. Comes with descriptors: control, process, directories.
    Started {
        /// The version of the kernel's Landlock interface, 0 for none.
        landlock: i32,
        /// Whether there is a `/proc`.
        proc: bool,
    },
    /// A step failed.
    Failed {
        /// Which.
        step: String,
        /// The system's error number, 0 for none.
        errno: i32,
    },
    /// The interpreter ended.
    Ended {
        /// Its exit status.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

impl Isolation {
    pub(in crate::sandbox) fn has_namespaces(self) -> bool {
        matches!(
            self,
            Self::RootNamespaces { .. } | Self::UserNamespaces { .. }
        )
    }
}

/// Where the working directory is in a private root: the name that models know from hosted interpreters.
pub(in crate::sandbox) const DATA: &str = "/mnt/data";
/// The user and group id inside a user namespace.
pub(in crate::sandbox) const INNER_ID: u32 = 1000;
/// The descriptor of the worker's control socket.
pub(in crate::sandbox) const CONTROL_FD: i32 = 3;
