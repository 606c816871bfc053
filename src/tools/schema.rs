//! Compiled argument schemas.

use std::sync::Arc;

/// A schema ready to check arguments.
#[derive(Debug)]
pub struct CompiledSchema {}

/// Compiled schemas by their text.
#[derive(Debug, Default)]
pub struct SchemaCache {}

impl SchemaCache {
    /// The compiled form of a schema; `None` where it cannot be compiled, so that nothing is checked.
    pub fn get(&self, schema: &str) -> Option<Arc<CompiledSchema>> {
        todo!()
    }
}
