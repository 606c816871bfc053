//! Answers to failed turns, and to requests for turns that cannot be admitted.

use super::{ApiError, codes};
use agent::AgentError;
use agent::admit::AdmissionError;
use agent::inputs::{FilePosition, InputFileProblem};
use protocol::openai::request::RequestError;

impl From<AdmissionError> for ApiError {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Request(error) => error.into(),
            AdmissionError::UnknownCall(call) => unknown_call(&call),
        }
    }
}

impl ApiError {
    /// The answer to a failed turn. The dialect of its request names the place of an input file.
    pub(in crate::http) fn of_turn(
        error: AgentError,
        file_path: impl FnOnce(&FilePosition) -> String,
    ) -> Self {
        match error {
            AgentError::Upstream(error) => error.into(),
            AgentError::Session(error) => error.into(),
            AgentError::InputFile(error) => {
                unusable_file(error.problem, &file_path(&error.position))
            }
            AgentError::Files(error) => error.into(),
            AgentError::UnknownCall { call } => unknown_call(&call),
            AgentError::Approval { param, is_known } => refused_decision(param, is_known),
            AgentError::NothingWaits => Self::nothing_waits("messages"),
            AgentError::NoPosition => Self::no_previous_response(),
            AgentError::Stopping => codes::SHUTTING_DOWN.into(),
            AgentError::Hook => codes::HOOK_FAILED.into(),
            AgentError::NoSession => Self::no_session(),
            AgentError::NeedsApproval { tool, reason, rule } => {
                Self::approval_required(&tool, reason.as_deref(), rule.as_ref())
            }
            AgentError::Limit(reason) => codes::AGENT_LIMIT_EXCEEDED.with(format!(
                "the turn reached the limit {}; raise the limit or set agent.on_limit to \"final_answer\" or \"stop\"",
                reason.as_str()
            )),
        }
    }

    /// For a response that cannot be continued.
    pub(in crate::http) fn no_previous_response() -> Self {
        codes::PREVIOUS_RESPONSE_NOT_FOUND
            .error()
            .about("previous_response_id")
    }

    /// For a request without messages, in a session that has no suspended turn.
    pub(in crate::http) fn nothing_waits(field: &str) -> Self {
        let message = format!(
            "'{field}' is empty, and no turn of the session waits to go on; send at least one message"
        );
        RequestError::field(field, message).into()
    }

    /// For a run that waited, and whose turn another request has resumed.
    pub(in crate::http) fn run_left() -> Self {
        codes::RUN_INTERRUPTED.with(
            "another request of its session has gone on with the turn of this run; the session holds what was done",
        )
    }
}

/// For the output of a call that nothing of this server holds.
fn unknown_call(call: &str) -> ApiError {
    let message = format!(
        "'input' has an output for the call '{call}', which neither the input nor the history holds; send the call with it"
    );
    codes::NO_TOOL_CALL_FOUND.with(message).about("input")
}

/// For a decision in a request about an approval that is decided, or that its conversation does not have.
fn refused_decision(param: String, is_known: bool) -> ApiError {
    if !is_known {
        let problem = "names no approval of this conversation; send the id of its mcp_approval_request, with the \
                       previous_response_id or the conversation";
        return RequestError::invalid(&param, problem).into();
    }
    codes::APPROVAL_DECIDED.error().about(param)
}

/// For an input file that the field `param` of the request names or holds.
fn unusable_file(problem: InputFileProblem, param: &str) -> ApiError {
    let message = match problem {
        InputFileProblem::NotFound { id } => {
            format!("there is no file '{id}'; upload it with POST /v1/files, or send it inline")
        }
        InputFileProblem::NotAnImage { id } => {
            format!("the file '{id}' is no image; send it as a file")
        }
        InputFileProblem::NotAnId => format!(
            "'{param}' is not the id of a file of this server; upload the file with POST /v1/files"
        ),
        InputFileProblem::NotBase64 => {
            format!("'{param}' must be base64, as in \"data:text/csv;base64,…\"")
        }
        InputFileProblem::Download { reason } => format!(
            "the file at '{param}' could not be downloaded: {reason}; send its content in 'file_data', or upload it with POST /v1/files"
        ),
        InputFileProblem::TooLarge { limit } => {
            format!("the file in '{param}' is larger than {limit} bytes; send a smaller one")
        }
    };
    RequestError::field(param, message).into()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use agent::inputs::InputFileError;

    #[test]
    fn the_answer_names_the_place_of_the_file_as_the_dialect_does() {
        let position = FilePosition::Field("input".to_owned());
        let problem = InputFileProblem::TooLarge { limit: 7 };
        let error = AgentError::from(InputFileError { position, problem });
        let answer = ApiError::of_turn(error, |position| match position {
            FilePosition::Field(name) => format!("{name}[0]"),
            FilePosition::Part { .. } => String::new(),
        });
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        let envelope: serde_json::Value = serde_json::from_str(&answer.envelope()).unwrap();
        let param = "input[0]";
        assert_eq!(envelope["error"]["param"], param);
        assert_eq!(
            envelope["error"]["message"],
            format!("the file in '{param}' is larger than 7 bytes; send a smaller one")
        );
    }
}
