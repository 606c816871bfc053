//! The compute process: gives up its rights, then answers requests one after another.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use super::{READY, confine};
use crate::launcher::{AtStep, StepError, StepResult, raw};

/// Size of the stack for recursive parsers, in bytes; only used pages count.
const STACK: usize = 32 * 1024 * 1024;
/// Number of the first descriptor after the standard ones.
const FIRST_INHERITED: u32 = 3;
/// Longest request, in bytes. After a longer one the process ends.
const MAX_REQUEST: usize = 256 * 1024 * 1024;

/// Confines this process and answers requests until the server has ended. Must be called first in a fresh process
/// started by a [`Computer`](super::Computer). `limits` are the arguments after the hidden name.
pub fn serve(
    limits: impl Iterator<Item = String>,
    answer: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
) -> ExitCode {
    // What the server itself had inherited would take the numbers that the copies of the socket get.
    let closed = raw::close_range(FIRST_INHERITED, u32::MAX).at("closing descriptors");
    let Ok(mut socket) = stdin() else {
        return ExitCode::FAILURE;
    };
    match closed.and_then(|()| prepare(limits, answer)) {
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

/// Descriptor 0, for plain `read` and `write`: socket calls will be forbidden.
fn stdin() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

/// Starts the compute thread and confines the whole process, before anything is read.
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
    // The default panic hook prints a backtrace, for which it would open files.
    std::panic::set_hook(Box::new(|_| {}));
    let socket = stdin().at("copying the socket")?;
    confine::give_up_rights(memory, cpu_seconds)?;
    let (requests, to_do) = mpsc::sync_channel::<Vec<u8>>(0);
    let (running, is_running) = mpsc::sync_channel(1);
    // This thread reads the socket meanwhile, so that it notices when the server ends.
    thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || {
            let _end = EndProcess;
            if running.send(()).is_ok() {
                compute(socket, &to_do, answer);
            }
        })
        .at("starting a thread")?;
    // A starting thread makes system calls that will be forbidden.
    is_running
        .recv()
        .map_err(io::Error::other)
        .at("starting a thread")?;
    confine::forbid_calls()?;
    Ok(requests)
}

/// Ends the process when the compute thread ends; otherwise the server would wait for an answer.
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

/// Passes requests on until the server closes the socket; that ends the process even while it computes.
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
