//! Pages that are finished after their HTML is parsed: parts that arrive out of order, shadow roots, and text that is hidden
//! until scripts run. No script is run here; the forms that frameworks write are known.

use std::collections::{BTreeMap, HashMap};

use dom_query::{Document as Dom, NodeData, NodeRef};

use super::hidden::{Hiding, hiding, is_dropped};
use super::prune::is_interruption;
use super::{letters, outline};

/// Threshold of letters and digits of visible text from which on hidden text is never shown.
const ORDINARY: u32 = 200;
/// Threshold: how many times as long as the visible text a hidden text must be.
const SHARE: u32 = 10;
/// Threshold of the same for parts that fade in.
const FADING_SHARE: u32 = 2;
/// Threshold of letters and digits below which a page may be the shell of an application, and a hidden text without a
/// heading is none.
const SHORT: u32 = 100;
/// Most hidden parts in hidden parts that are shown, one in the other; others stay hidden.
const MAX_LAYERS: usize = 4;
/// What marks the text of a page rather than a single sentence.
const CONTENT: [&str; 4] = ["h1", "h2", "main", "article"];
/// Where scripts put the page, and parts whose content is still to come.
const MOUNTS: &str = "#root, #app, #__next, #__nuxt, #___gatsby, #svelte, #app-root, #react-root, app-root, [ng-app], \
     astro-island[client=only], [aria-busy=true], template[id*='B:']";
/// Words of classes and ids of what is shown meanwhile.
const LOADERS: [&str; 7] = [
    "loading",
    "loader",
    "preloader",
    "spinner",
    "splash",
    "skeleton",
    "fallback",
];
/// How pages begin that only ask for patience or for scripts.
const WAITING: [&str; 8] = [
    "loading",
    "one moment",
    "just a moment",
    "please wait",
    "redirecting",
    "checking your browser",
    "please enable javascript",
    "you need to enable javascript",
];

/// Puts the parts of a page where a browser shows them.
pub(super) fn assemble(dom: &Dom) {
    open_shadow_roots(dom);
    move_segments(dom);
}

/// Puts the content of declarative shadow roots in the place of their hosts' children, which fill its slots.
fn open_shadow_roots(dom: &Dom) {
    let is_root = |node: &NodeRef<'_>| {
        node.has_name("template")
            && (node.has_attr("shadowrootmode") || node.has_attr("shadowroot"))
    };
    let mut to_do: Vec<_> = dom.root().descendants_it().filter(is_root).collect();
    to_do.reverse();
    while let Some(template) = to_do.pop() {
        let content = template
            .element_ref()
            .and_then(|element| element.template_contents)
            .and_then(|id| template.tree.get(&id));
        let (Some(host), Some(content)) = (template.parent(), content) else {
            continue;
        };
        to_do.extend(content.descendants_it().filter(is_root));
        let slots: Vec<_> = content
            .descendants_it()
            .filter(|node| node.has_name("slot"))
            .collect();
        let mut light = host.children();
        host.remove_children();
        light.retain(|child| !child.has_name("template"));
        append(&host, &content.children());
        for slot in slots {
            let name = slot.attr("name").unwrap_or_default();
            let (filling, rest) = light
                .into_iter()
                .partition(|child| child.attr("slot").unwrap_or_default() == name);
            light = rest;
            let filling: Vec<NodeRef<'_>> = filling;
            if filling.iter().any(|child| !child.text().trim().is_empty()) {
                slot.remove_children();
                append(&slot, &filling);
            }
            slot.rename("span");
        }
    }
}

fn append(parent: &NodeRef<'_>, children: &[NodeRef<'_>]) {
    children.iter().for_each(|child| parent.append_child(child));
}

