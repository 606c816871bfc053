//! Token counts and finish reasons.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Why a model stopped: the values of `finish_reason` that clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The answer was cut at a token limit.
    Length,
    /// The model calls tools.
    ToolCalls,
    /// A content filter stopped the answer.
    ContentFilter,
}

impl FinishReason {
    /// The value of `finish_reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// A `usage` object with all members that the upstream reports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Usage(Map<String, Value>);

impl Usage {
    /// Parses a usage object; `None` if the text is not an object or is an empty one.
    pub fn parse(json: &str) -> Option<Self> {
        serde_json::from_str::<Map<String, Value>>(json)
            .ok()
            .filter(|map| !map.is_empty())
            .map(Self)
    }

    /// Adds the numbers of another usage object, member by member, nested objects included.
    pub fn add(&mut self, other: &Self) {
        add_maps(&mut self.0, &other.0);
    }

    /// The sum of prompt and completion tokens, as reported or else computed.
    pub fn total_tokens(&self) -> u64 {
        self.number("total_tokens").unwrap_or_else(|| {
            self.prompt_tokens()
                .saturating_add(self.completion_tokens())
        })
    }

    /// The number of prompt tokens; 0 if not reported.
    pub fn prompt_tokens(&self) -> u64 {
        self.number("prompt_tokens").unwrap_or(0)
    }

    /// The number of completion tokens; 0 if not reported.
    pub fn completion_tokens(&self) -> u64 {
        self.number("completion_tokens").unwrap_or(0)
    }

    /// The object as JSON.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.clone())
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key).and_then(Value::as_u64)
    }
}

fn add_maps(sum: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (key, value) in other {
        match (sum.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(more)) => add_maps(inner, more),
            (Some(Value::Number(number)), Value::Number(more)) => {
                if let (Some(a), Some(b)) = (number.as_u64(), more.as_u64()) {
                    *number = a.saturating_add(b).into();
                } else if let (Some(a), Some(b)) = (number.as_f64(), more.as_f64()) {
                    *number = serde_json::Number::from_f64(a + b).unwrap_or_else(|| number.clone());
                }
            }
            (Some(Value::Null) | None, value) => {
                sum.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_with_their_details() {
        let mut sum = Usage::parse(
            r#"{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":null,"cost":0.5}"#,
        )
        .unwrap();
        let more = r#"{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6,"prompt_tokens_details":{"cached_tokens":4},"cost":0.25}"#;
        sum.add(&Usage::parse(more).unwrap());
        assert_eq!(
            sum.to_value(),
            serde_json::json!({"prompt_tokens":15,"completion_tokens":3,"total_tokens":18,
                "prompt_tokens_details":{"cached_tokens":4},"cost":0.75})
        );
        assert_eq!(Usage::parse("null"), None);
        assert_eq!(
            Usage::parse(r#"{"prompt_tokens":1,"completion_tokens":2}"#)
                .unwrap()
                .total_tokens(),
            3
        );
    }

    #[test]
    fn sums_saturate_at_the_largest_number() {
        let huge = r#"{"prompt_tokens":18446744073709551615,"completion_tokens":5}"#;
        let mut sum = Usage::parse(huge).unwrap();
        assert_eq!(sum.total_tokens(), u64::MAX);
        sum.add(&Usage::parse(huge).unwrap());
        assert_eq!(sum.prompt_tokens(), u64::MAX);
        assert_eq!(sum.completion_tokens(), 10);
    }
}
