//! 1 to 16: files and secrets.

use protocol::ids::WorkspaceId;
use sandbox::settings::InterpreterLimits;
use serde_json::json;

use crate::bait::canaries;
use crate::stage::{Stage, judge, play, unprotected};
use crate::world::World;

const PROBES: &str = include_str!("probes/files.py");

/// What Landlock cannot hide where the host's files are in sight: that a file exists, how large and how old it is.
const SEEN_IN_FALLBACK: [&str; 1] = ["14 "];

pub(crate) fn stay_closed(world: World) {
    play(world, InterpreterLimits::default(), async |stage| {
        let others = neighbour(stage).await;
        let mut facts = stage.facts.clone();
        facts["others"] = json!(others);
        let own = WorkspaceId::fresh();
        let found = stage.probe_with(&own, &facts, PROBES).await;
        for (name, what) in &found {
            println!("{name}: {what}");
        }
        let allowed: &[&str] = if world.is_strong() {
            &[]
        } else {
            &SEEN_IN_FALLBACK
        };
        judge(&found, allowed);
        stage.is_untouched();
    });
}

/// Another workspace with secrets of its own everywhere; their paths.
async fn neighbour(stage: &Stage) -> Vec<String> {
    let workspace = WorkspaceId::fresh();
    let code = "
import os, tempfile
paths = [os.path.join(place, 'secret-of-a-neighbour') for place in (os.getcwd(), tempfile.gettempdir(), '/dev/shm')]
for path in paths:
    try:
        open(path, 'w').write('CANARY')
    except OSError:
        paths.remove(path)
print('\\n'.join(paths))";
    let outcome = stage.run(&workspace, code).await;
    let paths: Vec<String> = outcome.stdout.lines().map(str::to_owned).collect();
    assert!(paths.len() >= 2, "{outcome:?}");
    paths
}

/// The probes of files and of the network do find something where nothing is in their way.
pub(crate) fn probes_are_real(world: World) {
    let before = canaries();
    let (found, _) = unprotected(world, PROBES);
    for name in [
        "01 read /etc/shadow",
        "02 read the host's /etc/passwd",
        "03 list /root",
        "03 list /home",
        "03 list /run",
        "03 read /root/.ssh/id_ed25519",
        "03 read /var/tmp/canary",
        "04 read the server's loopwright.db",
        "04 list the server's directory",
        "05 the server's environ",
        "05 the server's mem",
        "05 the server's root",
        "05 the server's fd",
        "08 the secret in the environment",
        "10 create /run/stray",
        "10 create /var/tmp/stray",
        "10 create /tmp/stray",
        "10 write to /run/canary",
        "10 write to /run/server/open.txt",
        "11 hard link to /run/server/open.txt",
        "12 read through a symbolic link",
        "12 read through a link in /proc",
        "16 read /tmp/canary",
        "16 read /dev/shm/canary",
    ] {
        let what = found.get(name).map(String::as_str).unwrap_or_default();
        assert!(what.starts_with("done"), "{name}: {what}");
    }
    let now = canaries();
    for path in ["/run/canary", "/root/.ssh/id_ed25519"] {
        let path = std::path::Path::new(path);
        assert_ne!(before.get(path), now.get(path), "{path:?} was not changed");
    }
}

pub(crate) fn calls_are_real(world: World) {
    let (found, contacts) = unprotected(world, include_str!("probes/network.py"));
    for name in [
        "26 TCP to the server",
        "26 TCP to the server by IPv6",
        "27 the metadata service",
        "28 UDP to the server",
        "28 DNS",
        "29 raw socket",
        "29 netlink socket",
        "30 abstract socket",
        "31 /run/docker.sock",
        "31 /run/server/admin.sock",
        "32 listen on TCP",
        "32 bind UDP",
    ] {
        let what = found.get(name).map(String::as_str).unwrap_or_default();
        assert!(what.starts_with("done"), "{name}: {what}");
    }
    for name in [
        "tcp 127.0.0.1",
        "tcp [::1]",
        "tcp 169.254",
        "udp 127",
        "udp 169",
        "abstract",
        "/run/docker.sock",
    ] {
        assert!(
            contacts.iter().any(|contact| contact.starts_with(name)),
            "{name}: {contacts:?}"
        );
    }
}
