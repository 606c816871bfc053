//! The world: namespaces in which every address leads back into them, and the test run again inside.

use std::process::{Command, Stdio};

/// Says inside a world that it is one.
const INSIDE: &str = "LOOPWRIGHT_SSRF_WORLD";
/// Longest time of one test in a world, in seconds.
const TIME_LIMIT: &str = "300";
const REMEDY: &str = "(If no world could be made: this suite needs root or sudo without a password, namespaces, and the \
                      programs unshare and ip: Debian packages util-linux, iproute2.)";

/// Where every proxy that the environment names is: one more canary.
pub(crate) const PROXY: &str = "http://10.0.0.9:3128";

/// Runs `test` in a world: outside of one makes it and runs the test of this name again there.
pub(crate) fn inside(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        test();
        // What the outer process waits for; an empty selection of tests would end well too.
        println!("held: {name}");
        return;
    }
    let output = command(name)
        .stdin(Stdio::null())
        .output()
        .expect("unshare can be executed");
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = said.join("\n");
    assert!(
        output.status.success() && said.contains(&format!("held: {name}")),
        "{name}: {}\n{said}\n{REMEDY}",
        output.status
    );
    println!("{said}");
}

fn command(name: &str) -> Command {
    let this = std::env::current_exe().expect("the test has a file");
    let proxies = ["http_proxy", "https_proxy", "all_proxy"];
    let proxies = proxies
        .into_iter()
        .flat_map(|name| [name.to_owned(), name.to_ascii_uppercase()]);
    let mut command = as_root("env");
    command
        .arg("-i")
        .args(proxies.map(|name| format!("{name}={PROXY}")))
        .arg(format!("{INSIDE}=1"))
        .args([
            "HOME=/run/home",
            "RUST_BACKTRACE=0",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        ])
        .args(["timeout", "--kill-after=5", TIME_LIMIT, "unshare"])
        .args(["--mount", "--net", "--pid", "--ipc", "--uts", "--fork"])
        .arg("--kill-child=KILL")
        .args(["--", "bash", "-c", include_str!("world.sh"), "world.sh"])
        .arg(this)
        .args([
            "--exact",
            name,
            "--include-ignored",
            "--nocapture",
            "--test-threads=1",
        ]);
    command
}

/// A command that is run as root.
fn as_root(program: &str) -> Command {
    use std::os::unix::fs::MetadataExt;
    if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.args(["-n", program]);
    command
}
