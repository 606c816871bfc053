//! The settings of code execution.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::{Sandbox as RawSandbox, SandboxLimits as RawLimits};
use super::input::{Input, Place};
use super::{ConfigError, parse};
use crate::sandbox::settings::{InterpreterLimits, Network, Settings, Tier};
use crate::session::settings::{Settings as SessionSettings, StoreUrl};

/// Times that one call can be given.
const TIMES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(300);
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_PYTHON: &str = "python3";
/// Where the interpreter is looked up if the environment does not say.
const DEFAULT_SEARCH_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const DEFAULT_SPARES: usize = 1;
const DEFAULT_WAITING: usize = 32;
const DEFAULT_IDLE_TTL: Duration = Duration::from_secs(20 * 60);
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(4 * 60 * 60);
/// User ids that distributions and container engines leave free.
const DEFAULT_UIDS: (u32, u32) = (60_100, 60_999);

/// The least and the most interpreters that the size of the memory can lead to.
const WORKERS: (u64, u64) = (2, 16);
/// Memory that is reckoned for one interpreter, in KiB: its limit, and half of that for the server and the cache.
const WORKER_KIB: u64 = 1536 * 1024;

/// User ids below belong to the system.
const MIN_UID: u64 = 1000;
/// The largest image that a frame of the protocol holds, in bytes.
const MAX_IMAGE_BYTES: usize = 8 * 1024 * 1024;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// Working files of all interpreters that have ended.
const DEFAULT_SAVED_SIZE: u64 = 10 * 1024 * MIB;

/// The settings, if code execution is switched on. They are checked even if it is not.
pub(super) fn settings(
    input: &Input<'_>,
    session: &SessionSettings,
    notices: &mut Vec<String>,
) -> Result<Option<Settings>, ConfigError> {
    let Input { flags, file, .. } = input;
    let enabled = input.pick(
        "enable-code-execution",
        flags.enable_code_execution.as_ref(),
        parse::boolean,
        file.enable_code_execution.map(Ok),
    )?;
    let default = RawSandbox::default();
    let raw = file.sandbox.as_ref().unwrap_or(&default);
    let settings = checked(input, raw, session)?;
    if !enabled.is_some_and(|found| found.value) {
        if file.sandbox.is_some() {
            let table = input.place.key("sandbox").origin();
            notices.push(format!(
                "{table} has no effect without --enable-code-execution"
            ));
        }
        return Ok(None);
    }
    if settings.network == Network::Full && settings.command.is_empty() {
        let key = input.place.key("sandbox").key("network").origin();
        notices.push(format!(
            "{key} lets code reach whatever this server reaches, itself included"
        ));
    }
    Ok(Some(settings))
}

fn checked(
    input: &Input<'_>,
    raw: &RawSandbox,
    session: &SessionSettings,
) -> Result<Settings, ConfigError> {
    let Input {
        flags, file, env, ..
    } = input;
    let timeout = input.pick(
        "code-exec-timeout",
        flags.code_exec_timeout.as_ref(),
        timeout_text,
        file.code_exec_timeout.map(|time| timeout(time.0)),
    )?;
    let python = input.pick(
        "code-exec-python",
        flags.code_exec_python.as_ref(),
        interpreter,
        file.code_exec_python.as_deref().map(interpreter),
    )?;
    let place = input.place.key("sandbox");
    let max_workers = match place.at_least("max_workers", raw.max_workers, 1)? {
        Some(workers) => workers,
        None => workers_for(memory_kib()),
    };
    Ok(Settings {
        python: python.map_or_else(|| DEFAULT_PYTHON.into(), |found| found.value),
        search_path: env("PATH").unwrap_or_else(|| DEFAULT_SEARCH_PATH.to_owned()),
        timeout: timeout.map_or(DEFAULT_TIMEOUT, |found| found.value),
        require: required(&place, raw.require)?,
        network: raw.network.unwrap_or_default(),
        command: command(&place, &raw.command)?,
        limits: limits(&place.key("limits"), &raw.limits)?,
        preload: preload(&place.key("preload"), &raw.preload)?,
        spares: spares(&place, raw, max_workers)?,
        max_workers,
        max_waiting: place
            .at_least("max_waiting", raw.max_waiting, 0)?
            .unwrap_or(DEFAULT_WAITING),
        idle_ttl: place
            .positive("idle_ttl", raw.idle_ttl)?
            .unwrap_or(DEFAULT_IDLE_TTL),
        max_age: place
            .positive("max_age", raw.max_age)?
            .unwrap_or(DEFAULT_MAX_AGE),
        work_dir: match &raw.work_dir {
            Some(path) => work_dir(&place, path)?,
            None => default_work_dir(
                &session.store,
                &env("TMPDIR").unwrap_or_else(|| "/tmp".to_owned()),
            ),
        },
        temporary: raw.work_dir.is_none() && session.store == StoreUrl::Memory,
        saved_ttl: session.ttl,
        saved_size: place
            .at_least("saved_size", raw.saved_size, MIB)?
            .unwrap_or(DEFAULT_SAVED_SIZE),
        uids: uids(&place, raw, max_workers)?,
        launcher: "/proc/self/exe".into(),
    })
}

