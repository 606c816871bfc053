//! What isolation this host allows: every way is tried from the strongest on, with a real interpreter that tries to get
//! out ([`PROBE`]), and the first one that holds is taken.

mod command;
mod host;
mod report;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use self::host::Host;
use super::interpreter::Interpreter;
use super::plan::{Places, Plan, Way};
use super::settings::{Settings, Tier};
use super::worker::Worker;
use super::{Cell, Live, OutputStream, Report, SandboxError};

/// The probe, run as a cell.
const PROBE: &str = include_str!("selftest.py");
/// Longest time for the probe.
const PROBE_LIMIT: Duration = Duration::from_secs(20);
/// The version of Landlock that keeps signals and abstract sockets in; without it a shared user id is no border.
const SCOPED_LANDLOCK: i32 = 6;

/// What a way came to.
pub(super) struct Tried {
    way: Way,
    tier: Tier,
    landlock: i32,
    proc: bool,
    preload_failed: Vec<String>,
    sees_descriptors: bool,
    /// What the probe got through with.
    leaks: Vec<String>,
}

/// Finds the strongest way that holds.
pub(super) async fn choose(mut settings: Settings) -> Result<(Arc<Plan>, Report), SandboxError> {
    let at = |step| move |source| SandboxError::Step { step, source };
    if !settings.command.is_empty() {
        return command::choose(settings).await;
    }
    let interpreter = Interpreter::find(&settings).await?;
    // The launcher has another current directory.
    settings.work_dir = std::path::absolute(&settings.work_dir)
        .map_err(at("finding the directory for working files"))?;
    let settings = Arc::new(settings);
    let places = Places::open(&settings)
        .map(Arc::new)
        .map_err(at("opening the directory for working files"))?;
    let host = Host::set_up(&settings.work_dir).map_err(at("setting up the self-test"))?;
    let mut missing = Vec::new();
    for way in Way::candidates() {
        let plan = Plan::new(settings.clone(), interpreter.clone(), way, places.clone());
        let plan = Arc::new(plan);
        match attempt(&plan, &host).await {
            Ok(tried) if tried.leaks.is_empty() && tried.tier >= settings.require => {
                let report = report::report(&plan, &tried, missing);
                return Ok((plan, report));
            }
            Ok(tried) => missing.push(report::not_enough(&tried)),
            Err(error) => missing.push(report::not_possible(way, &error)),
        }
    }
    Err(SandboxError::Unavailable(report::refusal(
        &settings, &missing,
    )))
}

/// Starts an interpreter in this way and lets it try to get out.
async fn attempt(plan: &Arc<Plan>, host: &Host) -> Result<Tried, SandboxError> {
    let place = plan.place()?;
    let mut worker = Worker::start(plan, place).await?;
    let leaks = probe(&mut worker, host).await;
    let (landlock, proc) = worker.launched_with().unwrap_or_default();
    let preload_failed = std::mem::take(&mut worker.preload_failed);
    let sees_descriptors = worker.sees_descriptors();
    worker.end().await;
    Ok(Tried {
        way: plan.way,
        tier: tier(plan.way, landlock),
        landlock,
        proc,
        preload_failed,
        sees_descriptors,
        leaks,
    })
}

/// Lets an interpreter try to get out; gives what it got through with.
async fn probe(worker: &mut Worker, host: &Host) -> Vec<String> {
    let plan = worker.plan();
    let links = plan.interpreter.links.iter().map(|(link, _)| link);
    let known: Vec<_> = plan.interpreter.trees.iter().chain(links).collect();
    let facts = json!({
        "secret": host.secret(),
        "socket": host.socket(),
        "abstract": host.abstract_name(),
        "port": host.port(),
        "pid": std::process::id(),
        "host_proc": plan.way.tier() != Tier::Strong,
        // What a command isolates may have process numbers of its own, where the server's is another's.
        "pid_namespace": (plan.way == Way::Command).then(host::pid_namespace),
        "network": plan.settings.network,
        "trees": known,
    });
    // A JSON object without true, false and null is a Python literal, but for those three.
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
        timeout: PROBE_LIMIT,
    };
    let (outcome, _) = worker.run(&cell, &Silent).await;
    match serde_json::from_str::<BTreeMap<String, String>>(&outcome.stdout) {
        Ok(found) => found
            .into_iter()
            .filter(|(_, happened)| !happened.is_empty())
            .map(|(name, happened)| format!("{name}: {happened}"))
            .collect(),
        Err(_) => vec![report::no_answer(&outcome)],
    }
}

/// What a way is worth on a kernel with this Landlock.
fn tier(way: Way, landlock: i32) -> Tier {
    match way {
        Way::PrivateUser if landlock == 0 => Tier::Weak,
        Way::SameUser if landlock < SCOPED_LANDLOCK => Tier::Weak,
        _ => way.tier(),
    }
}

/// Hears nothing.
pub(super) struct Silent;

impl Live for Silent {
    fn output(&self, _stream: OutputStream, _text: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_landlock_a_user_id_is_no_border() {
        for (way, landlock, expected) in [
            (Way::RootNamespaces, 0, Tier::Strong),
            (Way::UserNamespaces, 0, Tier::Strong),
            (Way::PrivateUser, 7, Tier::Medium),
            (Way::PrivateUser, 1, Tier::Medium),
            (Way::PrivateUser, 0, Tier::Weak),
            (Way::SameUser, 6, Tier::Basic),
            (Way::SameUser, 5, Tier::Weak),
            (Way::SameUser, 0, Tier::Weak),
        ] {
            assert_eq!(tier(way, landlock), expected, "{way:?} {landlock}");
        }
        assert!(
            Tier::Weak < Tier::Basic && Tier::Basic < Tier::Medium && Tier::Medium < Tier::Strong
        );
    }
}
