//! Removes what readers do not see: scripts, controls, hidden text, images except for their alternative text. Hidden text is
//! where attackers put instructions for models.

use dom_query::{Document as Dom, NodeRef};
use url::Url;

use super::{apart, code, meaning};
use crate::MAX_URL_BYTES;

/// Elements without text of the page.
const DROPPED: [&str; 34] = [
    "script", "style", "noscript", "template", "iframe", "frame", "frameset", "object", "embed",
    "applet", "svg", "canvas", "audio", "video", "source", "track", "map", "area", "input",
    "button", "select", "textarea", "datalist", "output", "progress", "meter", "dialog", "link",
    "base", "param", "slot", "portal", "noembed", "noframes",
];
/// Those of them that take no place in their line.
const BOXLESS: [&str; 12] = [
    "script", "style", "noscript", "template", "source", "track", "map", "area", "datalist",
    "link", "base", "param",
];
/// Deepest elements that are kept; below them elements are replaced by their text. Later steps recurse and must not
/// exhaust the stack.
/// Tried by `hostile::deep_nesting_is_read_or_costs_a_process_at_most`.
pub(super) const MAX_DEPTH: usize = 200;
/// Words of classes and ids that mark consent dialogs, editing controls and what is only printed.
const INTERRUPTIONS: [&str; 8] = [
    "consent",
    "cookie",
    "cookies",
    "cookiebar",
    "cookiebanner",
    "gdpr",
    "editsection",
    "printfooter",
];
/// Longest text of such an element, in characters; an element with a longer one is kept.
const MAX_INTERRUPTION: usize = 3000;

/// What styles of parts that fade in hold.
const FADES: [&str; 6] = [
    "transform",
    "translate",
    "transition",
    "animation",
    "filter",
    "will-change",
];

/// Removes invisible content and makes links absolute.
pub(super) fn prune(dom: &Dom, base: Option<&Url>) {
    let mut to_do: Vec<(NodeRef<'_>, usize, bool)> = vec![(dom.root(), 0, false)];
    while let Some((node, depth, mut is_code)) = to_do.pop() {
        if node.is_comment() {
            node.remove_from_parent();
            continue;
        }
        if node.is_element() {
            let is_gutter = code::is_gutter(&node);
            if is_gutter || is_invisible(&node) || is_interruption(&node) {
                if is_gutter || is_boxless(&node) {
                    node.remove_from_parent();
                } else {
                    apart::leave_gap(&node);
                }
                continue;
            }
            if depth >= MAX_DEPTH {
                flatten(&node);
                continue;
            }
            if !is_code {
                apart::separate(&node);
            }
            change(&node, base);
            is_code |= node.has_name("pre");
        }
        let children = node.children_it(false);
        to_do.extend(children.map(|child| (child, depth + 1, is_code)));
    }
    code::write_lines(dom);
}

pub(super) fn is_invisible(node: &NodeRef<'_>) -> bool {
    is_dropped(node) || hiding(node).is_some()
}

/// Whether an element holds no text of the page.
pub(super) fn is_dropped(node: &NodeRef<'_>) -> bool {
    let name = node.node_name().unwrap_or_default();
    DROPPED.contains(&name.as_ref()) && (name.as_ref() != "button" || !is_heading(node))
}

/// How the text of an element is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hiding {
    Attribute,
    Accessibility,
    Display,
    Visibility,
    /// Transparent, with what a script will move or blend.
    Fading,
    Transparency,
    Size,
    Position,
    Clip,
}

/// How an element is hidden, if it is.
pub(super) fn hiding(node: &NodeRef<'_>) -> Option<Hiding> {
    if node.has_name("html") || node.has_name("body") {
        // Some pages are hidden until their scripts have run.
        return None;
    }
    let hidden = node.attr("hidden");
    // A search in the page reveals such text.
    if hidden.is_some_and(|value| !value.eq_ignore_ascii_case("until-found")) {
        return Some(Hiding::Attribute);
    }
    let aria = node.attr("aria-hidden");
    if aria.is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) && !is_formula(node) {
        return Some(Hiding::Accessibility);
    }
    of_style(&node.attr("style")?)
}

/// Whether an invisible element takes no place in its line.
fn is_boxless(node: &NodeRef<'_>) -> bool {
    let name = node.node_name().unwrap_or_default();
    match hiding(node) {
        None => BOXLESS.contains(&name.as_ref()),
        Some(hiding) => hiding != Hiding::Accessibility,
    }
}

/// Whether a control is the heading of a part.
fn is_heading(control: &NodeRef<'_>) -> bool {
    control.parent().is_some_and(|parent| {
        ["h1", "h2", "h3", "h4", "h5", "h6", "dt", "summary"]
            .iter()
            .any(|name| parent.has_name(name))
    })
}

