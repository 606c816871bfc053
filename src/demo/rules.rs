//! What the scripted model says: rules over the conversation and the offered tools.
//!
//! Pure. Knows nothing of HTTP, of streams or of how the tools are run; like any model it sees messages only.

pub(super) mod code;
mod web;

use serde_json::{Map, Value, json};

use super::tool::{CITIES, GET_TICKET, GET_WEATHER, LIST_COMMENTS};
use crate::tools::python::EXECUTE_PYTHON;
use crate::tools::web::READ_PAGE;

/// Said at the end of every answer, so that nobody takes the script for a language model.
pub(super) const LABEL: &str = "(scripted demo model)";

/// What the model does next.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Turn {
    /// What it says.
    pub(super) text: String,
    /// The tools that it calls: name, arguments.
    pub(super) calls: Vec<(String, Value)>,
}

/// A tool call since the last user message, with its result.
#[derive(Debug)]
struct Done<'a> {
    name: &'a str,
    arguments: Value,
    result: String,
}

/// What the rules look at.
#[derive(Debug)]
struct Scene<'a> {
    /// The last user message.
    ask: String,
    /// The same in lower case, for comparisons.
    ask_lower: String,
    /// The texts of the user messages before it, oldest first.
    earlier: Vec<String>,
    /// What was called since.
    done: Vec<Done<'a>>,
    /// Names of the tools that may be called now.
    offered: Vec<&'a str>,
}

/// Decides what the model does with a chat request.
pub(super) fn decide(request: &Value) -> Turn {
    let scene = Scene::of(request);
    let mut calls = scene.weather_calls();
    calls.extend(scene.ticket_calls());
    if calls.is_empty() {
        calls.extend(scene.code_call());
    }
    if calls.is_empty() {
        calls.extend(scene.named_call());
    }
    if calls.is_empty() {
        calls.extend(scene.web_call());
    }
    if !calls.is_empty() {
        let text = scene.announcement(&calls);
        return Turn { text, calls };
    }
    let said = scene.answer();
    Turn {
        text: format!("{said}\n\n{LABEL}"),
        calls,
    }
}

impl<'a> Scene<'a> {
    fn of(request: &'a Value) -> Self {
        let messages = request["messages"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let last = messages
            .iter()
            .rposition(|message| message["role"] == "user");
        let (before, after) = messages.split_at(last.unwrap_or(0));
        let ask = after.first().map(content).unwrap_or_default();
        let earlier = before
            .iter()
            .filter(|message| message["role"] == "user")
            .map(content)
            .collect();
        Self {
            ask_lower: ask.to_lowercase(),
            ask,
            earlier,
            done: done(after),
            offered: offered(request),
        }
    }

    fn asks_for(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.ask_lower.contains(word))
    }

    fn may_call(&self, name: &str) -> bool {
        self.offered.contains(&name)
    }

