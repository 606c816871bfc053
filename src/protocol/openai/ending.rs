//! How an upstream says that an answer has ended.
//!
//! OpenAI's API has five values of `finish_reason`; other servers have words of their own for the same ends, and for ends that
//! OpenAI's API does not have. A word that is not known to be a good end is not one.

use super::usage::FinishReason;

/// How an upstream ended an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The finish reason is known.
    Reason(FinishReason),
    /// The finish reason means a failure or is unknown.
    Failed(Box<str>),
    /// The answer ended in order, but without a finish reason.
    Unstated,
}

/// Words for an answer that is complete.
const STOP: [&str; 14] = [
    "stop",
    "stopped",
    "stop_sequence",
    "stop_token",
    "stop_str",
    "end",
    "end_turn",
    "end_of_text",
    "end_of_turn",
    "eos",
    "eos_token",
    "complete",
    "completed",
    "done",
];
/// Words for an answer that asks for calls.
const TOOL_CALLS: [&str; 5] = [
    "tool_calls",
    "tool_call",
    "tool_use",
    "function_call",
    "function_calls",
];
/// Words for an answer that was cut at a limit of tokens.
const LENGTH: [&str; 15] = [
    "length",
    "max_length",
    "max_tokens",
    "max_token",
    "max_new_tokens",
    "max_output_tokens",
    "max_completion_tokens",
    "max_context_length",
    "model_length",
    "model_context_window_exceeded",
    "context_length",
    "context_length_exceeded",
    "context_window_exceeded",
    "token_limit",
    "output_limit",
];
/// Words for an answer that a filter stopped.
const CONTENT_FILTER: [&str; 13] = [
    "content_filter",
    "content_filtered",
    "filtered",
    "safety",
    "image_safety",
    "recitation",
    "blocklist",
    "prohibited_content",
    "spii",
    "sensitive",
    "refusal",
    "guardrail_intervened",
    "guardrails",
];

impl AnswerEnd {
    /// Reads the value of `finish_reason`; `None` for a word that means that the answer continues.
    ///
    /// Case, separators and the text before a colon or a point (`FinishReason.STOP`) do not matter.
    pub fn of_word(word: &str) -> Option<Self> {
        let plain = word.trim().to_lowercase().replace(['-', ' '], "_");
        let plain = plain.rsplit([':', '.', '/']).next().unwrap_or_default();
        let plain = plain.trim_matches('_');
        let plain = plain.strip_prefix("finish_reason_").unwrap_or(plain);
        let is = |words: &[&str]| words.contains(&plain);
        if matches!(plain, "" | "null" | "none") {
            return None;
        }
        Some(match () {
            () if is(&STOP) => Self::Reason(FinishReason::Stop),
            () if is(&TOOL_CALLS) => Self::Reason(FinishReason::ToolCalls),
            () if is(&LENGTH) => Self::Reason(FinishReason::Length),
            () if is(&CONTENT_FILTER) => Self::Reason(FinishReason::ContentFilter),
            () => Self::Failed(word.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_servers_are_known_in_any_case_and_with_prefixes() {
        for (reason, words) in [
            (
                FinishReason::Stop,
                &[
                    "stop",
                    "STOP",
                    "eos",
                    "end_turn",
                    "stop_sequence",
                    "FinishReason.STOP",
                    "end-turn",
                ][..],
            ),
            (
                FinishReason::ToolCalls,
                &[
                    "tool_calls",
                    "function_call",
                    "tool_use",
                    "TOOL_CALLS",
                    "tool-calls",
                ],
            ),
            (
                FinishReason::Length,
                &[
                    "length",
                    "max_tokens",
                    "MAX_TOKENS",
                    "model_length",
                    "FINISH_REASON_MAX_TOKENS",
                    "max tokens",
                ],
            ),
            (
                FinishReason::ContentFilter,
                &[
                    "content_filter",
                    "SAFETY",
                    "content-filter",
                    "candidate: RECITATION",
                ],
            ),
        ] {
            for word in words {
                assert_eq!(
                    AnswerEnd::of_word(word),
                    Some(AnswerEnd::Reason(reason)),
                    "{word}"
                );
            }
        }
    }

    #[test]
    fn a_word_that_is_not_known_to_be_good_is_a_failure() {
        for word in [
            "abort",
            "error",
            "ERROR",
            "insufficient_system_resource",
            "MALFORMED_FUNCTION_CALL",
            "function_call_filter: MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "other",
            "cancelled",
            "stop?",
        ] {
            assert_eq!(
                AnswerEnd::of_word(word),
                Some(AnswerEnd::Failed(word.into())),
                "{word}"
            );
        }
        for word in ["", "null", " None ", "NULL"] {
            assert_eq!(AnswerEnd::of_word(word), None, "{word:?}");
        }
    }
}
