//! Queries to the web.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use protocol::ids::Owner;

/// One search.
#[derive(Debug, Clone)]
pub struct SearchQuery {
    /// One or more wordings; all are searched and their results merged.
    pub queries: Vec<String>,
    /// Most results.
    pub max_results: usize,
    /// The maximum age of results.
    pub freshness: Option<Freshness>,
    /// The permitted hosts.
    pub domains: Arc<DomainFilter>,
    /// The user's location.
    pub location: Option<Arc<Location>>,
    /// Most tokens of passages.
    pub budget: usize,
    /// Who asks. Owners share no cached results.
    pub owner: Owner,
}

/// One page to read.
#[derive(Debug, Clone)]
pub struct PageQuery {
    /// The URL, as the model wrote it.
    pub url: String,
    /// A query for passages; without it the text from its start is returned.
    pub find: Option<String>,
    /// The permitted hosts.
    pub domains: Arc<DomainFilter>,
    /// Most tokens of text.
    pub budget: usize,
    /// Who asks. Owners share no cached pages.
    pub owner: Owner,
}

/// The maximum age of a result.
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

/// The approximate location of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
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

impl Freshness {
    /// The value for this age, out of those for a day, a week, a month and a year.
    pub(super) fn select<T>(self, [day, week, month, year]: [T; 4]) -> T {
        match self {
            Self::Day => day,
            Self::Week => week,
            Self::Month => month,
            Self::Year => year,
        }
    }
}

/// Lists of domains, each with all its subdomains. The default permits every host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainFilter {
    /// Only these are permitted; an empty list permits all.
    pub allowed: Vec<String>,
    /// These are not permitted.
    pub blocked: Vec<String>,
}

impl DomainFilter {
    /// Whether a host, in the form of [`url::Url::host_str`], is permitted.
    pub(crate) fn permits(&self, host: &str) -> bool {
        let within = |domain: &String| is_within(host, domain);
        (self.allowed.is_empty() || self.allowed.iter().any(within))
            && !self.blocked.iter().any(within)
    }

    /// The intersection with a list of domains; none if it is empty.
    pub fn narrowed(&self, domains: &[String]) -> Option<Self> {
        let mut allowed = Vec::new();
        for domain in domains {
            let inside = self.allowed.is_empty()
                || self.allowed.iter().any(|known| is_within(domain, known));
            let narrower = self.allowed.iter().filter(|known| is_within(known, domain));
            match inside {
                true => allowed.push(domain.clone()),
                false => allowed.extend(narrower.cloned()),
            }
        }
        (!allowed.is_empty()).then(|| Self {
            allowed,
            blocked: self.blocked.clone(),
        })
    }
}

/// Whether a host is a domain or one of its subdomains.
fn is_within(host: &str, domain: &str) -> bool {
    let host = host.trim_end_matches('.');
    host.strip_suffix(domain)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_stands_for_itself_and_its_subdomains() {
        let filter = DomainFilter {
            allowed: vec!["example.org".to_owned(), "b.test".to_owned()],
            blocked: vec!["bad.example.org".to_owned()],
        };
        for (host, permitted) in [
            ("example.org", true),
            ("example.org.", true),
            ("www.example.org", true),
            ("badexample.org", false),
            ("bad.example.org", false),
            ("very.bad.example.org", false),
            ("b.test", true),
            ("test", false),
        ] {
            assert_eq!(filter.permits(host), permitted, "{host}");
        }
        assert!(DomainFilter::default().permits("anything.test"));
    }
}
