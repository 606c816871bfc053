//! Texts about the self-test for the operator.

use std::error::Error;
use std::fmt;

use super::{SCOPED_LANDLOCK, TierAttempt};
use crate::interpreter::Interpreter;
use crate::plan::{IsolationMethod, LaunchPlan};
use crate::settings::{Network, Settings, Tier};
use crate::{CellOutcome, IsolationReport, SandboxError};

const USER_NAMESPACES: &str = "run it in a container with the seccomp profile docker/seccomp.json and, where AppArmor is on, \
     apparmor=unconfined; on a host, allow unprivileged user namespaces \
     (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)";
/// The probe's finding if the interpreter's user cannot reach its working directory.
const NO_WORK: &str = "working_directory: PermissionError";
/// Packages to mention to the model if they are installed.
#[rustfmt::skip]
const NAMED_PACKAGES: [&str; 24] = [
    "numpy", "pandas", "matplotlib", "scipy", "sympy", "pillow", "openpyxl", "xlsxwriter", "seaborn", "scikit-learn",
    "statsmodels", "networkx", "requests", "beautifulsoup4", "lxml", "pypdf", "python-docx", "python-pptx",
    "reportlab", "plotly", "pyarrow", "polars", "tabulate", "pyyaml",
];

/// The report on the chosen method.
pub(super) fn report(
    plan: &LaunchPlan,
    attempt: &TierAttempt,
    mut missing: Vec<String>,
) -> IsolationReport {
    missing.extend(not_counted(attempt));
    let settings = &plan.settings;
    let strong = attempt.method.tier() == Tier::Strong;
    let either = |yes: &str, no: &str| if strong { yes } else { no }.to_owned();
    let network = match (settings.network, strong) {
        (Network::None, true) => "none (namespace, seccomp)",
        (Network::None, false) => "none (seccomp, Landlock)",
        (Network::Full, _) => "outgoing connections, by configuration",
    };
    let uid = match attempt.method {
        IsolationMethod::RootNamespaces | IsolationMethod::PrivateUser => "one per interpreter",
        IsolationMethod::UserNamespaces => "mapped in a user namespace",
        IsolationMethod::SameUser => "the server's",
        IsolationMethod::Command => "the command's",
    };
    let landlock = match attempt.landlock {
        0 => "none".to_owned(),
        version => format!("abi {version}"),
    };
    let memory = settings.limits.memory / (1024 * 1024);
    let properties = vec![
        ("fs_view", either("private root", "the host's, by Landlock")),
        ("network", network.to_owned()),
        ("processes", either("namespace", "the host's, by Landlock")),
        ("user", uid.to_owned()),
        ("memory", format!("{memory} MiB, polled")),
        ("disk", either("sized tmpfs", "polled")),
        ("end_of_tree", either("namespace", "supervisor")),
        ("proc", if attempt.proc { "own" } else { "none" }.to_owned()),
        ("landlock", landlock),
        ("seccomp", "allow-list".to_owned()),
        (
            "not_protected_against",
            "faults of the kernel and the processor".to_owned(),
        ),
    ];
    IsolationReport {
        level: attempt.tier,
        properties,
        missing,
        problems: not_preloaded(attempt).into_iter().collect(),
        python: plan.interpreter.version.clone(),
        packages: named_packages(&plan.interpreter),
    }
}

/// The report on an isolating command.
pub(super) fn external(
    plan: &LaunchPlan,
    attempt: &TierAttempt,
    interpreter: &Interpreter,
) -> IsolationReport {
    let mut missing = Vec::new();
    if !attempt.leaks.is_empty() {
        missing.push(format!(
            "sandbox.command: the self-test was not contained ({}); check what the command isolates",
            attempt.leaks.join("; ")
        ));
    }
    let program = plan.settings.command.first().cloned().unwrap_or_default();
    let by_command = "by the command, not verified beyond the self-test";
    let properties = vec![
        // Without its arguments, which may contain secrets.
        ("command", program),
        ("isolation", by_command.to_owned()),
        ("network", by_command.to_owned()),
        ("memory", by_command.to_owned()),
        ("processes", by_command.to_owned()),
        ("disk", by_command.to_owned()),
        (
            "bounded_by_loopwright",
            "time, output, images, files returned and saved".to_owned(),
        ),
    ];
    IsolationReport {
        level: attempt.tier,
        properties,
        missing,
        problems: not_preloaded(attempt).into_iter().collect(),
        python: interpreter.version.clone(),
        packages: named_packages(interpreter),
    }
}