/// The longest time of one call of code execution.
pub(super) fn timeout_text(text: &str) -> Result<Duration, String> {
    timeout(parse::duration(text)?)
}

/// The same, given as a time.
fn timeout(time: Duration) -> Result<Duration, String> {
    if TIMES.contains(&time) {
        return Ok(time);
    }
    let seconds = time.as_secs_f64();
    Err(format!(
        "{seconds} s is no time for one call; write 1 to 300 seconds"
    ))
}

/// The Python interpreter.
pub(super) fn interpreter(text: &str) -> Result<PathBuf, String> {
    if text.trim().is_empty() || text.contains('\0') {
        return Err("names no interpreter; write a path, or a name such as python3".to_owned());
    }
    Ok(text.into())
}

fn required(place: &Place, tier: Option<Tier>) -> Result<Tier, ConfigError> {
    match tier {
        None => Ok(Tier::Basic),
        Some(Tier::External) => Err(place.key("require").error(
            "`external` is what `command` leads to and is not judged; write weak, basic, medium or strong",
        )),
        Some(tier @ (Tier::Weak | Tier::Basic | Tier::Medium | Tier::Strong)) => Ok(tier),
    }
}

fn command(place: &Place, words: &[String]) -> Result<Vec<String>, ConfigError> {
    if words
        .first()
        .is_some_and(|program| program.trim().is_empty())
    {
        return Err(place
            .key("command")
            .index(0)
            .error("is empty; write the program that starts python3 in isolation, and its arguments after it"));
    }
    Ok(words.to_vec())
}

fn preload(place: &Place, modules: &[String]) -> Result<Vec<String>, ConfigError> {
    let is_name = |part: &str| {
        let mut characters = part.chars();
        let begins_well = characters
            .next()
            .is_some_and(|first| first == '_' || first.is_alphabetic());
        begins_well && characters.all(|other| other == '_' || other.is_alphanumeric())
    };
    for (index, module) in modules.iter().enumerate() {
        if !module.split('.').all(is_name) {
            return Err(place.index(index).error(format!(
                "`{module}` is no module; write a name that Python can import, such as numpy"
            )));
        }
    }
    Ok(modules.to_vec())
}

fn spares(place: &Place, raw: &RawSandbox, max_workers: usize) -> Result<usize, ConfigError> {
    let spares = place.at_least("spares", raw.spares, 0)?;
    match spares {
        Some(spares) if spares >= max_workers => Err(place.key("spares").error(format!(
            "{spares} would leave none of the {max_workers} interpreters to calls; write less than max_workers"
        ))),
        Some(spares) => Ok(spares),
        None => Ok(DEFAULT_SPARES.min(max_workers - 1)),
    }
}

/// The user ids: as many as there can be interpreters, because each has one of its own.
fn uids(place: &Place, raw: &RawSandbox, max_workers: usize) -> Result<(u32, u32), ConfigError> {
    let place = place.key("uids");
    let (first, last) = match raw.uids {
        None => DEFAULT_UIDS,
        Some((first, last)) => {
            let (first, last) = (u64::from(first), u64::from(last));
            if first < MIN_UID || first > last {
                return Err(place.error(format!(
                    "[{first}, {last}] is no range for interpreters; write [FIRST, LAST], {MIN_UID} or more, such as [60100, 60999]"
                )));
            }
            // The last one of the type stands for no user.
            match (u32::try_from(first), u32::try_from(last)) {
                (Ok(first), Ok(last)) if last < u32::MAX => (first, last),
                _ => return Err(place.error(format!("{last} is too large for a user id"))),
            }
        }
    };
    let count = usize::try_from(last - first).unwrap_or(usize::MAX);
    if count < max_workers - 1 {
        return Err(place.error(format!(
            "[{first}, {last}] are fewer ids than max_workers, {max_workers}; widen the range"
        )));
    }
    Ok((first, last))
}

