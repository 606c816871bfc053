//! A bare interpreter: loopwright's own Python program without isolation, spoken to in its frames and without HTTP.
//!
//! What loopwright is compared with. It runs at the priority that isolated interpreters have, so that other work on the
//! machine falls on both alike.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream as StdStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};

/// The program that loopwright's interpreters run.
const PROGRAM: &str = include_str!("../../src/sandbox/worker.py");

/// How long anything may take that an interpreter is asked for.
const LIMIT: Duration = Duration::from_secs(60);

/// Moves the socket from descriptor 0 to 3, where the program looks for it, and becomes the program.
const PLACE_SOCKET: &str = r#"exec 3<&0 0</dev/null; exec nice -n 10 "$@""#;

/// A running interpreter; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Bare {
    child: Child,
    control: UnixStream,
    buffer: Vec<u8>,
    last_id: u32,
    _directory: TempDir,
}

/// What has been taken out of one cell.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Shown {
    /// Values of a last expression.
    pub(crate) values: usize,
    /// Images.
    pub(crate) images: usize,
}

impl Bare {
    /// Starts an interpreter and waits until it is ready; how long that took comes with it.
    pub(crate) async fn start(python: &Path, preload: &[&str]) -> Result<(Self, Duration)> {
        let directory = tempfile::tempdir().context("creating a working directory")?;
        let options = json!({"fd": 3, "preload": preload, "workdir": directory.path()});
        let (ours, theirs) = StdStream::pair().context("making a socket")?;
        ours.set_nonblocking(true)?;
        let started = Instant::now();
        let child = Command::new("/bin/sh")
            .args(["-c", PLACE_SOCKET, "sh"])
            .arg(python)
            .args(["-I", "-B", "-u", "-c", PROGRAM, &options.to_string()])
            .current_dir(directory.path())
            // A directory without caches is what an isolated interpreter has too.
            .env("MPLCONFIGDIR", directory.path().join("matplotlib"))
            .env("MPLBACKEND", "Agg")
            .env("OPENBLAS_NUM_THREADS", "1")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting a bare interpreter")?;
        let mut bare = Self {
            child,
            control: UnixStream::from_std(ours)?,
            buffer: Vec::new(),
            last_id: 0,
            _directory: directory,
        };
        let kind = bare.frame().await?;
        ensure!(kind == b'R', "a bare interpreter did not get ready");
        Ok((bare, started.elapsed()))
    }

    /// Runs a cell to its end.
    pub(crate) async fn run(&mut self, code: &str) -> Result<Shown> {
        self.last_id += 1;
        let order = json!({
            "id": self.last_id, "code": code, "max_value": 16384, "max_images": 10, "max_image_bytes": 4_194_304,
        });
        let order = order.to_string();
        let length = u32::try_from(order.len() + 1).context("the code is too long")?;
        let frame = [&length.to_le_bytes(), &b"E"[..], order.as_bytes()].concat();
        self.control.write_all(&frame).await.context("sending")?;
        let mut shown = Shown::default();
        loop {
            match self.frame().await? {
                b'D' => return Ok(shown),
                b'V' => shown.values += 1,
                b'I' => shown.images += 1,
                b'X' => bail!(
                    "a cell failed: {}",
                    String::from_utf8_lossy(&self.buffer)
                        .chars()
                        .take(300)
                        .collect::<String>()
                ),
                _ => {}
            }
        }
    }

    /// Reads a frame, of which the kind is returned and the rest left in the buffer.
    async fn frame(&mut self) -> Result<u8> {
        let reading = async {
            let length = self.control.read_u32_le().await?;
            let kind = self.control.read_u8().await?;
            let rest = usize::try_from(length).unwrap_or_default();
            self.buffer.resize(rest.saturating_sub(1), 0);
            self.control.read_exact(&mut self.buffer).await?;
            Ok::<_, std::io::Error>(kind)
        };
        let kind = timeout(LIMIT, reading)
            .await
            .context("a bare interpreter does not answer")?;
        kind.context("a bare interpreter has ended")
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long Python takes to start and to end, without doing anything.
pub(crate) fn empty_run(python: &Path) -> Result<Duration> {
    let started = Instant::now();
    let status = Command::new("nice")
        .args(["-n", "10"])
        .arg(python)
        .args(["-I", "-c", "pass"])
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting {}", python.display()))?;
    ensure!(status.success(), "{} ended with {status}", python.display());
    Ok(started.elapsed())
}

/// Whether an interpreter has a module.
pub(crate) fn has_module(python: &Path, module: &str) -> bool {
    let status = Command::new(python)
        .args(["-I", "-c", &format!("import {module}")])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
