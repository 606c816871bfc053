//! `include`: additional contents of a response.

use protocol::openai::raw::RawObject;
use protocol::openai::request::{RequestError, body_member};

/// Entries that are accepted and have no effect.
const WITHOUT_EFFECT: [&str; 3] = [
    "file_search_call.results",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
];

/// What `include` asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Include {
    pub(super) web_sources: bool,
    pub(super) web_results: bool,
    pub(super) code_outputs: bool,
    pub(super) encrypted_reasoning: bool,
    pub(super) logprobs: bool,
}

impl Include {
    /// Reads the list.
    ///
    /// # Errors
    /// When an entry is not known.
    pub(super) fn read(object: &RawObject<'_>) -> Result<Self, RequestError> {
        let entries: Option<Vec<String>> = body_member(object, "include", "a list of strings")?;
        let mut include = Self::default();
        for entry in entries.unwrap_or_default() {
            match entry.as_str() {
                "web_search_call.action.sources" => include.web_sources = true,
                "web_search_call.results" => include.web_results = true,
                "code_interpreter_call.outputs" => include.code_outputs = true,
                "reasoning.encrypted_content" => include.encrypted_reasoning = true,
                "message.output_text.logprobs" => include.logprobs = true,
                known if WITHOUT_EFFECT.contains(&known) => {}
                unknown => {
                    let message = format!(
                        "'include' has the entry '{unknown}', which is not known; leave it out"
                    );
                    return Err(RequestError::field("include", message));
                }
            }
        }
        Ok(include)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_entries_are_accepted() {
        let read = |list: &str| {
            let body = format!("{{\"include\":{list}}}");
            Include::read(&RawObject::parse(&body).unwrap())
        };
        assert_eq!(read("null"), Ok(Include::default()));
        assert_eq!(
            read(r#"["file_search_call.results"]"#),
            Ok(Include::default())
        );
        assert!(
            read(r#"["code_interpreter_call.outputs"]"#)
                .unwrap()
                .code_outputs
        );
        for wrong in [r#"["all"]"#, r#""all""#, "[1]"] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("include"), "{wrong}");
        }
    }
}
