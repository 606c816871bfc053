//! What each coding agent is given: variables, files, and the variables of the user that it must not see.
//!
//! Each agent has a variable that names the directory of its configuration, so that the user's directory stays as it is.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::facts::ServerFacts;
use crate::commands::client::ServerClient;
use crate::config::LaunchConfig;
use crate::config::cli::CodingAgent;

/// The directory of the configuration, in the temporary directory.
pub(super) const HOME: &str = "home";
/// The directory of temporary files, in the temporary directory.
pub(super) const TEMPORARY: &str = "tmp";
/// Shown instead of the key.
const HIDDEN_KEY: &str = "(hidden)";
/// The key of a server without keys.
const NO_KEY: &str = "unused";
/// The variable in which Codex finds the key.
const CODEX_KEY: &str = "LOOPWRIGHT_API_KEY";
/// Most tokens of one answer of Claude Code, which asks for as many as the model may write.
const MAX_ANSWER_TOKENS: u64 = 32_000;

/// What an agent is started with.
#[derive(Debug)]
pub(super) struct AgentSetup {
    pub(super) program: &'static str,
    /// The command that installs it.
    pub(super) install: &'static str,
    /// Variables that it is given.
    pub(super) variables: Vec<AgentVariable>,
    /// Files in the temporary directory.
    pub(super) files: Vec<AgentFile>,
    /// Beginnings of the names of variables of the user that it must not see, as they name other servers or settings.
    cleared: &'static [&'static str],
}

/// A variable of an agent.
#[derive(Debug)]
pub(super) struct AgentVariable {
    pub(super) name: &'static str,
    pub(super) value: AgentValue,
}

/// The value of a variable.
#[derive(Debug)]
pub(super) enum AgentValue {
    Text(String),
    Key(SecretString),
    /// A path in the temporary directory.
    Inside(&'static str),
}

/// A file of an agent.
#[derive(Debug)]
pub(super) struct AgentFile {
    /// Its path in the temporary directory.
    pub(super) path: &'static str,
    pub(super) content: String,
}

impl AgentValue {
    /// The value, once there is a directory.
    pub(super) fn text(&self, directory: &Path) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Key(key) => key.expose_secret().to_owned(),
            Self::Inside(path) => directory.join(path).display().to_string(),
        }
    }

    /// The value without the key.
    pub(super) fn shown(&self, directory: &Path) -> String {
        match self {
            Self::Key(_) => HIDDEN_KEY.to_owned(),
            Self::Text(_) | Self::Inside(_) => self.text(directory),
        }
    }
}

impl AgentSetup {
    pub(super) fn of(
        config: &LaunchConfig,
        client: &ServerClient<'_>,
        facts: &ServerFacts,
    ) -> Self {
        match config.agent {
            CodingAgent::Codex => codex(config, client.server(), facts),
            CodingAgent::Claude => claude(config, client.server(), facts),
            CodingAgent::Aider => aider(config, client.server(), facts),
        }
    }

    /// The variables of the user that the agent must not see.
    pub(super) fn cleared<'a>(&'a self, config: &'a LaunchConfig) -> impl Iterator<Item = &'a str> {
        let names = config.variables.iter().map(String::as_str);
        names.filter(|name| {
            let is_cleared = self.cleared.iter().any(|start| name.starts_with(start));
            is_cleared && self.variables.iter().all(|variable| variable.name != *name)
        })
    }
}

fn text(name: &'static str, value: impl Into<String>) -> AgentVariable {
    let value = AgentValue::Text(value.into());
    AgentVariable { name, value }
}

fn inside(name: &'static str, path: &'static str) -> AgentVariable {
    let value = AgentValue::Inside(path);
    AgentVariable { name, value }
}

fn key(name: &'static str, config: &LaunchConfig) -> AgentVariable {
    match &config.key {
        Some(key) => AgentVariable {
            name,
            value: AgentValue::Key(key.clone()),
        },
        None => text(name, NO_KEY),
    }
}

