//! The files and their cases.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::play::Problem;

/// What a case may say of itself.
const OF_CASE: [&str; 11] = [
    "case",
    "note",
    "upstream",
    "server",
    "tools",
    "client_tools",
    "request",
    "session",
    "each",
    "dialects",
    "why",
];
/// What the other lines may have.
const OF_TURN: [&str; 6] = ["turn", "restart", "model", "request", "note", "only"];
const OF_CALL: [&str; 16] = [
    "sent", "at", "times", "say", "finish", "stream", "done", "whole", "body", "status", "headers",
    "pieces", "cut", "compress", "note", "only",
];
const OF_RAN: [&str; 3] = ["ran", "note", "only"];
const OF_GOT: [&str; 3] = ["got", "note", "only"];

/// A case as a file has it, with one value for each of its variables.
#[derive(Debug, Clone)]
pub(super) struct Case {
    /// The file.
    pub(super) file: String,
    /// Where it begins.
    pub(super) line: usize,
    /// The title, with the values of the variables.
    pub(super) title: String,
    /// The members of its first line.
    pub(super) head: Value,
    lines: Vec<(usize, Value)>,
}

/// A request of the client and what belongs to it.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    /// Where it stands.
    pub(super) line: usize,
    /// The line.
    pub(super) ask: Value,
    /// The model calls with their lines.
    pub(super) calls: Vec<(usize, Value)>,
    /// The lines that say what the webhook and the client got.
    pub(super) expected: Vec<(usize, Value)>,
}

/// All cases, and what is wrong with the files.
pub(super) fn all() -> (Vec<Case>, Vec<Problem>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstreams");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jsonl")
    });
    paths.sort();
    assert!(paths.len() > 20, "only {} files were found", paths.len());
    let (mut cases, mut problems) = (Vec::new(), Vec::new());
    for path in paths {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        if super::is_wanted(&file) {
            let text = fs::read_to_string(&path).unwrap();
            match read(&file, &text) {
                Ok(found) => cases.extend(found),
                Err((line, text)) => problems.push(Problem::of_file(&file, line, text)),
            }
        }
    }
    (cases, problems)
}

fn read(file: &str, text: &str) -> Result<Vec<Case>, (usize, String)> {
    let mut common = Map::new();
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let number = number + 1;
        let wrong = |text: String| (number, text);
        let json: Value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        let known = kind_of(&json)
            .ok_or_else(|| wrong("the line has none of the known forms".to_owned()))?;
        if let Some(key) = keys(&json).find(|key| !known.contains(key)) {
            return Err(wrong(format!("`{key}` does not belong there")));
        }
        if let Some(all) = json.get("all") {
            common = all.as_object().cloned().unwrap_or_default();
        } else if let Some(title) = json["case"].as_str() {
            let mut head = json!(common);
            head.as_object_mut()
                .unwrap()
                .extend(json.as_object().unwrap().clone());
            if let Some(key) = keys(&head).find(|key| !OF_CASE.contains(key)) {
                return Err(wrong(format!("`{key}` does not belong to a case")));
            }
            if head.get("dialects").is_some() && !head["why"].is_string() {
                return Err(wrong("`dialects` without `why`".to_owned()));
            }
            cases.push(Case {
                file: file.to_owned(),
                line: number,
                title: title.to_owned(),
                head,
                lines: Vec::new(),
            });
        } else {
            let case = cases
                .last_mut()
                .ok_or_else(|| wrong("a line before the first case".to_owned()))?;
            case.lines.push((number, json));
        }
    }
    Ok(cases.into_iter().flat_map(Case::with_each).collect())
}

fn keys(line: &Value) -> impl Iterator<Item = &str> {
    line.as_object()
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
}

/// The members that a line may have.
fn kind_of(line: &Value) -> Option<&'static [&'static str]> {
    let kinds: [(&str, &'static [&'static str]); 6] = [
        ("all", &["all"]),
        ("case", &OF_CASE),
        ("turn", &OF_TURN),
        ("ran", &OF_RAN),
        ("got", &OF_GOT),
        ("sent", &OF_CALL),
    ];
    let found = kinds.iter().find(|(key, _)| line.get(key).is_some());
    let is_call = || {
        ["say", "stream", "whole", "body"]
            .iter()
            .any(|key| line.get(key).is_some())
    };
    match found {
        Some((_, known)) => Some(known),
        None => is_call().then_some(&OF_CALL),
    }
}

