//! A command of the operator's that isolates: it is tried with the same probe, and taken whatever that finds, because
//! the operator has chosen it. Only an interpreter that does not come up is refused.

use std::sync::Arc;

use parking_lot::Mutex;

use super::host::Host;
use super::{PROBE_LIMIT, TierAttempt, probe, report};
use crate::sandbox::interpreter::{Interpreter, QUESTIONS};
use crate::sandbox::plan::{IsolationMethod, LaunchPlan, Reservations};
use crate::sandbox::settings::Settings;
use crate::sandbox::worker::Worker;
use crate::sandbox::{Cell, IsolationReport, Live, OutputStream, SandboxError};

/// Most bytes of what an interpreter says about itself.
const MAX_ANSWER: usize = 1024 * 1024;

/// Tries the command.
pub(super) async fn choose(
    settings: Settings,
) -> Result<(Arc<LaunchPlan>, IsolationReport), SandboxError> {
    let at = |step| move |source| SandboxError::Step { step, source };
    let settings = Arc::new(settings);
    let reservations = Reservations::open(&settings)
        .map(Arc::new)
        .map_err(at("opening the directory for working files"))?;
    let host = Host::set_up(&settings.work_dir).map_err(at("setting up the self-test"))?;
    let interpreter = Interpreter::beyond(&settings);
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
    let interpreter = ask(&mut worker).await;
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

/// Has the interpreter say what it is.
async fn ask(worker: &mut Worker) -> Result<Interpreter, SandboxError> {
    let cell = Cell {
        code: QUESTIONS,
        outputs: &[],
        inputs: &[],
        timeout: PROBE_LIMIT,
    };
    // The output that is kept may be too short for the names of all packages.
    let heard = Heard::default();
    let _outcome = worker.run(&cell, &heard).await;
    let name = worker.plan().settings.python.display().to_string();
    Interpreter::of(&name, heard.0.into_inner().as_bytes())
}

#[derive(Default)]
struct Heard(Mutex<String>);

impl Live for Heard {
    fn output(&self, stream: OutputStream, text: &str) {
        let mut heard = self.0.lock();
        if stream == OutputStream::Stdout && heard.len() < MAX_ANSWER {
            heard.push_str(text);
        }
    }
}
