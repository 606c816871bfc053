use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{self, Receiver};

use super::*;
use crate::ids::Owner;
use crate::sandbox::settings::{InterpreterLimits, Network, Tier};
use crate::sandbox::{
    CapturedFile, CellEnd, CellError, Image, OutputStream, ResourceLimit, SandboxError,
};
use crate::tools::source::{Source, Sources};
use crate::tools::{
    CallContext, CodeDetail, OutputStatus, ProgressSender, ToolDetail, ToolProgress,
};

/// An interpreter that does what a test tells it to, and notes what it was asked.
#[derive(Debug)]
struct Scripted {
    report: IsolationReport,
    settings: Settings,
    outcome: Mutex<Option<Result<CellOutcome, InterpreterError>>>,
    says: Vec<(OutputStream, String)>,
    files: Vec<(&'static str, Bytes)>,
    asked: Mutex<Vec<String>>,
    notices: Vec<String>,
}

impl Scripted {
    fn new() -> Self {
        Self {
            report: IsolationReport {
                level: Tier::Strong,
                properties: vec![],
                missing: vec![],
                problems: vec![],
                python: "3.11.7".into(),
                packages: vec!["numpy 2.4.0".into(), "pandas 3.0.1".into()],
            },
            settings: settings(),
            outcome: Mutex::new(None),
            says: Vec::new(),
            files: Vec::new(),
            asked: Mutex::default(),
            notices: Vec::new(),
        }
    }

    fn ending(outcome: Result<CellOutcome, InterpreterError>) -> Self {
        Self {
            outcome: Mutex::new(Some(outcome)),
            ..Self::new()
        }
    }

    fn told<T>(&self, value: T) -> WithNotices<T> {
        WithNotices {
            value,
            notices: self.notices.clone(),
        }
    }

    fn note(&self, what: String) {
        self.asked.lock().push(what);
    }
}

impl Interpreters for Scripted {
    fn run<'a>(
        &'a self,
        workspace: &'a WorkspaceId,
        cell: Cell<'a>,
        live: &'a dyn Live,
    ) -> BoxFuture<'a, Result<CellOutcome, InterpreterError>> {
        let inputs: Vec<&str> = cell.inputs.iter().map(|file| &*file.name).collect();
        self.note(format!(
            "run {} {:?} {:?} {inputs:?} {:?}",
            workspace.as_str().len(),
            cell.code,
            cell.outputs,
            cell.timeout
        ));
        for (stream, text) in &self.says {
            live.output(*stream, text);
        }
        let outcome = self.outcome.lock().take();
        async { outcome.unwrap_or_else(|| Ok(nothing())) }.boxed()
    }

    fn reset<'a>(&'a self, _: &'a WorkspaceId) -> BoxFuture<'a, Result<(), InterpreterError>> {
        self.note("reset".to_owned());
        async { Ok(()) }.boxed()
    }

    fn list_files<'a>(
        &'a self,
        _: &'a WorkspaceId,
        _: &'a [WorkFile],
    ) -> BoxFuture<'a, Result<WithNotices<Vec<WorkingFile>>, InterpreterError>> {
        let file = |(name, bytes): &(&str, Bytes)| WorkingFile {
            name: (*name).to_owned(),
            size: bytes.len() as u64,
            modified: 0,
        };
        let value = self.files.iter().map(file).collect();
        async move { Ok(self.told(value)) }.boxed()
    }

    fn read_file<'a>(
        &'a self,
        _: &'a WorkspaceId,
        _: &'a [WorkFile],
        part: FileRange<'a>,
    ) -> BoxFuture<'a, Result<WithNotices<FileContent>, InterpreterError>> {
        let found = self.files.iter().find(|(name, _)| *name == part.name);
        let most = usize::try_from(part.max_bytes).unwrap();
        let content = found.map(|(_, bytes)| FileContent {
            bytes: bytes.slice(..bytes.len().min(most)),
            size: bytes.len() as u64,
        });
        let error = InterpreterError::File {
            name: part.name.to_owned(),
            problem: "there is no such file",
        };
        let told = content.map(|content| self.told(content));
        async { told.ok_or(error) }.boxed()
    }

    fn forget(&self, workspace: &WorkspaceId) {
        self.note(format!("forget {}", workspace.as_str()));
    }

    fn report(&self) -> &IsolationReport {
        &self.report
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }
}

