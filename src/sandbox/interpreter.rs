//! Facts about the configured Python, found before any isolation: its files and its packages.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Deserialize;
use tokio::process::Command;

use super::settings::Settings;
use super::{START_LIMIT, SandboxError};

/// Number of the oldest version that supports the worker's syntax and modules.
const OLDEST: (u32, u32) = (3, 9);
/// The Python program that answers the query.
pub(super) const QUERY: &str = include_str!("interpreter.py");

/// A Python interpreter.
#[derive(Debug, Clone)]
pub(super) struct Interpreter {
    /// The program, an absolute path.
    pub(super) program: PathBuf,
    /// Such as `3.11.7`.
    pub(super) version: String,
    /// Files and directories that it needs besides `/usr`.
    pub(super) trees: Vec<PathBuf>,
    /// Links that lead to the program, with their targets.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Packages with their versions, by name.
    pub(super) packages: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct QueryResult {
    version: (u32, u32, u32),
    executable: PathBuf,
    paths: Vec<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
    packages: Vec<(String, String)>,
}

impl Interpreter {
    /// Finds and queries the configured interpreter.
    pub(super) async fn find(settings: &Settings) -> Result<Self, SandboxError> {
        let name = settings.python.display();
        let program = look_up(&settings.python, &settings.search_path).ok_or_else(|| {
            SandboxError::NoPython(format!(
                "there is no Python interpreter '{name}'; install one or set --code-exec-python"
            ))
        })?;
        let mut command = Command::new(&program);
        command
            .args(["-I", "-B", "-c", QUERY])
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let output = tokio::time::timeout(START_LIMIT, command.output())
            .await
            .map_err(|_| {
                SandboxError::NoPython(format!("the Python interpreter '{name}' does not answer"))
            })?
            .map_err(|source| SandboxError::Step {
                step: "starting the Python interpreter",
                source,
            })?;
        Self::of(&name.to_string(), &output.stdout)
    }

    /// An interpreter inside an external command, about which nothing is known yet.
    pub(super) fn unknown(settings: &Settings) -> Self {
        Self {
            program: settings.python.clone(),
            version: String::new(),
            trees: Vec::new(),
            links: Vec::new(),
            packages: Vec::new(),
        }
    }

    /// Reads an interpreter's answer to [`QUERY`].
    pub(super) fn of(name: &str, result: &[u8]) -> Result<Self, SandboxError> {
        let result: QueryResult = serde_json::from_slice(result).map_err(|_| {
            SandboxError::NoPython(format!(
                "'{name}' is not a working Python interpreter; see the output of: {name} -I -c 'import json'"
            ))
        })?;
        let (major, minor, patch) = result.version;
        if (major, minor) < OLDEST {
            return Err(SandboxError::NoPython(format!(
                "the Python interpreter '{name}' is version {major}.{minor}; code execution needs {}.{} or newer",
                OLDEST.0, OLDEST.1
            )));
        }
        Ok(Self {
            program: result.executable,
            version: format!("{major}.{minor}.{patch}"),
            trees: trees(result.paths),
            links: result.links,
            packages: result.packages,
        })
    }
}

impl Interpreter {
    /// Whether a package of this name is installed.
    pub(super) fn has_package(&self, name: &str) -> bool {
        self.packages
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}

/// Resolves a name or path to a file.
fn look_up(python: &Path, search_path: &str) -> Option<PathBuf> {
    if python.components().count() > 1 {
        return std::path::absolute(python)
            .ok()
            .filter(|path| path.is_file());
    }
    std::env::split_paths(search_path)
        .map(|directory| directory.join(python))
        .find(|path| path.is_file())
}

/// Removes paths inside `/usr` or inside other trees.
fn trees(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.retain(|path| path.is_absolute() && path.exists() && path.parent().is_some());
    paths.sort();
    paths.dedup();
    let mut trees: Vec<PathBuf> = Vec::new();
    for path in paths {
        let known = path.starts_with("/usr") || trees.iter().any(|tree| path.starts_with(tree));
        if !known {
            trees.push(path);
        }
    }
    trees
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_inside_another_is_not_named_again() {
        let folder = tempfile::tempdir().unwrap();
        let (outer, inner) = (folder.path().join("a"), folder.path().join("a/b"));
        std::fs::create_dir_all(&inner).unwrap();
        let paths = vec![
            inner,
            outer.clone(),
            "/usr/lib".into(),
            "/".into(),
            "relative".into(),
        ];
        assert_eq!(trees(paths), [outer]);
    }

    #[test]
    fn a_name_is_looked_up_and_a_path_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("snake");
        std::fs::write(&program, "").unwrap();
        let search = format!("/nowhere:{}", folder.path().display());
        assert_eq!(look_up(Path::new("snake"), &search), Some(program.clone()));
        assert_eq!(look_up(&program, ""), Some(program));
        assert_eq!(look_up(Path::new("./snake"), &search), None);
    }

    /// Queries an interpreter.
    fn asked(program: &Path) -> Interpreter {
        let result = std::process::Command::new(program)
            .args(["-I", "-B", "-c", QUERY])
            .output()
            .unwrap();
        Interpreter::of("test", &result.stdout).unwrap()
    }

    #[test]
    #[ignore = "needs Python"]
    fn what_lies_beside_a_link_to_an_interpreter_is_none_of_its_parts() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let real = std::process::Command::new("python3")
            .args([
                "-I",
                "-c",
                "import os, sys; print(os.path.realpath(sys.executable), end='')",
            ])
            .output()
            .unwrap();
        let real = PathBuf::from(String::from_utf8(real.stdout).unwrap());
        let (link, secret) = (home.join("bin/python3"), home.join("secret"));
        std::fs::create_dir(home.join("bin")).unwrap();
        std::fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let venv = home.join("venv");
        let made = std::process::Command::new(&link)
            .args(["-I", "-m", "venv", "--without-pip"])
            .arg(&venv)
            .status()
            .unwrap();
        assert!(made.success());

        let exposed = |interpreter: &Interpreter, path: &Path| {
            interpreter.trees.iter().any(|tree| path.starts_with(tree))
        };
        let linked = asked(&link);
        assert!(!exposed(&linked, &secret), "{linked:?}");
        assert_eq!(linked.links, [(link.clone(), real.clone())]);
        let known = exposed(&linked, &real) || real.starts_with("/usr");
        assert!(known, "{linked:?}");

        let virtual_one = asked(&venv.join("bin/python3"));
        assert!(!exposed(&virtual_one, &secret), "{virtual_one:?}");
        assert!(exposed(&virtual_one, &venv.join("lib")), "{virtual_one:?}");
        assert!(
            virtual_one
                .links
                .iter()
                .any(|(from, _)| from.starts_with(&venv)),
            "{virtual_one:?}"
        );
    }
}
