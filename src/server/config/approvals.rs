//! The arguments of `approvals`.

use serde_json::value::RawValue;

use super::cli::{ApprovalsArguments, ApprovalsCommand, RememberChoice};
use super::server::{GivenKey, ServerAddress, server};
use super::{ConfigError, Environment, Origin, source};
use protocol::ids::ApprovalId;

/// The address of a server with default settings.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
/// What names the server.
const NAMED_BY: &str = "--server or the variable LOOPWRIGHT_SERVER";

/// What `loopwright approvals` does, and with which server.
#[derive(Debug, Clone)]
pub struct ApprovalsConfig {
    /// The server.
    pub server: ServerAddress,
    /// What is done.
    pub(crate) task: ApprovalsTask,
}

/// What `loopwright approvals` does.
#[derive(Debug, Clone)]
pub(crate) enum ApprovalsTask {
    /// Lists the calls that wait.
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
pub(crate) struct DecisionArguments {
    /// Whether the call runs.
    pub(crate) approves: bool,
    /// The reason for the model if the call is denied, or a note if it is approved.
    pub(crate) message: Option<String>,
    /// A JSON object that takes the place of the arguments.
    pub(crate) arguments: Option<Box<RawValue>>,
    /// Which later calls run, too.
    pub(crate) remember: Option<RememberChoice>,
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
        let url = server(&text).map_err(|problem| ConfigError::invalid(origin, problem))?;
        let key = GivenKey::read(flags.key_env.as_deref(), "key-env", env)?;
        Ok(Self {
            server: ServerAddress {
                url,
                authorization: key.header,
                key_variable: key.variable,
                named_by: NAMED_BY,
            },
            task: task(&arguments.command)?,
        })
    }
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
            assert_eq!(config.server.url.as_str(), expected);
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
        assert_eq!(
            config.server.authorization.as_ref().unwrap(),
            "Bearer s3cret"
        );
        assert!(!format!("{config:?}").contains("s3cret"));
        assert!(
            load(&[None, None], &LIST, &[])
                .unwrap()
                .server
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
