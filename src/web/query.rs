//! What is asked of the web.

use std::sync::Arc;

use super::DomainFilter;

/// One search.
#[derive(Debug, Clone)]
pub struct SearchQuery {
    /// What to look for, in one or more wordings; all are searched and their results merged.
    pub queries: Vec<String>,
    /// Most results.
    pub max_results: usize,
    /// How old results may be.
    pub freshness: Option<Freshness>,
    /// Which hosts.
    pub domains: Arc<DomainFilter>,
    /// Where the user is.
    pub location: Option<Arc<Location>>,
    /// Room for the passages, in tokens.
    pub budget: usize,
    /// Whose search it is: results are cached for each separately.
    pub scope: String,
}

/// One page to read.
#[derive(Debug, Clone)]
pub struct PageQuery {
    /// Where it is, as the model wrote it.
    pub url: String,
    /// What to look for in it; the page from its beginning where there is nothing.
    pub find: Option<String>,
    /// Which hosts.
    pub domains: Arc<DomainFilter>,
    /// Room for the text, in tokens.
    pub budget: usize,
    /// Whose request it is.
    pub scope: String,
}

/// How old a result may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// A day.
    Day,
    /// A week.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
}

/// Roughly where a user is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// ISO 3166-1 alpha-2, upper case.
    pub country: Option<String>,
    /// A region or state.
    pub region: Option<String>,
    /// A city.
    pub city: Option<String>,
    /// An IANA time zone.
    pub timezone: Option<String>,
}
