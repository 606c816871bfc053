//! The answers of the scripted model: recorded turns, found by the words of the prompt and filled from tool results.
//!
//! The turns are data (`turns.json`). A prompt can match several of them, whose calls are then made together. In their
//! texts `{{all}}` is every result that is an object, `{{said:words}}` an earlier prompt with these words, `{{plot.py}}`
//! that file, `{{web}}` the address of the sample pages, and any other name a field or section of the latest result that
//! has it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::list;

/// All texts and calls of the scripted model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    /// The end of every answer; it says that a script wrote the answer.
    pub(super) label: String,
    found: String,
    synonyms: BTreeMap<String, String>,
    tools: BTreeMap<String, ToolTexts>,
    turns: Vec<RecordedTurn>,
}

/// The texts around the calls of a tool. The first report whose values exist in the result is used.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolTexts {
    before: String,
    reports: Vec<String>,
    unoffered: String,
}

/// The recorded reaction to a prompt with all of these words: batches of calls, or an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedTurn {
    words: Vec<String>,
    #[serde(default)]
    steps: Vec<Vec<RecordedCall>>,
    #[serde(default)]
    answer: String,
}

/// A call, and sentences that are cited if its result quotes them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordedCall {
    pub(super) tool: String,
    pub(super) arguments: BTreeMap<String, String>,
    #[serde(default)]
    quotes: Vec<String>,
}

/// The next message of the model: a text and calls.
#[derive(Debug, Default)]
pub(super) struct ScriptedReply {
    pub(super) text: String,
    pub(super) calls: Vec<RecordedCall>,
}

impl Script {
    /// Reads the turns, for sample pages at this address.
    pub(super) fn load(web: &str) -> serde_json::Result<Self> {
        serde_json::from_str(&include_str!("turns.json").replace("{{web}}", web))
    }

    /// Answers a chat request.
    pub(super) fn reply(&self, request: &Value) -> ScriptedReply {
        let messages = list(&request["messages"]);
        let last = messages
            .iter()
            .rposition(|message| message["role"] == "user");
        let (earlier, messages) = messages.split_at(last.unwrap_or(0));
        let turns = self.matching(&messages.first().map(content).unwrap_or_default());
        let results = results(messages);
        let (mut lines, mut answered) = (Vec::new(), 0);
        for step in 0..turns.iter().map(|turn| turn.steps.len()).max().unwrap_or(0) {
            let calls = turns
                .iter()
                .filter_map(|turn| turn.steps.get(step))
                .flatten();
            let known = results.get(..answered).unwrap_or_default();
            let calls: Vec<RecordedCall> = calls.filter_map(|call| call.filled(known)).collect();
            let Some(news) = results.get(answered..answered + calls.len()) else {
                let unoffered = calls.iter().find(|call| !is_offered(request, &call.tool));
                let Some(texts) = unoffered.and_then(|call| self.tools.get(&call.tool)) else {
                    let texts = calls.first().and_then(|call| self.tools.get(&call.tool));
                    let text = texts.map_or_else(String::new, |texts| texts.before.clone());
                    return ScriptedReply { text, calls };
                };
                lines.push(texts.unoffered.clone());
                break;
            };
            lines.extend(
                calls
                    .iter()
                    .zip(news)
                    .map(|(call, result)| self.report(call, result)),
            );
            answered += calls.len();
        }
        if answered > 0 {
            lines.insert(0, self.found.clone());
        }
        if lines.is_empty() {
            let prompts = earlier.iter().filter(|message| message["role"] == "user");
            let earlier: Vec<String> = prompts.map(content).collect();
            lines.extend(turns.iter().find_map(|turn| fill(&turn.answer, &earlier)));
        }
        let text = format!("{}\n\n{}", lines.join("\n"), self.label);
        ScriptedReply {
            text,
            calls: Vec::new(),
        }
    }

