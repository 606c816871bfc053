//! The types that a schema names.

use serde_json::Value;

/// The types that a schema allows, a bit for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Types(u8);

impl Types {
    /// What the schema `false` allows.
    pub(super) const NONE: Self = Self(0);
    const NUMBER: u8 = 8;

    pub(super) fn read(value: &Value) -> Self {
        let bit = |name: &Value| match name.as_str() {
            Some("null") => 1,
            Some("boolean") => 2,
            // Whether it is an integer is not looked at, so this is a fault that there may be.
            Some("number") => Self::NUMBER,
            Some("string") => 16,
            Some("array") => 32,
            Some("object") => 64,
            _ => 0,
        };
        match value {
            Value::Array(names) => Self(names.iter().fold(0, |bits, name| bits | bit(name))),
            name => Self(bit(name)),
        }
    }

    pub(super) fn allow(self, value: &Value) -> bool {
        let bit = match value {
            Value::Null => 1,
            Value::Bool(_) => 2,
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => 16,
            Value::Array(_) => 32,
            Value::Object(_) => 64,
        };
        self.0 & bit != 0
    }
}
