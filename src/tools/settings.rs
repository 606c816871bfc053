//! Settings of server-side tools.

pub mod mcp;

use std::time::Duration;

use ::http::{HeaderMap, Method};
use secrecy::SecretString;
use url::Url;

use super::{python, web};
use net::CaCertificates;

/// The names of the tools of code execution.
pub const CODE_TOOLS: [&str; 4] = [
    python::EXECUTE_PYTHON,
    python::RESET_PYTHON,
    python::READ_FILE,
    python::LIST_FILES,
];
/// The names of the tools for the web.
pub const WEB_TOOLS: [&str; 2] = [web::WEB_SEARCH, web::READ_PAGE];

/// Patterns for the names that coding agents give to their shells, editors and file tools, in lower case and with blanks between
/// them: Claude Code, Cline, Codex, Continue, Copilot, Crush, Cursor, Gemini CLI, Goose, Roo, Windsurf, Zed and others.
pub const CODING_AGENT_TOOLS: &str = "\
    apply_diff apply_patch bash bash_output bashoutput copy_path create_directory create_file create_new_file \
    delete_file delete_path developer__shell developer__text_editor edit edit_existing_file edit_file exec_command \
    execute_bash execute_command file_glob_search file_search find_path get_terminal_output glob glob_file_search \
    grep grep_search insert_content insert_edit_into_file kill_shell killshell list list_code_definition_names \
    list_dir list_directory list_files local_shell ls move_path multi_edit multi_replace_string_in_file multiedit \
    notebook_edit notebookedit patch read read_currently_open_file read_file read_many_files replace \
    replace_file_content replace_in_file replace_string_in_file run_command run_in_terminal run_shell_command \
    run_terminal_cmd run_terminal_command search_and_replace search_file_content search_files search_replace shell \
    shell_command single_find_and_replace str_replace* terminal text_editor unified_exec view view_diff view_file \
    write write_file write_stdin write_to_file";

/// Settings of server-side tools.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The dispatch URL, if there is one.
    pub dispatch: Option<DispatchSettings>,
    /// The `[[tools]]` entries.
    pub http_tools: Vec<HttpToolSettings>,
    /// Most calls of a batch that run at the same time.
    pub max_parallel_tools: usize,
    /// Most characters of a result that the model is given.
    pub max_result_chars: usize,
    /// Longest wait for a connection to a tool.
    pub connect_timeout: Duration,
    /// Whether requests are offered code execution, if it is on, without asking for it.
    pub code_by_default: bool,
    /// Certificate authorities that are trusted in addition to the system's.
    pub certificates: CaCertificates,
}

/// The webhook that runs declared tools.
#[derive(Debug, Clone)]
pub struct DispatchSettings {
    /// Name patterns (globs) of the tools that go to it. `None`: the functions that chat completions declare, except
    /// [`Self::client_tool_names`], and no functions of dialects whose clients declare tools of their own machine.
    pub tools: Option<Vec<String>>,
    /// Name patterns (globs) of the functions that stay with clients of chat completions if `tools` is `None`. Case does not
    /// count.
    pub client_tool_names: Vec<String>,
    /// The URL and how it is called.
    pub endpoint: EndpointSettings,
    /// A batch that holds one of its calls runs one after another.
    pub sequential: bool,
    /// Its calls may safely be made twice.
    pub idempotent: bool,
}

/// One `[[tools]]` entry.
#[derive(Debug, Clone)]
pub struct HttpToolSettings {
    /// The name that the model calls.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments, as JSON text.
    pub parameters_json: String,
    /// The URL and how it is called.
    pub endpoint: EndpointSettings,
    /// A batch that holds one of its calls runs one after another.
    pub sequential: bool,
    /// Its calls may safely be made twice.
    pub idempotent: bool,
    /// Its calls change nothing.
    pub read_only: bool,
    /// Its calls may destroy or overwrite something.
    pub destructive: bool,
    /// Its calls reach what is not under the operator's control.
    pub open_world: bool,
    /// Identical calls are expected, so that the repeat guard lets them through.
    pub repeatable: bool,
}

/// An HTTP endpoint that runs tools.
#[derive(Debug, Clone)]
pub struct EndpointSettings {
    /// The URL.
    pub url: Url,
    /// The method; `GET` sends the arguments as a query string and no body.
    pub method: Method,
    /// Headers added to every call; secret ones are marked sensitive.
    pub headers: HeaderMap,
    /// The Standard Webhooks secret (`whsec_…`), if calls are signed.
    pub secret: Option<SecretString>,
    /// Longest time of one call, retries included.
    pub timeout: Duration,
    /// Largest answer in bytes.
    pub max_answer_bytes: usize,
    /// Most retries of one call.
    pub max_retries: u32,
}
