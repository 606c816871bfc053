//! Removes navigation, advertisements and similar parts from the body.

use dom_query::{Document as Dom, NodeRef};

const ELEMENTS: [&str; 4] = ["nav", "aside", "footer", "menu"];
const ROLES: [&str; 11] = [
    "navigation",
    "banner",
    "contentinfo",
    "complementary",
    "search",
    "dialog",
    "alertdialog",
    "menu",
    "menubar",
    "toolbar",
    "tablist",
];
/// Whole words of classes and ids that mark such parts.
const WORDS: [&str; 49] = [
    "ad",
    "ads",
    "adsbox",
    "advert",
    "advertisement",
    "banner",
    "breadcrumb",
    "breadcrumbs",
    "catlinks",
    "consent",
    "cookie",
    "cookies",
    "cookiebar",
    "copyright",
    "footer",
    "gdpr",
    "hidden",
    "login",
    "masthead",
    "menu",
    "modal",
    "nav",
    "navbar",
    "navigation",
    "navi",
    "newsletter",
    "outbrain",
    "overlay",
    "pager",
    "paginator",
    "pagination",
    "popup",
    "promo",
    "promoted",
    "related",
    "share",
    "sharing",
    "sidebar",
    "signin",
    "signup",
    "skip",
    "social",
    "sponsor",
    "sponsored",
    "subscribe",
    "taboola",
    "toc",
    "toolbar",
    "topbar",
];

/// Removes these parts.
pub(super) fn prune(dom: &Dom) {
    let mut to_do: Vec<NodeRef<'_>> = dom.body().into_iter().collect();
    while let Some(node) = to_do.pop() {
        for child in node.element_children() {
            if is_secondary(&child) {
                child.remove_from_parent();
            } else {
                to_do.push(child);
            }
        }
    }
}

/// The main element, or the body.
pub(super) fn main(dom: &Dom) -> Option<NodeRef<'_>> {
    let declared = dom.select("main, [role=main]");
    match declared.nodes() {
        [main] if main.text().contains(char::is_alphanumeric) => Some(*main),
        _ => dom.body(),
    }
}

/// Whether an element is such a part.
pub(super) fn is_secondary(node: &NodeRef<'_>) -> bool {
    let name = node.node_name().unwrap_or_default();
    let name = name.as_ref();
    if ELEMENTS.contains(&name) {
        return true;
    }
    if matches!(
        name,
        "main" | "article" | "table" | "tbody" | "tr" | "pre" | "code"
    ) {
        return false;
    }
    // The header of an article holds its title; the header of a page holds its menu.
    if name == "header" {
        return !node
            .ancestors_it(None)
            .any(|above| above.has_name("article") || above.has_name("main"));
    }
    if node
        .attr("role")
        .is_some_and(|role| ROLES.contains(&role.trim()))
    {
        return true;
    }
    let marked = [node.class(), node.id_attr()];
    let mut words = marked
        .iter()
        .flatten()
        .flat_map(|mark| mark.split(|c: char| !c.is_ascii_alphanumeric()));
    let is_main = |below: NodeRef<'_>| {
        below.has_name("main")
            || below.has_name("article")
            || below
                .attr("role")
                .is_some_and(|role| role.as_ref() == "main")
    };
    let mut marks = marked.iter().flatten();
    (marks.any(|mark| mark.contains("table-of-contents"))
        || words.any(|word| WORDS.contains(&word.to_ascii_lowercase().as_str())))
        // The container of the whole page is often named after one of its parts.
        && !node.descendants_it().any(is_main)
}
