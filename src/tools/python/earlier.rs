//! What earlier calls of a conversation have left in the interpreter, by their results.

use super::{EXECUTE_PYTHON, RESET_PYTHON, files, report};
use protocol::openai::message::NO_OUTPUT;

/// What earlier calls have left in the interpreter and its working directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EarlierCode {
    /// No code has run.
    #[default]
    None,
    /// Files at most: the variables were cleared after the last code.
    Files,
    /// Variables and files.
    Variables,
}

/// Parts of results of calls that may have run, without a result of their own: cancelled, interrupted, too late, failed.
const UNCERTAIN: [&str; 3] = [
    "may have taken effect",
    "did not answer within",
    "failed unexpectedly",
];

impl EarlierCode {
    /// The state after one more call with this result. A call that was not run, because it was refused or its arguments
    /// were not valid, does not change the state.
    pub fn after(self, tool: &str, result: &str) -> Self {
        match (tool, self) {
            (EXECUTE_PYTHON, _) if may_have_run(result) => Self::Variables,
            (RESET_PYTHON, Self::Variables) if result.starts_with(files::CLEARED) => Self::Files,
            _ => self,
        }
    }
}

fn may_have_run(result: &str) -> bool {
    result.starts_with(NO_OUTPUT)
        || report::begins_with_label(result)
        || UNCERTAIN.iter().any(|part| result.contains(part))
}

#[cfg(test)]
mod tests {
    use super::EarlierCode::{Files, None, Variables};
    use super::*;

    #[test]
    fn only_code_that_may_have_run_leaves_something() {
        for (result, expected) in [
            ("stdout:\nset", Variables),
            ("exception:\nZeroDivisionError: division by zero", Variables),
            ("ended:\nOut of memory", Variables),
            (NO_OUTPUT, Variables),
            ("notices:\n- the interpreter is new", Variables),
            (
                "The call was cancelled while it was running. It may have taken effect or not; find out",
                Variables,
            ),
            ("the tool did not answer within 70 s", Variables),
            // Refused by the operator or the policy, broken, late, without an interpreter.
            ("this server does not permit calls", None),
            (
                "The arguments of execute_python are not valid: 'code' is missing",
                None,
            ),
            (
                "This call was not run: the time limit of this turn was reached before it started.",
                None,
            ),
            ("too many code calls are waiting; try again later", None),
            ("the Python interpreter could not be started", None),
            ("the result: is not a section", None),
        ] {
            assert_eq!(None.after(EXECUTE_PYTHON, result), expected, "{result}");
        }
    }

    #[test]
    fn a_reset_clears_variables_and_no_other_tool_does() {
        let reset = format!(
            "{} Files in the working directory are kept.",
            files::CLEARED
        );
        for (before, tool, result, expected) in [
            (Variables, RESET_PYTHON, reset.as_str(), Files),
            (Files, RESET_PYTHON, &reset, Files),
            (None, RESET_PYTHON, &reset, None),
            (
                Variables,
                RESET_PYTHON,
                "too many code calls are waiting",
                Variables,
            ),
            (Files, EXECUTE_PYTHON, "result:\n1", Variables),
            (Variables, EXECUTE_PYTHON, "not permitted", Variables),
            (None, "read_file", "stdout:\nx", None),
            (None, "get_weather", NO_OUTPUT, None),
        ] {
            assert_eq!(
                before.after(tool, result),
                expected,
                "{before:?} {tool} {result}"
            );
        }
    }
}