fn settings() -> Settings {
    Settings {
        python: "python3".into(),
        search_path: String::new(),
        timeout: Duration::from_secs(60),
        require: Tier::Basic,
        network: Network::None,
        command: vec![],
        limits: InterpreterLimits::default(),
        preload: vec![],
        spares: 1,
        max_workers: 4,
        max_waiting: 8,
        idle_ttl: Duration::from_secs(600),
        max_age: Duration::from_secs(3600),
        work_dir: "/nowhere".into(),
        saved_ttl: None,
        saved_size: 1 << 30,
        temporary: false,
        uids: (1, 2),
        launcher: "/nowhere".into(),
    }
}

fn nothing() -> CellOutcome {
    CellOutcome {
        stdout: String::new(),
        stderr: String::new(),
        value: None,
        texts: vec![],
        error: None,
        images: vec![],
        frames: vec![],
        files: vec![],
        notices: vec![],
        end: CellEnd::Completed,
        elapsed: Duration::from_millis(12),
        working_directory: "/mnt/data".into(),
    }
}

fn error(name: &str, message: &str, traceback: &str) -> CellError {
    CellError {
        name: name.into(),
        message: message.into(),
        traceback: traceback.into(),
    }
}

fn invocation(arguments: &Value) -> (ToolInvocation, Receiver<ToolProgress>) {
    let (sender, progress) = mpsc::channel(2);
    let invocation = ToolInvocation {
        name: "t".into(),
        arguments: arguments.as_object().cloned().unwrap_or_else(Map::new),
        call_id: "call_1".into(),
        context: Arc::new(CallContext {
            files: [WorkFile {
                id: "file-1".into(),
                name: "data.csv".into(),
                size: 3,
                path: "/blob".into(),
            }]
            .into(),
            ..CallContext::example()
        }),
        progress: ProgressSender(sender),
    };
    (invocation, progress)
}

fn tool(code: &CodeExecution, name: &str) -> SharedTool {
    let found = code
        .tools()
        .iter()
        .find(|tool| tool.definition().name == name);
    found.unwrap().clone()
}

async fn call(scripted: Scripted, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
    let code = CodeExecution::over(Arc::new(scripted));
    let (invocation, _progress) = invocation(&arguments);
    tool(&code, name).call(&invocation).await
}

fn code(output: &ToolOutput) -> &CodeDetail {
    match output.detail.as_deref() {
        Some(ToolDetail::Code(detail)) => detail,
        other => panic!("{other:?} is no detail of code"),
    }
}

async fn ran(outcome: CellOutcome) -> ToolOutput {
    let scripted = Scripted::ending(Ok(outcome));
    call(scripted, EXECUTE_PYTHON, json!({"code": "x"}))
        .await
        .unwrap()
}

async fn read(content: &'static [u8], arguments: Value) -> Result<String, ToolError> {
    let scripted = Scripted {
        files: vec![("a.csv", Bytes::from_static(content))],
        ..Scripted::new()
    };
    let output = call(scripted, READ_FILE, arguments).await?;
    Ok(output.content)
}

#[test]
fn the_description_says_what_persists_what_is_there_and_what_the_limits_are() {
    let code = CodeExecution::over(Arc::new(Scripted::new()));
    let names: Vec<&str> = code
        .tools()
        .iter()
        .map(|tool| &*tool.definition().name)
        .collect();
    assert_eq!(names, NAMES);
    let text = tool(&code, EXECUTE_PYTHON).definition().description();
    for expected in [
        "Python 3.11.7",
        "numpy 2.4.0, pandas 3.0.1",
        "/mnt/data",
        "60 s per call",
        "1 GiB of memory",
        "256 MiB in the working directory",
        "no network access",
        "displayed PNG and JPEG images",
        "input() does not work",
        "'outputs'",
    ] {
        assert!(text.contains(expected), "{expected} is not in: {text}");
    }
    assert!(!text.contains("The user wants"), "{text}");
    for tool in code.tools() {
        let schema = tool.definition().parameters.clone().unwrap();
        let schema: Value = serde_json::from_str(&schema).unwrap();
        assert_eq!(schema["additionalProperties"], false, "{schema}");
        assert!(tool.policy().sequential);
    }
    let policy = tool(&code, EXECUTE_PYTHON).policy().clone();
    assert_eq!(policy.kind, ToolKind::CodeExecution);
    assert_eq!(policy.source, ToolSource::BuiltIn);
    assert!(policy.timeout > Duration::from_secs(60) + QUEUE_ROOM);
}

