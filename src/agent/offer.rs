//! What the server has for a request: the models, the sources of tools and the caps, as a dialect's decoder sees them.

use std::sync::Arc;

use super::settings::Settings;
use crate::openai::request::RequestError;
use crate::tools::source::SourceList;
use crate::upstream::router::{Route, Router};

/// What the server has for a request.
#[derive(Debug)]
pub struct ServerOffer<'a> {
    router: &'a Router,
    sources: Arc<SourceList>,
    settings: &'a Settings,
}

impl<'a> ServerOffer<'a> {
    /// An offer of these parts.
    pub(super) fn new(
        router: &'a Router,
        sources: Arc<SourceList>,
        settings: &'a Settings,
    ) -> Self {
        Self {
            router,
            sources,
            settings,
        }
    }

    /// The upstreams that serve a model.
    ///
    /// # Errors
    /// When there is none.
    pub fn route(&self, model: &str) -> Result<Arc<Route>, RequestError> {
        self.router.candidates(model).ok_or_else(|| {
            let message = format!("no upstream serves the model '{model}'; see GET /v1/models");
            RequestError {
                missing: true,
                ..RequestError::field("model", message)
            }
        })
    }

    /// The sources of server-side tools, as they are for this request.
    pub fn sources(&self) -> &SourceList {
        &self.sources
    }

    /// The caps of the server.
    pub fn settings(&self) -> &Settings {
        self.settings
    }
}