fn named_packages(interpreter: &Interpreter) -> Vec<String> {
    let named = |(name, version): &(String, String)| {
        let known = NAMED_PACKAGES.contains(&name.to_lowercase().as_str());
        known.then(|| format!("{name} {version}"))
    };
    interpreter.packages.iter().filter_map(named).collect()
}

/// Reports if deleted open files cannot be counted although they lie on the host's disk.
fn not_counted(attempt: &TierAttempt) -> Option<String> {
    (attempt.method.tier() != Tier::Strong && !attempt.counts_descriptors).then(|| {
        "deleted open files are not counted, because the descriptors of interpreters cannot be read in /proc; let \
         loopwright read them (AppArmor, SELinux, hidepid=)"
            .to_owned()
    })
}

fn not_preloaded(attempt: &TierAttempt) -> Option<String> {
    (!attempt.preload_failed.is_empty()).then(|| {
        format!(
            "modules of sandbox.preload could not be imported: {}; install them for this interpreter or leave them out",
            attempt.preload_failed.join(", ")
        )
    })
}

/// Why a method that could be started is not chosen.
pub(super) fn not_enough(attempt: &TierAttempt) -> String {
    let method = name(attempt.method);
    if !attempt.leaks.is_empty() {
        let leaks = attempt.leaks.join("; ");
        // This is no leak: the interpreter could not even start to work.
        if attempt.leaks.iter().all(|leak| leak.starts_with(NO_WORK)) {
            return format!(
                "{method}: the interpreter cannot work ({leaks}); every user must be able to pass through the directories \
                 above sandbox.work_dir (chmod a+x)"
            );
        }
        return format!("{method}: the self-test was not contained ({leaks})");
    }
    let landlock = match attempt.landlock {
        0 => "the kernel has no Landlock; boot one with 'landlock' among lsm=".to_owned(),
        version => format!(
            "the kernel's Landlock is version {version}; version {SCOPED_LANDLOCK} (Linux 6.12) is needed"
        ),
    };
    format!("{method}: only {}: {landlock}", attempt.tier.as_str())
}

/// Why a method could not be started.
pub(super) fn not_possible(method: IsolationMethod, error: &SandboxError) -> String {
    let mut text = format!("{}: {error}", name(method));
    if let Some(cause) = error.source() {
        text.push_str(&format!(" ({cause})"));
    }
    let remedy = match (method, error) {
        (_, SandboxError::Launch { step, .. }) if step == "executing Python" => {
            "; make the interpreter executable for all users, or set --code-exec-python to one that is"
        }
        (IsolationMethod::UserNamespaces, SandboxError::Launch { .. }) => {
            text.push_str("; ");
            text.push_str(USER_NAMESPACES);
            ""
        }
        (IsolationMethod::RootNamespaces, SandboxError::Launch { .. }) => {
            "; root in a container cannot make namespaces without CAP_SYS_ADMIN"
        }
        _ => "",
    };
    text.push_str(remedy);
    text
}

/// Why code execution is not available.
pub(super) fn refusal(settings: &Settings, missing: &[String]) -> String {
    let remedy = match settings.require {
        Tier::Weak => {
            "switch code execution off, or use a container or machine of its own with sandbox.command"
        }
        _ => {
            "correct one of these, or accept less isolation with sandbox.require (\"weak\" accepts any), or switch code execution off"
        }
    };
    format!(
        "code execution needs isolation of level '{}' and this host does not allow it: {}; {remedy}",
        settings.require.as_str(),
        missing.join(" | ")
    )
}

/// The probe itself failed.
pub(super) fn no_answer(outcome: &CellOutcome) -> String {
    let said = outcome.error.as_ref().map_or_else(
        || outcome.stderr.clone(),
        |error| format!("{}: {}", error.name, error.message),
    );
    format!("the self-test failed ({:?}): {said}", outcome.end)
}

fn name(method: IsolationMethod) -> &'static str {
    match method {
        IsolationMethod::RootNamespaces => "strong (namespaces as root)",
        IsolationMethod::UserNamespaces => "strong (user namespace)",
        IsolationMethod::PrivateUser => "medium (a user id of its own)",
        IsolationMethod::SameUser => "basic (the server's user id)",
        IsolationMethod::Command => "external (sandbox.command)",
    }
}

impl fmt::Display for IsolationReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "level={} python={}",
            self.level.as_str(),
            self.python
        )?;
        for (name, state) in &self.properties {
            write!(formatter, " {name}=\"{state}\"")?;
        }
        Ok(())
    }
}