#[test]
fn the_schemas_can_be_compiled_and_take_both_forms_of_outputs() {
    let code = CodeExecution::over(Arc::new(Scripted::new()));
    let schemas = crate::tools::schema::SchemaCache::default();
    for tool in code.tools() {
        let schema = tool.definition().parameters.clone().unwrap();
        assert!(schemas.get(&schema).is_some(), "{schema}");
    }
    let schema = tool(&code, EXECUTE_PYTHON).definition().parameters.clone();
    let schema = schemas.get(&schema.unwrap()).unwrap();
    let text = r#"{"code":"1","outputs":["a.csv",{"name":"b","format":"csv"}]}"#;
    let repaired = crate::tools::repair::repair_arguments(text, Some(&schema));
    assert!(repaired.arguments.is_ok(), "{repaired:?}");
    assert_eq!(repaired.text, text);
}

#[tokio::test]
async fn wanted_files_are_described_to_the_model_and_asked_for_in_every_call() {
    let scripted = Arc::new(Scripted::new());
    let code = CodeExecution::over(scripted.clone());
    let wanted = [
        WantedFile {
            name: "report.xlsx".into(),
            format: Some("xlsx".into()),
            description: Some("one sheet per year".into()),
        },
        WantedFile {
            name: "b.csv".into(),
            format: None,
            description: None,
        },
    ];
    let tools = code.tools_for(&wanted);
    let text = tools[0].definition().description();
    assert!(
        text.ends_with("name:\n  - report.xlsx (xlsx): one sheet per year\n  - b.csv"),
        "{text}"
    );
    let (invocation, _progress) =
        invocation(&json!({"code": "1", "outputs": ["b.csv", "/mnt/data/c"]}));
    tools[0].call(&invocation).await.unwrap();
    let expected = r#"run 64 "1" ["b.csv", "c", "report.xlsx"] ["data.csv"] 60s"#;
    assert_eq!(*scripted.asked.lock(), [expected]);
    assert_eq!(tools.len(), 4);
}

#[tokio::test]
async fn a_result_is_labelled_section_by_section() {
    let outcome = CellOutcome {
        stdout: "hello\n".into(),
        stderr: "careful\n".into(),
        value: Some(crate::sandbox::Value {
            text: "3".into(),
            kind: "int".into(),
        }),
        texts: vec!["a  b\n1  2".into()],
        images: vec![image("image/png", b"one"), image("image/jpeg", b"two")],
        frames: vec![image("image/png", b"f")],
        files: vec![CapturedFile {
            name: "sub/a.csv".into(),
            bytes: Bytes::from_static(b"a,b\n"),
        }],
        notices: vec!["the interpreter is new".into()],
        ..nothing()
    };
    let output = ran(outcome).await;
    assert_eq!(
        output.content,
        "stdout:\nhello\n\nstderr:\ncareful\n\ndisplayed:\na  b\n1  2\n\nresult:\n3\n\n\
         images:\n2 images captured, 1 animation frame captured\n\n\
         files:\nhanded to the user:\n- sub/a.csv (text/csv, 4 bytes)\n\nnotices:\n- the interpreter is new"
    );
    assert_eq!(output.status, OutputStatus::Ok);
    assert_eq!(output.images, ["b25l", "data:image/jpeg;base64,dHdv"]);
    assert_eq!(output.frames, ["Zg=="]);
    let file = &output.files[0];
    assert_eq!((&*file.name, &*file.path), ("a.csv", "sub/a.csv"));
    assert_eq!(
        (&*file.mime_type, &*file.content),
        ("text/csv", &b"a,b\n"[..])
    );
    let detail = serde_json::to_value(code(&output)).unwrap();
    let expected = json!({
        "code": "x", "stdout": "hello\n", "stderr": "careful\n", "result": "a  b\n1  2\n3",
        "working_directory": "/mnt/data", "execution_time_ms": 12,
    });
    assert_eq!(detail, expected);
}

fn image(mime_type: &'static str, bytes: &'static [u8]) -> Image {
    Image {
        mime_type,
        bytes: Bytes::from_static(bytes),
    }
}

#[tokio::test]
async fn a_call_without_output_says_so() {
    let output = ran(CellOutcome {
        stdout: "\n".into(),
        ..nothing()
    })
    .await;
    assert_eq!(output.content, "(no output)");
    assert_eq!(output.status, OutputStatus::Ok);
    assert!(output.notices.is_empty());
}

