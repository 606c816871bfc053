//! The settings of code execution.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ConfigError;
use super::file::{File, SandboxSection};
use super::text::WorkDir;
use super::validation::Validation;
use super::value::Count;
use agent::session::settings::{Settings as SessionSettings, StoreUrl};
use sandbox::settings::{Network, Settings};

/// Shortest and longest time limit of one call that can be set.
/// Tried by `config::refusals::a_flag_at_fault_is_named`.
const CALL_TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);
/// Where the interpreter is looked up if the environment has no `PATH`.
const DEFAULT_SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Least and largest number of interpreters that is derived from the memory.
/// Tried by `sandbox::interpreters_follow_the_memory`.
const WORKERS: (u64, u64) = (2, 16);
/// Memory counted for one interpreter, in KiB: its limit, and half of that for the server and the page cache.
const WORKER_KIB: u64 = 1536 * 1024;

/// The settings, if code execution is on. They are checked even if it is off.
pub(super) fn settings(
    file: &mut File,
    session: &SessionSettings,
    checks: &mut Validation<'_>,
) -> Result<Option<Settings>, ConfigError> {
    let section = file.sandbox.take();
    let is_given = section.is_some();
    let mut section = section.unwrap_or_default();
    let settings = checked(file, &mut section, session, checks)?;
    if !file.enable_code_execution {
        if is_given {
            let table = checks.origins.of("sandbox");
            checks.notices.push(format!(
                "{table} has no effect without --enable-code-execution"
            ));
        }
        if !bool::from(file.code_execution_on_request) {
            let key = checks.origins.of("code_execution_on_request");
            checks.notices.push(format!(
                "{key} has no effect without --enable-code-execution"
            ));
        }
        return Ok(None);
    }
    if settings.network == Network::Full && settings.command.is_empty() {
        let key = checks.origins.of("sandbox.network");
        checks.notices.push(format!(
            "{key} lets code connect to whatever this server reaches, itself included"
        ));
    }
    file.sandbox = Some(section);
    Ok(Some(settings))
}

fn checked(
    file: &File,
    section: &mut SandboxSection,
    session: &SessionSettings,
    checks: &Validation<'_>,
) -> Result<Settings, ConfigError> {
    let timeout = Duration::from(file.code_exec_timeout);
    if !CALL_TIMES.contains(&timeout) {
        let seconds = timeout.as_secs_f64();
        let problem = format!("{seconds} s is not a time for one call; write 1 to 300 seconds");
        return Err(checks.error("code_exec_timeout", problem));
    }
    let mut program = section.command.0.iter();
    if program.next().is_some_and(|word| word.trim().is_empty()) {
        let problem = "is empty; write the program that starts python3 in isolation, and its arguments after it";
        return Err(checks.error("sandbox.command[0]", problem));
    }
    let temporary = section.work_dir.is_none() && session.store.file().is_none();
    let tmp = || (checks.env)("TMPDIR").unwrap_or_else(|| "/tmp".to_owned());
    let default = || WorkDir(default_work_dir(&session.store, &tmp()));
    let work_dir = section.work_dir.get_or_insert_with(default);
    let work_dir = work_dir.clone().into();
    let (max_workers, spares) = workers(section, checks)?;
    Ok(Settings {
        python: file.code_exec_python.0.clone(),
        search_path: (checks.env)("PATH").unwrap_or_else(|| DEFAULT_SEARCH_PATH.to_owned()),
        timeout,
        require: section.require.into(),
        network: section.network,
        command: section.command.0.clone(),
        limits: (&section.limits).into(),
        preload: section.preload.iter().cloned().map(Into::into).collect(),
        spares,
        max_workers,
        max_waiting: section.max_waiting.into(),
        idle_ttl: section.idle_ttl.into(),
        max_age: section.max_age.into(),
        work_dir,
        temporary,
        saved_ttl: session.ttl,
        saved_size: section.saved_size.into(),
        uids: section.uids.into(),
        launcher: "/proc/self/exe".into(),
    })
}

