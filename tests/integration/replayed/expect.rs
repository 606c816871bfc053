//! What is expected of a JSON value.

use serde_json::Value;

/// What is wrong with a value; nothing if it is as expected.
pub(super) fn problem(expected: &Value, actual: Option<&Value>) -> Option<String> {
    (!is_met(expected, actual)).then(|| format!("got {}, expected {expected}", shown(actual)))
}

/// Whether a value is as expected, at every depth.
fn is_met(expected: &Value, actual: Option<&Value>) -> bool {
    if let Some((word, operand)) = word_of(expected) {
        return holds(word, operand, actual);
    }
    match (expected, actual) {
        (Value::Object(members), Some(Value::Object(found))) => {
            let is_there = |key: &String| members.get(key).is_some();
            found.keys().all(is_there)
                && members
                    .iter()
                    .all(|(key, member)| is_met(member, found.get(key)))
        }
        (Value::Array(entries), Some(Value::Array(found))) => {
            let mut pairs = entries.iter().zip(found);
            entries.len() == found.len() && pairs.all(|(entry, found)| is_met(entry, Some(found)))
        }
        _ => actual == Some(expected),
    }
}

/// Follows a JSON pointer in which negative numbers count from the end of a list.
pub(super) fn pointed<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut steps = pointer.split('/').skip(1);
    steps.try_fold(value, |value, step| {
        let step = step.replace("~1", "/").replace("~0", "~");
        match value {
            Value::Array(entries) => match step.parse::<isize>().ok()? {
                number if number < 0 => entries.get(entries.len().checked_add_signed(number)?),
                number => entries.get(number.unsigned_abs()),
            },
            value => value.get(&step),
        }
    })
}

/// The word of an expectation that is not a plain value.
fn word_of(expected: &Value) -> Option<(&str, &Value)> {
    let members = expected.as_object().filter(|members| members.len() == 1)?;
    let (word, operand) = members.iter().next()?;
    word.starts_with('$').then_some((word, operand))
}

fn holds(word: &str, operand: &Value, actual: Option<&Value>) -> bool {
    if word == "$one" {
        return list(operand).iter().any(|one| is_met(one, actual));
    }
    if word == "$absent" {
        return actual.is_none();
    }
    let Some(actual) = actual else {
        return false;
    };
    match word {
        "$any" => true,
        "$has" => texts(operand)
            .iter()
            .all(|part| text(actual).contains(part)),
        "$lacks" => !texts(operand)
            .iter()
            .any(|part| text(actual).contains(part)),
        "$len" => *operand == length(actual),
        "$like" => is_like(operand, actual),
        "$json" => {
            let read = actual
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok());
            is_met(operand, read.as_ref())
        }
        other => panic!("the expectation `{other}` does not exist"),
    }
}

/// Whether a value has at least these members. What they hold is expected as it is.
fn is_like(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Object(members), Value::Object(_)) => members
            .iter()
            .all(|(key, member)| is_met(member, actual.get(key))),
        (Value::Array(expected), Value::Array(actual)) => {
            let mut pairs = expected.iter().zip(actual);
            expected.len() == actual.len()
                && pairs.all(|(expected, actual)| is_like(expected, actual))
        }
        _ => is_met(expected, Some(actual)),
    }
}

fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .map_or_else(|| std::slice::from_ref(value), Vec::as_slice)
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn length(value: &Value) -> usize {
    match value {
        Value::Array(entries) => entries.len(),
        Value::Object(members) => members.len(),
        other => text(other).chars().count(),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), ToString::to_string)
}