#[tokio::test]
async fn an_exception_is_an_error_with_its_traceback_and_a_clean_exit_is_none() {
    let traceback = "Traceback (most recent call last):\n  Cell 1, line 1\nValueError: no\n";
    for (error, status, shown) in [
        (
            error("ValueError", "no", traceback),
            OutputStatus::Error,
            traceback.trim_end(),
        ),
        (
            error("ValueError", "no", ""),
            OutputStatus::Error,
            "ValueError: no",
        ),
        (
            error("SystemExit", "sys.exit(0) was called", "SystemExit: 0\n"),
            OutputStatus::Ok,
            "sys.exit(0) was called",
        ),
        (
            error("SystemExit", "sys.exit(3) was called", "SystemExit: 3\n"),
            OutputStatus::Error,
            "SystemExit: 3\nsys.exit(3) was called",
        ),
    ] {
        let output = ran(CellOutcome {
            stdout: "before\n".into(),
            error: Some(error),
            ..nothing()
        })
        .await;
        let expected = format!("stdout:\nbefore\n\nexception:\n{shown}");
        assert_eq!((&output.content, output.status), (&expected, status));
        assert_eq!(code(&output).exception.as_deref(), Some(shown));
    }
}

#[tokio::test]
async fn every_end_has_its_own_words_and_says_what_is_left() {
    let mut texts = Vec::new();
    for (end, status, words, lost) in [
        (
            CellEnd::Interrupted,
            OutputStatus::Timeout,
            "interrupted after 60 s",
            false,
        ),
        (
            CellEnd::TimedOut,
            OutputStatus::Timeout,
            "could not be interrupted",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Memory),
            OutputStatus::Error,
            "Out of memory: the code used more than 1 GiB",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Disk),
            OutputStatus::Error,
            "Disk full: the code wrote more than 256 MiB",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Processes),
            OutputStatus::Error,
            "more than 64 processes and threads",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Output),
            OutputStatus::Error,
            "Too much output: the code printed more than 64 MiB",
            true,
        ),
        (
            CellEnd::LimitExceeded(ResourceLimit::Protocol),
            OutputStatus::Error,
            "messages that it must not send",
            true,
        ),
        (
            CellEnd::Crashed,
            OutputStatus::Error,
            "ended unexpectedly",
            true,
        ),
    ] {
        let output = ran(CellOutcome {
            stdout: "so far\n".into(),
            end,
            ..nothing()
        })
        .await;
        let text = &output.content;
        assert!(text.starts_with("stdout:\nso far\n\nended:\n"), "{text}");
        assert!(text.contains(words), "{text}");
        assert_eq!(
            text.contains("variables and imports are lost, files are kept"),
            lost,
            "{text}"
        );
        assert_eq!(
            text.contains("Variables and files are kept"),
            !lost,
            "{text}"
        );
        assert_eq!(output.status, status, "{text}");
        assert_eq!(output.notices.len(), usize::from(lost), "{text}");
        texts.push(output.content.clone());
    }
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), 8);
}

#[tokio::test]
async fn outputs_that_lead_out_of_the_working_directory_are_told_and_the_code_runs() {
    let arguments = json!({"code": "1", "outputs": ["../x"]});
    let output = call(Scripted::new(), EXECUTE_PYTHON, arguments)
        .await
        .unwrap();
    assert!(
        output
            .content
            .starts_with("notices:\n- '../x' is not handed over"),
        "{}",
        output.content
    );
}

#[tokio::test]
async fn an_output_that_is_not_there_is_told_once_and_a_wanted_one_not_at_all() {
    let outcome = CellOutcome {
        files: vec![CapturedFile {
            name: "a".into(),
            bytes: Bytes::new(),
        }],
        notices: vec!["'b' is a symbolic link".into()],
        ..nothing()
    };
    let code = CodeExecution::over(Arc::new(Scripted::ending(Ok(outcome))));
    let wanted = WantedFile {
        name: "d".into(),
        format: None,
        description: None,
    };
    let (invocation, _progress) = invocation(&json!({"code": "1", "outputs": ["a", "b", "c"]}));
    let output = code.tools_for(&[wanted])[0]
        .call(&invocation)
        .await
        .unwrap();
    assert!(
        output.content.ends_with(
            "notices:\n- 'b' is a symbolic link\n\
             - 'c' is not handed over: there is no such file in the working directory"
        ),
        "{}",
        output.content
    );
}

