//! The process that computes: gives up its rights, then answers one request after another.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use super::super::launcher::{AtStep, StepError, StepResult, raw};
use super::{READY, confine};

/// Room for recursion of parsers; only what is used counts.
const STACK: usize = 32 * 1024 * 1024;
/// Longest request, in bytes.
const MAX_REQUEST: usize = 256 * 1024 * 1024;

/// Makes this process one that can only compute, and lets it answer requests until the server is gone. Called first of
/// all in a fresh process, by one that was started by a [`Computer`](super::Computer); `limits` are the arguments that
/// follow the hidden name.
pub fn serve(
    limits: impl Iterator<Item = String>,
    answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
) -> ExitCode {
    let Ok(mut socket) = stdin() else {
        return ExitCode::FAILURE;
    };
    match prepare(limits, answer) {
        Ok(requests) => {
            if send(&mut socket, READY).is_ok() {
                receive(&mut socket, &requests);
            }
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let text = format!("{}: {}", failure.step, failure.source);
            let _server_may_be_gone = send(&mut socket, text.as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// Descriptor 0, for plain `read` and `write`: the calls of sockets will be forbidden.
fn stdin() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Starts the thread that computes and confines the whole process; nothing has been read until then.
fn prepare(
    mut limits: impl Iterator<Item = String>,
    answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
) -> StepResult<mpsc::SyncSender<Vec<u8>>> {
    let mut limit = || limits.next()?.parse::<u64>().ok();
    let (Some(memory), Some(cpu_seconds)) = (limit(), limit()) else {
        return Err(StepError {
            step: "reading the limits",
            source: io::ErrorKind::InvalidInput.into(),
        });
    };
    // What panics writes a message, and that would want files for its backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    let socket = stdin().at("copying the socket")?;
    confine::give_up_rights(memory, cpu_seconds)?;
    let (requests, to_do) = mpsc::sync_channel::<Vec<u8>>(0);
    let (running, is_running) = mpsc::sync_channel(1);
    // While that thread computes, this one waits for the server's end.
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let _end = EndProcess;
            if running.send(()).is_ok() {
                compute(socket, &to_do, answer);
            }
        })
        .at("starting a thread")?;
    // A thread makes calls of its own as it begins.
    is_running
        .recv()
        .map_err(io::Error::other)
        .at("starting a thread")?;
    confine::forbid_calls()?;
    Ok(requests)
}

/// Ends the process with the thread that computes, as the server would wait for an answer otherwise.
struct EndProcess;

impl Drop for EndProcess {
    fn drop(&mut self) {
        raw::exit(1);
    }
}

fn compute(mut socket: File, to_do: &mpsc::Receiver<Vec<u8>>, answer: impl Fn(&[u8]) -> Vec<u8>) {
    for request in to_do {
        if send(&mut socket, &answer(&request)).is_err() {
            return;
        }
    }
}

/// Hands requests on until the server closes the socket, which ends the process whatever it does at that moment.
fn receive(socket: &mut File, requests: &mpsc::SyncSender<Vec<u8>>) {
    let mut length = [0; 4];
    while socket.read_exact(&mut length).is_ok() {
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_REQUEST {
            return;
        }
        let mut request = vec![0; length];
        if socket.read_exact(&mut request).is_err() || requests.send(request).is_err() {
            return;
        }
    }
}

fn send(socket: &mut File, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    socket.write_all(&length.to_le_bytes())?;
    socket.write_all(bytes)
}
