//! Removes what is not shown: scripts, controls, hidden text, pictures but for what stands for them in words. Hidden text
//! is more than noise: it is where instructions for models are put.

use dom_query::{Document as Dom, NodeRef};
use url::Url;

/// Elements whose content is not text of the page.
const DROPPED: [&str; 35] = [
    "script", "style", "noscript", "template", "iframe", "frame", "frameset", "object", "embed",
    "applet", "svg", "canvas", "audio", "video", "source", "track", "map", "area", "input",
    "button", "select", "textarea", "datalist", "output", "progress", "meter", "dialog", "link",
    "base", "param", "rp", "slot", "portal", "noembed", "noframes",
];
/// Deeper text keeps its words and loses its marks: what comes later goes down level by level, with a stack that ends.
const MAX_DEPTH: usize = 200;
/// Words of classes and ids that stand for what is in the way.
const IN_THE_WAY: [&str; 7] = [
    "consent",
    "cookie",
    "cookies",
    "cookiebar",
    "cookiebanner",
    "gdpr",
    "editsection",
];
/// Longest text that can be in the way, in characters.
const MAX_IN_THE_WAY: usize = 3000;
/// Longest text that stands for a picture, in characters.
const MAX_ALT: usize = 300;
/// Longest target of a link, in bytes.
const MAX_LINK: usize = 2000;

/// Removes it all, and makes links absolute.
pub(super) fn prune(dom: &Dom, base: Option<&Url>) {
    let mut to_do: Vec<(NodeRef<'_>, usize)> = vec![(dom.root(), 0)];
    while let Some((node, depth)) = to_do.pop() {
        if node.is_comment() {
            node.remove_from_parent();
            continue;
        }
        if node.is_element() {
            if is_unseen(&node) || is_in_the_way(&node) {
                node.remove_from_parent();
                continue;
            }
            if depth >= MAX_DEPTH {
                flatten(&node);
                continue;
            }
            change(&node, base);
        }
        to_do.extend(node.children_it(false).map(|child| (child, depth + 1)));
    }
}

fn is_unseen(node: &NodeRef<'_>) -> bool {
    let name = node.node_name().unwrap_or_default();
    if matches!(name.as_ref(), "html" | "body") {
        // Pages hide themselves until their scripts have run.
        return false;
    }
    if DROPPED.contains(&name.as_ref()) {
        return true;
    }
    let hidden = node.attr("hidden");
    // Text that searching the page opens is there for all.
    hidden.is_some_and(|value| !value.eq_ignore_ascii_case("until-found"))
        || node
            .attr("aria-hidden")
            .is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
        || node.attr("style").is_some_and(|style| hides(&style))
}

/// Whether an element asks for consent before one can read, or is for those who write the page.
fn is_in_the_way(node: &NodeRef<'_>) -> bool {
    if matches!(node.attr("role").as_deref(), Some("dialog" | "alertdialog")) {
        return true;
    }
    let marks = [node.class(), node.id_attr()];
    let mut words = marks
        .iter()
        .flatten()
        .flat_map(|mark| mark.split(|c: char| !c.is_ascii_alphanumeric()));
    words.any(|word| IN_THE_WAY.contains(&word.to_ascii_lowercase().as_str()))
        // A page about such things, or one whose body is marked with how it was answered.
        && node.text().chars().count() < MAX_IN_THE_WAY
        && !node.descendants_it().any(|below| below.has_name("h1") || below.has_name("main"))
}

/// Whether a style leaves nothing to see.
fn hides(style: &str) -> bool {
    style.to_ascii_lowercase().split(';').any(|rule| {
        let Some((property, value)) = rule.split_once(':') else {
            return false;
        };
        let value = value.replace("!important", "");
        let value = value.trim();
        let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
        let number = number.trim().parse::<f64>().ok();
        match property.trim() {
            "display" => value == "none",
            "visibility" => matches!(value, "hidden" | "collapse"),
            "content-visibility" => value == "hidden",
            "opacity" => number.is_some_and(|opacity| opacity < 0.05),
            "font-size" => number.is_some_and(|size| {
                size < 2.0 && !value.ends_with("em") && !value.ends_with('%') || size < 0.1
            }),
            "left" | "top" | "right" | "bottom" | "margin-left" | "margin-top" | "text-indent" => {
                number.is_some_and(|far| far <= -500.0)
            }
            "clip" => value.replace(' ', "").starts_with("rect(0"),
            "clip-path" => value.replace(' ', "") == "inset(100%)",
            "color" => value == "transparent",
            _ => false,
        }
    })
}

/// Replaces an element's content by its text.
fn flatten(node: &NodeRef<'_>) {
    let mut unseen = Vec::new();
    for below in node.descendants_it() {
        if below.is_comment() || (below.is_element() && is_unseen(&below)) {
            unseen.push(below);
        }
    }
    unseen.iter().for_each(NodeRef::remove_from_parent);
    let text = node.text();
    node.set_text(text);
}

fn change(node: &NodeRef<'_>, base: Option<&Url>) {
    match node.node_name().unwrap_or_default().as_ref() {
        "img" => words_for(node, "alt"),
        "math" if node.has_attr("alttext") => words_for(node, "alttext"),
        // Whole pages lie within one on some servers.
        "form" | "fieldset" | "dl" => node.rename("div"),
        // Markdown has no lists of terms.
        "dt" | "dd" => node.rename("p"),
        "a" => link(node, base),
        _ => {}
    }
}

/// Puts the words of an attribute in the place of an element.
fn words_for(node: &NodeRef<'_>, attribute: &str) {
    let words = node.attr(attribute).unwrap_or_default();
    let words: String = words.trim().chars().take(MAX_ALT).collect();
    if words.is_empty() {
        node.remove_from_parent();
    } else {
        let text = node.tree.new_text(words);
        node.replace_with(&text);
    }
}

/// Makes a link absolute; what leads nowhere on the web is no link, and what only points at its own heading is nothing.
fn link(node: &NodeRef<'_>, base: Option<&Url>) {
    let href = node.attr("href").unwrap_or_default();
    let href = href.trim();
    if href.starts_with('#') && !node.text().contains(char::is_alphanumeric) {
        node.remove_from_parent();
        return;
    }
    let target = if href.is_empty() || href.starts_with('#') {
        None
    } else {
        let url = base
            .map_or_else(|| Url::parse(href), |base| base.join(href))
            .ok();
        url.filter(|url| matches!(url.scheme(), "http" | "https" | "mailto"))
            .map(String::from)
            .filter(|url| url.len() <= MAX_LINK)
    };
    node.retain_attrs(&["id", "class", "rel"]);
    match target {
        Some(target) => node.set_attr("href", &target),
        None => node.rename("span"),
    }
}