#[tokio::test]
async fn a_call_that_cannot_be_made_is_told_in_the_sandboxes_words() {
    let start = InterpreterError::Start(SandboxError::Unavailable("/secret/path".into()));
    for (error, expected) in [
        (
            InterpreterError::Overloaded,
            "too many code calls are waiting",
        ),
        (start, "could not be started"),
        (InterpreterError::Closed, "shutting down"),
    ] {
        let scripted = Scripted::ending(Err(error));
        let error = call(scripted, EXECUTE_PYTHON, json!({"code": "1"}))
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(expected) && !text.contains("secret"),
            "{text}"
        );
        assert!(matches!(error, ToolError::Failed { .. }));
    }
}

#[tokio::test]
async fn live_output_never_waits_and_a_slow_client_gets_it_joined() {
    let says = |stream, text: &str| (stream, text.to_owned());
    let scripted = Scripted {
        says: vec![
            says(OutputStream::Stdout, "1"),
            says(OutputStream::Stdout, "2"),
            says(OutputStream::Stdout, "3"),
            says(OutputStream::Stdout, "4"),
            says(OutputStream::Stderr, "5"),
        ],
        ..Scripted::new()
    };
    let code = CodeExecution::over(Arc::new(scripted));
    let (invocation, mut progress) = invocation(&json!({"code": "1"}));
    // Two pieces find room with nobody reading; the call ends nevertheless.
    tool(&code, EXECUTE_PYTHON).call(&invocation).await.unwrap();
    let mut seen = Vec::new();
    while let Ok(ToolProgress { text, stream }) = progress.try_recv() {
        seen.push(format!("{stream} {text}"));
    }
    assert_eq!(seen, ["stdout 1", "stdout 2"]);
}

#[test]
fn what_a_client_did_not_take_at_once_follows_joined_by_stream() {
    let (sender, mut progress) = mpsc::channel(1);
    let sender = ProgressSender(sender);
    let live = live::LiveOutput::new(&sender);
    for (stream, text) in [
        (OutputStream::Stdout, "a"),
        (OutputStream::Stdout, "b"),
        (OutputStream::Stdout, "c"),
        (OutputStream::Stderr, "d"),
    ] {
        live.output(stream, text);
    }
    let mut next = || {
        let ToolProgress { text, stream } = progress.try_recv().unwrap();
        live.flush();
        format!("{stream} {text}")
    };
    assert_eq!(
        [next(), next(), next()],
        ["stdout a", "stdout bc", "stderr d"]
    );
    assert!(progress.try_recv().is_err());
}

#[test]
fn live_output_is_bounded_and_says_so_once() {
    let (sender, mut progress) = mpsc::channel(16);
    let sender = ProgressSender(sender);
    let live = live::LiveOutput::new(&sender);
    for _ in 0..5 {
        live.output(OutputStream::Stdout, &"x".repeat(100 * 1024));
    }
    let mut text = String::new();
    while let Ok(piece) = progress.try_recv() {
        text.push_str(&piece.text);
    }
    assert_eq!(text.matches('x').count(), 256 * 1024);
    assert!(text.ends_with("x\n[more output is not shown live]\n"));
}

#[tokio::test]
async fn a_text_file_is_shown_in_pages_of_lines() {
    let content = b"a\nb\nc\nd\n";
    let page = async |arguments| read(content, arguments).await.unwrap();
    assert_eq!(
        page(json!({"name": "a.csv"})).await,
        "a.csv (text/csv, 8 bytes), lines 1-4 of 4:\n\na\nb\nc\nd"
    );
    assert_eq!(
        page(json!({"name": "/mnt/data/a.csv", "offset": 2, "limit": 2})).await,
        "a.csv (text/csv, 8 bytes), lines 2-3 of 4; go on with offset 4:\n\nb\nc"
    );
    let error = read(content, json!({"name": "a.csv", "offset": 5})).await;
    assert!(error.unwrap_err().to_string().contains("only 4 lines"));
    assert_eq!(
        read(b"", json!({"name": "a.csv"})).await.unwrap(),
        "a.csv (text/plain, 0 bytes) is empty.".replace("text/plain", "text/csv")
    );
}

