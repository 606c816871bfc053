mod live_output;
mod results;
mod working_files;

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{self, Receiver};

use super::*;
use crate::source::{Source, Sources};
use crate::{CallContext, CodeDetail, OutputStatus, ProgressSender, ToolDetail, ToolProgress};
use protocol::ids::Owner;
use sandbox::settings::{InterpreterLimits, Network, Settings, Tier};
use sandbox::{
    CapturedFile, Cell, CellEnd, CellError, CellOutcome, FileContent, FileRange, Image,
    OutputListener, OutputStream, ResourceLimit, SandboxError, WithNotices, WorkFile, WorkingFile,
};

/// A scripted interpreter that records its calls.
#[derive(Debug)]
pub(super) struct Scripted {
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

    fn with_notices<T>(&self, value: T) -> WithNotices<T> {
        WithNotices {
            value,
            notices: self.notices.clone(),
        }
    }

    fn note(&self, what: String) {
        self.asked.lock().push(what);
    }
}

/// The methods of the sandbox that the tools use.
#[expect(
    clippy::unused_async,
    clippy::unused_self,
    reason = "they have the signatures of the sandbox's methods"
)]
impl Scripted {
    pub(super) async fn run(
        &self,
        workspace: &WorkspaceId,
        cell: Cell<'_>,
        live: OutputListener<'_>,
    ) -> Result<CellOutcome, InterpreterError> {
        let inputs: Vec<&str> = cell.inputs.iter().map(|file| &*file.name).collect();
        self.note(format!(
            "run {} {:?} {:?} {inputs:?} {:?}",
            workspace.as_str().len(),
            cell.code,
            cell.outputs,
            cell.timeout
        ));
        for (stream, text) in &self.says {
            live(*stream, text);
        }
        let outcome = self.outcome.lock().take();
        outcome.unwrap_or_else(|| Ok(nothing()))
    }

    pub(super) async fn reset(&self, _: &WorkspaceId) -> Result<(), InterpreterError> {
        self.note("reset".to_owned());
        Ok(())
    }

    pub(super) async fn list_files(
        &self,
        _: &WorkspaceId,
        _: &[WorkFile],
    ) -> Result<WithNotices<Vec<WorkingFile>>, InterpreterError> {
        let file = |(name, bytes): &(&str, Bytes)| WorkingFile {
            name: (*name).to_owned(),
            size: bytes.len() as u64,
            modified: 0,
        };
        Ok(self.with_notices(self.files.iter().map(file).collect()))
    }

    pub(super) async fn read_file(
        &self,
        _: &WorkspaceId,
        _: &[WorkFile],
        range: FileRange<'_>,
    ) -> Result<WithNotices<FileContent>, InterpreterError> {
        let found = self.files.iter().find(|(name, _)| *name == range.name);
        let most = usize::try_from(range.max_bytes).unwrap();
        let content = found.map(|(_, bytes)| FileContent {
            bytes: bytes.slice(..bytes.len().min(most)),
            size: bytes.len() as u64,
        });
        let error = InterpreterError::File {
            name: range.name.to_owned(),
            problem: "there is no such file",
        };
        content
            .map(|content| self.with_notices(content))
            .ok_or(error)
    }

    pub(super) fn expect_earlier_calls(&self, workspace: &WorkspaceId, _had_variables: bool) {
        self.note(format!("expect {}", workspace.as_str()));
    }

    pub(super) fn forget(&self, workspace: &WorkspaceId) {
        self.note(format!("forget {}", workspace.as_str()));
    }

    pub(super) fn report(&self) -> &IsolationReport {
        &self.report
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn stats(&self) -> Stats {
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
        trace: None,
        context: Arc::new(CallContext {
            files: [WorkFile {
                id: "file-1".into(),
                name: "data.csv".into(),
                content: sandbox::Blob::file(std::path::PathBuf::from("/blob"), 3),
                is_produced: false,
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
    let code = CodeExecution::over(Interpreters::Scripted(Arc::new(scripted)));
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
    let code = CodeExecution::over(Interpreters::Scripted(Arc::new(Scripted::new())));
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
    let code = CodeExecution::over(Interpreters::Scripted(Arc::new(Scripted::new())));
    let schemas = crate::schema::SchemaCache::default();
    for tool in code.tools() {
        let schema = tool.definition().parameters.clone().unwrap();
        assert!(schemas.get(&schema).is_some(), "{schema}");
    }
    let schema = tool(&code, EXECUTE_PYTHON).definition().parameters.clone();
    let schema = schemas.get(&schema.unwrap()).unwrap();
    let text = r#"{"code":"1","outputs":["a.csv",{"name":"b","format":"csv"}]}"#;
    let repaired = crate::repair::repair_arguments(text, Some(&schema));
    assert!(repaired.arguments.is_ok(), "{repaired:?}");
    assert_eq!(repaired.text, text);
}

#[test]
fn a_fresh_workspace_is_forgotten_with_its_guard() {
    let scripted = Arc::new(Scripted::new());
    let code = CodeExecution::over(Interpreters::Scripted(scripted.clone()));
    let sources = Sources::new(vec![Source::Python(code)]).unwrap().snapshot();
    let guard = Arc::new(sources.fresh_workspace(&Owner::everybody()));
    let id = guard.workspace().as_str().to_owned();
    let other = guard.clone();
    drop(guard);
    assert!(scripted.asked.lock().is_empty());
    drop(other);
    assert_eq!(*scripted.asked.lock(), [format!("forget {id}")]);
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
