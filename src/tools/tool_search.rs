//! `tool_search`: replaces many tools of MCP servers; the model searches for the ones that it needs.
//!
//! A result names the found tools. From the next model call on they are offered after all others. The history records
//! them: [`SearchableTools::restore`] reads the results of earlier turns.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;

use super::{SharedTool, Tool, ToolError, ToolInvocation, ToolOutput, ToolPolicy, ToolSource};
use protocol::openai::tool::ToolDefinition;
use web::ranking::{Corpus, order};

/// The name of the tool.
pub const TOOL_SEARCH: &str = "tool_search";

/// Most tools that one search finds; others are left out.
const MAX_MATCHES: usize = 8;
/// Most found tools of a session. The result of a search counts the others.
/// Tried by `tools::tool_search::at_most_sixty_four_tools_are_found_and_the_result_says_so`.
const MAX_FOUND: usize = 64;
/// Longest time of a search. After it the call fails.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of a description that are searched; the rest is left out.
const SEARCHED_BYTES: usize = 2048;
/// Most characters of a description in a result; the rest is left out.
const SHOWN_CHARS: usize = 200;
/// Most prefixes of names that the description has; others are left out.
const MAX_PREFIXES: usize = 64;
/// Before the name of each found tool in a result.
const ITEM: &str = "- ";
/// After it.
const ITEM_END: &str = ": ";

const PARAMETERS: &str = r#"{"type":"object","properties":{"query":{"type":"string","description":"What the tool is to do, in a few words, or a part of its name."}},"required":["query"]}"#;
const DESCRIPTION: &str = "Finds further tools. Many more exist than are listed here: search before you say that something cannot be done. The tools that are found can be called afterwards, in this conversation.";

/// The setting of tool search.
#[derive(Debug, Clone)]
pub struct ToolSearch {
    /// How many tools of MCP servers a request may have without it.
    above: usize,
    /// The tool without anything to find, for lists.
    listed: [SharedTool; 1],
}

/// The tools of a request that can be found, and the ones that were found. Cheap to clone; clones share the found
/// tools.
#[derive(Debug, Clone, Default)]
pub(crate) struct SearchableTools {
    tools: Arc<[SharedTool]>,
    /// Indices of the found ones, in the order in which they are offered.
    found: Arc<Mutex<Vec<usize>>>,
}

/// `tool_search` of a request.
#[derive(Debug)]
struct SearchTool {
    tools: SearchableTools,
    definition: ToolDefinition,
    policy: ToolPolicy,
}

impl ToolSearch {
    /// Tool search for requests that have more than this many tools of MCP servers.
    pub fn new(above: usize) -> Self {
        Self {
            above,
            listed: [SearchTool::shared(SearchableTools::default())],
        }
    }

    /// How many tools of MCP servers a request may have without it.
    pub(super) fn above(&self) -> usize {
        self.above
    }

    /// The tool, for lists.
    pub fn tools(&self) -> &[SharedTool] {
        &self.listed
    }

    /// Takes the tools of MCP servers out of those that a request is offered if there are too many, and adds
    /// `tool_search` in their place.
    pub(super) fn replace(&self, offered: &mut Vec<SharedTool>) -> SearchableTools {
        let is_mcp = |tool: &mut SharedTool| tool.policy().source == ToolSource::Mcp;
        let many = offered
            .iter_mut()
            .filter_map(|tool| is_mcp(tool).then_some(()));
        if many.count() <= self.above {
            return SearchableTools::default();
        }
        let tools = SearchableTools {
            tools: offered.extract_if(.., is_mcp).collect(),
            found: Arc::default(),
        };
        offered.push(SearchTool::shared(tools.clone()));
        tools
    }
}

impl SearchableTools {
    /// All that can be found.
    pub(super) fn all(&self) -> &[SharedTool] {
        &self.tools
    }

    /// Whether there is nothing to find.
    pub(super) fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// The tool of this name, found or not.
    pub(super) fn get(&self, name: &str) -> Option<&SharedTool> {
        self.tools
            .iter()
            .find(|tool| tool.definition().name == name)
    }

    /// The tools that have been found, in the order in which they are offered.
    pub(super) fn found(&self) -> Vec<&SharedTool> {
        let found = self.found.lock();
        found
            .iter()
            .filter_map(|&index| self.tools.get(index))
            .collect()
    }

    /// Counts tools of these names as found.
    pub(super) fn find(&self, names: &[&str]) {
        for name in names {
            let is_named = |tool: &SharedTool| tool.definition().name == *name;
            if let Some(index) = self.tools.iter().position(is_named) {
                self.enter(index);
            }
        }
    }

    /// Counts the tools that a result names as found.
    pub(super) fn restore(&self, result: &str) {
        let names = result
            .lines()
            .filter_map(|line| Some(line.strip_prefix(ITEM)?.split_once(ITEM_END)?.0));
        self.find(&names.collect::<Vec<_>>());
    }

