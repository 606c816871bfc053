//! Frames that no relay of ours sends.

use super::*;

#[tokio::test]
#[ignore = "needs Python"]
async fn forged_frames_and_garbage_end_the_interpreter_and_nothing_else() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        // On the socket between the relay and the interpreter.
        for garbage in [
            "b'\\xff' * 100",
            "(b'\\3\\0\\0\\0D{}' * 10)",
            "b'\\1\\0\\0\\0?' * 10",
        ] {
            let code = format!("import os, time\nos.write(3, {garbage})\ntime.sleep(600)");
            let outcome = stage.run(&workspace, &code).await;
            assert_eq!(
                outcome.end,
                CellEnd::LimitExceeded(ResourceLimit::Protocol),
                "{garbage}"
            );
        }
        let code = "import os, time\nos.close(3)\ntime.sleep(600)";
        let outcome = stage.run(&workspace, code).await;
        assert_eq!(outcome.end, CellEnd::LimitExceeded(ResourceLimit::Protocol));
        assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
        stage.end().await;
    }
}

/// A command whose Python is one that ends up as the relay, with this done before: what hostile code could do to it.
fn hostile(before: &str) -> Vec<String> {
    // What comes after it: the interpreter, four flags, the relay, its options, the worker.
    let code = format!(
        "import sys\nrelay, *rest = sys.argv[6:]\nsys.argv = ['', *rest]\n{before}\nexec(relay)"
    );
    let python = python().display().to_string();
    vec![python, "-c".to_owned(), code]
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_relay_that_lies_is_held_to_the_bounds() {
    // What code could make of a relay that it has taken over.
    let lies = [
        // Names that lead out, are odd, or come twice; sizes that are not true.
        r#"
def listing(*_):
    times = [time.monotonic_ns(), 2, 3, 4]
    names = ["../../../../tmp/escaped", "/etc/passwd", "a/../../b", "", ".", "x\u0000y", "ok.txt", "ok.txt", "a/b/c/d/e/f"]
    files = [[name, False, 3, number, times] for number, name in enumerate(names)]
    return {}, json.dumps({"files": files, "odd_names": 0, "special": 0, "complete": True}).encode()
def content(path, offset, most):
    return {"size": 3, "stored": 3}, b"x" * (most + 1000)
"#,
        "\ndef listing(*_):\n    return {}, b'no json'\n",
    ];
    for lie in lies {
        let before = format!(
            "lie = {lie:?}\nrelay = relay.replace('\\nmain()\\n', '\\n' + lie + '\\nmain()\\n')"
        );
        let stage = Stage::with(&hostile(&before), |settings| {
            settings.limits.captured_file = 5000;
            settings.limits.file_size = 1_000_000;
        })
        .await;
        let workspace = WorkspaceId::fresh();
        let outcome = stage.run(&workspace, "1").await;
        for file in &outcome.files {
            assert_eq!(file.name, "ok.txt");
            assert_eq!(file.bytes.len(), 5000);
        }
        stage.sandbox.close(PATIENCE).await;
        let saved = stage
            .folder
            .path()
            .join("work/saved")
            .join(workspace.as_str());
        let kept = fs::read_dir(saved.join("files"))
            .into_iter()
            .flatten()
            .flatten();
        assert_eq!(
            kept.count(),
            0,
            "a file larger than it was said to be was kept"
        );
        assert!(!Path::new("/tmp/escaped").exists());
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn garbage_on_the_private_descriptors_ends_only_this_interpreter() {
    let break_it = r"
head = '    def order(self, kind, payload):\n'
garbage = '        if kind == b\'S\':\n            os.write(1, bytes([255]) * 64)\n'
relay = relay.replace(head, head + garbage)";
    let stage = Stage::new(&hostile(break_it)).await;
    let workspace = WorkspaceId::fresh();
    let short = Duration::from_millis(500);
    let outcome = stage
        .run_within(&workspace, "import time\ntime.sleep(600)", short)
        .await;
    assert_eq!(
        outcome.end,
        CellEnd::LimitExceeded(ResourceLimit::Protocol),
        "{outcome:?}"
    );
    assert!(
        outcome
            .notices
            .contains(&"the files could not be read".to_owned())
    );
    assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
    stage.end().await;
}
