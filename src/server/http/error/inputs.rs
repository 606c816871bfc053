//! Answers to input files that cannot be used.

use super::ApiError;
use agent::inputs::InputFileProblem;
use protocol::openai::request::RequestError;

/// The answer to an input file that the field `param` of the request names or holds.
pub(super) fn refused(problem: InputFileProblem, param: &str) -> ApiError {
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

/// The answer to the output of a call that nothing of this server holds.
pub(in super::super) fn unknown_call(call: &str) -> RequestError {
    let message = format!(
        "'input' has an output for the call '{call}', which neither the input nor the history holds; send the call with it"
    );
    RequestError {
        code: Some("no_tool_call_found"),
        ..RequestError::field("input", message)
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use agent::AgentError;
    use agent::inputs::{FilePosition, InputFileError};

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