#[tokio::test]
async fn long_lines_and_long_pages_are_cut_and_say_so() {
    let lines: &'static [u8] = Vec::leak(format!("{}\nshort\n", "x".repeat(5000)).into_bytes());
    let text = read(lines, json!({"name": "a.csv"})).await.unwrap();
    assert!(
        text.contains("1 long line(s) cut to 4000 characters"),
        "{text}"
    );
    assert!(text.ends_with("x [line cut here]\nshort"), "{text}");
    let many: &'static [u8] = Vec::leak("y".repeat(999).into_bytes());
    let many: &'static [u8] = Vec::leak([many, b"\n"].concat().repeat(60));
    let text = read(many, json!({"name": "a.csv"})).await.unwrap();
    assert!(
        text.contains("lines 1-40 of 60; go on with offset 41"),
        "{text}"
    );
    assert!(text.chars().count() < 41_000);
}

#[tokio::test]
async fn a_file_that_is_no_text_is_described_and_one_that_is_missing_is_told() {
    let text = read(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", json!({"name": "a.csv"})).await;
    assert_eq!(
        text.unwrap(),
        "a.csv (image/png, 16 bytes) is not a text file. Use execute_python to look into it."
    );
    let error = read(b"", json!({"name": "b"})).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "'b' cannot be read: there is no such file"
    );
    assert!(matches!(error, ToolError::Rejected(_)));
}

#[tokio::test]
async fn files_are_listed_and_variables_reset() {
    let scripted = Scripted {
        files: vec![
            ("a.csv", Bytes::from_static(b"abc")),
            ("sub/b.bin", Bytes::from_static(&[0; 2048])),
        ],
        ..Scripted::new()
    };
    let output = call(scripted, LIST_FILES, json!({})).await.unwrap();
    assert_eq!(
        output.content,
        "2 files in the working directory:\n- a.csv (3 bytes)\n- sub/b.bin (2 KiB)"
    );
    let output = call(Scripted::new(), LIST_FILES, json!({})).await.unwrap();
    assert_eq!(output.content, "The working directory is empty.");
    let output = call(Scripted::new(), RESET_PYTHON, json!({}))
        .await
        .unwrap();
    assert!(
        output
            .content
            .contains("Files in the working directory are kept")
    );
}

#[test]
fn a_fresh_workspace_is_forgotten_with_its_guard() {
    let scripted = Arc::new(Scripted::new());
    let code = CodeExecution::over(scripted.clone());
    let sources = Sources::new(vec![Source::Python(code)]).unwrap().snapshot();
    let guard = Arc::new(sources.fresh_workspace(&Owner::everybody()));
    let id = guard.workspace().as_str().to_owned();
    let other = guard.clone();
    drop(guard);
    assert!(scripted.asked.lock().is_empty());
    drop(other);
    assert_eq!(*scripted.asked.lock(), [format!("forget {id}")]);
}

#[tokio::test]
async fn a_file_that_got_another_name_is_told_with_every_tool() {
    let scripted = || Scripted {
        files: vec![("a.txt", Bytes::from_static(b"x"))],
        notices: vec!["the file 'a.txt' is called 'a-2.txt' here".into()],
        ..Scripted::new()
    };
    for (tool, arguments, rest) in [
        (LIST_FILES, json!({}), "1 file in"),
        (READ_FILE, json!({"name": "a.txt"}), "a.txt (text/plain"),
    ] {
        let output = call(scripted(), tool, arguments).await.unwrap();
        let told = "Note: the file 'a.txt' is called 'a-2.txt' here.\n\n";
        let after = output.content.strip_prefix(told).unwrap();
        assert!(after.starts_with(rest), "{after}");
    }
}

#[tokio::test]
async fn clients_are_not_shown_a_path_of_the_host() {
    for (path, shown) in [
        ("/mnt/data", "/mnt/data"),
        ("/var/lib/loopwright/work/run-1/2/data", "."),
    ] {
        let output = ran(CellOutcome {
            working_directory: path.into(),
            ..nothing()
        })
        .await;
        assert_eq!(code(&output).working_directory, shown);
    }
}

#[test]
fn matplotlib_is_promised_only_where_it_is() {
    let text = |packages: &[&str]| {
        let mut scripted = Scripted::new();
        scripted.report.packages = packages.iter().map(|&package| package.to_owned()).collect();
        describe::execute(&scripted.report, &scripted.settings, &[]).json
    };
    assert!(text(&["numpy 2.4.0", "matplotlib 3.10.0"]).contains("no savefig()"));
    assert!(text(&["numpy 2.4.0"]).contains("matplotlib is not installed"));
}
