//! Values, images, output and the report.

use super::*;

#[tokio::test]
#[ignore = "needs Python"]
async fn values_are_kept_and_all_kinds_of_output_come_back() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        assert_eq!(stage.value(&workspace, "x = 40\nx + 2").await, "42");
        assert_eq!(stage.value(&workspace, "x").await, "40");
        let outcome = stage
            .run(
                &workspace,
                "import os, subprocess, sys\nprint('one')\nos.write(1, b'two\\n')\n\
                 subprocess.run(['/bin/sh', '-c', 'echo three; echo four >&2'])\nprint('five', file=sys.stderr)\n1/0",
            )
            .await;
        assert_eq!(outcome.stdout, "one\ntwo\nthree\n");
        assert_eq!(outcome.stderr, "four\nfive\n");
        assert_eq!(outcome.error.unwrap().name, "ZeroDivisionError");
        assert_eq!(outcome.end, CellEnd::Completed);
        // The whole of the environment is the command's; nothing of the server's is in it.
        let environment = stage.value(&workspace, "sorted(os.environ)").await;
        assert!(!environment.contains("CARGO"), "{environment}");
        // A text that looks like a frame, and one that is much longer than a pipe.
        let outcome = stage
            .run(
                &workspace,
                "os.write(1, b'\\x05\\0\\0\\0Dxxxx')\nprint('y' * 300_000)",
            )
            .await;
        assert_eq!(outcome.end, CellEnd::Completed);
        assert!(outcome.stdout.contains("yyy") && outcome.stdout.len() < 40_000);
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn the_report_says_what_is_known_and_refuses_nothing() {
    for command in commands() {
        let stage = Stage::with(&command, |settings| {
            settings.preload = vec!["json".to_owned(), "no_such_module".to_owned()];
        })
        .await;
        let report = stage.sandbox.report();
        assert_eq!(report.level, Tier::External);
        assert!(report.python.starts_with("3."), "{report:?}");
        let line = report.to_string();
        assert!(line.contains("not verified beyond the self-test"), "{line}");
        // Neither command hides the host's files, so that the probe reads what it was given.
        assert!(
            report.missing[0].contains("secret_file: readable"),
            "{report:?}"
        );
        // Packages are no matter of isolation.
        assert_eq!(report.missing.len(), 1, "{report:?}");
        assert!(report.problems[0].contains("no_such_module"), "{report:?}");
        let isolated = command.len() > 1;
        assert_eq!(
            report.missing[0].contains("tcp: reachable"),
            !isolated,
            "{report:?}"
        );
        assert_eq!(
            report.missing[0].contains("server_signal"),
            !isolated,
            "{report:?}"
        );
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn images_and_displayed_texts_come_back() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        let code = "
import struct, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
class Picture:
    def _repr_png_(self):
        head = struct.pack('>IIBBBBB', 2, 3, 8, 0, 0, 0, 0)
        rows = zlib.compress(b'\\0\\x10\\x20' * 3)
        return b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', rows) + chunk(b'IEND', b'')
display(Picture(), 'a text')
";
        let outcome = stage.run(&workspace, code).await;
        assert_eq!(outcome.error, None);
        assert_eq!(outcome.images.len(), 1);
        assert_eq!(outcome.images[0].mime_type, "image/png");
        assert_eq!(outcome.texts, ["'a text'"]);
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn output_without_end_ends_the_call_and_late_output_is_told() {
    for command in commands() {
        let stage = Stage::with(&command, |settings| settings.limits.output = 1_000_000).await;
        let workspace = WorkspaceId::fresh();
        let code = "import os\nwhile True: os.write(1, b'z' * 65536)";
        let outcome = stage.run(&workspace, code).await;
        assert_eq!(outcome.end, CellEnd::LimitExceeded(ResourceLimit::Output));
        let code = "
import threading, os
go, done = threading.Event(), threading.Event()
def later():
    go.wait()
    os.write(1, b'late')
    done.set()
threading.Thread(target=later, daemon=True).start()";
        assert_eq!(stage.run(&workspace, code).await.error, None);
        let mut heard = String::new();
        for code in ["threading.Timer(0, go.set).start()", "done.wait()"] {
            let outcome = stage.run(&workspace, code).await;
            assert_eq!(outcome.error, None);
            heard.push_str(&outcome.stdout);
        }
        // Between the calls or in one of them: it comes, and once.
        assert_eq!(heard, "late");
        stage.end().await;
    }
}
