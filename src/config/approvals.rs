//! The arguments of `approvals`.

use ::http::HeaderValue;
use serde_json::value::RawValue;
use url::Url;

use super::cli::{ApprovalsArguments, ApprovalsCommand, RememberChoice};
use super::{ConfigError, Environment, Origin, source};
use crate::ids::ApprovalId;

/// The address of a server with default settings.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
/// The variable of the key, if no flag names another one.
const DEFAULT_KEY_VARIABLE: &str = "LOOPWRIGHT_API_KEY";

/// What `loopwright approvals` does, and with which server.
#[derive(Debug, Clone)]
pub struct ApprovalsConfig {
    /// The server, without `/v1`.
    pub server: Url,
    /// The header with the API key, if there is one.
    pub authorization: Option<HeaderValue>,
    /// The name of the variable of the key.
    pub key_variable: String,
    /// What is done.
    pub task: ApprovalsTask,
}

/// What `loopwright approvals` does.
#[derive(Debug, Clone)]
pub enum ApprovalsTask {
    /// Lists what waits.
    List {
        /// Whether JSON is printed.
        json: bool,
    },
    /// Shows one call.
    Show {
        /// The call.
        id: ApprovalId,
        /// Whether JSON is printed.
        json: bool,
    },
    /// Decides about a call.
    Decide {
        /// The call.
        id: ApprovalId,
        /// The decision.
        decision: DecisionArguments,
    },
}

/// A decision as the command line has it.
#[derive(Debug, Clone)]
pub struct DecisionArguments {
    /// Whether the call runs.
    pub approves: bool,
    /// What the model is told, or a note.
    pub message: Option<String>,
    /// A JSON object that takes the place of the arguments.
    pub arguments: Option<Box<RawValue>>,
    /// Which later calls run, too.
    pub remember: Option<RememberChoice>,
}

impl ApprovalsConfig {
    /// Reads the arguments, and the variables with the server and the key.
    ///
    /// # Errors
    /// When the server is no URL, the key no key, the id no id, or the arguments no JSON object.
    pub fn load(arguments: &ApprovalsArguments, env: Environment<'_>) -> Result<Self, ConfigError> {
        let flags = &arguments.server;
        let variable = source::variable("server");
        let (text, origin) = match (&flags.server, env(&variable)) {
            (None, Some(text)) => (text, Origin::Variable(variable)),
            (given, _) => {
                let text = given.as_deref().unwrap_or(DEFAULT_SERVER);
                (text.to_owned(), Origin::Flag("server".to_owned()))
            }
        };
        let server = server(&text).map_err(|problem| ConfigError::invalid(origin, problem))?;
        let named = flags.key_env.as_deref();
        let key_variable = named.unwrap_or(DEFAULT_KEY_VARIABLE).to_owned();
        let key = env(&key_variable);
        if named.is_some() && key.is_none() {
            let problem = format!("the environment variable {key_variable} is not set");
            return Err(ConfigError::invalid(
                Origin::Flag("key-env".to_owned()),
                problem,
            ));
        }
        let authorization = key.map(|key| authorization(&key)).transpose();
        let authorization = authorization.map_err(|problem| {
            ConfigError::invalid(Origin::Variable(key_variable.clone()), problem)
        })?;
        Ok(Self {
            server,
            authorization,
            key_variable,
            task: task(&arguments.command)?,
        })
    }
}

/// The URL of a server. The base URL of its API is taken as well.
fn server(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(mut url) = url else {
        return Err("is not the URL of a server; write such as http://127.0.0.1:8080");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "holds a name or a password; leave them out, and put an API key into the variable LOOPWRIGHT_API_KEY",
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("has more than an address and a path; write such as http://127.0.0.1:8080");
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1").unwrap_or(path).to_owned();
    url.set_path(&path);
    Ok(url)
}

fn authorization(key: &str) -> Result<HeaderValue, &'static str> {
    let value = HeaderValue::from_str(&format!("Bearer {}", key.trim()));
    let mut value = value.map_err(
        |_| "is no API key: it has characters that a header cannot have; set it to a key of the server",
    )?;
    value.set_sensitive(true);
    Ok(value)
}

fn task(command: &ApprovalsCommand) -> Result<ApprovalsTask, ConfigError> {
    let read = |id: &str| {
        let problem = "is not the id of an approval; `loopwright approvals list` shows the ids";
        ApprovalId::parse(id.trim())
            .ok_or_else(|| ConfigError::invalid(Origin::Argument("ID"), problem))
    };
    Ok(match command {
        ApprovalsCommand::List { json } => ApprovalsTask::List { json: *json },
        ApprovalsCommand::Show { id, json } => ApprovalsTask::Show {
            id: read(id)?,
            json: *json,
        },
        ApprovalsCommand::Approve {
            id,
            arguments,
            remember,
            message,
        } => ApprovalsTask::Decide {
            id: read(id)?,
            decision: DecisionArguments {
                approves: true,
                message: message.clone(),
                arguments: arguments.as_deref().map(object).transpose()?,
                remember: *remember,
            },
        },
        ApprovalsCommand::Deny { id, message } => ApprovalsTask::Decide {
            id: read(id)?,
            decision: DecisionArguments {
                approves: false,
                message: message.clone(),
                arguments: None,
                remember: None,
            },
        },
    })
}

