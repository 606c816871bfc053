//! Objects inside a request, whose errors name the member.

use serde::Deserialize;
use serde_json::value::RawValue;

use protocol::openai::raw::RawObject;
use protocol::openai::request::RequestError;

/// An object of the request, and the path that names it in errors.
#[derive(Debug)]
pub(super) struct RequestObject<'a> {
    pub(super) path: &'a str,
    pub(super) members: RawObject<'a>,
}

impl<'a> RequestObject<'a> {
    /// Reads the object; an error shows `example`, the JSON text of a valid one.
    pub(super) fn read(
        value: &'a RawValue,
        path: &'a str,
        example: &str,
    ) -> Result<Self, RequestError> {
        let members = RawObject::parse(value.get()).map_err(|_| {
            RequestError::invalid(path, &format!("must be an object such as {example}"))
        })?;
        Ok(Self { path, members })
    }

    /// A member as a type; `None` if it is absent or `null`. `shape` is the problem in the error, such as
    /// `must be a string`.
    pub(super) fn member<T: Deserialize<'a>>(
        &self,
        name: &str,
        shape: &str,
    ) -> Result<Option<T>, RequestError> {
        self.members
            .get_some(name)
            .map(|value| serde_json::from_str(value.get()))
            .transpose()
            .map_err(|_| self.invalid(name, shape))
    }

    /// An error about a member.
    pub(super) fn invalid(&self, member: &str, problem: &str) -> RequestError {
        RequestError::invalid(&format!("{}.{member}", self.path), problem)
    }
}
