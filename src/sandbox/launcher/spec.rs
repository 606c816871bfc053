//! The messages between the server and a launcher.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::settings::{InterpreterLimits, Network};

/// The isolation of one interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Isolation {
    /// As root: namespaces without a user namespace, a private root, then a change of the user id.
    RootNamespaces {
        /// The user id.
        uid: u32,
    },
    /// Namespaces inside a user namespace; as root, the user id is changed first.
    UserNamespaces {
        /// The user id, if the server is root.
        uid: Option<u32>,
    },
    /// As root, without namespaces: a separate user id.
    PrivateUser {
        /// The user id.
        uid: u32,
    },
    /// The server's own user id.
    SameUser,
}

/// The specification of one launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) isolation: Isolation,
    /// The interpreter, an absolute path.
    pub(crate) python: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// Files and directories that the interpreter needs, read-only: absolute paths.
    pub(crate) trees: Vec<PathBuf>,
    /// Links that lead to the interpreter, with their targets.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// The directory that holds `data` and `tmp`, if there is no private root.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) limits: InterpreterLimits,
    pub(crate) network: Network,
    /// Selects the processors that the interpreter is bound to.
    pub(crate) slot: usize,
    /// Start even if the kernel has no Landlock or an old version.
    pub(crate) weak: bool,
}

/// A command to a launcher whose interpreter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LauncherCommand {
    /// Stop the interpreter and everything it started.
    Pause,
    Resume,
}

/// A message of a launcher.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum LauncherMessage {
    /// The interpreter was started. Carries descriptors: control socket, pidfd, directories.
    Started {
        /// The version of the kernel's Landlock interface, 0 for none.
        landlock: i32,
        /// Whether the interpreter has a `/proc`.
        proc: bool,
    },
    Failed {
        step: String,
        /// The system's error number, 0 for none.
        errno: i32,
    },
    /// The interpreter has exited.
    Ended {
        /// Its exit status.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

impl Isolation {
    pub(crate) fn has_namespaces(self) -> bool {
        matches!(
            self,
            Self::RootNamespaces { .. } | Self::UserNamespaces { .. }
        )
    }
}

/// The working directory in a private root: the path that models know from hosted interpreters.
pub(crate) const DATA: &str = "/mnt/data";
/// Number of the user and of the group inside a user namespace.
pub(crate) const INNER_ID: u32 = 1000;
/// Number of the descriptor of the worker's control socket.
pub(crate) const CONTROL_FD: i32 = 3;
