//! The ids of calls that wait for a person's decision.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ordered;
use super::run::ISSUED_RUN_ID_CHARS;

/// The beginning of the ids of the items that ask for approvals.
const ITEM_PREFIX: &str = "mcpr_";
/// The beginning of the ids of approvals.
const PREFIX: &str = "apr_";

/// The id of a call that waits for a decision. Ids are ordered by time, and cannot be guessed. The owner is checked as well.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String")]
#[schemars(inline)]
pub struct ApprovalId(Arc<str>);

impl ApprovalId {
    /// Makes a fresh id.
    pub fn fresh() -> Self {
        Self(format!("{PREFIX}{}", ordered()).into())
    }

    /// Reads an id; a text of another form is the id of no approval.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        // The same number as in the ids of runs, which are made in the same way.
        let well_formed = digits.len() == ISSUED_RUN_ID_CHARS[0] && digits.bytes().all(lower_hex);
        well_formed.then(|| Self(text.into()))
    }

    /// The approval that the id of an item leads to.
    pub fn of_item(id: &str) -> Option<Self> {
        let digits = id.strip_prefix(ITEM_PREFIX)?;
        Self::parse(&format!("{PREFIX}{digits}"))
    }

    /// The id of the item that asks for it.
    pub fn item_id(&self) -> String {
        let digits = self.0.strip_prefix(PREFIX).unwrap_or_default();
        format!("{ITEM_PREFIX}{digits}")
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ApprovalId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not the id of an approval")
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_issued_is_an_id() {
        let ids = [(); 100].map(|()| ApprovalId::fresh());
        assert!(ids.is_sorted());
        let [good, ..] = &ids;
        assert_eq!(ApprovalId::parse(good.as_str()).as_ref(), Some(good));
        let item = good.item_id();
        assert!(item.starts_with("mcpr_"), "{item}");
        assert_eq!(ApprovalId::of_item(&item).as_ref(), Some(good));
        assert_eq!(ApprovalId::of_item(good.as_str()), None);
        let json = serde_json::to_string(good).unwrap();
        assert_eq!(serde_json::from_str::<ApprovalId>(&json).unwrap(), *good);
        let digits = good.as_str().trim_start_matches(PREFIX);
        for bad in [
            String::new(),
            PREFIX.to_owned(),
            digits.to_owned(),
            format!("{good}0"),
            format!("apr-{digits}"),
            good.as_str().to_uppercase(),
            format!("{PREFIX}{}", "g".repeat(digits.len())),
        ] {
            assert_eq!(ApprovalId::parse(&bad), None, "{bad}");
            let json = serde_json::to_string(&bad).unwrap();
            assert!(serde_json::from_str::<ApprovalId>(&json).is_err(), "{bad}");
        }
    }
}