    fn results<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Done<'a>> {
        self.done.iter().filter(move |done| done.name == name)
    }

    fn asks_for_weather(&self) -> bool {
        self.asks_for(&["weather", "temperature", "forecast"])
    }

    fn asks_for_ticket(&self) -> bool {
        self.asks_for(&["ticket", "order"])
    }

    /// One call for every city that is named and not looked up yet.
    fn weather_calls(&self) -> Vec<(String, Value)> {
        if !self.asks_for_weather() || !self.may_call(GET_WEATHER) {
            return Vec::new();
        }
        let mut cities: Vec<(usize, &str)> = CITIES
            .iter()
            .filter_map(|city| Some((self.ask_lower.find(&city.name.to_lowercase())?, city.name)))
            .filter(|(_, name)| {
                let mut looked_up = self.results(GET_WEATHER);
                !looked_up.any(|done| done.arguments["city"] == **name)
            })
            .collect();
        cities.sort_unstable();
        cities
            .into_iter()
            .map(|(_, name)| (GET_WEATHER.to_owned(), json!({"city": name})))
            .collect()
    }

    /// First the ticket, then, once it has been found, its comments.
    fn ticket_calls(&self) -> Vec<(String, Value)> {
        if !self.asks_for_ticket() {
            return Vec::new();
        }
        let Some(id) = number(&self.ask) else {
            return Vec::new();
        };
        let (tool, key) = match self.results(GET_TICKET).next() {
            None => (GET_TICKET, "id"),
            Some(ticket) => {
                let found = serde_json::from_str::<Value>(&ticket.result)
                    .is_ok_and(|ticket| ticket["id"].is_string());
                let listed = self.results(LIST_COMMENTS).next().is_some();
                if !found || listed {
                    return Vec::new();
                }
                (LIST_COMMENTS, "ticket_id")
            }
        };
        if !self.may_call(tool) {
            return Vec::new();
        }
        vec![(tool.to_owned(), json!({key: id}))]
    }

    /// A tool that the user names, with the JSON object that the user gives.
    fn named_call(&self) -> Option<(String, Value)> {
        let name = self
            .offered
            .iter()
            .find(|name| has_word(&self.ask, name) && self.results(name).next().is_none())?;
        Some(((*name).to_owned(), object_in(&self.ask)))
    }

    fn announcement(&self, calls: &[(String, Value)]) -> String {
        let calls_for = |wanted: &str| calls.iter().any(|(name, _)| name == wanted);
        if calls_for(LIST_COMMENTS) {
            "The ticket is there; now its comments.".to_owned()
        } else if calls_for(EXECUTE_PYTHON) {
            "I write some Python for that.".to_owned()
        } else if calls_for(READ_PAGE) {
            "The rest may be in the page itself.".to_owned()
        } else if self.done.is_empty() {
            "Let me look that up.".to_owned()
        } else {
            "One more thing to look up.".to_owned()
        }
    }

    fn answer(&self) -> String {
        if !self.done.is_empty() {
            let line = |done: &Done<'_>| self.cited(done).unwrap_or_else(|| done.sentence());
            let lines: Vec<String> = self.done.iter().map(line).collect();
            return format!("Here is what I found:\n{}", lines.join("\n"));
        }
        if asks_own_name(&self.ask_lower) {
            let known = self.earlier.iter().rev().find_map(|text| name_in(text));
            return match known {
                Some(name) => format!("Your name is {name}; you told me earlier."),
                None => "You have not told me your name yet. Say: my name is …".to_owned(),
            };
        }
        if let Some(name) = name_in(&self.ask) {
            return format!(
                "Nice to meet you, {name}. Ask me in your next message what your name is."
            );
        }
        self.nothing_to_call()
    }

    /// Says why nothing was looked up.
    fn nothing_to_call(&self) -> String {
        if let Some(text) = self.no_code().or_else(|| self.no_web()) {
            return text;
        }
        if self.asks_for_weather() {
            let cities = CITIES.map(|city| city.name).join(", ");
            return if self.may_call(GET_WEATHER) {
                format!("Name a city for the weather, one or several of: {cities}.")
            } else {
                format!("I would look up the weather, but `{GET_WEATHER}` is not offered to me.")
            };
        }
        if self.asks_for_ticket() {
            return if self.may_call(GET_TICKET) {
                "Which ticket? Give me its number, for instance 4711.".to_owned()
            } else {
                format!("I would open the ticket, but `{GET_TICKET}` is not offered to me.")
            };
        }
        "I am a script that stands in for a language model. Ask me for the weather in one city or in several \
         (Lisbon, Oslo, Tokyo, …), for a plot of their temperatures, for ticket 4711, who built the lighthouse of Velmouth, \
         or tell me your name and ask for it in the next message of the same session."
            .to_owned()
    }
}

impl Done<'_> {
    /// The result in words where its shape is known, and as it stands where not.
    fn sentence(&self) -> String {
        let result: Value = serde_json::from_str(&self.result).unwrap_or_default();
        let field = |key: &str| match &result[key] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        let known = match self.name {
            GET_WEATHER => field("city")
                .zip(field("temperature_c"))
                .zip(field("sky"))
                .map(|((city, degrees), sky)| format!("- {city}: {degrees} °C, {sky}")),
            GET_TICKET => field("id")
                .zip(field("title"))
                .zip(field("status"))
                .map(|((id, title), status)| format!("- Ticket {id} “{title}” is {status}.")),
            LIST_COMMENTS => result["comments"].as_array().map(|list| comments(list)),
            EXECUTE_PYTHON => Some(code::sentence(self)),
            _ => None,
        };
        known.unwrap_or_else(|| format!("- {}: {}", self.name, self.result))
    }
}

fn comments(list: &[Value]) -> String {
    if list.is_empty() {
        return "- It has no comments.".to_owned();
    }
    let lines: Vec<String> = list
        .iter()
        .map(|comment| {
            let part = |key: &str| comment[key].as_str().unwrap_or("?");
            format!("- {} wrote: “{}”", part("author"), part("text"))
        })
        .collect();
    lines.join("\n")
}

