//! The tools of a draft.

use std::fmt;

use http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::super::event::Notice;
use protocol::openai::tool::ToolDefinition;
use tools::requested::{WantedFile, WebOptions};

/// The tools that a request declares or asks for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DraftTools {
    /// The declared tools, in their order.
    pub declared: Vec<DraftTool>,
    /// What is asked of code execution.
    pub code: CodeDraft,
    /// The options of web search, if it is asked for.
    pub web: Option<WebOptions>,
    /// The choice among the tools, as the JSON text of a model call has it.
    pub choice: Option<Box<str>>,
    /// Which tools may be used.
    pub filter: DraftFilter,
    /// The request has the legacy `functions`. They have no tool messages, so only the client can run them.
    pub legacy_functions: bool,
    /// Clients of this dialect declare tools of their own machine, such as a shell: of the declared functions the dispatch
    /// URL gets only those that patterns of the settings name.
    pub of_client_machine: bool,
    /// What happens to hosted tools that neither the server nor the upstream has.
    pub unoffered: UnofferedTools,
}

/// What happens to hosted tools that neither the server nor the upstream has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnofferedTools {
    /// The request is refused.
    #[default]
    Refuse,
    /// The request is refused unless the settings name the type; then the tool is left out, with a notice for the
    /// client.
    RefuseUnlessIgnored,
    /// They pass to the model server, which answers the request itself.
    Leave,
}

/// A declared tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum DraftTool {
    /// A function or custom tool.
    Function(ToolDefinition),
    /// A hosted tool.
    Hosted(HostedTool),
    /// An MCP server, where the server connects to such; else a hosted tool of the upstream.
    #[serde(skip)]
    Server(Box<ServerDraft>, HostedTool),
    /// A tool that no server can offer as the request wants it. It is left out, with a notice for the client.
    LeftOut(Notice),
}

/// A hosted tool.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostedTool {
    /// Its type.
    pub kind: String,
    /// The whole entry as JSON text, as the upstream gets it.
    pub json: Box<str>,
    /// The field that declares it, for errors.
    pub param: String,
    /// The entry has credentials, or may have some.
    #[serde(default)]
    pub has_credentials: bool,
}

/// What a request says of code execution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CodeDraft {
    /// `enable_code_execution`.
    pub enable: Option<bool>,
    /// A hosted tool asks for it.
    pub declared: bool,
    /// The files that the code is to produce.
    pub wanted: Option<Vec<WantedFile>>,
    /// Stored files for the working directory.
    pub files: Vec<NamedFile>,
}

/// A stored file that the request names besides its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFile {
    /// The field that names it, for errors.
    pub param: String,
    /// The id as the client gave it; not checked yet.
    pub id: String,
}

/// Patterns of names that say which tools a request may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DraftFilter {
    /// The server-side tools that may be used; all if there is no list.
    pub allow: Option<Vec<String>>,
    /// The tools that may not be used.
    pub deny: Vec<String>,
    /// The declared tools that the client runs.
    pub client_tools: Vec<String>,
}

/// An MCP server that a request declares. Its URL and headers may hold secrets: it is not stored.
#[derive(Clone)]
pub struct ServerDraft {
    /// The field that declares it, for errors.
    pub param: String,
    /// Stands before the names of its tools.
    pub label: String,
    /// Its URL, not checked yet.
    pub url: String,
    /// Headers of every message to it; all are secrets.
    pub headers: HeaderMap,
    /// The tools that are offered, by the names that the server gives them; all by default.
    pub allowed_tools: Option<Vec<String>>,
    /// Whether only tools that declare themselves read-only, or only the others, are offered; by default both.
    pub allowed_read_only: Option<bool>,
    /// What the server is for, for the model.
    pub description: Option<String>,
    /// About which calls a person is asked.
    pub required: RequiredApproval,
}

/// The tools of an MCP server for whose calls a person's decision is required, by the names that the server gives them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RequiredApproval {
    /// All.
    #[default]
    Always,
    /// No call needs an approval.
    Never,
    /// These.
    Of(Vec<String>),
    /// All but these.
    AllBut(Vec<String>),
}

impl fmt::Debug for ServerDraft {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ServerDraft")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl CodeDraft {
    fn over(self, suspended: Self) -> Self {
        Self {
            enable: suspended.enable,
            declared: self.declared || suspended.declared,
            wanted: self.wanted.or(suspended.wanted),
            files: match self.files.is_empty() {
                true => suspended.files,
                false => self.files,
            },
        }
    }
}

impl DraftTools {
    /// The tools of a request that resumes a suspended turn: fields that the request does not name come from the turn.
    pub(super) fn over(self, suspended: Self) -> Self {
        let filter = match self.filter == DraftFilter::default() {
            true => suspended.filter,
            false => self.filter,
        };
        let code = match self.code.enable {
            Some(_) => self.code,
            None => self.code.over(suspended.code),
        };
        let own = Self {
            code,
            web: self.web.or(suspended.web),
            choice: match self.declared.is_empty() {
                true => self.choice.or(suspended.choice),
                // It may name a tool that there is no more.
                false => self.choice,
            },
            filter,
            ..self
        };
        match own.declared.is_empty() {
            true => Self {
                declared: suspended.declared,
                of_client_machine: suspended.of_client_machine,
                unoffered: suspended.unoffered,
                legacy_functions: suspended.legacy_functions,
                ..own
            },
            false => own,
        }
    }
}

impl DraftTool {
    /// About how many bytes it has.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Function(tool) => tool.json.len(),
                Self::Hosted(tool) => tool.json.len(),
                // Its headers are members of the entry, or made of one.
                Self::Server(_, tool) => size_of::<ServerDraft>() + 2 * tool.json.len(),
                Self::LeftOut(notice) => notice.message.len(),
            }
    }

    /// Whether it may hold secrets, so that it is not stored: an MCP server, or an entry of the upstream's with credentials.
    pub(crate) fn holds_secrets(&self) -> bool {
        match self {
            Self::Server(..) => true,
            Self::Hosted(tool) => tool.has_credentials,
            Self::Function(_) | Self::LeftOut(_) => false,
        }
    }
}
