//! The descriptions of the tools for models.

use super::{READ_PAGE, WEB_SEARCH};
use crate::requested::WebOptions;
use protocol::openai::tool::ToolDefinition;
use web::{DomainFilter, Location};

/// Most domains that a description names; of others it says that there are more.
const MAX_NAMED: usize = 10;

pub(super) fn search(ask: &WebOptions, max_results: usize) -> ToolDefinition {
    let mut text = match &ask.search_description {
        Some(text) => text.clone(),
        None => format!(
            "Searches the web and returns the passages of the pages found that fit the query best, each with its source.\n\
             - Use it for what you cannot know or what may have changed: news, prices, versions, people, places, documentation. \
             Do not use it for what you know for certain.\n\
             - 'query': a few words, as for a search engine. For a question with several sides give other wordings in 'queries'.\n\
             - Every source has a number. When you use one in your answer, write its number in square brackets right behind \
             the statement, such as [1] or [2, 5]; the user sees it as a link.\n\
             - To read more of a page, give its URL to {READ_PAGE}."
        ),
    };
    if let Some(place) = ask.location.as_deref().and_then(place) {
        text.push_str(&format!("\n- The user is in or near {place}."));
    }
    text.push_str(&limits(&ask.domains));
    let parameters = format!(
        r#"{{"type":"object","properties":{{"query":{{"type":"string","description":"What to search for."}},"queries":{{"type":"array","items":{{"type":"string"}},"maxItems":4,"description":"Other wordings, searched along with it."}},"max_results":{{"type":"integer","minimum":1,"maximum":{max_results},"description":"Most sources. Default 6."}},"freshness":{{"type":"string","enum":["day","week","month","year"],"description":"Only what is not older than this."}},"domains":{{"type":"array","items":{{"type":"string"}},"description":"Only these sites, such as \"example.org\"."}}}},"required":["query"],"additionalProperties":false}}"#
    );
    ToolDefinition::function(WEB_SEARCH, &text, &parameters)
}

/// In the list of what a page can be.
const PDF: &str = if cfg!(feature = "pdf") { "PDF, " } else { "" };

pub(super) fn read(ask: &WebOptions) -> ToolDefinition {
    let mut text = match &ask.extract_description {
        Some(text) => text.clone(),
        None => format!(
            "Reads one page of the web (HTML, text, {PDF}JSON, feeds) and returns its text. Of a long page only what fits is returned: \
             say in 'find' what to look for, to get the passages about that instead of the beginning. Take URLs from {WEB_SEARCH}, \
             from the user or from other pages; do not guess them. Cite it by its number, such as [1]."
        ),
    };
    text.push_str(&limits(&ask.domains));
    let parameters = r#"{"type":"object","properties":{"url":{"type":"string","description":"The address, with https:// or http://."},"find":{"type":"string","description":"What to look for in the page."}},"required":["url"],"additionalProperties":false}"#;
    ToolDefinition::function(READ_PAGE, &text, parameters)
}

fn limits(domains: &DomainFilter) -> String {
    let list = |domains: &[String]| {
        let named: Vec<&str> = domains.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = if domains.len() > MAX_NAMED {
            " and others"
        } else {
            ""
        };
        format!("{}{more}", named.join(", "))
    };
    let mut text = String::new();
    if !domains.allowed.is_empty() {
        text.push_str(&format!(
            "\n- Only these sites can be seen: {}.",
            list(&domains.allowed)
        ));
    }
    if !domains.blocked.is_empty() {
        text.push_str(&format!(
            "\n- These sites cannot be seen: {}.",
            list(&domains.blocked)
        ));
    }
    text
}

fn place(location: &Location) -> Option<String> {
    let parts = [&location.city, &location.region, &location.country];
    let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
    let zone = location.timezone.as_ref();
    match (parts.is_empty(), zone) {
        (true, None) => None,
        (true, Some(zone)) => Some(format!("the time zone {zone}")),
        (false, None) => Some(parts.join(", ")),
        (false, Some(zone)) => Some(format!("{} (time zone {zone})", parts.join(", "))),
    }
}
