//! Which hosts a request lets a tool see.

/// Lists of domains, each with all its subdomains. The default permits every host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct DomainFilter {
    /// Only these; all where there is none.
    pub allowed: Vec<String>,
    /// Not these.
    pub blocked: Vec<String>,
}

impl DomainFilter {
    /// Whether a host, in the form of [`url::Url::host_str`], may be seen.
    pub fn permits(&self, host: &str) -> bool {
        let within = |domain: &String| is_within(host, domain);
        (self.allowed.is_empty() || self.allowed.iter().any(within))
            && !self.blocked.iter().any(within)
    }

    /// The same, but only within these domains as well; none where nothing would be permitted.
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