/// A JSON object, as it is written.
fn object(text: &str) -> Result<Box<RawValue>, ConfigError> {
    let problem = match serde_json::from_str::<Box<RawValue>>(text) {
        Ok(value) if value.get().starts_with('{') => return Ok(value),
        Ok(_) => "is not a JSON object".to_owned(),
        Err(error) => format!("is not JSON ({error})"),
    };
    let problem = format!("{problem}; write such as '{{\"city\": \"Oslo\"}}'");
    Err(ConfigError::invalid(
        Origin::Flag("arguments".to_owned()),
        problem,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::cli::ServerFlags;
    use super::*;

    fn load(
        flags: &[Option<&str>; 2],
        command: &ApprovalsCommand,
        variables: &[(&str, &str)],
    ) -> Result<ApprovalsConfig, String> {
        let [server, key_env] = flags.map(|flag| flag.map(ToOwned::to_owned));
        let arguments = ApprovalsArguments {
            command: command.clone(),
            server: ServerFlags { server, key_env },
        };
        let env = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        ApprovalsConfig::load(&arguments, &env).map_err(|error| error.to_string())
    }

    const LIST: ApprovalsCommand = ApprovalsCommand::List { json: false };

    #[test]
    fn the_server_is_that_of_the_flag_the_variable_or_the_default() {
        let variables = [("LOOPWRIGHT_SERVER", "https://b.test/proxy/v1/")];
        for (flag, variables, expected) in [
            (None, &[][..], "http://127.0.0.1:8080/"),
            (None, &variables[..], "https://b.test/proxy"),
            (
                Some("http://a.test:1/v1"),
                &variables[..],
                "http://a.test:1/",
            ),
            (Some("http://[::1]:1"), &[][..], "http://[::1]:1/"),
        ] {
            let config = load(&[flag, None], &LIST, variables).unwrap();
            assert_eq!(config.server.as_str(), expected);
        }
        for wrong in ["127.0.0.1:8080", "localhost:1", "ftp://h", "", "http://"] {
            let refused = load(&[Some(wrong), None], &LIST, &[]).unwrap_err();
            assert!(refused.starts_with("--server: is not the URL"), "{refused}");
        }
        for wrong in ["http://u:s3cret@h", "http://h?key=s3cret"] {
            let refused = load(&[None, None], &LIST, &[("LOOPWRIGHT_SERVER", wrong)]).unwrap_err();
            assert!(refused.starts_with("LOOPWRIGHT_SERVER: h"), "{refused}");
            assert!(!refused.contains("s3cret"), "{refused}");
        }
    }

    #[test]
    fn the_key_is_in_a_variable_and_is_not_shown() {
        let variables = [("LOOPWRIGHT_API_KEY", "s3cret"), ("OTHER", "o\u{1b}ther")];
        let config = load(&[None, None], &LIST, &variables).unwrap();
        assert_eq!(config.authorization.as_ref().unwrap(), "Bearer s3cret");
        assert!(!format!("{config:?}").contains("s3cret"));
        assert!(
            load(&[None, None], &LIST, &[])
                .unwrap()
                .authorization
                .is_none()
        );
        let unset = load(&[None, Some("UNSET")], &LIST, &variables).unwrap_err();
        assert_eq!(
            unset,
            "--key-env: the environment variable UNSET is not set"
        );
        let other = load(&[None, Some("OTHER")], &LIST, &variables).unwrap_err();
        assert!(other.starts_with("OTHER: is no API key"), "{other}");
    }

    #[test]
    fn wrong_ids_and_arguments_are_refused_before_the_server_is_asked() {
        let id = ApprovalId::fresh().to_string();
        let approve = |id: &str, arguments: &str| ApprovalsCommand::Approve {
            id: id.to_owned(),
            arguments: Some(arguments.to_owned()),
            remember: None,
            message: None,
        };
        for (id, arguments, part) in [
            ("../sessions", "{}", "ID: is not the id"),
            (&id, "[1]", "--arguments: is not a JSON object"),
            (&id, "{'a': 1}", "--arguments: is not JSON ("),
        ] {
            let refused = load(&[None, None], &approve(id, arguments), &[]).unwrap_err();
            assert!(refused.starts_with(part), "{refused}");
        }
        // Numbers stay as they are written.
        let exact = r#"{"n": 123456789012345678901234567890}"#;
        let config = load(&[None, None], &approve(&id, exact), &[]).unwrap();
        let ApprovalsTask::Decide { decision, .. } = config.task else {
            panic!("a decision was asked for");
        };
        assert_eq!(decision.arguments.unwrap().get(), exact);
    }
}