/// The text of a message, whichever way its content is given.
fn content(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| part["text"].as_str())
                .collect();
            texts.join(" ")
        }
        _ => String::new(),
    }
}

fn offered(request: &Value) -> Vec<&str> {
    if request["tool_choice"] == "none" {
        return Vec::new();
    }
    let tools = request["tools"].as_array().into_iter().flatten();
    tools
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect()
}

/// The answered calls among these messages, in the order of the calls.
fn done(messages: &[Value]) -> Vec<Done<'_>> {
    let calls = messages
        .iter()
        .filter_map(|message| message["tool_calls"].as_array())
        .flatten();
    calls
        .filter_map(|call| {
            let result = messages.iter().find(|message| {
                message["role"] == "tool" && message["tool_call_id"] == call["id"]
            })?;
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            Some(Done {
                name: call["function"]["name"].as_str()?,
                arguments: serde_json::from_str(arguments).unwrap_or_default(),
                result: content(result),
            })
        })
        .collect()
}

fn asks_own_name(text: &str) -> bool {
    [
        "what is my name",
        "what's my name",
        "who am i",
        "remember my name",
    ]
    .iter()
    .any(|phrase| text.contains(phrase))
}

/// The name in “my name is Ada”.
fn name_in(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let place = words.windows(3).position(|three| {
        three
            .iter()
            .zip(["my", "name", "is"])
            .all(|(word, expected)| word.eq_ignore_ascii_case(expected))
    })?;
    let name = words.get(place + 3)?;
    let name = name.trim_matches(|character: char| !character.is_alphanumeric());
    (!name.is_empty()).then(|| name.to_owned())
}

/// The first number in a text, as digits.
fn number(text: &str) -> Option<String> {
    let mut runs = text.split(|character: char| !character.is_ascii_digit());
    runs.find(|run| !run.is_empty()).map(ToOwned::to_owned)
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|character: char| !(character.is_alphanumeric() || "_-".contains(character)))
        .any(|part| part == word)
}

