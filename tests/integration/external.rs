//! Code execution behind a command of the operator's: plain `env`, which isolates nothing, and `unshare`, which makes
//! namespaces, where the host lets it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use loopwright::ids::WorkspaceId;
use loopwright::sandbox::settings::{InterpreterLimits, Network, Settings, Tier};
use loopwright::sandbox::{
    Cell, CellEnd, CellOutcome, FileRange, Live, OutputStream, ResourceLimit, Sandbox, WorkFile,
};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio_util::task::TaskTracker;

const PATIENCE: Duration = Duration::from_secs(60);
const UNSHARE: &[&str] = &["unshare", "-r", "-n", "-p", "-f", "--mount-proc"];
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A sandbox, and a folder where commands may leave traces.
struct Stage {
    sandbox: Sandbox,
    folder: TempDir,
    tasks: TaskTracker,
}

/// Remembers what came live.
#[derive(Default)]
struct Heard(Mutex<String>);

impl Live for Heard {
    fn output(&self, _stream: OutputStream, text: &str) {
        self.0.lock().push_str(text);
    }
}

/// The interpreter: one with packages where it is named, as for the other tests of code execution.
fn python() -> PathBuf {
    let named = std::env::var_os("LOOPWRIGHT_TEST_CODE_PYTHON").map(PathBuf::from);
    let system = Path::new("/usr/bin/python3");
    named.unwrap_or_else(|| match system.exists() {
        true => system.to_owned(),
        false => "python3".into(),
    })
}

/// The commands that this host can run: where nobody may make namespaces, it is `env` alone.
fn commands() -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let mut commands = vec![words(&["/usr/bin/env"])];
    let tried = Command::new(UNSHARE[0])
        .args(&UNSHARE[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    if tried.is_ok_and(|status| status.success()) {
        commands.push(words(UNSHARE));
    }
    commands
}

fn settings(folder: &Path, command: &[String]) -> Settings {
    Settings {
        python: python(),
        // By the folder in it, all processes of a test are known.
        search_path: format!("{SEARCH_PATH}:{}", folder.display()),
        timeout: PATIENCE,
        require: Tier::Strong,
        network: Network::None,
        command: command.to_vec(),
        limits: InterpreterLimits::default(),
        preload: Vec::new(),
        spares: 0,
        max_workers: 2,
        max_waiting: 4,
        idle_ttl: Duration::from_secs(600),
        max_age: Duration::from_secs(3600),
        work_dir: folder.join("work"),
        temporary: false,
        saved_ttl: None,
        saved_size: 1 << 30,
        uids: (60_100, 60_999),
        launcher: "/nonexistent/launcher".into(),
    }
}

impl Stage {
    async fn new(command: &[String]) -> Self {
        Self::with(command, |_| {}).await
    }

    async fn with(command: &[String], change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path(), command);
        change(&mut settings);
        let tasks = TaskTracker::new();
        let sandbox = match Sandbox::start(settings, &tasks).await {
            Ok(sandbox) => sandbox,
            Err(error) => panic!("{error}: {:?}", std::error::Error::source(&error)),
        };
        Self {
            sandbox,
            folder,
            tasks,
        }
    }

    async fn run(&self, workspace: &WorkspaceId, code: &str) -> CellOutcome {
        self.run_within(workspace, code, PATIENCE).await
    }

    async fn run_within(
        &self,
        workspace: &WorkspaceId,
        code: &str,
        timeout: Duration,
    ) -> CellOutcome {
        let cell = Cell {
            code,
            outputs: &[],
            inputs: &[],
            timeout,
        };
        self.sandbox
            .run(workspace, cell, &Heard::default())
            .await
            .unwrap()
    }

    /// The text of the value of a cell that must not fail.
    async fn value(&self, workspace: &WorkspaceId, code: &str) -> String {
        let outcome = self.run(workspace, code).await;
        assert_eq!(outcome.error, None, "{outcome:?}");
        outcome.value.expect("a value").text
    }

    /// Ends it; no process of it may be left.
    async fn end(self) {
        self.sandbox.close().await;
        self.tasks.close();
        self.tasks.wait().await;
        let mine = self.folder.path().display().to_string();
        assert_eq!(processes_that_know(&mine), Vec::<String>::new());
    }
}

