//! The main content of web pages as Markdown.
//!
//! A page that the browser or its scripts finish is put together first ([`unfinished`]). Then invisible content is removed
//! ([`prune`]). Then the heuristics of browsers' reading views find the article. They fail
//! on other pages, such as forums, indices and tables; for these [`outline`] removes navigation and similar parts and keeps
//! the rest.

mod apart;
mod code;
mod facts;
mod hidden;
mod meaning;
mod outline;
mod prune;
mod tables;
mod unfinished;

use dom_query::{Document as Dom, NodeRef};
use dom_smoothie::{Config, Readability, TextMode};
use url::Url;

use super::super::{Document, DocumentKind};
use super::Refusal;

/// Share of the outline below which the result of the reading view is not used.
const ARTICLE_SHARE: f64 = 0.4;
/// Threshold of letters and digits below which the reading view is unsure, and may take all parts of a page for its
/// article.
const SURE: f64 = 400.0;
/// Most elements for which the reading view is tried, because its time grows with them. A page with more is shown by
/// its outline.
const MAX_ELEMENTS: usize = 100_000;
/// Deepest elements that are kept; below them elements are replaced by their text. Later steps recurse and must not
/// exhaust the stack.
/// Tried by `hostile::deep_nesting_is_read_or_costs_a_process_at_most`.
const MAX_DEPTH: usize = 200;

/// Reads a page.
pub(super) fn read(url: &str, html: &str) -> Result<Document, Refusal> {
    let dom = Dom::from(html);
    let base = base(&dom, url);
    unfinished::assemble(&dom);
    let shell = unfinished::Shell::of(&dom);
    let hidden = unfinished::reveal(&dom, &shell);
    let facts = facts::of(&dom, base.as_ref());
    prune::prune(&dom, base.as_ref());
    tables::normalize(&dom);
    let article = article(&dom);
    // The reading view shortens titles. A title that is no part of the original is ignored.
    let title = match &article {
        Some(article) if facts.title.is_empty() || facts.title.contains(article.title.trim()) => {
            article.title.clone()
        }
        Some(_) | None => facts.title.clone(),
    };
    let title = if title.trim().is_empty() {
        facts.title
    } else {
        title
    };
    let heading = facts.heading.as_deref().map_or(0.0, weight);
    // Sites append their names to the heading.
    let title = match facts.heading {
        Some(heading) if title.starts_with(&heading) => heading,
        Some(_) | None => title,
    };
    outline::prune(&dom);
    let rest = outline::main(&dom)
        .map(|main| markdown(&main))
        .unwrap_or_default();
    let markdown = match article {
        Some(article) if is_better(&article.markdown, &rest, heading) => article.markdown,
        Some(_) | None => rest,
    };
    let markdown = meaning::settle(&markdown);
    if markdown.trim().is_empty() || !hidden && shell.holds(&markdown) {
        return Err(Refusal::NoText(
            "web page".to_owned(),
            "it may be one that is made by its scripts, which are not run".to_owned(),
        ));
    }
    Ok(Document {
        title,
        date: facts.date,
        canonical: facts.canonical,
        kind: DocumentKind::Html,
        markdown,
        hidden,
        cut: false,
    })
}

/// The text of an HTML fragment.
pub(super) fn words(html: &str) -> String {
    let dom = Dom::fragment(html);
    prune::prune(&dom, None);
    meaning::settle(&dom.formatted_text())
}

/// An absolute `http` or `https` URL.
pub(super) fn absolute(url: &str, base: &str) -> Option<String> {
    let url = match Url::parse(base) {
        Ok(base) => base.join(url.trim()).ok()?,
        Err(_) => Url::parse(url.trim()).ok()?,
    };
    matches!(url.scheme(), "http" | "https").then(|| url.into())
}

/// Whether a text is an `http` or `https` URL.
pub(super) fn is_web(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
}

/// The base of relative links: the page, or the base that it declares.
fn base(dom: &Dom, url: &str) -> Option<Url> {
    let page = Url::parse(url).ok()?;
    let declared = dom.select_single("base[href]").attr("href");
    let declared = declared.and_then(|href| page.join(href.trim()).ok());
    Some(
        declared
            .filter(|base| matches!(base.scheme(), "http" | "https"))
            .unwrap_or(page),
    )
}

struct Article {
    title: String,
    markdown: String,
}

/// The article that the reading view finds.
fn article(dom: &Dom) -> Option<Article> {
    let config = Config {
        text_mode: TextMode::Markdown,
        max_elements_to_parse: MAX_ELEMENTS,
        disable_json_ld: true,
        ..Config::default()
    };
    let mut readability = Readability::with_document(dom.clone(), None, Some(config)).ok()?;
    let article = readability.parse().ok()?;
    Some(Article {
        title: article.title,
        markdown: article.text_content.to_string(),
    })
}

/// Whether the article of the reading view, which leaves the heading out, is used rather than the outline.
fn is_better(article: &str, outline: &str, heading: f64) -> bool {
    let (article, outline) = (weight(article), weight(outline));
    let is_sure = article >= SURE || article + heading <= outline;
    outline == 0.0 || is_sure && article >= ARTICLE_SHARE * outline
}

fn markdown(node: &NodeRef<'_>) -> String {
    node.md(None).to_string()
}

/// The number of letters and digits, without the targets of links.
fn weight(markdown: &str) -> f64 {
    let mut weight = 0_u32;
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once("](") {
        weight = weight.saturating_add(letters(before));
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    f64::from(weight.saturating_add(letters(rest)))
}

fn letters(text: &str) -> u32 {
    let letters = text.chars().filter(|character| character.is_alphanumeric());
    u32::try_from(letters.count()).unwrap_or(u32::MAX)
}