    /// Counts a tool as found. Says whether it is, which it is not where there are too many.
    fn enter(&self, index: usize) -> bool {
        let mut found = self.found.lock();
        if found.contains(&index) {
            return true;
        }
        let fits = found.len() < MAX_FOUND;
        if fits {
            found.push(index);
        }
        fits
    }

    /// The indices of the tools that match best, best first.
    fn matches(&self, query: &str) -> Vec<usize> {
        let mut corpus = Corpus::default();
        let texts: Vec<String> = self
            .tools
            .iter()
            .map(|tool| searched(tool.definition()))
            .collect();
        let sample: Vec<&str> = texts.iter().map(String::as_str).collect();
        corpus.add(sample.into_iter(), texts.iter().cloned());
        let scores = corpus.score(&apart(query));
        let best = order(&scores).into_iter();
        let best = best.filter(|&index| scores.get(index).is_some_and(|score| *score > 0.0));
        best.take(MAX_MATCHES).collect()
    }

    /// The result of a search for the model.
    fn answer(&self, query: &str) -> String {
        let matches = self.matches(query);
        if matches.is_empty() {
            return "No tool matches. Try other words, such as those of the task itself."
                .to_owned();
        }
        let (known, left_out): (Vec<usize>, Vec<usize>) =
            matches.into_iter().partition(|&index| self.enter(index));
        let known = known.iter().filter_map(|&index| self.tools.get(index));
        let mut text = String::from("These tools can be called from now on:");
        for tool in known {
            let definition = tool.definition();
            let described = one_line(&definition.description());
            let name = &definition.name;
            text.push_str(&format!("\n{ITEM}{name}{ITEM_END}{described}"));
        }
        if !left_out.is_empty() {
            text.push_str(&format!(
                "\n\n{} more match, but no further tools can be added: {MAX_FOUND} have been found in this conversation. \
                 Use those.",
                left_out.len()
            ));
        }
        text
    }

    /// The beginnings of the names, up to the first `__`.
    fn prefixes(&self) -> Vec<&str> {
        let mut seen = HashSet::new();
        let names = self.tools.iter().map(|tool| &tool.definition().name);
        let prefixes = names.filter_map(|name| {
            let end = name.find("__")?;
            name.get(..end + 2)
        });
        let prefixes = prefixes.filter(|prefix| seen.insert(*prefix));
        prefixes.take(MAX_PREFIXES).collect()
    }
}

impl SearchTool {
    fn shared(tools: SearchableTools) -> SharedTool {
        let mut description = DESCRIPTION.to_owned();
        let prefixes = tools.prefixes();
        if !prefixes.is_empty() {
            description.push_str(&format!(
                " Their names begin with: {}.",
                prefixes.join(", ")
            ));
        }
        Arc::new(Self {
            tools,
            definition: ToolDefinition::function(TOOL_SEARCH, &description, PARAMETERS),
            policy: ToolPolicy {
                idempotent: true,
                read_only: true,
                destructive: false,
                open_world: false,
                ..ToolPolicy::new(ToolSource::BuiltIn, TIME_LIMIT)
            },
        })
    }
}

impl Tool for SearchTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    fn call<'a>(
        &'a self,
        invocation: &'a ToolInvocation,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        async {
            let query = invocation.arguments.get("query").and_then(Value::as_str);
            let query = query.unwrap_or_default().to_owned();
            let tools = self.tools.clone();
            // Thousands of descriptions are tokenised.
            let answered = tokio::task::spawn_blocking(move || tools.answer(&query)).await;
            let content = answered.map_err(|error| ToolError::Failed {
                message: "the search failed".to_owned(),
                source: Some(Box::new(error)),
            })?;
            Ok(ToolOutput {
                content,
                is_bounded: true,
                ..ToolOutput::default()
            })
        }
        .boxed()
    }
}

/// What of a tool is searched: its name, also in words, and its description.
fn searched(definition: &ToolDefinition) -> String {
    let description = definition.description();
    let end = description.floor_char_boundary(SEARCHED_BYTES);
    let description = description.get(..end).unwrap_or_default();
    format!("{} {description}", apart(&definition.name))
}

/// A text with the words of its names apart, as in `create_issue` and `createIssue`.
fn apart(text: &str) -> String {
    let mut words = String::with_capacity(text.len() + 16);
    let mut before = ' ';
    for character in text.chars() {
        if before.is_lowercase() && character.is_uppercase() {
            words.push(' ');
        }
        words.push(match character {
            '_' | '-' | '.' | '/' => ' ',
            other => other,
        });
        before = character;
    }
    words
}

/// The start of a description on one line.
fn one_line(description: &str) -> String {
    let words: Vec<&str> = description.split_whitespace().collect();
    words.join(" ").chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
