//! What Linux tells about processes, and where it lets them run.
//!
//! Reads `/proc` and calls `taskset` and `prlimit`, which spares the benchmark unsafe system calls.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// `USER_HZ`, which is 100 on every architecture that this runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Between the coarse and the fine reading of CPU time, beyond this the fine one has lost a thread that ended.
const TICK_SLACK: f64 = 0.03;

/// CPU time that a process and its threads have used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTime {
    ticks: f64,
    fine: f64,
}

impl CpuTime {
    /// Reads the clock of a process; zero for one that is gone.
    pub(crate) fn of(pid: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The second field is a name in brackets and may hold blanks; utime and stime are the 14th and 15th.
        let ticks: f64 = stat
            .rsplit_once(") ")
            .map_or("", |(_, rest)| rest)
            .split(' ')
            .skip(11)
            .take(2)
            .filter_map(|field| field.parse::<f64>().ok())
            .sum();
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        let fine = threads
            .into_iter()
            .flatten()
            .flatten()
            .map(|thread| thread_seconds(&thread.path()))
            .sum::<f64>();
        Self {
            ticks: ticks / TICKS_PER_SECOND,
            fine,
        }
    }

    /// Seconds since an earlier reading: by the nanosecond where the kernel keeps that account, else by the tick.
    pub(crate) fn since(self, earlier: Self) -> f64 {
        let ticks = self.ticks - earlier.ticks;
        let fine = self.fine - earlier.fine;
        if (ticks - fine).abs() > TICK_SLACK.max(fine * 0.2) {
            ticks
        } else {
            fine
        }
    }
}

/// CPU time of a thread in seconds, given its directory; zero for one that is gone.
pub(crate) fn thread_seconds(directory: &Path) -> f64 {
    let account = fs::read_to_string(directory.join("schedstat")).unwrap_or_default();
    let nanos = account.split(' ').next().and_then(|it| it.parse().ok());
    nanos.unwrap_or(0.0) / 1e9
}

/// Memory of a process in KiB: its proportional share, or its resident set where the kernel does not tell.
pub(crate) fn memory_kib(pid: u32) -> Option<f64> {
    field(&format!("/proc/{pid}/smaps_rollup"), "Pss:")
        .or_else(|| field(&format!("/proc/{pid}/status"), "VmRSS:"))
}

fn field(path: &str, name: &str) -> Option<f64> {
    fs::read_to_string(path)
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix(name))?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The CPUs that this process may use, as `taskset` writes them.
pub(crate) fn allowed_cpus() -> Result<String> {
    let status = fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .context("the kernel does not tell the allowed CPUs")?;
    Ok(list.trim().to_owned())
}

/// The numbers in a list of CPUs.
pub(crate) fn cpu_numbers(list: &str) -> Vec<String> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().map(|cpu| cpu.to_string()).collect()
}

/// Binds all threads of this process to `cpus`.
pub(crate) fn pin_self(cpus: &str) -> Result<()> {
    run(
        "taskset",
        &["-a", "-c", "-p", cpus, &std::process::id().to_string()],
    )
}

/// Sees that this process and its children may open `needed` files, and returns how many they may.
pub(crate) fn ensure_files(needed: usize) -> usize {
    let (soft, hard) = file_limits();
    if soft < needed && soft < hard {
        let range = format!("--nofile={}:{hard}", needed.min(hard));
        // Where this fails the limit read below says so.
        let _ = run(
            "prlimit",
            &["--pid", &std::process::id().to_string(), &range],
        );
    }
    file_limits().0
}

fn file_limits() -> (usize, usize) {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let mut values = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .unwrap_or_default()
        .split_ascii_whitespace()
        .map(|value| value.parse().unwrap_or(usize::MAX));
    let soft = values.next().unwrap_or(1024);
    (soft, values.next().unwrap_or(soft))
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("running {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}
