//! Code execution as tools: `execute_python`, `reset_python`, `read_file` and `list_files`.
//!
//! Owns the texts for models: descriptions, results, and the messages for every way in which code can end. Has no code
//! for isolation or for stored files: inputs are paths, outputs are bytes.

mod arguments;
mod describe;
mod earlier;
mod execute;
mod files;
mod interpreters;
mod live;
mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;

pub use self::earlier::EarlierCode;
use self::interpreters::Interpreters;
use super::requested::WantedFile;
use super::{
    SharedTool, Tool, ToolError, ToolInvocation, ToolKind, ToolOutput, ToolPolicy, ToolSource,
};
use protocol::ids::WorkspaceId;
use protocol::openai::tool::ToolDefinition;
use sandbox::settings::Network;
use sandbox::{InterpreterError, IsolationReport, Sandbox};

pub(crate) use sandbox::Stats;

/// The tool that runs code.
pub const EXECUTE_PYTHON: &str = "execute_python";
/// The tool that deletes variables.
pub(crate) const RESET_PYTHON: &str = "reset_python";
/// The tool that shows a working file.
pub(crate) const READ_FILE: &str = "read_file";
/// The tool that lists the working files.
pub(crate) const LIST_FILES: &str = "list_files";
/// All of them.
pub const NAMES: [&str; 4] = [EXECUTE_PYTHON, RESET_PYTHON, READ_FILE, LIST_FILES];

/// Longest time that a call may wait for an interpreter, in addition to its own time limit. After it the call fails.
const QUEUE_ROOM: Duration = Duration::from_secs(120);
/// Longest time for ending code after its time limit, and for reading its files. After it the call fails.
const END_ROOM: Duration = Duration::from_secs(30);

/// Code execution. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CodeExecution {
    interpreters: Interpreters,
    tools: Arc<[SharedTool]>,
    by_default: bool,
}

impl CodeExecution {
    /// Creates the tools for a sandbox. With `by_default` every request is offered them, otherwise only those that ask for
    /// them.
    pub fn new(sandbox: Sandbox, by_default: bool) -> Self {
        Self {
            by_default,
            ..Self::over(Interpreters::Sandbox(sandbox))
        }
    }

    fn over(interpreters: Interpreters) -> Self {
        let actions = [
            Action::Execute(Vec::new()),
            Action::Reset,
            Action::Read,
            Action::List,
        ];
        let tools = actions
            .into_iter()
            .map(|action| CodeTool::shared(&interpreters, action))
            .collect();
        Self {
            interpreters,
            tools,
            by_default: false,
        }
    }

    /// The tools, in the order in which they are offered to models.
    pub fn tools(&self) -> &[SharedTool] {
        &self.tools
    }

    /// Whether requests are offered the tools without asking for them.
    pub(crate) fn is_offered_by_default(&self) -> bool {
        self.by_default
    }

    /// The tools for a request that wants these files.
    pub(crate) fn tools_for(&self, wanted: &[WantedFile]) -> Vec<SharedTool> {
        let mut tools = self.tools.to_vec();
        if !wanted.is_empty()
            && let Some(execute) = tools.first_mut()
        {
            *execute = CodeTool::shared(&self.interpreters, Action::Execute(wanted.to_vec()));
        }
        tools
    }

    /// Ends the interpreter of a workspace and deletes its working files.
    pub fn forget(&self, workspace: &WorkspaceId) {
        self.interpreters.forget(workspace);
    }

    /// The result of the self-test.
    pub fn report(&self) -> &IsolationReport {
        self.interpreters.report()
    }

    /// The part of `/readyz`: the quality of the isolation, and the number of interpreters.
    pub fn status(&self) -> Value {
        let Stats {
            workers,
            busy,
            spares,
            waiting,
            ..
        } = self.interpreters.stats();
        let report = self.report();
        let mut details = serde_json::to_value(report).unwrap_or_default();
        let properties = report.properties.iter();
        details["properties"] = properties
            .map(|(name, state)| ((*name).to_owned(), Value::from(state.as_str())))
            .collect::<serde_json::Map<_, _>>()
            .into();
        for (name, value) in [
            ("workers", workers),
            ("busy", busy),
            ("spares", spares),
            ("waiting", waiting),
        ] {
            details[name] = value.into();
        }
        details
    }

    /// Current numbers of interpreters.
    pub fn stats(&self) -> Stats {
        self.interpreters.stats()
    }
}

/// The action of a tool.
#[derive(Debug)]
enum Action {
    /// Runs code; the files are those that the client wants.
    Execute(Vec<WantedFile>),
    Reset,
    Read,
    List,
}

/// One of the tools.
#[derive(Debug)]
struct CodeTool {
    interpreters: Interpreters,
    action: Action,
    definition: ToolDefinition,
    policy: ToolPolicy,
}

impl CodeTool {
    fn shared(interpreters: &Interpreters, action: Action) -> SharedTool {
        let (report, settings) = (interpreters.report(), interpreters.settings());
        let definition = match &action {
            Action::Execute(wanted) => describe::execute(report, settings, wanted),
            Action::Reset => describe::reset(),
            Action::Read => describe::read(),
            Action::List => describe::list(),
        };
        let (timeout, kind) = match &action {
            Action::Execute(_) => (settings.timeout, ToolKind::CodeExecution),
            Action::Reset | Action::Read | Action::List => (Duration::ZERO, ToolKind::Custom),
        };
        let is_read = matches!(action, Action::Read | Action::List);
        let has_network = kind == ToolKind::CodeExecution && settings.network != Network::None;
        let policy = ToolPolicy {
            sequential: true,
            idempotent: is_read,
            read_only: is_read,
            // Code reaches nothing but its own files while its network is closed.
            destructive: has_network,
            open_world: has_network,
            kind,
            ..ToolPolicy::new(ToolSource::BuiltIn, timeout + QUEUE_ROOM + END_ROOM)
        };
        Arc::new(Self {
            interpreters: interpreters.clone(),
            action,
            definition,
            policy,
        })
    }
}

impl Tool for CodeTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let interpreters = &self.interpreters;
        match invocation.context.earlier_code {
            EarlierCode::None => {}
            left => {
                let had_variables = left == EarlierCode::Variables;
                interpreters.expect_earlier_calls(&invocation.context.workspace, had_variables);
            }
        }
        match &self.action {
            Action::Execute(wanted) => execute::execute(interpreters, wanted, invocation).boxed(),
            Action::Reset => files::reset(interpreters, invocation).boxed(),
            Action::Read => files::read(interpreters, invocation).boxed(),
            Action::List => files::list(interpreters, invocation).boxed(),
        }
    }
}

impl From<InterpreterError> for ToolError {
    fn from(error: InterpreterError) -> Self {
        match error {
            InterpreterError::File { .. } => Self::Rejected(error.to_string()),
            InterpreterError::Overloaded
            | InterpreterError::Start(_)
            | InterpreterError::Forgotten
            | InterpreterError::Closed => Self::Failed {
                message: error.to_string(),
                source: Some(Box::new(error)),
            },
        }
    }
}
