//! The metadata of a page: title, date, canonical URL.

use dom_query::Document as Dom;
use serde_json::Value;
use url::Url;

use super::super::clean;
use crate::date;

/// Names of `meta` elements with a date, by priority.
const DATES: [&str; 14] = [
    "article:published_time",
    "og:published_time",
    "datepublished",
    "date",
    "dc.date",
    "dc.date.issued",
    "dcterms.date",
    "dcterms.created",
    "pubdate",
    "publishdate",
    "parsely-pub-date",
    "citation_publication_date",
    "article:modified_time",
    "last-modified",
];
/// Members of JSON-LD with a date, by priority.
const JSON_DATES: [&str; 4] = ["datePublished", "dateCreated", "uploadDate", "dateModified"];
/// Shortest and longest heading that can be a title, in characters. Longer ones were never closed.
const HEADING: std::ops::RangeInclusive<usize> = 4..=200;
/// Most values of JSON-LD that are inspected; others are left out.
const MAX_VALUES: usize = 10_000;

/// The metadata.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) title: String,
    /// The only `h1` heading.
    pub(super) heading: Option<String>,
    pub(super) date: Option<String>,
    pub(super) canonical: Option<String>,
}

/// Reads the metadata. Scripts must not have been removed.
pub(super) fn of(dom: &Dom, base: Option<&Url>) -> Facts {
    let metas = metas(dom);
    let meta = |name: &str| {
        let found = metas.iter().find(|(known, _)| known == name);
        found.map(|(_, content)| content.as_str())
    };
    let title = dom.select_single("head title, title").text();
    let title = clean::line(&title, usize::MAX);
    let headings = dom.select("h1");
    let heading = match headings.nodes() {
        [heading] => Some(clean::line(&heading.text(), usize::MAX)),
        _ => None,
    };
    let heading = heading.filter(|heading| HEADING.contains(&heading.chars().count()));
    let title = [Some(title), meta("og:title").map(str::to_owned)]
        .into_iter()
        .flatten()
        .find(|title| !title.is_empty())
        .or_else(|| heading.clone())
        .unwrap_or_default();
    let date = of_json(dom)
        .or_else(|| DATES.iter().find_map(|name| date::find(meta(name)?)))
        .or_else(|| {
            let times = dom.select("time[datetime], [itemprop=datePublished][content]");
            times.nodes().iter().find_map(|node| {
                let text = node.attr("datetime").or_else(|| node.attr("content"))?;
                date::find(&text)
            })
        });
    let link = dom.select_single("link[rel=canonical][href]").attr("href");
    let link = link.map(|href| href.to_string());
    let link = link.or_else(|| meta("og:url").map(str::to_owned));
    let canonical = link.and_then(|href| base?.join(href.trim()).ok().map(String::from));
    Facts {
        title,
        heading,
        date,
        canonical,
    }
}

/// Names, in lower case, and contents.
fn metas(dom: &Dom) -> Vec<(String, String)> {
    let metas = dom.select("meta[content]");
    let pairs = metas.nodes().iter().filter_map(|node| {
        let name = ["property", "name", "itemprop", "http-equiv"]
            .iter()
            .find_map(|key| node.attr(key))?;
        Some((
            name.trim().to_ascii_lowercase(),
            node.attr("content")?.to_string(),
        ))
    });
    pairs
        .filter(|(_, content)| !content.trim().is_empty())
        .collect()
}

/// The date in JSON-LD.
fn of_json(dom: &Dom) -> Option<String> {
    let scripts = dom.select("script[type='application/ld+json']");
    let values: Vec<Value> = scripts
        .nodes()
        .iter()
        .filter_map(|script| serde_json::from_str(&script.text()).ok())
        .collect();
    JSON_DATES.iter().find_map(|name| {
        let mut to_do: Vec<&Value> = values.iter().rev().collect();
        let mut seen = 0;
        while let Some(value) = to_do.pop() {
            seen += 1;
            if seen > MAX_VALUES {
                break;
            }
            match value {
                Value::Array(values) => to_do.extend(values.iter().rev()),
                Value::Object(members) => {
                    let found = members
                        .get(*name)
                        .and_then(Value::as_str)
                        .and_then(date::find);
                    if found.is_some() {
                        return found;
                    }
                    to_do.extend(members.values());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        None
    })
}