impl Case {
    /// The configuration of the process that it needs.
    pub(super) fn server(&self) -> String {
        self.head["server"].as_str().unwrap_or_default().to_owned()
    }

    /// The settings of its model servers.
    pub(super) fn upstreams(&self) -> Vec<Value> {
        match &self.head["upstream"] {
            Value::Array(list) => list.clone(),
            Value::Null => vec![json!({})],
            one => vec![one.clone()],
        }
    }

    /// Its server-side tools.
    pub(super) fn tools(&self) -> Map<String, Value> {
        let tools = self.head["tools"].as_object().cloned();
        tools.unwrap_or_else(|| Map::from_iter([("srv_look".to_owned(), json!("cold"))]))
    }

    /// Whether the server is killed and started again in it.
    pub(super) fn restarts(&self) -> bool {
        self.lines.iter().any(|(_, line)| line["restart"] == true)
    }

    /// Its turns for a client of this kind.
    pub(super) fn turns(&self, kind: &[&str]) -> Vec<Turn> {
        let mut turns: Vec<Turn> = Vec::new();
        for (number, line) in self.lines.iter().filter(|(_, line)| counts(line, kind)) {
            if line.get("turn").is_some() || turns.is_empty() {
                turns.push(Turn {
                    line: *number,
                    ask: json!({"turn": "Go"}),
                    ..Turn::default()
                });
            }
            let turn = turns.last_mut().unwrap();
            if line.get("turn").is_some() {
                turn.ask = line.clone();
            } else if line.get("ran").is_some() || line.get("got").is_some() {
                turn.expected.push((*number, line.clone()));
            } else {
                let times = line["times"].as_u64().unwrap_or(1);
                turn.calls
                    .extend((0..times).map(|_| (*number, line.clone())));
            }
        }
        turns
    }

    fn with_each(self) -> Vec<Self> {
        let Some(each) = self.head["each"].as_array() else {
            return vec![self];
        };
        each.iter().map(|values| self.with_values(values)).collect()
    }

    fn with_values(&self, values: &Value) -> Self {
        let mut case = self.clone();
        let name = values["name"]
            .as_str()
            .map_or_else(|| values.to_string(), ToOwned::to_owned);
        case.title = format!("{}: {name}", self.title);
        case.head = filled(&self.head, values);
        let lines = self.lines.iter();
        case.lines = lines
            .map(|(number, line)| (*number, filled(line, values)))
            .collect();
        case
    }
}

/// Whether a line counts for a client of this kind.
fn counts(line: &Value, kind: &[&str]) -> bool {
    match &line["only"] {
        Value::String(word) => kind.contains(&word.as_str()),
        Value::Array(words) => words
            .iter()
            .all(|word| kind.contains(&word.as_str().unwrap_or_default())),
        _ => true,
    }
}

/// The value with the values of the variables in their places.
fn filled(value: &Value, values: &Value) -> Value {
    match value {
        Value::String(text) => {
            let name = text
                .strip_prefix("${")
                .and_then(|rest| rest.strip_suffix('}'));
            match name.and_then(|name| values.get(name)) {
                Some(whole) => whole.clone(),
                None => filled_text(text, values).into(),
            }
        }
        Value::Array(entries) => entries.iter().map(|entry| filled(entry, values)).collect(),
        Value::Object(members) => members
            .iter()
            .filter(|(key, _)| *key != "each")
            .map(|(key, member)| (filled_text(key, values), filled(member, values)))
            .collect::<Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn filled_text(text: &str, values: &Value) -> String {
    let members = values.as_object().into_iter().flatten();
    members.fold(text.to_owned(), |text, (name, value)| {
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), ToOwned::to_owned);
        text.replace(&format!("${{{name}}}"), &value)
    })
}