/// The command lines of live processes whose environment has this text.
fn processes_that_know(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let known = String::from_utf8_lossy(&environment).contains(text);
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            known.then(|| String::from_utf8_lossy(&line).into_owned())
        })
        .collect()
}

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
async fn files_go_in_and_come_out() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        let large: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let place = |name: &str, bytes: &[u8]| {
            let path = stage.folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            let (id, size) = (name.to_owned(), bytes.len() as u64);
            let name = "in/../data.csv".to_owned();
            WorkFile {
                id,
                name,
                size,
                path,
            }
        };
        let inputs = [place("a", b"1,2\n"), place("b", &large), place("c", b"")];
        let declared = [
            "data.csv".to_owned(),
            "../x".to_owned(),
            "none.txt".to_owned(),
        ];
        let cell = |code| Cell {
            code,
            outputs: &declared,
            inputs: &inputs,
            timeout: PATIENCE,
        };
        let code = "
import os
sizes = [os.path.getsize(name) for name in ('data.csv', 'data-2.csv', 'data-3.csv')]
os.makedirs('sub/.hidden'); os.makedirs('__pycache__')
for name in ('new.txt', 'sub/new.txt', '.dot', 'sub/.hidden/x', '__pycache__/x'):
    with open(name, 'w') as file:
        file.write('new ' + name)
os.symlink('/etc/passwd', 'link.txt')
os.mkfifo('pipe')
with open('huge', 'wb') as file:
    file.truncate(1 << 40)
open(b'odd-\\xff', 'w').close()
sizes";
        let heard = Heard::default();
        let outcome = stage
            .sandbox
            .run(&workspace, cell(code), &heard)
            .await
            .unwrap();
        assert_eq!(outcome.value.unwrap().text, "[4, 3000000, 0]");
        let names: Vec<_> = outcome
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert_eq!(names, ["data.csv", "new.txt", "sub/new.txt"]);
        assert_eq!(&outcome.files[0].bytes[..], b"1,2\n");
        let notices = outcome.notices.join("\n");
        for part in [
            "is called 'data-2.csv' here",
            "'../x' is not handed back: it is not in the working directory",
            "most of it holes",
            "not UTF-8",
            "symbolic links, pipes",
        ] {
            assert!(notices.contains(part), "{part}: {notices}");
        }

        // Only what changed comes again; what was there stays.
        let code = "open('new.txt', 'a').write('!')";
        let outcome = stage.run(&workspace, code).await;
        let names: Vec<_> = outcome
            .files
            .iter()
            .map(|file| file.name.as_str())
            .collect();
        assert_eq!(names, ["new.txt"]);

        let listed = stage.sandbox.list_files(&workspace, &inputs).await.unwrap();
        let listed: Vec<_> = listed
            .iter()
            .map(|file| (file.name.as_str(), file.size))
            .collect();
        assert_eq!(
            listed,
            [
                ("data-2.csv", 3_000_000),
                ("data-3.csv", 0),
                ("data.csv", 4),
                ("huge", 1 << 40),
                ("new.txt", 12),
                ("sub/new.txt", 15),
            ]
        );
        let read = async |name, offset, max_bytes| {
            let part = FileRange {
                name,
                offset,
                max_bytes,
            };
            stage.sandbox.read_file(&workspace, &inputs, part).await
        };
        let content = read("data-2.csv", 1000, 2_000_000).await.unwrap();
        assert_eq!(content.bytes, large[1000..2_001_000]);
        assert_eq!(content.size, 3_000_000);
        let absolute = format!("{}/new.txt", outcome.working_directory);
        assert_eq!(
            &read(&absolute, 4, 100).await.unwrap().bytes[..],
            b"new.txt!"
        );
        for (name, problem) in [
            ("none", "there is no such file"),
            ("../../etc/passwd", "it is not in the working directory"),
            ("/etc/passwd", "it is not in the working directory"),
            ("link.txt", "it is a symbolic link"),
            ("pipe", "it is no regular file"),
            ("sub", "it is a directory"),
        ] {
            let error = read(name, 0, 100).await.unwrap_err().to_string();
            assert!(error.contains(problem), "{name}: {error}");
        }
        stage.end().await;
    }
}

