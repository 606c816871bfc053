//! How cells, interpreters, commands and the server end.

use super::*;

#[tokio::test]
#[ignore = "needs Python"]
async fn code_is_interrupted_and_code_that_is_deaf_is_ended_with_its_files_kept() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        let short = Duration::from_secs(3);
        // Within the limit there is only the code, not what comes before it.
        assert_eq!(
            stage
                .value(&workspace, "import subprocess, time\nx = 5\nx")
                .await,
            "5"
        );
        let code = "print('begun')\ntime.sleep(600)";
        let outcome = stage.run_within(&workspace, code, short).await;
        assert_eq!(outcome.end, CellEnd::Interrupted);
        assert_eq!(outcome.stdout, "begun\n");
        assert_eq!(outcome.error.unwrap().name, "KeyboardInterrupt");
        assert_eq!(stage.value(&workspace, "x").await, "5");

        let code = "import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
subprocess.Popen(['sleep', '600'], start_new_session=True)
open('kept.txt', 'w').write('kept')
print('deaf', flush=True)
while True: pass";
        let outcome = stage.run_within(&workspace, code, short).await;
        assert_eq!(outcome.end, CellEnd::TimedOut);
        assert_eq!(outcome.stdout, "deaf\n");
        assert_eq!(outcome.files.len(), 1, "{outcome:?}");
        let outcome = stage
            .run(&workspace, "print(open('kept.txt').read())\nx")
            .await;
        assert_eq!(outcome.stdout, "kept\n");
        assert_eq!(outcome.error.unwrap().name, "NameError");
        assert!(
            outcome.notices[0].contains("was restarted"),
            "{:?}",
            outcome.notices
        );
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_dropped_call_is_interrupted() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        assert_eq!(stage.value(&workspace, "x = 7\nx").await, "7");
        let heard = Mutex::new(String::new());
        let listen = |_, text: &str| heard.lock().push_str(text);
        let cell = Cell {
            code: "import time\nprint('begun')\ntime.sleep(600)",
            outputs: &[],
            inputs: &[],
            timeout: PATIENCE,
        };
        let run = stage.sandbox.run(&workspace, cell, &listen);
        let begun = async {
            while !heard.lock().contains("begun") {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            outcome = run => panic!("{outcome:?}"),
            () = begun => {}
        }
        assert_eq!(stage.value(&workspace, "x").await, "7");
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_crash_is_told_and_files_outlive_it() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        for (code, told) in [
            ("os._exit(3)", "the interpreter exited with status 3"),
            ("os.kill(os.getpid(), 11)", "segmentation fault"),
            ("os.kill(os.getpid(), 9)", "the interpreter was killed"),
        ] {
            let code = format!(
                "import os\nopen('f', 'w').write('x')\nprint('before', flush=True)\n{code}"
            );
            let outcome = stage.run(&workspace, &code).await;
            assert_eq!(outcome.end, CellEnd::Crashed, "{outcome:?}");
            assert_eq!(outcome.stdout, "before\n");
            assert_eq!(outcome.files.len(), 1);
            assert!(
                outcome.notices.iter().any(|notice| notice.contains(told)),
                "{outcome:?}"
            );
            assert_eq!(stage.value(&workspace, "open('f').read()").await, "'x'");
        }
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_command_that_does_not_work_is_refused_with_what_it_said() {
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    for (command, part) in [
        (words(&["/nonexistent/runsc"]), "starting sandbox.command"),
        (
            words(&["/bin/sh", "-c", "echo no such image >&2; exit 125"]),
            "no such image",
        ),
        (
            words(&["/bin/sh", "-c", "echo hello world, this is noise"]),
            "not from the relay",
        ),
        (
            words(&["/usr/bin/env", "-i", "PATH=/nowhere", "LC_ALL=C"]),
            "no-such-python",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path(), &command);
        if part == "no-such-python" {
            settings.python = "no-such-python".into();
        }
        let error = Sandbox::start(settings, &TaskTracker::new())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(part), "{command:?}: {error}");
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn a_command_that_will_not_end_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().display().to_string();
    // Ends neither with its stdin nor on SIGTERM.
    let script = "trap '' TERM; \"$@\"; while :; do sleep 1; done";
    let words = [
        "/usr/bin/env",
        &format!("MARK={mark}"),
        "/bin/sh",
        "-c",
        script,
        "sh",
    ];
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let stage = Stage::new(&words).await;
    let workspace = WorkspaceId::fresh();
    assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
    assert!(!processes_that_know(&mark).is_empty());
    let started = Instant::now();
    stage.end().await;
    assert!(started.elapsed() < PATIENCE);
    assert_eq!(processes_that_know(&mark), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs Python"]
async fn nothing_is_left_when_the_server_is_killed() {
    // The relay stands alone here: what it hears is that its stdin is closed, as when the server is gone.
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().display().to_string();
    let relay = include_str!("../../../src/sandbox/relay.py");
    let mut command = Command::new(python());
    command
        .args([
            "-I",
            "-B",
            "-u",
            "-c",
            relay,
            r#"{"preload":[],"environment":{}}"#,
        ])
        .arg("import subprocess; subprocess.run(['sleep', '600'], start_new_session=True)")
        .env_clear()
        .env("MARK", &mark)
        .env("PATH", SEARCH_PATH)
        .env("TMPDIR", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0);
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    let sleeps = || {
        processes_that_know(&mark)
            .iter()
            .any(|line| line.starts_with("sleep"))
    };
    while !sleeps() {
        assert!(started.elapsed() < PATIENCE, "it never began");
        tokio::task::yield_now().await;
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(processes_that_know(&mark), Vec::<String>::new());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
