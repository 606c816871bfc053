//! RSS, Atom and JSON feeds as a list of their entries.

use feed_rs::model::{Entry, Feed, Link, Text};

use super::super::{Document, DocumentKind};
use super::{MAX_TEXT, RawPage, clean, html};

/// Longest summary of an entry, in characters; a longer one is cut.
const MAX_SUMMARY: usize = 500;

/// Reads a feed; none if the page is not a feed.
pub(super) fn read(page: &RawPage) -> Option<Document> {
    let parser = feed_rs::parser::Builder::new()
        .base_uri(Some(&page.url))
        .build();
    let feed = parser.parse(page.body.as_ref()).ok()?;
    let title = feed.title.as_ref().map(words).unwrap_or_default();
    let mut markdown = feed.description.as_ref().map(words).unwrap_or_default();
    markdown.push_str("\n\n");
    let mut entries = feed.entries.iter();
    while markdown.len() <= MAX_TEXT
        && let Some(entry) = entries.next()
    {
        markdown.push_str(&item(entry, &page.url));
    }
    if markdown.trim().is_empty() {
        markdown.push_str("This feed has no entries.");
    }
    Some(Document {
        title,
        date: newest(&feed),
        canonical: link(&feed.links, &page.url),
        kind: DocumentKind::Feed,
        markdown,
        hidden: false,
        cut: entries.next().is_some(),
    })
}

/// One entry: `- 2024-05-06 [title](link): summary`.
fn item(entry: &Entry, base: &str) -> String {
    let mut item = "- ".to_owned();
    if let Some(date) = entry.published.or(entry.updated) {
        item.push_str(&date.format("%Y-%m-%d ").to_string());
    }
    let title = entry.title.as_ref().map(words).unwrap_or_default();
    let title = if title.is_empty() {
        "(no title)"
    } else {
        title.as_str()
    };
    match link(&entry.links, base) {
        Some(link) => item.push_str(&format!("[{}]({link})", title.replace(['[', ']'], ""))),
        None => item.push_str(title),
    }
    let summary = entry.summary.as_ref().map(words).or_else(|| {
        let content = entry.content.as_ref()?;
        Some(of_html(content.body.as_deref()?))
    });
    if let Some(summary) = summary.filter(|summary| !summary.is_empty()) {
        item.push_str(": ");
        item.push_str(&summary);
    }
    item.push('\n');
    item
}

fn link(links: &[Link], base: &str) -> Option<String> {
    let alternate = |link: &&Link| link.rel.as_deref().is_none_or(|rel| rel == "alternate");
    let link = links.iter().find(alternate).or_else(|| links.first())?;
    html::absolute(&link.href, base)
}

fn newest(feed: &Feed) -> Option<String> {
    let entries = feed.entries.iter();
    let dates = entries.filter_map(|entry| entry.updated.or(entry.published));
    let date = feed.updated.or(feed.published).or_else(|| dates.max())?;
    Some(date.format("%Y-%m-%d").to_string())
}

/// The plain text of a field, which may hold HTML whatever type it declares.
fn words(text: &Text) -> String {
    of_html(&text.content)
}

fn of_html(text: &str) -> String {
    let text = if text.contains(['<', '&']) {
        html::words(text)
    } else {
        text.to_owned()
    };
    clean::line(&text, MAX_SUMMARY)
}