/// Whether an element is a consent dialog or an editing control.
pub(super) fn is_interruption(node: &NodeRef<'_>) -> bool {
    if matches!(node.attr("role").as_deref(), Some("dialog" | "alertdialog")) {
        return true;
    }
    let marks = [node.class(), node.id_attr()];
    let mut words = marks
        .iter()
        .flatten()
        .flat_map(|mark| mark.split(|c: char| !c.is_ascii_alphanumeric()));
    words.any(|word| INTERRUPTIONS.contains(&word.to_ascii_lowercase().as_str()))
        // Not the text of a page about consent, nor a body that is marked with the given answer.
        && node.text().chars().count() < MAX_INTERRUPTION
        && !node.descendants_it().any(|below| below.has_name("h1") || below.has_name("main"))
}

/// Whether an image shows the formula that its alternative text holds. The formula itself is beside it, and hidden.
fn is_formula(node: &NodeRef<'_>) -> bool {
    let class = node.class().unwrap_or_default();
    node.has_name("img") && class.contains("mwe-math-fallback")
}

/// How a style hides an element.
fn of_style(style: &str) -> Option<Hiding> {
    let style = style.to_ascii_lowercase();
    let hiding = style.split(';').find_map(|rule| {
        let (property, value) = rule.split_once(':')?;
        let value = value.replace("!important", "");
        let value = value.trim();
        let number = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
        let number = number.trim().parse::<f64>().ok();
        let (hides, hiding) = match property.trim() {
            "display" => (value == "none", Hiding::Display),
            "visibility" => (matches!(value, "hidden" | "collapse"), Hiding::Visibility),
            "content-visibility" => (value == "hidden", Hiding::Visibility),
            "opacity" => (
                number.is_some_and(|opacity| opacity < 0.05),
                Hiding::Transparency,
            ),
            "font-size" => (
                number.is_some_and(|size| {
                    size < 2.0 && !value.ends_with("em") && !value.ends_with('%') || size < 0.1
                }),
                Hiding::Size,
            ),
            "left" | "top" | "right" | "bottom" | "margin-left" | "margin-top" | "text-indent" => {
                (number.is_some_and(|far| far <= -500.0), Hiding::Position)
            }
            "clip" => (value.replace(' ', "").starts_with("rect(0"), Hiding::Clip),
            "clip-path" => (value.replace(' ', "") == "inset(100%)", Hiding::Clip),
            "color" => (value == "transparent", Hiding::Transparency),
            _ => return None,
        };
        hides.then_some(hiding)
    });
    match hiding {
        Some(Hiding::Transparency) if FADES.iter().any(|fade| style.contains(fade)) => {
            Some(Hiding::Fading)
        }
        hiding => hiding,
    }
}

/// Replaces the content of an element by its visible text.
fn flatten(node: &NodeRef<'_>) {
    let mut invisible = Vec::new();
    for below in node.descendants_it() {
        if below.is_comment() || (below.is_element() && is_invisible(&below)) {
            invisible.push(below);
        }
    }
    invisible.iter().for_each(NodeRef::remove_from_parent);
    let text = node.formatted_text();
    node.set_text(text);
}

fn change(node: &NodeRef<'_>, base: Option<&Url>) {
    match node.node_name().unwrap_or_default().as_ref() {
        "img" => replace_by(node, "alt"),
        "pre" => code::mark(node),
        "table" if code::is_line_table(node) => code::mark(node),
        "math" if node.has_attr("alttext") => replace_by(node, "alttext"),
        // Some servers put the whole page into one.
        "form" | "fieldset" | "dl" => node.rename("div"),
        // Markdown has no definition lists.
        "dt" | "dd" => node.rename("p"),
        "a" => link(node, base),
        // The headings of parts that open are often buttons.
        "button" => node.rename("span"),
        _ => meaning::write(node),
    }
}

/// Replaces an element by the text of an attribute.
fn replace_by(node: &NodeRef<'_>, attribute: &str) {
    let words = node.attr(attribute).unwrap_or_default();
    let words = words.trim();
    if words.is_empty() {
        apart::leave_gap(node);
    } else if is_formula(node) {
        let code = node.tree.new_element("code");
        code.set_text(words);
        node.replace_with(&code);
    } else {
        let text = node.tree.new_text(format!("{0}{words}{0}", apart::GAP));
        node.replace_with(&text);
    }
}

/// Makes a link absolute. A link to another scheme becomes plain text, and an anchor of a heading is removed.
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
            .filter(|url| url.len() <= MAX_URL_BYTES)
    };
    node.retain_attrs(&["id", "class", "rel"]);
    match target {
        Some(target) => node.set_attr("href", &target),
        None => node.rename("span"),
    }
}
