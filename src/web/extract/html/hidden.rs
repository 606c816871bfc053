//! Which elements readers do not see.

use dom_query::NodeRef;

/// Elements without text of the page.
const DROPPED: [&str; 34] = [
    "script", "style", "noscript", "template", "iframe", "frame", "frameset", "object", "embed",
    "applet", "svg", "canvas", "audio", "video", "source", "track", "map", "area", "input",
    "button", "select", "textarea", "datalist", "output", "progress", "meter", "dialog", "link",
    "base", "param", "slot", "portal", "noembed", "noframes",
];
/// What styles of parts that fade in hold.
const FADES: [&str; 6] = [
    "transform",
    "translate",
    "transition",
    "animation",
    "filter",
    "will-change",
];

/// Whether readers do not see an element.
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

/// Whether a control is the heading of a part.
fn is_heading(control: &NodeRef<'_>) -> bool {
    control.parent().is_some_and(|parent| {
        ["h1", "h2", "h3", "h4", "h5", "h6", "dt", "summary"]
            .iter()
            .any(|name| parent.has_name(name))
    })
}

/// Whether an image shows the formula that its alternative text holds. The formula itself is beside it, and hidden.
pub(super) fn is_formula(node: &NodeRef<'_>) -> bool {
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
