//! The guard of an MCP server's process: this binary, run again under a hidden name.
//!
//! The guard starts the server in a process group of its own, and ends with it. Standard input and output belong to the
//! server. Standard error is a pipe whose only reader is the process that started the guard. When that process has
//! ended for any reason, the guard ends the server. The guard is also the reaper of everything that the server has
//! started, and ends that too, so that no process is left behind. If the guard itself is killed, the kernel kills the
//! server.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// The first argument that makes the binary a guard. The program and its arguments follow.
pub const MCP_GUARD: &str = "mcp-guard";
/// The first argument that makes the binary become a guarded program. The guard's process id, the program and its
/// arguments follow.
pub const MCP_EXEC: &str = "mcp-exec";

/// How long a server may take to end after SIGTERM. After it the server is killed.
const TERM_LIMIT: Duration = Duration::from_millis(500);
/// How long killed processes may take to be gone. After it they are given up.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two looks at processes that have been killed.
const KILLED_PAUSE: Duration = Duration::from_millis(5);
/// Number of the exit status for a program that cannot be started, as shells have it.
pub(super) const NOT_STARTED: u8 = 127;

/// Starts the program of the arguments and waits until it and all its processes have ended.
pub fn guard_main() -> ExitCode {
    let command: Vec<OsString> = std::env::args_os().skip(2).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime.and_then(|runtime| runtime.block_on(guard(&command)));
    outcome.unwrap_or_else(|error| {
        let _reader_may_be_gone = writeln!(io::stderr(), "the guard failed: {error}");
        ExitCode::FAILURE
    })
}

async fn guard(command: &[OsString]) -> io::Result<ExitCode> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // Without a handler these signals would end the guard and leave the server alone.
    let mut terminated = signal(SignalKind::terminate())?;
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut hung_up = signal(SignalKind::hangup())?;
    let mut child = Command::new("/proc/self/exe")
        .arg(MCP_EXEC)
        .arg(rustix::process::getpid().as_raw_nonzero().to_string())
        .args(command)
        .process_group(0)
        .spawn()?;
    // The server's alone from now on: its end of them must be seen.
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    let ended = tokio::select! {
        status = child.wait() => Some(status?),
        () = reader_gone() => None,
        _ = terminated.recv() => None,
        _ = interrupted.recv() => None,
        _ = hung_up.recv() => None,
    };
    let status = match ended {
        Some(status) => Some(status),
        None => end(&mut child).await,
    };
    // Only a process that cannot be killed, such as one that waits for a dead file server, takes longer.
    let _killed_or_stuck = timeout(KILL_LIMIT, kill_descendants()).await;
    let code = status.and_then(|status| status.code());
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Resolves when standard error has no reader any more.
async fn reader_gone() {
    let (gone, is_gone) = tokio::sync::oneshot::channel();
    // A thread of its own: the descriptor is the server's too, and must stay blocking.
    let watch = std::thread::Builder::new().spawn(move || {
        let stderr = io::stderr();
        let mut watched = [PollFd::new(&stderr, PollFlags::empty())];
        while let Ok(_) | Err(Errno::INTR) = poll(&mut watched, None) {
            // Only the end of the reader, or of the descriptor, is reported.
            if watched.iter().any(|seen| !seen.revents().is_empty()) {
                break;
            }
        }
        let _ended_meanwhile = gone.send(());
    });
    if watch.is_ok() {
        let _never_dropped = is_gone.await;
    }
}

/// Asks the server's process group to end, and kills it if it does not.
async fn end(child: &mut Child) -> Option<std::process::ExitStatus> {
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(group) = group {
        let _may_be_gone = rustix::process::kill_process_group(group, Signal::TERM);
        if let Ok(status) = timeout(TERM_LIMIT, child.wait()).await {
            return status.ok();
        }
        let _may_be_gone = rustix::process::kill_process_group(group, Signal::KILL);
    }
    child.wait().await.ok()
}

/// Kills the processes that the server has started. Their parent is the guard once their own parents have ended.
async fn kill_descendants() {
    loop {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _may_be_gone = rustix::process::kill_process(child, Signal::KILL);
        }
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        tokio::time::sleep(KILLED_PAUSE).await;
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ids = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |id: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name, in parentheses, can hold anything; state and parent follow it.
        let after = stat.rsplit_once(") ").map(|(_, after)| after);
        after.and_then(|after| after.split(' ').nth(1)) == Some(own.as_str())
    };
    ids.filter(is_child).filter_map(Pid::from_raw).collect()
}

/// Becomes the program of the arguments, which the kernel kills when the guard ends.
pub fn exec_main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(2);
    let guard = arguments.next().and_then(|id| id.into_string().ok());
    let Some(program) = arguments.next() else {
        return ExitCode::FAILURE;
    };
    if rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_err() {
        return ExitCode::FAILURE;
    }
    // The guard may have ended before the signal was set.
    let parent = rustix::process::getppid().map(|parent| parent.as_raw_nonzero().to_string());
    if parent.is_none() || parent != guard {
        return ExitCode::FAILURE;
    }
    let error = std::process::Command::new(&program).args(arguments).exec();
    let program = program.display();
    let _reader_may_be_gone = writeln!(io::stderr(), "cannot start {program}: {error}");
    ExitCode::from(NOT_STARTED)
}
