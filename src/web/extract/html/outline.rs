//! The body without what is marked as something beside the matter.

use dom_query::{Document as Dom, NodeRef};

const BESIDE: [&str; 4] = ["nav", "aside", "footer", "menu"];
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
/// Words of classes and ids, whole, that stand for what is beside the matter.
const WORDS: [&str; 47] = [
    "ad",
    "ads",
    "adsbox",
    "advert",
    "advertisement",
    "banner",
    "breadcrumb",
    "breadcrumbs",
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
    "toolbar",
    "topbar",
];

/// Removes it.
pub(super) fn prune(dom: &Dom) {
    let mut to_do: Vec<NodeRef<'_>> = dom.body().into_iter().collect();
    while let Some(node) = to_do.pop() {
        for child in node.element_children() {
            if is_beside(&child) {
                child.remove_from_parent();
            } else {
                to_do.push(child);
            }
        }
    }
}

/// What holds the matter: the element that says so, or the body.
pub(super) fn main(dom: &Dom) -> Option<NodeRef<'_>> {
    let said = dom.select("main, [role=main]");
    let said = said.nodes();
    match said {
        [main] if main.text().contains(char::is_alphanumeric) => Some(*main),
        _ => dom.body(),
    }
}

fn is_beside(node: &NodeRef<'_>) -> bool {
    let name = node.node_name().unwrap_or_default();
    let name = name.as_ref();
    if BESIDE.contains(&name) {
        return true;
    }
    if matches!(
        name,
        "main" | "article" | "table" | "tbody" | "tr" | "pre" | "code"
    ) {
        return false;
    }
    // The head of an article has its title; the head of a page its menu.
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
    words.any(|word| WORDS.contains(&word.to_ascii_lowercase().as_str()))
        // A container of everything is often named after one of its parts.
        && !node.descendants_it().any(|below| below.has_name("main") || below.has_name("article"))
}
