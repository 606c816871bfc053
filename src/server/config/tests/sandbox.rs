//! Code execution: its defaults, and what is refused.

use super::*;
use ::sandbox::settings::{InterpreterLimits, Network, Settings, Tier};

const ON: &str = "enable_code_execution = true\n";

/// Lines after the switch, the key at fault and a part of the remedy.
const IMPOSSIBLE: &[(&str, &str, &str)] = &[
    (
        "code_exec_timeout = 0.5",
        "code_exec_timeout",
        "1 to 300 seconds",
    ),
    (
        "code_exec_timeout = \"6m\"",
        "code_exec_timeout",
        "1 to 300 seconds",
    ),
    (
        "code_exec_python = \"\"",
        "code_exec_python",
        "such as python3",
    ),
    (
        "[sandbox]\nrequire = \"external\"",
        "sandbox.require",
        "weak, basic, medium or strong",
    ),
    (
        "[sandbox]\ncommand = [\" \", \"run\"]",
        "sandbox.command[0]",
        "write the program",
    ),
    (
        "[sandbox]\npreload = [\"numpy\", \"os; import x\"]",
        "sandbox.preload[1]",
        "such as numpy",
    ),
    (
        "[sandbox]\npreload = [\"a..b\"]",
        "sandbox.preload[0]",
        "import",
    ),
    (
        "[sandbox]\nmax_workers = 0",
        "sandbox.max_workers",
        "1 or more",
    ),
    (
        "[sandbox]\nspares = 2\nmax_workers = 2",
        "sandbox.spares",
        "less than max_workers",
    ),
    (
        "[sandbox]\nidle_ttl = 0",
        "sandbox.idle_ttl",
        "longer than 0",
    ),
    ("[sandbox]\nmax_age = 0", "sandbox.max_age", "longer than 0"),
    (
        "[sandbox]\nwork_dir = \"\"",
        "sandbox.work_dir",
        "write a path",
    ),
    (
        "[sandbox]\nwork_dir = \"/\"",
        "sandbox.work_dir",
        "write a path",
    ),
    (
        "[sandbox]\nuids = [0, 100]",
        "sandbox.uids[0]",
        "1000 or more",
    ),
    (
        "[sandbox]\nuids = [3000, 2000]",
        "sandbox.uids",
        "[FIRST, LAST]",
    ),
    (
        "[sandbox]\nuids = [3000, 4294967295]",
        "sandbox.uids[1]",
        "too large",
    ),
    (
        "[sandbox]\nuids = [3000, 3001]\nmax_workers = 3",
        "sandbox.uids",
        "widen the range",
    ),
    (
        "[sandbox.limits]\nmemory = \"1MiB\"",
        "sandbox.limits.memory",
        "67108864 or more",
    ),
    (
        "[sandbox.limits]\nimage_bytes = \"9MiB\"",
        "sandbox.limits.image_bytes",
        "8388608 or less",
    ),
    (
        "[sandbox.limits]\nprocesses = 1",
        "sandbox.limits.processes",
        "4 or more",
    ),
];

fn sandbox(text: &str) -> Settings {
    let config = load(&format!("{UPSTREAM}{ON}{text}")).unwrap();
    config.sandbox.unwrap()
}

/// Everything but what depends on the machine.
fn comparable(settings: &Settings) -> String {
    let mut settings = settings.clone();
    settings.max_workers = 4;
    format!("{settings:?}")
}

#[test]
fn an_impossible_value_is_refused_even_while_code_execution_is_off() {
    for (text, key, part) in IMPOSSIBLE {
        for switch in [ON, ""] {
            check(&format!("{UPSTREAM}{switch}{text}"), key, part);
        }
    }
}

#[test]
fn a_wrong_shape_is_refused_with_its_line_and_key() {
    for (text, expected) in [
        (
            "[sandbox]\nrequire = \"some\"",
            "line 2: sandbox.require: unknown variant `some`",
        ),
        (
            "[sandbox]\nnetwork = \"all\"",
            "line 2: sandbox.network: unknown variant `all`, expected `none` or `full`",
        ),
        (
            "[sandbox]\nuids = [60100]",
            "line 2: sandbox.uids: invalid length 1",
        ),
        (
            "[sandbox]\npython = \"python3\"",
            "line 2: sandbox.python: unknown key, expected one of `require`",
        ),
        (
            "[sandbox.limits]\ndisk = \"3 apples\"",
            "line 2: sandbox.limits.disk: `3 apples` is not a size; write",
        ),
    ] {
        let refused = load(text).unwrap_err();
        assert!(
            refused.starts_with(&format!("FILE, {expected}")),
            "{refused}\nexpected: {expected}"
        );
    }
}

