//! The text of a query for a search engine: within its limits, with the hosts as `site:` operators.

use crate::DomainFilter;

/// How long a query may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueryLimits {
    /// Most characters.
    pub(super) chars: usize,
    /// Most words.
    pub(super) words: usize,
}

/// A query that is being assembled.
struct QueryText {
    text: String,
    left: QueryLimits,
}

impl QueryLimits {
    /// Whether a query is within the limits.
    pub(super) fn hold(self, query: &str) -> bool {
        let words: Vec<&str> = query.split_whitespace().collect();
        let chars: usize = words.iter().map(|word| word.chars().count()).sum();
        words.len() <= self.words && chars + words.len().saturating_sub(1) <= self.chars
    }
}

/// The words of a query that are within the limits.
pub(super) fn within(query: &str, limits: QueryLimits) -> String {
    QueryText::new(query, limits).text
}

/// The words of a query, followed by operators for hosts within the limits. All results are filtered by host later.
pub(super) fn with_sites(query: &str, domains: &DomainFilter, limits: QueryLimits) -> String {
    let mut written = QueryText::new(query, limits);
    written.allow(&domains.allowed);
    for domain in &domains.blocked {
        written.push(&format!("-site:{domain}"), domain);
    }
    written.text
}

/// A query without `!bangs`, with which some search engines redirect to other sites.
pub(super) fn without_bangs(query: &str) -> String {
    let words: Vec<&str> = query
        .split_whitespace()
        .map(|word| word.trim_start_matches('!'))
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

impl QueryText {
    fn new(query: &str, limits: QueryLimits) -> Self {
        let mut written = Self {
            text: String::new(),
            left: limits,
        };
        for word in query.split_whitespace() {
            if !written.add(word) {
                if written.text.is_empty() {
                    let beginning: String = word.chars().take(limits.chars).collect();
                    written.add(&beginning);
                }
                break;
            }
        }
        written
    }

    /// Adds a word if it fits.
    fn add(&mut self, word: &str) -> bool {
        let space = usize::from(!self.text.is_empty());
        let chars = word.chars().count() + space;
        let words = word.split(' ').count();
        if chars > self.left.chars || words > self.left.words {
            return false;
        }
        self.left.chars -= chars;
        self.left.words -= words;
        if space == 1 {
            self.text.push(' ');
        }
        self.text.push_str(word);
        true
    }

    /// Adds an operator if its domain is a plain name.
    fn push(&mut self, operator: &str, domain: &str) {
        if is_plain(domain) {
            self.add(operator);
        }
    }

    /// Adds the domains that fit, as alternatives.
    fn allow(&mut self, domains: &[String]) {
        let mut group = String::new();
        for domain in domains.iter().filter(|domain| is_plain(domain)) {
            let longer = if group.is_empty() {
                format!("site:{domain}")
            } else {
                format!("{group} OR site:{domain}")
            };
            // Two parentheses and a space are added.
            if longer.chars().count() + 3 > self.left.chars
                || longer.split(' ').count() > self.left.words
            {
                break;
            }
            group = longer;
        }
        if group.contains(' ') {
            group = format!("({group})");
        }
        if !group.is_empty() {
            self.add(&group);
        }
    }
}

/// Whether a domain has no characters with a meaning in queries.
fn is_plain(domain: &str) -> bool {
    !domain.is_empty()
        && domain
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || matches!(character, '.' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: QueryLimits = QueryLimits {
        chars: 400,
        words: 50,
    };

    fn filter(allowed: &[&str], blocked: &[&str]) -> DomainFilter {
        let owned = |domains: &[&str]| domains.iter().map(|domain| (*domain).to_owned()).collect();
        DomainFilter {
            allowed: owned(allowed),
            blocked: owned(blocked),
        }
    }

    #[test]
    fn hosts_become_operators() {
        let check = |allowed: &[&str], blocked: &[&str], expected: &str| {
            let domains = filter(allowed, blocked);
            assert_eq!(with_sites("a  b", &domains, ROOMY), expected);
        };
        check(&[], &[], "a b");
        check(&["one.test"], &[], "a b site:one.test");
        check(
            &["one.test", "two.test"],
            &["bad.two.test"],
            "a b (site:one.test OR site:two.test) -site:bad.two.test",
        );
        check(
            &["one.test) OR (evil", "two.test"],
            &["x y"],
            "a b site:two.test",
        );
    }

    #[test]
    fn hosts_without_room_are_left_out() {
        let many: Vec<String> = (0..100).map(|n| format!("host-{n}.example.org")).collect();
        let domains = DomainFilter {
            allowed: many.clone(),
            blocked: many,
        };
        let query = with_sites("word", &domains, ROOMY);
        assert!(ROOMY.hold(&query), "{query}");
        assert!(query.starts_with("word (site:host-0.example.org OR site:host-1"));
        assert!(query.contains(')'), "{query}");
    }

    #[test]
    fn a_query_ends_at_the_last_word_with_room() {
        let limits = QueryLimits { chars: 7, words: 3 };
        assert_eq!(within("aaa bbb ccc", limits), "aaa bbb");
        assert_eq!(within("a b c d", limits), "a b c");
        assert_eq!(within("ääääääääää b", limits), "äääääää");
        assert!(limits.hold(" aaa  bbb "));
        assert!(!limits.hold("aaa bbbb"));
        assert!(!limits.hold("a b c d"));
    }

    #[test]
    fn bangs_are_removed() {
        assert_eq!(
            without_bangs("!g !!w cats and! dogs !"),
            "g w cats and! dogs"
        );
    }
}
