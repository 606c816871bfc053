//! The faults of a request, by the condition under which each counts.

use protocol::openai::request::RequestError;

/// The condition under which a fault counts, in the order in which a request is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultScope {
    /// No condition: it counts before the route of the model is chosen.
    Head,
    /// The model is served.
    Request,
    /// The server runs code.
    Code,
    /// The model is served. Checked after the faults of code.
    Files,
    /// The server searches the web.
    Web,
    /// The server connects to MCP servers that requests declare.
    Servers,
    /// The model is served, and the fields of all tools are right.
    Tools,
    /// An extension is used, or server-side tools are offered without being asked for.
    Extensions,
    /// The request is run as a turn.
    Turn,
}

/// The faults of a request, in the order of its fields.
#[derive(Debug, Default)]
pub struct Faults(Vec<(FaultScope, RequestError)>);

impl Faults {
    /// Records a fault, and continues with the default value.
    pub fn note<T: Default>(&mut self, scope: FaultScope, read: Result<T, RequestError>) -> T {
        read.unwrap_or_else(|error| {
            self.0.push((scope, error));
            T::default()
        })
    }

    /// The first fault.
    pub fn first(self) -> Option<RequestError> {
        self.0.into_iter().next().map(|(_, error)| error)
    }

    /// Reports the first fault of a scope.
    ///
    /// # Errors
    /// When there is one.
    pub fn check(&self, scope: FaultScope) -> Result<(), RequestError> {
        let mut faults = self.0.iter();
        match faults.find(|(of, _)| *of == scope) {
            Some((_, error)) => Err(error.clone()),
            None => Ok(()),
        }
    }
}
