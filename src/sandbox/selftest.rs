//! The self-test: tries the isolation methods, strongest first, with a real interpreter that tries to break out
//! ([`PROBE`]), and chooses the first method that holds.

mod command;
mod host;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use self::host::Host;
use super::interpreter::Interpreter;
use super::plan::{IsolationMethod, LaunchPlan, Reservations};
use super::settings::{Settings, Tier};
use super::worker::Worker;
use super::{Cell, IsolationReport, START_LIMIT, SandboxError};

/// The probe, run as a cell.
const PROBE: &str = include_str!("selftest.py");
/// Number of the first Landlock version that confines signals and abstract sockets; without it a shared user id
/// isolates nothing.
const SCOPED_LANDLOCK: i32 = 6;

/// The result of trying an isolation method.
pub(super) struct TierAttempt {
    method: IsolationMethod,
    tier: Tier,
    landlock: i32,
    proc: bool,
    preload_failed: Vec<String>,
    counts_descriptors: bool,
    /// What the probe could reach.
    leaks: Vec<String>,
}

/// Finds the strongest method that holds.
pub(super) async fn choose(
    mut settings: Settings,
) -> Result<(Arc<LaunchPlan>, IsolationReport), SandboxError> {
    let at = |step| move |source| SandboxError::Step { step, source };
    if !settings.command.is_empty() {
        return command::choose(settings).await;
    }
    let interpreter = Interpreter::find(&settings).await?;
    // The launcher has a different current directory.
    settings.work_dir = std::path::absolute(&settings.work_dir)
        .map_err(at("finding the directory for working files"))?;
    let settings = Arc::new(settings);
    let reservations = Reservations::open(&settings)
        .map(Arc::new)
        .map_err(at("opening the directory for working files"))?;
    let host = Host::set_up(&settings.work_dir).map_err(at("setting up the self-test"))?;
    let mut missing = Vec::new();
    for method in IsolationMethod::candidates() {
        let plan = LaunchPlan::new(
            settings.clone(),
            interpreter.clone(),
            method,
            reservations.clone(),
        );
        let plan = Arc::new(plan);
        match attempt(&plan, &host).await {
            Ok(attempt) if attempt.leaks.is_empty() && attempt.tier >= settings.require => {
                let report = report::report(&plan, &attempt, missing);
                return Ok((plan, report));
            }
            Ok(attempt) => missing.push(report::not_enough(&attempt)),
            Err(error) => missing.push(report::not_possible(method, &error)),
        }
    }
    Err(SandboxError::Unavailable(report::refusal(
        &settings, &missing,
    )))
}

/// Starts an interpreter with this method and runs the probe in it.
async fn attempt(plan: &Arc<LaunchPlan>, host: &Host) -> Result<TierAttempt, SandboxError> {
    let reservation = plan.reserve()?;
    let mut worker = Worker::start(plan, reservation).await?;
    let leaks = probe(&mut worker, host).await;
    let (landlock, proc) = worker.launched_with().unwrap_or_default();
    let preload_failed = std::mem::take(&mut worker.preload_failed);
    let counts_descriptors = worker.counts_descriptors();
    worker.end().await;
    Ok(TierAttempt {
        method: plan.method,
        tier: tier(plan.method, landlock),
        landlock,
        proc,
        preload_failed,
        counts_descriptors,
        leaks,
    })
}

/// Runs the probe; returns what it could reach.
async fn probe(worker: &mut Worker, host: &Host) -> Vec<String> {
    let plan = worker.plan();
    let links = plan.interpreter.links.iter().map(|(link, _)| link);
    let known: Vec<_> = plan.interpreter.trees.iter().chain(links).collect();
    let facts = json!({
        "secret": host.secret,
        "socket": host.socket,
        "abstract": host.abstract_name,
        "port": host.port,
        "pid": std::process::id(),
        "host_proc": plan.method.tier() != Tier::Strong,
        // An isolating command may have its own PID namespace, in which the server's process id is another process.
        "pid_namespace": (plan.method == IsolationMethod::Command).then(host::pid_namespace),
        "network": plan.settings.network,
        "trees": known,
    });
    // JSON differs from a Python literal only in true, false and null.
    let facts = facts
        .to_string()
        .replace(":true", ":True")
        .replace(":false", ":False")
        .replace(":null", ":None");
    let code = format!("{PROBE}\n_selftest({facts})");
    let cell = Cell {
        code: &code,
        outputs: &[],
        inputs: &[],
        timeout: START_LIMIT,
    };
    let (outcome, _) = worker.run(&cell, &|_, _| {}).await;
    match serde_json::from_str::<BTreeMap<String, String>>(&outcome.stdout) {
        Ok(found) => found
            .into_iter()
            .filter(|(_, happened)| !happened.is_empty())
            .map(|(name, happened)| format!("{name}: {happened}"))
            .collect(),
        Err(_) => vec![report::no_answer(&outcome)],
    }
}

/// The tier of a method on a kernel with this Landlock version.
fn tier(method: IsolationMethod, landlock: i32) -> Tier {
    match method {
        IsolationMethod::PrivateUser if landlock == 0 => Tier::Weak,
        IsolationMethod::SameUser if landlock < SCOPED_LANDLOCK => Tier::Weak,
        _ => method.tier(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_landlock_a_user_id_is_no_border() {
        for (method, landlock, expected) in [
            (IsolationMethod::RootNamespaces, 0, Tier::Strong),
            (IsolationMethod::UserNamespaces, 0, Tier::Strong),
            (IsolationMethod::PrivateUser, 7, Tier::Medium),
            (IsolationMethod::PrivateUser, 1, Tier::Medium),
            (IsolationMethod::PrivateUser, 0, Tier::Weak),
            (IsolationMethod::SameUser, 6, Tier::Basic),
            (IsolationMethod::SameUser, 5, Tier::Weak),
            (IsolationMethod::SameUser, 0, Tier::Weak),
        ] {
            assert_eq!(tier(method, landlock), expected, "{method:?} {landlock}");
        }
        assert!(
            Tier::Weak < Tier::Basic && Tier::Basic < Tier::Medium && Tier::Medium < Tier::Strong
        );
    }
}
