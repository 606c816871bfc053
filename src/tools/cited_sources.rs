//! The pages that a conversation can cite, and their numbers.

use std::sync::Arc;

use parking_lot::Mutex;

use protocol::openai::citation::CitedSource;

/// Most sources of a conversation; later ones get no number.
/// Tried by `cited_sources::a_conversation_has_only_so_many`.
const MAX_SOURCES: usize = 10_000;

/// The numbered sources of a conversation. Cheap to clone; calls that run at the same time share it.
#[derive(Debug, Clone, Default)]
pub struct CitedSources(Arc<Mutex<Vec<CitedSource>>>);

impl CitedSources {
    /// The sources that earlier results found. The first of two with the same number counts.
    pub fn of(known: impl IntoIterator<Item = CitedSource>) -> Self {
        let book = Self::default();
        let mut sources = book.0.lock();
        for source in known {
            if !sources.iter().any(|known| known.number == source.number) {
                sources.push(source);
            }
        }
        drop(sources);
        book
    }

    /// The source at a URL, which is added with the next number if it is new. `None` if the limit is reached. URLs that
    /// differ only in the fragment are one source.
    pub fn enter(&self, url: &str, title: &str) -> Option<CitedSource> {
        let mut sources = self.0.lock();
        let same = |known: &&CitedSource| without_fragment(&known.url) == without_fragment(url);
        if let Some(known) = sources.iter().find(same) {
            return Some(known.clone());
        }
        if sources.len() >= MAX_SOURCES {
            return None;
        }
        let last = sources.iter().map(|source| source.number).max();
        let source = CitedSource {
            number: last.unwrap_or(0).checked_add(1)?,
            url: url.to_owned(),
            title: title.to_owned(),
        };
        sources.push(source.clone());
        Some(source)
    }

    /// The source with a number.
    pub fn find(&self, number: u32) -> Option<CitedSource> {
        let sources = self.0.lock();
        sources.iter().find(|known| known.number == number).cloned()
    }

    /// Takes over the URLs and titles of sources by their numbers.
    pub fn replace(&self, changed: &[CitedSource]) {
        for known in self.0.lock().iter_mut() {
            if let Some(source) = changed.iter().find(|one| one.number == known.number) {
                known.clone_from(source);
            }
        }
    }

    /// Whether there are no sources.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

fn without_fragment(url: &str) -> &str {
    url.split_once('#').map_or(url, |(page, _)| page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32, url: &str) -> CitedSource {
        CitedSource {
            number,
            url: url.to_owned(),
            title: "t".to_owned(),
        }
    }

    #[test]
    fn a_page_keeps_its_number_and_a_new_one_gets_the_next() {
        let book = CitedSources::of([source(1, "https://a.test/"), source(4, "https://b.test/")]);
        let number = |url: &str| book.enter(url, "t").unwrap().number;
        assert_eq!(number("https://a.test/"), 1);
        assert_eq!(number("https://a.test/#part"), 1);
        assert_eq!(number("https://c.test/"), 5);
        assert_eq!(number("https://c.test/"), 5);
        assert_eq!(book.find(4).unwrap().url, "https://b.test/");
        assert_eq!(book.find(2), None);
        book.replace(&[source(4, "https://d.test/"), source(9, "https://e.test/")]);
        assert_eq!(book.find(4).unwrap().url, "https://d.test/");
        assert_eq!(book.find(9), None);
        assert!(!book.is_empty() && CitedSources::default().is_empty());
    }

    #[test]
    fn a_conversation_has_only_so_many() {
        let many = (1..=MAX_SOURCES).map(|n| source(n.try_into().unwrap(), &format!("u{n}")));
        let book = CitedSources::of(many);
        assert_eq!(book.enter("new", ""), None);
        assert_eq!(book.enter("u7", "").unwrap().number, 7);
        let last = CitedSources::of([source(u32::MAX, "u")]);
        assert_eq!(last.enter("new", ""), None);
    }
}
