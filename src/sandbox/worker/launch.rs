//! Launching the process of an interpreter: its specification and environment.

use serde_json::json;

use super::reservation::ReservationGuard;
use super::{PROGRAM, THREAD_VARIABLES};
use crate::SandboxError;
use crate::launcher::spec::{CONTROL_FD, DATA, Isolation, Spec};
use crate::plan::{LaunchPlan, Reservation};
use crate::process::Process;
use crate::process::launched::LaunchedProcess;
use crate::process::relayed::RelayedProcess;

/// Starts the process of an interpreter with its reservation.
pub(super) async fn start_process(
    plan: &LaunchPlan,
    reservation: &Reservation,
    tenancy: &mut ReservationGuard,
) -> Result<Process, SandboxError> {
    let Some(isolation) = reservation.isolation() else {
        let relayed = RelayedProcess::start(&plan.settings).await?;
        return Ok(Process::Relayed(Box::new(relayed)));
    };
    let spec = spec(plan, reservation, isolation);
    let began = |launcher| tenancy.began(launcher);
    let launcher = &plan.settings.launcher;
    let launched =
        LaunchedProcess::start(launcher, &spec, data_directory(reservation), began).await?;
    Ok(Process::Launched(Box::new(launched)))
}

/// The working directory as the code sees it.
pub(super) fn data_directory(reservation: &Reservation) -> String {
    match reservation.directory() {
        None => DATA.to_owned(),
        Some(directory) => directory.join("data").display().to_string(),
    }
}

fn spec(plan: &LaunchPlan, reservation: &Reservation, isolation: Isolation) -> Spec {
    let settings = &plan.settings;
    let data = data_directory(reservation);
    let tmp = match reservation.directory() {
        None => "/tmp".to_owned(),
        Some(directory) => directory.join("tmp").display().to_string(),
    };
    let options = json!({"fd": CONTROL_FD, "preload": settings.preload, "workdir": data});
    let arguments = ["-I", "-B", "-u", "-c", PROGRAM];
    Spec {
        isolation,
        python: plan.interpreter.program.clone(),
        arguments: arguments
            .into_iter()
            .map(str::to_owned)
            .chain([options.to_string()])
            .collect(),
        environment: environment(plan, &tmp),
        trees: plan.interpreter.trees.clone(),
        links: plan.interpreter.links.clone(),
        directory: reservation.directory().map(std::path::Path::to_owned),
        limits: settings.limits.clone(),
        network: settings.network,
        slot: reservation.slot(),
        weak: plan.accepts_weak(isolation),
    }
}

/// The whole environment of an interpreter; nothing of the server's.
fn environment(plan: &LaunchPlan, tmp: &str) -> Vec<(String, String)> {
    let bin = plan.interpreter.program.parent();
    let bin = bin
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    let threads = plan.settings.limits.cpus.max(1).to_string();
    let mut environment: Vec<(String, String)> = [
        ("PATH", format!("{bin}:/usr/local/bin:/usr/bin:/bin")),
        ("HOME", tmp.to_owned()),
        ("TMPDIR", tmp.to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("MPLBACKEND", "Agg".to_owned()),
        ("MPLCONFIGDIR", tmp.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    // As many threads as processors: more would only compete and count against the process limit.
    for name in THREAD_VARIABLES {
        environment.push((name.to_owned(), threads.clone()));
    }
    environment
}
