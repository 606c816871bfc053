//! A member of a body that loopwright acts on.

use serde::Deserialize;
use serde_json::value::RawValue;

use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;

/// A member of the body and its name. Reading consumes it, so that no member is read twice.
#[derive(Debug, Clone)]
pub(in crate::dialects) struct Field<'a> {
    pub(in crate::dialects) name: &'static str,
    /// The unparsed value, which may be `null`.
    value: Option<&'a RawValue>,
}

impl<'a> Field<'a> {
    /// A member of an object; the last one where the key is repeated.
    pub(in crate::dialects) fn of(object: &RawObject<'a>, name: &'static str) -> Self {
        let value = object.get(name);
        Self { name, value }
    }

    /// The unparsed value, unless it is absent or `null`.
    pub(in crate::dialects) fn raw(self) -> Option<&'a RawValue> {
        self.value.filter(|value| value.get() != "null")
    }

    /// The value as a type; `None` if it is absent or `null`. `expected` describes the type in the error.
    ///
    /// # Errors
    /// When the value is of another type.
    pub(in crate::dialects) fn read<T: Deserialize<'a>>(
        self,
        expected: &str,
    ) -> Result<Option<T>, RequestError> {
        let name = self.name;
        self.raw()
            .map(|value| serde_json::from_str(value.get()))
            .transpose()
            .map_err(|_| RequestError::invalid(name, &format!("must be {expected}")))
    }
}