fn work_dir(place: &Place, path: &Path) -> Result<PathBuf, ConfigError> {
    if path.as_os_str().is_empty() || path.file_name().is_none() {
        return Err(place.key("work_dir").error(format!(
            "`{}` is no directory of its own; write a path such as /var/lib/loopwright/work",
            path.display()
        )));
    }
    Ok(path.to_owned())
}

/// Beside the session database; without one, where nothing outlives the process.
fn default_work_dir(store: &StoreUrl, temporary: &str) -> PathBuf {
    match store {
        StoreUrl::Sqlite(path) => {
            let mut name = path.file_stem().unwrap_or_default().to_owned();
            name.push("-work");
            path.with_file_name(name)
        }
        StoreUrl::Memory => Path::new(temporary).join(format!(
            "loopwright-work-{}-{:016x}",
            std::process::id(),
            rand::random::<u64>()
        )),
    }
}

fn limits(place: &Place, raw: &RawLimits) -> Result<InterpreterLimits, ConfigError> {
    let default = InterpreterLimits::default();
    let least = |key, given: Option<u64>, least, default| -> Result<u64, ConfigError> {
        Ok(place.at_least(key, given, least)?.unwrap_or(default))
    };
    Ok(InterpreterLimits {
        memory: least(
            "memory",
            raw.memory.map(u64::from),
            64 * MIB,
            default.memory,
        )?,
        address_space: least(
            "address_space",
            raw.address_space.map(u64::from),
            256 * MIB,
            default.address_space,
        )?,
        processes: least(
            "processes",
            raw.processes.map(u64::from),
            4,
            default.processes,
        )?,
        disk: least("disk", raw.disk.map(u64::from), MIB, default.disk)?,
        tmp: least("tmp", raw.tmp.map(u64::from), MIB, default.tmp)?,
        inodes: least("inodes", raw.inodes.map(u64::from), 64, default.inodes)?,
        file_size: least(
            "file_size",
            raw.file_size.map(u64::from),
            64 * KIB,
            default.file_size,
        )?,
        open_files: least(
            "open_files",
            raw.open_files.map(u64::from),
            32,
            default.open_files,
        )?,
        ..results(place, raw, &default)?
    })
}

/// The limits of what comes back from a cell.
fn results(
    place: &Place,
    raw: &RawLimits,
    default: &InterpreterLimits,
) -> Result<InterpreterLimits, ConfigError> {
    let image_bytes = place
        .at_least("image_bytes", raw.image_bytes, 4 * KIB)?
        .unwrap_or(default.image_bytes);
    if image_bytes > MAX_IMAGE_BYTES {
        return Err(place.key("image_bytes").error(format!(
            "{image_bytes} is more than an interpreter can hand over; write \"8MiB\" or less"
        )));
    }
    Ok(InterpreterLimits {
        cpus: place.at_least("cpus", raw.cpus, 0)?.unwrap_or(default.cpus),
        output: place
            .at_least("output", raw.output, 64 * KIB)?
            .unwrap_or(default.output),
        output_kept: place
            .at_least("output_kept", raw.output_kept, KIB)?
            .unwrap_or(default.output_kept),
        value: place
            .at_least("value", raw.value, 256)?
            .unwrap_or(default.value),
        images: place
            .at_least("images", raw.images, 0)?
            .unwrap_or(default.images),
        image_bytes,
        files: place
            .at_least("files", raw.files, 0)?
            .unwrap_or(default.files),
        captured_file: place
            .at_least("captured_file", raw.captured_file, 0)?
            .unwrap_or(default.captured_file),
        captured_total: place
            .at_least("captured_total", raw.captured_total, 0)?
            .unwrap_or(default.captured_total),
        ..default.clone()
    })
}

/// Interpreters for a machine with so much memory.
fn workers_for(memory_kib: u64) -> usize {
    let (least, most) = WORKERS;
    let workers = (memory_kib / WORKER_KIB).clamp(least, most);
    usize::try_from(workers).unwrap_or(usize::MAX)
}

/// The memory that this process may use: that of the machine, or of its control group if that is less.
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
        .map_or(u64::MAX, |bytes: u64| bytes / KIB);
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
