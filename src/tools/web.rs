//! The web as tools: `web_search` and `read_page`.
//!
//! Owns the texts for models: descriptions, and results in which every line from a page is marked as a quotation. The
//! module [`web`] finds, fetches and reads pages.

mod arguments;
mod describe;
mod report;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use self::arguments::{ReadArguments, SearchArguments};
use super::requested::WebOptions;
use super::{
    SharedTool, Tool, ToolError, ToolInvocation, ToolKind, ToolOutput, ToolPolicy, ToolSource,
};
use protocol::openai::tool::ToolDefinition;
use web::{PageContent, PageQuery, SearchQuery, SearchResults, Web, WebError};

pub(crate) use web::WebStats;
pub use web::{DomainFilter, Location};

/// The tool that searches.
pub(crate) const WEB_SEARCH: &str = "web_search";
/// The tool that reads a page.
pub(crate) const READ_PAGE: &str = "read_page";

/// Longest time of one call: a search at several providers, and then the pages. After it the call fails.
const TIME_LIMIT: Duration = Duration::from_secs(90);

/// The web and the tools for it; cheap to clone.
#[derive(Debug, Clone)]
pub struct WebAccess {
    web: Backend,
    tools: Arc<[SharedTool]>,
    by_default: bool,
}

/// The web behind the tools, or a scripted stand-in in tests.
#[derive(Debug, Clone)]
enum Backend {
    Web(Web),
    #[cfg(test)]
    Fake(Arc<tests::Fake>),
}

impl Backend {
    async fn search(&self, query: &SearchQuery) -> Result<SearchResults, WebError> {
        match self {
            Self::Web(web) => web.search(query).await,
            #[cfg(test)]
            Self::Fake(fake) => fake.search(query),
        }
    }

    async fn read(&self, query: &PageQuery) -> Result<PageContent, WebError> {
        match self {
            Self::Web(web) => web.read(query).await,
            #[cfg(test)]
            Self::Fake(fake) => fake.read(query),
        }
    }

    fn stats(&self) -> WebStats {
        match self {
            Self::Web(web) => web.stats(),
            #[cfg(test)]
            Self::Fake(_) => WebStats::default(),
        }
    }

    fn max_results(&self) -> usize {
        match self {
            Self::Web(web) => web.max_results(),
            #[cfg(test)]
            Self::Fake(_) => tests::MAX_RESULTS,
        }
    }
}

impl WebAccess {
    /// The tools of web search. With `by_default` every request is offered them, otherwise only those that ask for them.
    pub fn new(web: Web, by_default: bool) -> Self {
        Self::over(Backend::Web(web), by_default)
    }

    fn over(web: Backend, by_default: bool) -> Self {
        let tools = both(&web, &WebOptions::default());
        Self {
            web,
            tools: tools.into(),
            by_default,
        }
    }

    /// The tools, in the order in which they are offered.
    pub fn tools(&self) -> &[SharedTool] {
        &self.tools
    }

    /// The tools of a request with these options.
    pub(crate) fn tools_for(&self, ask: &WebOptions) -> Vec<SharedTool> {
        match *ask == WebOptions::default() {
            true => self.tools.to_vec(),
            false => both(&self.web, ask),
        }
    }

    /// How searches and pages went so far.
    pub fn stats(&self) -> WebStats {
        self.web.stats()
    }

    /// Whether requests are offered the tools without asking for them.
    pub(crate) fn is_offered_by_default(&self) -> bool {
        self.by_default
    }
}

fn both(web: &Backend, ask: &WebOptions) -> Vec<SharedTool> {
    let ask = Arc::new(ask.clone());
    let search = describe::search(&ask, web.max_results());
    let read = describe::read(&ask);
    let tool = |action, definition| -> SharedTool {
        Arc::new(WebTool {
            web: web.clone(),
            ask: ask.clone(),
            action,
            definition,
            policy: ToolPolicy {
                idempotent: true,
                read_only: true,
                destructive: false,
                kind: ToolKind::WebSearch,
                ..ToolPolicy::new(ToolSource::BuiltIn, TIME_LIMIT)
            },
        })
    };
    vec![tool(Action::Search, search), tool(Action::Read, read)]
}

/// What one of the tools does.
#[derive(Debug, Clone, Copy)]
enum Action {
    Search,
    Read,
}

/// One of the tools.
#[derive(Debug)]
struct WebTool {
    web: Backend,
    ask: Arc<WebOptions>,
    action: Action,
    definition: ToolDefinition,
    policy: ToolPolicy,
}

impl WebTool {
    async fn search(&self, invocation: &ToolInvocation) -> Result<ToolOutput, ToolError> {
        let most = self.web.max_results();
        let asked = SearchArguments::read(&invocation.arguments, &self.ask.domains, most)?;
        let query = SearchQuery {
            queries: asked.queries,
            max_results: asked.max_results,
            freshness: asked.freshness,
            domains: asked.domains,
            location: self.ask.location.clone(),
            budget: self.ask.context_size.tokens(),
            owner: invocation.context.owner.clone(),
        };
        let findings = self.web.search(&query).await?;
        Ok(report::findings(
            &findings,
            &query.queries,
            &invocation.context.sources,
        ))
    }

    async fn read(&self, invocation: &ToolInvocation) -> Result<ToolOutput, ToolError> {
        let asked = ReadArguments::read(&invocation.arguments)?;
        let query = PageQuery {
            url: asked.url,
            find: asked.find,
            domains: self.ask.domains.clone(),
            budget: self.ask.context_size.tokens(),
            owner: invocation.context.owner.clone(),
        };
        let reading = self.web.read(&query).await?;
        Ok(report::reading(
            &reading,
            query.find.as_deref(),
            &invocation.context.sources,
        ))
    }
}

impl Tool for WebTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        match self.action {
            Action::Search => self.search(invocation).boxed(),
            Action::Read => self.read(invocation).boxed(),
        }
    }
}

impl From<WebError> for ToolError {
    fn from(error: WebError) -> Self {
        match error {
            WebError::Rejected(text) => Self::Rejected(text),
            WebError::Failed(message) => Self::Failed {
                message,
                source: None,
            },
        }
    }
}