/// The largest number of interpreters, and the number of spares among them. Each interpreter has its own user id.
fn workers(
    section: &mut SandboxSection,
    checks: &Validation<'_>,
) -> Result<(usize, usize), ConfigError> {
    let default = || Count::computed(workers_for(memory_kib()));
    let max_workers = usize::from(*section.max_workers.get_or_insert_with(default));
    let default = || Count::computed(1.min(max_workers - 1));
    let spares = usize::from(*section.spares.get_or_insert_with(default));
    if spares >= max_workers {
        let problem = format!(
            "{spares} spares leave no interpreter for calls; write less than max_workers, which is {max_workers}"
        );
        return Err(checks.error("sandbox.spares", problem));
    }
    let (first, last) = <(u32, u32)>::from(section.uids);
    let Some(difference) = last.checked_sub(first) else {
        let problem = format!(
            "[{first}, {last}] is not a range; write [FIRST, LAST], such as [60100, 60999]"
        );
        return Err(checks.error("sandbox.uids", problem));
    };
    if usize::try_from(difference).is_ok_and(|difference| difference < max_workers - 1) {
        let problem = format!(
            "[{first}, {last}] are fewer ids than max_workers, {max_workers}; widen the range"
        );
        return Err(checks.error("sandbox.uids", problem));
    }
    Ok((max_workers, spares))
}

/// A directory beside the session database; for sessions in memory, a new temporary directory.
fn default_work_dir(store: &StoreUrl, temporary: &str) -> PathBuf {
    match store.file() {
        Some(path) => {
            let mut name = path.file_stem().unwrap_or_default().to_owned();
            name.push("-work");
            path.with_file_name(name)
        }
        None => Path::new(temporary).join(format!(
            "loopwright-work-{}-{:016x}",
            std::process::id(),
            rand::random::<u64>()
        )),
    }
}

/// The number of interpreters that fit into this much memory.
fn workers_for(memory_kib: u64) -> usize {
    let (least, most) = WORKERS;
    let workers = (memory_kib / WORKER_KIB).clamp(least, most);
    usize::try_from(workers).unwrap_or(usize::MAX)
}

/// The memory that this process may use: the memory of the machine, or of its control group if that is less.
fn memory_kib() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    memory_of(&machine, &group)
}

fn memory_of(machine: &str, group: &str) -> u64 {
    let machine = machine
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0);
    // `max` where there is no limit.
    let group = group
        .trim()
        .parse()
        .map_or(u64::MAX, |bytes: u64| bytes / 1024);
    machine.min(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_follow_the_memory() {
        for (gib, workers) in [(0, 2), (2, 2), (6, 4), (23, 15), (512, 16)] {
            assert_eq!(workers_for(gib * 1024 * 1024), workers, "{gib}");
        }
    }

    #[test]
    fn the_memory_is_that_of_the_group_if_it_is_less() {
        let machine = "MemTotal:       24576000 kB\nMemFree: 1 kB\n";
        assert_eq!(memory_of(machine, "max\n"), 24_576_000);
        assert_eq!(memory_of(machine, ""), 24_576_000);
        assert_eq!(memory_of(machine, "1073741824\n"), 1_048_576);
        assert_eq!(memory_of("", ""), 0);
        assert!(memory_kib() > 0);
    }

    #[test]
    fn working_files_are_kept_beside_the_sessions() {
        for (store, expected) in [
            ("loopwright.db", "loopwright-work"),
            ("/var/lib/lw/s.sqlite3", "/var/lib/lw/s-work"),
            ("data/sessions", "data/sessions-work"),
        ] {
            let store = StoreUrl::Sqlite(store.into());
            assert_eq!(default_work_dir(&store, "/tmp"), Path::new(expected));
        }
        let one = default_work_dir(&StoreUrl::Memory, "/scratch");
        assert!(one.starts_with("/scratch"), "{}", one.display());
        assert_ne!(one, default_work_dir(&StoreUrl::Memory, "/scratch"));
    }
}
