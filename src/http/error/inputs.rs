//! Answers to input files that cannot be used.

use super::ApiError;
use crate::agent::inputs::{InputFileError, InputFileProblem};
use crate::chat::position::file_path;
use crate::openai::request::RequestError;

impl From<InputFileError> for ApiError {
    fn from(error: InputFileError) -> Self {
        // Every turn comes from a chat request.
        let param = file_path(&error.position);
        let message = match error.problem {
            InputFileProblem::NotFound { id } => {
                format!("there is no file '{id}'; upload it with POST /v1/files, or send it inline")
            }
            InputFileProblem::NotAnId => format!(
                "'{param}' is not the id of a file of this server; upload the file with POST /v1/files"
            ),
            InputFileProblem::NotBase64 => {
                format!("'{param}' must be base64, as in \"data:text/csv;base64,…\"")
            }
            InputFileProblem::TooLarge { limit } => {
                format!("the file in '{param}' is larger than {limit} bytes; send a smaller one")
            }
        };
        RequestError::field(&param, message).into()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::agent::inputs::{FileMember, FilePosition, PartForm, PartIndex};

    #[test]
    fn the_answer_names_the_part_of_the_message_that_holds_the_file() {
        let position = FilePosition::Part {
            index: PartIndex {
                message: 1,
                part: 0,
            },
            form: PartForm::File,
            member: FileMember::Data,
        };
        let problem = InputFileProblem::TooLarge { limit: 7 };
        let answer = ApiError::from(InputFileError { position, problem });
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        let envelope: serde_json::Value = serde_json::from_str(&answer.envelope()).unwrap();
        let param = "messages[1].content[0].file.file_data";
        assert_eq!(envelope["error"]["param"], param);
        assert_eq!(
            envelope["error"]["message"],
            format!("the file in '{param}' is larger than 7 bytes; send a smaller one")
        );
    }
}