/// The JSON object in a text, or an empty one.
fn object_in(text: &str) -> Value {
    let Some((_, rest)) = text.split_once('{') else {
        return json!({});
    };
    let json = format!("{{{rest}");
    let mut values = serde_json::Deserializer::from_str(&json).into_iter::<Map<String, Value>>();
    match values.next() {
        Some(Ok(object)) => object.into(),
        Some(Err(_)) | None => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tool;
    use super::*;

    pub(super) fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    pub(super) fn calling(calls: &[(&str, Value)]) -> Value {
        let calls: Vec<Value> = calls
            .iter()
            .map(|(name, arguments)| {
                let id = format!("call_{name}_{arguments}");
                json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
            })
            .collect();
        json!({"role": "assistant", "content": null, "tool_calls": calls})
    }

    pub(super) fn result(name: &str, arguments: &Value, text: &str) -> Value {
        json!({"role": "tool", "tool_call_id": format!("call_{name}_{arguments}"), "content": text})
    }

    pub(super) fn request(messages: &[Value]) -> Value {
        let mut names: Vec<&str> = tool::definitions().iter().map(|tool| tool.name).collect();
        names.push("send_mail");
        let tools: Vec<Value> = names
            .iter()
            .map(|name| json!({"type": "function", "function": {"name": name}}))
            .collect();
        json!({"messages": messages, "tools": tools})
    }

    fn call(name: &str, arguments: Value) -> (String, Value) {
        (name.to_owned(), arguments)
    }

    #[test]
    fn the_question_decides_which_tools_are_called() {
        let cases = [
            (
                "What is the weather in Oslo and in Lisbon?",
                vec![
                    call(GET_WEATHER, json!({"city": "Oslo"})),
                    call(GET_WEATHER, json!({"city": "Lisbon"})),
                ],
            ),
            (
                "Forecast for new york, and the state of ticket #4711 please",
                vec![
                    call(GET_WEATHER, json!({"city": "New York"})),
                    call(GET_TICKET, json!({"id": "4711"})),
                ],
            ),
            (
                "Where is order 4712?",
                vec![call(GET_TICKET, json!({"id": "4712"}))],
            ),
            (
                "Use send_mail with {\"to\": \"ada\"} now",
                vec![call("send_mail", json!({"to": "ada"}))],
            ),
            ("What is the weather?", vec![]),
            ("Which tickets are open?", vec![]),
            ("Is Lisbon nice?", vec![]),
        ];
        for (ask, expected) in cases {
            let turn = decide(&request(&[user(ask)]));
            assert_eq!(turn.calls, expected, "{ask}");
            assert_eq!(turn.text.ends_with(LABEL), expected.is_empty(), "{ask}");
        }
    }

    #[test]
    fn a_ticket_is_followed_by_its_comments_and_then_by_the_answer() {
        let id = json!({"id": "4711"});
        let ticket = r#"{"id":"4711","title":"Parcel","status":"open"}"#;
        let mut messages = vec![
            user("What about ticket 4711?"),
            calling(&[(GET_TICKET, id.clone())]),
            result(GET_TICKET, &id, ticket),
        ];
        let of_ticket = json!({"ticket_id": "4711"});
        let turn = decide(&request(&messages));
        assert_eq!(turn.calls, [call(LIST_COMMENTS, of_ticket.clone())]);

        messages.push(calling(&[(LIST_COMMENTS, of_ticket.clone())]));
        let comments = r#"{"comments":[{"author":"Ben","text":"On its way."}]}"#;
        messages.push(result(LIST_COMMENTS, &of_ticket, comments));
        let turn = decide(&request(&messages));
        assert_eq!(turn.calls, []);
        for expected in [
            "Ticket 4711 “Parcel” is open",
            "Ben wrote: “On its way.”",
            LABEL,
        ] {
            assert!(turn.text.contains(expected), "{}", turn.text);
        }
    }

    #[test]
    fn a_ticket_that_is_not_there_ends_the_search() {
        let id = json!({"id": "9"});
        let turn = decide(&request(&[
            user("What about ticket 9?"),
            calling(&[(GET_TICKET, id.clone())]),
            result(GET_TICKET, &id, "there is no ticket `9`"),
        ]));
        assert_eq!(turn.calls, []);
        assert!(
            turn.text.contains("there is no ticket `9`"),
            "{}",
            turn.text
        );
    }

    #[test]
    fn the_answer_uses_the_results_and_only_those_of_this_question() {
        let (oslo, rome) = (json!({"city": "Oslo"}), json!({"city": "Rome"}));
        let messages = [
            user("weather in Paris?"),
            calling(&[(GET_WEATHER, json!({"city": "Paris"}))]),
            result(GET_WEATHER, &json!({"city": "Paris"}), "old news"),
            json!({"role": "assistant", "content": "…"}),
            user("weather in Oslo and Rome?"),
            calling(&[(GET_WEATHER, oslo.clone()), (GET_WEATHER, rome.clone())]),
            result(
                GET_WEATHER,
                &oslo,
                r#"{"city":"Oslo","temperature_c":-3,"sky":"snow"}"#,
            ),
            result(GET_WEATHER, &rome, "the tool answered with status 500"),
        ];
        let turn = decide(&request(&messages));
        assert_eq!(turn.calls, []);
        let expected = format!(
            "Here is what I found:\n- Oslo: -3 °C, snow\n- get_weather: the tool answered with status 500\n\n{LABEL}"
        );
        assert_eq!(turn.text, expected);
    }

    #[test]
    fn nothing_is_called_that_is_not_offered() {
        let ask = user("weather in Oslo, ticket 4711");
        let mut forbidden = request(std::slice::from_ref(&ask));
        forbidden["tool_choice"] = json!("none");
        for body in [forbidden, json!({"messages": [ask]})] {
            let turn = decide(&body);
            assert_eq!(turn.calls, []);
            assert!(turn.text.contains("is not offered to me"), "{}", turn.text);
        }
    }

    #[test]
    fn a_name_is_remembered_within_the_conversation_only() {
        let question = user("So, what is my name?");
        let told = [
            user("Hello! my name is Ada."),
            json!({"role": "assistant", "content": "Hello"}),
            json!({"role": "user", "content": [{"type": "text", "text": "fine"}]}),
            question.clone(),
        ];
        let cases: [(&[Value], &str); 3] = [
            (&told, "Your name is Ada;"),
            (&[question], "not told me"),
            (&[user("My name is Zoë!")], "Nice to meet you, Zoë."),
        ];
        for (messages, expected) in cases {
            let turn = decide(&request(messages));
            assert!(turn.text.contains(expected), "{}", turn.text);
            assert!(turn.text.ends_with(LABEL), "{}", turn.text);
        }
    }

    #[test]
    fn odd_requests_get_an_explanation() {
        for body in [
            json!({}),
            json!({"messages": []}),
            json!({"messages": [{"role": "user"}]}),
        ] {
            assert!(
                decide(&body)
                    .text
                    .contains("stands in for a language model"),
                "{body}"
            );
        }
    }
}
