//! The self-test of an operator's command. The findings are reported, but the command is used in any case, because the
//! operator has chosen it. Only an interpreter that does not start is refused.

use std::sync::Arc;

use parking_lot::Mutex;

use super::host::Host;
use super::{TierAttempt, probe, report};
use crate::interpreter::{Interpreter, QUERY};
use crate::plan::{IsolationMethod, LaunchPlan, Reservations};
use crate::settings::Settings;
use crate::worker::Worker;
use crate::{Cell, IsolationReport, OutputStream, START_LIMIT, SandboxError};

/// Most bytes of an interpreter's answer; further output is left out.
const MAX_ANSWER: usize = 1024 * 1024;

/// Starts an interpreter through the command and tests it.
pub(super) async fn choose(
    settings: Settings,
) -> Result<(Arc<LaunchPlan>, IsolationReport), SandboxError> {
    let at = |step| move |source| SandboxError::Step { step, source };
    let settings = Arc::new(settings);
    let reservations = Reservations::open(&settings)
        .map(Arc::new)
        .map_err(at("opening the directory for working files"))?;
    let host = Host::set_up(&settings.work_dir).map_err(at("setting up the self-test"))?;
    let interpreter = Interpreter::unknown(&settings);
    let plan = Arc::new(LaunchPlan::new(
        settings,
        interpreter,
        IsolationMethod::Command,
        reservations,
    ));
    let mut worker = Worker::start(&plan, plan.reserve()?)
        .await
        .map_err(|error| {
            SandboxError::Unavailable(report::not_possible(IsolationMethod::Command, &error))
        })?;
    let interpreter = query(&mut worker).await;
    let leaks = probe(&mut worker, &host).await;
    let preload_failed = std::mem::take(&mut worker.preload_failed);
    worker.end().await;
    let attempt = TierAttempt {
        method: IsolationMethod::Command,
        tier: IsolationMethod::Command.tier(),
        landlock: 0,
        proc: false,
        preload_failed,
        counts_descriptors: false,
        leaks,
    };
    let report = report::external(&plan, &attempt, &interpreter?);
    Ok((plan, report))
}

/// Queries the interpreter for its version and packages.
async fn query(worker: &mut Worker) -> Result<Interpreter, SandboxError> {
    let cell = Cell {
        code: QUERY,
        outputs: &[],
        inputs: &[],
        timeout: START_LIMIT,
    };
    // Read live, because the retained output may be too short for the names of all packages.
    let answer = Mutex::new(String::new());
    let listen = |stream: OutputStream, text: &str| {
        let mut answer = answer.lock();
        if stream == OutputStream::Stdout && answer.len() < MAX_ANSWER {
            answer.push_str(text);
        }
    };
    let _outcome = worker.run(&cell, &listen).await;
    let name = worker.plan().settings.python.display().to_string();
    Interpreter::of(&name, answer.into_inner().as_bytes())
}
