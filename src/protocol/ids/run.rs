//! The id of a run, and the dialects' ids that are derived from it and lead back to it.

use std::sync::Arc;

use super::{IdError, ordered};

/// What the dialects put before the id of a run.
const RUN_ID_PREFIXES: [&str; 3] = ["chatcmpl-", "resp_", "msg_"];
/// Numbers of characters in the ids of runs that this server makes, and in those that it made first.
pub(super) const ISSUED_RUN_ID_CHARS: [usize; 2] = [48, 32];
/// Longest id of a run without its prefix, in characters; there is no run with a longer one.
/// Tried by `run::a_run_has_one_id_in_all_dialects`.
const MAX_RUN_ID_CHARS: usize = 64;

/// The id of a run, without the prefix that a dialect gives it. Ids are ordered by time, by which the runs of a session are
/// ordered, and cannot be guessed. The owner is checked as well.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Makes a fresh id.
    pub fn fresh() -> Self {
        Self(ordered().into())
    }

    /// Reads the id of an answer in any dialect: a prefix, and 1 to 64 letters and digits.
    ///
    /// # Errors
    /// When the text is not of that form.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let found = RUN_ID_PREFIXES
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix));
        let id = found.ok_or(IdError::Character)?;
        if id.is_empty() || id.len() > MAX_RUN_ID_CHARS {
            return Err(IdError::Length);
        }
        match id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            true => Ok(Self(id.into())),
            false => Err(IdError::Character),
        }
    }

    /// The id without a dialect's prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the id has a form that this server issues or has issued.
    pub fn has_issued_form(&self) -> bool {
        ISSUED_RUN_ID_CHARS.contains(&self.0.len())
    }

    /// The id of the run's response.
    pub fn response_id(&self) -> String {
        format!("resp_{}", self.0)
    }

    /// The id of an item of the run's response. It leads back to the run.
    pub fn item_id(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}_{index}", self.0)
    }

    /// The run that an item's id leads to. Text of another form leads to none.
    pub fn of_item(id: &str) -> Option<Self> {
        let mut parts = id.split('_');
        let (prefix, run, index) = (parts.next()?, parts.next()?, parts.next()?);
        let plain =
            |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        let well_formed = plain(prefix) && plain(index) && parts.next().is_none();
        (well_formed && plain(run) && run.len() <= MAX_RUN_ID_CHARS).then(|| Self(run.into()))
    }

    /// The run that a container's id leads to.
    pub fn of_container(id: &str) -> Option<Self> {
        let run = id.strip_prefix("cntr_")?;
        let plain = run.bytes().all(|byte| byte.is_ascii_alphanumeric());
        (plain && (1..=MAX_RUN_ID_CHARS).contains(&run.len())).then(|| Self(run.into()))
    }

    /// The id of the container in which the code of the run's session runs.
    pub fn container_id(&self) -> String {
        format!("cntr_{}", self.0)
    }

    /// The id of the run's chat completion.
    pub fn completion_id(&self) -> String {
        format!("chatcmpl-{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_one_id_in_all_dialects() {
        let run = RunId::fresh();
        assert!(run.has_issued_form());
        assert_eq!(run.as_str().len(), 48);
        assert_eq!(RunId::parse(&run.completion_id()).as_ref(), Ok(&run));
        for prefix in ["resp_", "msg_"] {
            let id = format!("{prefix}{}", run.as_str());
            assert_eq!(RunId::parse(&id).as_ref(), Ok(&run));
        }
        for bad in ["", "x", "chatcmpl-", "chatcmpl-a_b", "chatcmpl-ä", "req_1"] {
            assert!(RunId::parse(bad).is_err(), "{bad}");
        }
        let longest = "x".repeat(64);
        assert!(RunId::parse(&format!("msg_{longest}")).is_ok());
        assert!(RunId::parse(&format!("msg_{longest}x")).is_err());
    }
}