/// Moves the segments of a page that React streams to their places.
fn move_segments(dom: &Dom) {
    let mut named: HashMap<String, NodeRef<'_>> = HashMap::new();
    let (mut moves, mut segments) = (Vec::new(), Vec::new());
    for node in dom.root().descendants_it().filter(NodeRef::is_element) {
        if node.has_name("script") {
            moves.extend(calls(&node.text()));
        } else if let Some(id) = node.id_attr() {
            if id.contains("S:") {
                segments.push(id.to_string());
            }
            named.entry(id.to_string()).or_insert(node);
        }
    }
    // If the calls are in other files, a place and its segment have the same number.
    for id in segments {
        moves.extend(["B:", "P:"].map(|kind| (id.replace("S:", kind), id.clone())));
    }
    for (place, segment) in moves {
        if let (Some(place), Some(segment)) = (named.get(&place), named.get(&segment)) {
            fill(place, segment);
        }
    }
}

/// The places and segments that a script names: `$RC("B:0","S:0")`, `$RS("S:1","P:1")`.
fn calls(script: &str) -> Vec<(String, String)> {
    let calls = script.split("$R").skip(1);
    let calls = calls.filter_map(|call| {
        let (function, call) = call.split_once('(')?;
        let mut texts = call
            .split(['"', '\''])
            .skip(1)
            .step_by(2)
            .map(str::to_owned);
        let (first, second) = (texts.next()?, texts.next()?);
        match function {
            "C" | "R" => Some((first, second)),
            "S" => Some((second, first)),
            _ => None,
        }
    });
    calls.collect()
}

/// Replaces a placeholder, and the fallback that follows it up to the end of its boundary, by a segment.
fn fill(place: &NodeRef<'_>, segment: &NodeRef<'_>) {
    let is_inside = |node: NodeRef<'_>| node.id == segment.id;
    if place.parent().is_none() || place.ancestors_it(None).any(is_inside) {
        return;
    }
    for child in segment.children() {
        place.insert_before(&child);
    }
    if place.id_attr().is_some_and(|id| id.contains("B:")) {
        fallback(place).iter().for_each(NodeRef::remove_from_parent);
    }
    place.remove_from_parent();
}

/// The nodes between a placeholder and the end of its boundary.
fn fallback<'a>(place: &NodeRef<'a>) -> Vec<NodeRef<'a>> {
    let mut fallback = Vec::new();
    let (mut next, mut depth) = (place.next_sibling(), 0_u32);
    while let Some(node) = next {
        let mark = node.query_or(None, |node| match &node.data {
            NodeData::Comment { contents } => Some(contents.to_string()),
            _ => None,
        });
        match (mark.as_deref(), depth) {
            (Some("/$"), 0) => return fallback,
            (Some("/$"), _) => depth -= 1,
            (Some("$" | "$?" | "$!" | "$~"), _) => depth += 1,
            _ => {}
        }
        fallback.push(node);
        next = node.next_sibling();
    }
    // The end is missing, and so the rest of the page is none of it.
    Vec::new()
}

/// Shows hidden text of a page that has nearly no other: less than [`ORDINARY`] letters and a tenth of the hidden text. The
/// hidden text must have headings, or be long and left to scripts or waited for. Text that fades in must only be most of the
/// page. Returns whether there is such text.
///
/// Shows text that is hidden in one way only. Text that is planted into a page with its own text stays hidden.
pub(super) fn reveal(dom: &Dom, shell: &Shell) -> bool {
    let layers = (0..MAX_LAYERS).take_while(|_| reveal_layer(dom, shell));
    layers.count() > 0
}