#[test]
#[cfg_attr(not(feature = "mcp"), ignore = "needs the feature")]
fn the_examples_of_the_shipped_file_are_the_defaults() {
    let text = shipped_examples().replace(
        "enable_code_execution = false",
        "enable_code_execution = true",
    );
    let shipped = load(&without_short_forms(&text)).unwrap().sandbox.unwrap();
    let defaults = sandbox("");
    assert_eq!(comparable(&shipped), comparable(&defaults));
    assert_eq!(
        format!("{:?}", defaults.limits),
        format!("{:?}", InterpreterLimits::default())
    );
    assert_eq!(defaults.timeout, Duration::from_secs(60));
    assert_eq!(defaults.require, Tier::Basic);
    assert_eq!(defaults.work_dir.to_str(), Some("loopwright-work"));
    assert_eq!(defaults.launcher.to_str(), Some("/proc/self/exe"));
    assert!((2..=16).contains(&defaults.max_workers));
}

#[test]
fn every_setting_arrives() {
    let settings = sandbox(
        "code_exec_timeout = \"2m\"\ncode_exec_python = \"/opt/py\"\nsession_store = \"sqlite:/var/lw/s.db\"\n\
         [sandbox]\nrequire = \"weak\"\nnetwork = \"none\"\ncommand = [\"runsc\", \"do\"]\npreload = [\"numpy\", \"a.b_c\"]\n\
         spares = 0\nmax_workers = 1\nmax_waiting = 0\nidle_ttl = 5\nmax_age = \"1h\"\nuids = [2000, 2000]\nsaved_size = \"2MiB\"\n\
         [sandbox.limits]\nmemory = \"2GiB\"\ncpus = 0\nfiles = 0\noutput_kept = 2048",
    );
    assert_eq!(settings.timeout, Duration::from_secs(120));
    assert_eq!(settings.python.to_str(), Some("/opt/py"));
    assert_eq!(settings.require, Tier::Weak);
    assert_eq!(settings.network, Network::None);
    assert_eq!(settings.command, ["runsc", "do"]);
    assert_eq!(settings.preload, ["numpy", "a.b_c"]);
    assert_eq!(
        (settings.spares, settings.max_workers, settings.max_waiting),
        (0, 1, 0)
    );
    assert_eq!(settings.idle_ttl, Duration::from_secs(5));
    assert_eq!(settings.max_age, Duration::from_secs(3600));
    assert_eq!(settings.work_dir.to_str(), Some("/var/lw/s-work"));
    assert_eq!(settings.uids, (2000, 2000));
    assert_eq!(settings.saved_size, 2 << 20);
    assert_eq!(settings.limits.memory, 2 << 30);
    assert_eq!((settings.limits.cpus, settings.limits.files), (0, 0));
    assert_eq!(settings.limits.output_kept, 2048);
    assert_eq!(
        sandbox("[sandbox]\nwork_dir = \"w\"").work_dir.to_str(),
        Some("w")
    );
}

#[test]
fn the_search_path_and_the_temporary_directory_come_from_the_environment() {
    let env = |name: &str| match name {
        "PATH" => Some("/opt/bin:/bin".to_owned()),
        "TMPDIR" => Some("/scratch".to_owned()),
        "LOOPWRIGHT_UPSTREAM" => Some("http://h/v1".to_owned()),
        "LOOPWRIGHT_ENABLE_CODE_EXECUTION" => Some("1".to_owned()),
        "LOOPWRIGHT_SESSION_STORE" => Some("memory:".to_owned()),
        _ => None,
    };
    let config = Config::load(&ServeFlags::default(), &env).unwrap();
    let settings = config.sandbox.unwrap();
    assert_eq!(settings.search_path, "/opt/bin:/bin");
    assert!(settings.work_dir.starts_with("/scratch"));
    assert_eq!(sandbox("").search_path, "/usr/local/bin:/usr/bin:/bin");
}

#[test]
fn what_has_no_effect_or_a_wide_one_is_noted() {
    let off = load(&format!("{UPSTREAM}[sandbox]\nspares = 1")).unwrap();
    assert!(off.sandbox.is_none());
    assert!(
        off.notices[0].contains("sandbox has no effect without --enable-code-execution"),
        "{:?}",
        off.notices
    );
    assert!(off.summary().contains("enable_code_execution = false"));
    let open = format!("{UPSTREAM}{ON}[sandbox]\nnetwork = \"full\"");
    let open = load(&open).unwrap();
    assert!(
        open.notices[0].contains("sandbox.network"),
        "{:?}",
        open.notices
    );
    let isolated = format!("{UPSTREAM}{ON}[sandbox]\nspares = 1");
    assert!(load(&isolated).unwrap().notices.is_empty());
}

#[test]
fn the_summary_shows_every_setting_and_no_argument() {
    let text = format!("{UPSTREAM}{ON}[sandbox]\ncommand = [\"runsc\", \"--token=hunter2\"]");
    let summary = load(&text).unwrap().summary();
    for line in [
        "[sandbox]\nrequire = \"basic\"\nnetwork = \"none\"\ncommand = [\"runsc\", \"(1 arguments, not shown)\"]\n",
        "\nsaved_size = 10737418240\nuids = [60100, 60999]\n",
        "\n[sandbox.limits]\nmemory = 1073741824\n",
        "\nimages = 10\nimage_bytes = 4194304\n",
        "\nidle_ttl = 1200\nmax_age = 14400\n",
    ] {
        assert!(summary.contains(line), "{line}: {summary}");
    }
    assert!(!summary.contains("hunter2"), "{summary}");
}
