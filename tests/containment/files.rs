//! 1 to 16: files and secrets.

use loopwright::ids::WorkspaceId;
use loopwright::sandbox::settings::Limits;
use serde_json::json;

use crate::stage::{Stage, judge, play};
use crate::world::World;

const PROBES: &str = include_str!("probes/files.py");

/// What Landlock cannot hide where the host's files are in sight: that a file exists, how large and how old it is.
const SEEN_IN_FALLBACK: [&str; 1] = ["14 "];

pub(crate) fn stay_closed(world: World) {
    play(world, Limits::default(), async |stage| {
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
