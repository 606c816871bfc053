mod confinement;
mod produced;
mod saving;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, open, renameat_with};
use tempfile::TempDir;

use super::confined::PathResolution;
use super::*;
use crate::settings::InterpreterLimits;

const RESOLUTIONS: [PathResolution; 2] = [PathResolution::Kernel, PathResolution::Components];

/// A working directory beside a secret that nothing may reach.
struct Fixture {
    folder: TempDir,
    dir: WorkDir,
}

impl Fixture {
    fn new(resolution: PathResolution) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "SECRET").unwrap();
        let dir = Self::open(&folder.path().join("work"), resolution);
        Self { folder, dir }
    }

    fn open(path: &Path, resolution: PathResolution) -> WorkDir {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut dir = WorkDir::new(open(path, flags, Mode::empty()).unwrap(), false);
        dir.root = dir.root.by(resolution);
        dir
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn declared(&self, names: &[&str]) -> FileCapture {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let before = self.dir.snapshot();
        self.dir
            .capture(&before, &names, &InterpreterLimits::default())
    }

    fn read(&self, name: &str) -> Result<String, String> {
        let part = FileRange {
            name,
            offset: 0,
            max_bytes: 1 << 20,
        };
        match self.dir.read(part) {
            Ok(content) => Ok(String::from_utf8(content.bytes.to_vec()).unwrap()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn names(capture: &FileCapture) -> Vec<&str> {
    capture
        .files
        .iter()
        .map(|file| file.name.as_str())
        .collect()
}

/// Fails instead of hanging if something waits for ever.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(60)).unwrap()
}