    /// The turns whose words the prompt has: first the turns with calls, in the order of the words, or else the turns
    /// without.
    fn matching(&self, prompt: &str) -> Vec<&RecordedTurn> {
        let prompt = prompt.to_lowercase();
        let words = prompt.split(|character: char| !character.is_alphanumeric());
        let words = words.map(|word| self.synonyms.get(word).map_or(word, String::as_str));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let prompt = format!(" {} ", words.join(" "));
        let has = |word: &String| prompt.contains(&format!(" {word} "));
        let turns = self.turns.iter().filter(|turn| turn.words.iter().all(has));
        let (mut calling, answering): (Vec<_>, Vec<_>) =
            turns.partition(|turn| !turn.steps.is_empty());
        calling.sort_by_key(|turn| turn.words.last().and_then(|word| prompt.find(word)));
        if calling.is_empty() {
            answering
        } else {
            calling
        }
    }

    /// The sentence about a result. A result that no report fits is repeated as it is.
    fn report(&self, call: &RecordedCall, result: &String) -> String {
        let quotes = call.quotes.iter();
        let cited =
            quotes.filter_map(|quote| Some(format!("- {quote} [{}].", source_of(result, quote)?)));
        let cited: Vec<String> = cited.collect();
        if !cited.is_empty() {
            return cited.join("\n");
        }
        let mut reports = self
            .tools
            .get(&call.tool)
            .into_iter()
            .flat_map(|texts| &texts.reports);
        let report = reports.find_map(|report| fill(report, std::slice::from_ref(result)));
        report.unwrap_or_else(|| format!("- {}: {result}", call.tool))
    }
}

impl RecordedCall {
    /// The call with its arguments filled in; `None` if a value is missing.
    fn filled(&self, results: &[String]) -> Option<Self> {
        let arguments = self.arguments.iter();
        let arguments = arguments.map(|(name, text)| Some((name.clone(), fill(text, results)?)));
        Some(Self {
            arguments: arguments.collect::<Option<_>>()?,
            ..self.clone()
        })
    }
}

/// Replaces the placeholders of a template with values from earlier texts; `None` if one is missing.
fn fill(template: &str, earlier: &[String]) -> Option<String> {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}")?;
        let mut latest = earlier.iter().rev();
        text.push_str(before);
        text.push_str(&match (name, name.split_once(':')) {
            ("all", _) => {
                let objects = earlier.iter().filter(|result| result.starts_with('{'));
                objects
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(",\n    ")
            }
            ("plot.py", _) => include_str!("plot.py").to_owned(),
            (_, Some((_, words))) => latest.find(|text| text.contains(words))?.clone(),
            (field, None) => latest.find_map(|result| field_of(result, field))?,
        });
        rest = behind;
    }
    Some(text + rest)
}

/// A field of a JSON object, or a section of a text under its label.
fn field_of(result: &str, name: &str) -> Option<String> {
    if let Ok(object) = serde_json::from_str::<Value>(result) {
        return match object.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Array(list) if list.is_empty() => None,
            Value::Array(list) => Some(
                list.iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join("\n- "),
            ),
            field => Some(field.to_string()),
        };
    }
    let (_, section) = result.split_once(&format!("{name}:\n"))?;
    // A section ends at an empty line or at a note of the server.
    let section = section.split("\n\n").next()?;
    section.split("\n[").next().map(str::to_owned)
}

/// The number of the source that a result quotes with these words.
fn source_of<'a>(result: &'a str, quote: &str) -> Option<&'a str> {
    let (before, _) = result.split_once(quote)?;
    let mut headings = before
        .lines()
        .rev()
        .filter_map(|line| line.strip_prefix('['));
    headings.find_map(|heading| Some(heading.split_once("] ")?.0))
}

/// The results of the calls in these messages, in the order of the calls.
fn results(messages: &[Value]) -> Vec<String> {
    let calls = messages
        .iter()
        .flat_map(|message| list(&message["tool_calls"]));
    let answer = |call: &Value| {
        messages
            .iter()
            .find(|message| message["tool_call_id"] == call["id"])
    };
    calls.filter_map(answer).map(content).collect()
}

fn is_offered(request: &Value, tool: &str) -> bool {
    let mut tools = list(&request["tools"]).iter();
    request["tool_choice"] != "none" && tools.any(|offered| offered["function"]["name"] == tool)
}

/// The text of a message, whichever way its content is given.
fn content(message: &Value) -> String {
    let parts = list(&message["content"])
        .iter()
        .filter_map(|part| part["text"].as_str());
    let text = message["content"].as_str();
    text.map_or_else(|| parts.collect::<Vec<_>>().join(" "), str::to_owned)
}

#[cfg(test)]
mod tests;