#[tokio::test]
#[ignore = "needs Python"]
async fn code_is_interrupted_and_code_that_is_deaf_is_ended_with_its_files_kept() {
    for command in commands() {
        let stage = Stage::new(&command).await;
        let workspace = WorkspaceId::fresh();
        let short = Duration::from_secs(1);
        let code = "x = 5\nimport time\nprint('begun')\ntime.sleep(600)";
        let outcome = stage.run_within(&workspace, code, short).await;
        assert_eq!(outcome.end, CellEnd::Interrupted);
        assert_eq!(outcome.stdout, "begun\n");
        assert_eq!(outcome.error.unwrap().name, "KeyboardInterrupt");
        assert_eq!(stage.value(&workspace, "x").await, "5");

        let code = "import os, signal, subprocess
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
            outcome.notices[0].contains("started anew"),
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
        let heard = Heard::default();
        let cell = Cell {
            code: "import time\nprint('begun')\ntime.sleep(600)",
            outputs: &[],
            inputs: &[],
            timeout: PATIENCE,
        };
        let run = stage.sandbox.run(&workspace, cell, &heard);
        let begun = async {
            while !heard.0.lock().contains("begun") {
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
        stage.sandbox.close().await;
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
            .contains(&"the files could not be taken".to_owned())
    );
    assert_eq!(stage.value(&workspace, "1 + 1").await, "2");
    stage.end().await;
}

#[tokio::test]
#[ignore = "needs Python"]
async fn files_are_saved_at_eviction_and_restored() {
    for command in commands() {
        let stage = Stage::with(&command, |settings| settings.max_workers = 1).await;
        let (first, second) = (WorkspaceId::fresh(), WorkspaceId::fresh());
        let path = stage.folder.path().join("input");
        fs::write(&path, "input").unwrap();
        let inputs = [WorkFile {
            id: "file-1".to_owned(),
            name: "input.txt".to_owned(),
            size: 5,
            path,
        }];
        let cell = |code| Cell {
            code,
            outputs: &[],
            inputs: &inputs,
            timeout: PATIENCE,
        };
        let code = "
import os
os.makedirs('a/b'); os.makedirs('empty'); os.remove('input.txt')
open('a/b/c.bin', 'wb').write(bytes(range(256)) * 9000)
open('.dot', 'w').write('dot')
os.symlink('/etc/passwd', 'link')";
        let heard = Heard::default();
        let outcome = stage.sandbox.run(&first, cell(code), &heard).await.unwrap();
        assert_eq!(outcome.error, None);
        // There is room for one only.
        assert_eq!(stage.value(&second, "import os\nos.listdir()").await, "[]");
        let code = "sorted(os.path.join(at, name) for at, folders, files in __import__('os').walk('.') for name in folders + files for os in [__import__('os')])";
        let outcome = stage.sandbox.run(&first, cell(code), &heard).await.unwrap();
        // The input file was deleted and stays deleted; links are not kept.
        assert_eq!(
            outcome.value.unwrap().text,
            "['./.dot', './a', './a/b', './a/b/c.bin', './empty']"
        );
        assert_eq!(outcome.files, []);
        let whole = "open('a/b/c.bin', 'rb').read() == bytes(range(256)) * 9000";
        assert_eq!(stage.value(&first, whole).await, "True");
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
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(processes_that_know(&mark), Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs Python"]
async fn nothing_is_left_when_the_server_is_killed() {
    // The relay stands alone here: what it hears is that its stdin is closed, as when the server is gone.
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().display().to_string();
    let relay = include_str!("../../src/sandbox/relay.py");
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