/// Codex reads one file. It makes links to itself in its directory, unless that is a directory for temporary files: it is
/// given another one for these.
fn codex(config: &LaunchConfig, server: &str, facts: &ServerFacts) -> AgentSetup {
    // A string of JSON is one of TOML.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let model = quoted(&facts.model);
    let window = facts
        .window
        .map(|window| format!("model_context_window = {window}\n"));
    let search = if facts.searches { "live" } else { "disabled" };
    let content = format!(
        "model = {model}\n\
         model_provider = \"loopwright\"\n\
         {window}\
         web_search = \"{search}\"\n\
         check_for_update_on_startup = false\n\
         \n\
         [model_providers.loopwright]\n\
         name = \"loopwright\"\n\
         base_url = {base}\n\
         wire_api = \"responses\"\n\
         env_key = \"{CODEX_KEY}\"\n\
         \n\
         [analytics]\n\
         enabled = false\n\
         \n\
         [feedback]\n\
         enabled = false\n\
         \n\
         [tui]\n\
         show_tooltips = false\n\
         \n\
         # The first two ask other hosts. The third would outlive this directory.\n\
         [features]\n\
         apps = false\n\
         plugins = false\n\
         daemon_auto_start = false\n",
        window = window.unwrap_or_default(),
        base = quoted(&format!("{server}/v1")),
    );
    AgentSetup {
        program: "codex",
        install: "npm install -g @openai/codex",
        variables: vec![
            inside("CODEX_HOME", HOME),
            inside("TMPDIR", TEMPORARY),
            key(CODEX_KEY, config),
        ],
        files: vec![AgentFile {
            path: "home/config.toml",
            content,
        }],
        cleared: &["CODEX_"],
    }
}

/// Claude Code has several names for models, and asks a small one for titles and summaries.
fn claude(config: &LaunchConfig, server: &str, facts: &ServerFacts) -> AgentSetup {
    let mut variables = vec![
        inside("CLAUDE_CONFIG_DIR", HOME),
        inside("TMPDIR", TEMPORARY),
        text("ANTHROPIC_BASE_URL", server),
        key("ANTHROPIC_AUTH_TOKEN", config),
    ];
    let models = [
        "ANTHROPIC_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL",
    ];
    variables.extend(models.map(|name| text(name, &*facts.model)));
    if let Some(window) = facts.window {
        let answer = (window / 2).min(MAX_ANSWER_TOKENS);
        variables.push(text("CLAUDE_CODE_MAX_CONTEXT_TOKENS", window.to_string()));
        variables.push(text("CLAUDE_CODE_MAX_OUTPUT_TOKENS", answer.to_string()));
    }
    // Updates, telemetry, reports of errors, and a list of plugins.
    variables.push(text("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"));
    variables.push(text(
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL",
        "1",
    ));
    // A changing text at the beginning of each prompt, which would empty the prompt cache of the model server.
    variables.push(text("CLAUDE_CODE_ATTRIBUTION_HEADER", "0"));
    AgentSetup {
        program: "claude",
        install: "npm install -g @anthropic-ai/claude-code",
        variables,
        files: vec![
            // Without this file the first start requires an account.
            AgentFile {
                path: "home/.claude.json",
                content: format!("{:#}\n", json!({"hasCompletedOnboarding": true})),
            },
            // It would write files for links into the user's home directory.
            AgentFile {
                path: "home/settings.json",
                content: format!("{:#}\n", json!({"disableDeepLinkRegistration": "disable"})),
            },
        ],
        cleared: &["ANTHROPIC_", "CLAUDE_"],
    }
}

/// aider keeps its files in the home directory. Git still reads the user's configuration, for the author of commits.
fn aider(config: &LaunchConfig, server: &str, facts: &ServerFacts) -> AgentSetup {
    const METADATA: &str = "home/models.json";
    let model = format!("openai/{}", facts.model);
    let mut variables = vec![
        inside("HOME", HOME),
        text("OPENAI_API_BASE", format!("{server}/v1")),
        key("OPENAI_API_KEY", config),
        text("AIDER_MODEL", &*model),
        text("AIDER_ANALYTICS", "false"),
        text("AIDER_CHECK_UPDATE", "false"),
        text("AIDER_SHOW_RELEASE_NOTES", "false"),
        text("AIDER_SHOW_MODEL_WARNINGS", "false"),
        // Its library would ask another host for prices.
        text("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ];
    if let Some(file) = &config.git_config {
        variables.push(text("GIT_CONFIG_GLOBAL", file.display().to_string()));
    }
    let metadata = facts.window.map(|window| {
        variables.push(inside("AIDER_MODEL_METADATA_FILE", METADATA));
        let of_model =
            json!({"max_input_tokens": window, "litellm_provider": "openai", "mode": "chat"});
        AgentFile {
            path: METADATA,
            content: format!("{:#}\n", json!({model: of_model})),
        }
    });
    AgentSetup {
        program: "aider",
        install: "python -m pip install aider-install && aider-install",
        variables,
        files: metadata.into_iter().collect(),
        cleared: &["AIDER_", "OPENAI_"],
    }
}