fn reveal_layer(dom: &Dom, shell: &Shell) -> bool {
    let mut visible = String::new();
    let mut hidden: BTreeMap<Hiding, (u32, Vec<NodeRef<'_>>)> = BTreeMap::new();
    let body = dom.body();
    let mut to_do: Vec<_> = body
        .iter()
        .flat_map(|body| body.children_it(true))
        .collect();
    while let Some(node) = to_do.pop() {
        if node.is_text() {
            visible.push_str(&node.text());
        } else if node.is_element() && !is_aside(&node) {
            if let Some(how) = hiding(&node) {
                let (weight, parts) = hidden.entry(how).or_default();
                *weight = weight.saturating_add(weigh(&node, is_aside));
                parts.push(node);
            } else {
                to_do.extend(node.children_it(true));
            }
        }
    }
    let Some((how, (weight, parts))) = hidden.into_iter().max_by_key(|(_, (weight, _))| *weight)
    else {
        return false;
    };
    let waits = asks_to_wait(&visible);
    let visible = match waits || shell.holds(&visible) {
        true => 0,
        false => letters(&visible),
    };
    let is_page = if how == Hiding::Fading {
        weight > visible.saturating_mul(FADING_SHARE)
    } else {
        let has_content = || {
            let below = parts.iter().flat_map(NodeRef::descendants_it);
            let mut all = parts.iter().copied().chain(below);
            all.any(|node| CONTENT.iter().any(|name| node.has_name(name)))
        };
        let least = if waits { SHORT / 2 } else { SHORT };
        visible < ORDINARY
            && weight > visible.saturating_mul(SHARE)
            && (weight >= least && (waits || shell.is_scripted) || has_content())
    };
    if is_page {
        let attributes = ["hidden", "aria-hidden", "style"];
        parts.iter().for_each(|part| part.remove_attrs(&attributes));
    }
    is_page
}

/// Whether a part is no text of the page, hidden or not.
fn is_aside(node: &NodeRef<'_>) -> bool {
    is_dropped(node) || is_interruption(node) || outline::is_secondary(node)
}

/// The number of letters and digits below a node, without the text of some elements.
fn weigh(node: &NodeRef<'_>, is_left_out: impl Fn(&NodeRef<'_>) -> bool) -> u32 {
    let (mut weight, mut to_do) = (0_u32, vec![*node]);
    while let Some(node) = to_do.pop() {
        if node.is_text() {
            weight = weight.saturating_add(letters(&node.text()));
        } else if node.is_element() && !is_left_out(&node) {
            to_do.extend(node.children_it(false));
        }
    }
    weight
}

/// What shows that a page with little text is the shell of an application, before its scripts are removed.
#[derive(Debug)]
pub(super) struct Shell {
    is_scripted: bool,
    is_unfilled: bool,
}

impl Shell {
    pub(super) fn of(dom: &Dom) -> Self {
        let asks = |node: &NodeRef<'_>| node.text().to_lowercase().contains("javascript");
        let runs = |script: &NodeRef<'_>| {
            let kind = script.attr("type").unwrap_or_default();
            !kind.contains("json")
        };
        Self {
            is_scripted: dom.select("script, noscript").nodes().iter().any(runs),
            is_unfilled: dom.select(MOUNTS).nodes().iter().any(is_unfilled)
                || dom.select("noscript").nodes().iter().any(asks),
        }
    }

    /// Whether the page shows only this text until its scripts have run: the place for its content is empty or says
    /// that it loads, or the page asks for scripts or for patience.
    pub(super) fn holds(&self, markdown: &str) -> bool {
        let is_short = letters(markdown) < SHORT;
        is_short && self.is_scripted && (self.is_unfilled || asks_to_wait(markdown))
    }
}

fn asks_to_wait(text: &str) -> bool {
    let start = text.trim_start_matches(|c: char| !c.is_alphabetic());
    let start = start.to_lowercase();
    letters(text) < SHORT && WAITING.iter().any(|wait| start.starts_with(wait))
}

fn is_unfilled(mount: &NodeRef<'_>) -> bool {
    let text = mount.text();
    text.trim_end().ends_with('…')
        || text.trim_end().ends_with("...")
        || weigh(mount, |node| is_dropped(node) || is_loader(node)) == 0
}

fn is_loader(node: &NodeRef<'_>) -> bool {
    let role = node.attr("role").unwrap_or_default();
    let marks = [node.class(), node.id_attr()];
    let mut words = marks
        .iter()
        .flatten()
        .flat_map(|mark| mark.split(|c: char| !c.is_ascii_alphanumeric()));
    node.attr("aria-busy")
        .is_some_and(|busy| busy.as_ref() == "true")
        || matches!(role.as_ref(), "status" | "progressbar")
        || words.any(|word| LOADERS.contains(&word.to_ascii_lowercase().as_str()))
}
