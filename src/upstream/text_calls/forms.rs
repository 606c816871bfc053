//! The forms in which calls are written as text.

use memchr::memmem;
use serde_json::value::RawValue;

use super::FoundCall;
use protocol::openai::raw::RawObject;

/// Longest name of a tool, in bytes; a text with a longer one is no call.
const MAX_NAME: usize = 64;

/// What the text of a form turned out to be.
pub(super) enum TextVerdict {
    /// More text is needed.
    Open,
    /// Calls, and the length of their text.
    Calls(Vec<FoundCall>, usize),
    /// No call.
    Text,
}

/// Finds the end of a JSON object or array. Text that was looked at is not looked at again.
#[derive(Debug, Default)]
pub(super) struct JsonEnd {
    /// Bytes that were looked at.
    seen: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    found: Option<usize>,
}

impl JsonEnd {
    /// The place after the value that begins at or after `start`, if it is complete.
    pub(super) fn find(&mut self, text: &str, start: usize) -> Option<usize> {
        if self.found.is_some() {
            return self.found;
        }
        self.seen = self.seen.max(start);
        for byte in text.as_bytes().get(self.seen..).unwrap_or_default() {
            self.seen += 1;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        self.found = Some(self.seen);
                        return self.found;
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The place after `mark`, if the text has it.
    pub(super) fn find_mark(&mut self, text: &str, mark: &str) -> Option<usize> {
        let from = self.seen.saturating_sub(mark.len());
        let found = memmem::find(text.as_bytes().get(from..)?, mark.as_bytes());
        self.seen = text.len();
        found.map(|place| from + place + mark.len())
    }
}

/// `[TOOL_CALLS][{…}, …]`, or `[TOOL_CALLS]name[ARGS]{…}` with or without a call id.
pub(super) fn tool_calls_token(text: &str, end: &mut JsonEnd) -> TextVerdict {
    const TOKEN: &str = "[TOOL_CALLS]";
    const ARGUMENTS: &str = "[ARGS]";
    let body = text.get(TOKEN.len()..).unwrap_or_default();
    let trimmed = body.trim_start();
    let Some(first) = trimmed.chars().next() else {
        return TextVerdict::Open;
    };
    let start = text.len() - trimmed.len();
    if first == '[' || first == '{' {
        return match end.find(text, start) {
            None => TextVerdict::Open,
            Some(length) => verdict(text.get(start..length).and_then(calls_of), length),
        };
    }
    let name_end = trimmed.find(['[', '{']);
    let name = trimmed
        .get(..name_end.unwrap_or(trimmed.len()))
        .map(str::trim);
    let Some(name) = name.filter(|name| name.len() <= MAX_NAME && !name.contains('\n')) else {
        return TextVerdict::Text;
    };
    let Some(name_end) = name_end else {
        return TextVerdict::Open;
    };
    let (arguments, skipped) = match trimmed.find(ARGUMENTS) {
        Some(place) => (place + ARGUMENTS.len(), trimmed.get(name_end..place)),
        None if trimmed
            .get(name_end..)
            .is_some_and(|rest| rest.starts_with('{')) =>
        {
            (name_end, Some(""))
        }
        None if trimmed.len() < name_end + 2 * MAX_NAME => return TextVerdict::Open,
        None => return TextVerdict::Text,
    };
    if !skipped.is_some_and(|ids| ids.is_empty() || ids.starts_with("[CALL_ID]")) {
        return TextVerdict::Text;
    }
    match end.find(text, start + arguments) {
        None => TextVerdict::Open,
        Some(length) => {
            let arguments = text.get(start + arguments..length);
            let call = arguments.and_then(|arguments| call(name.to_owned(), arguments.trim()));
            verdict(call.map(|call| vec![call]), length)
        }
    }
}

/// `<|python_tag|>{…}`. Python code after the tag is no call.
pub(super) fn python_tag(text: &str, end: &mut JsonEnd) -> TextVerdict {
    const TAG: &str = "<|python_tag|>";
    let body = text.get(TAG.len()..).unwrap_or_default().trim_start();
    match body.chars().next() {
        None => TextVerdict::Open,
        Some('{') => match end.find(text, TAG.len()) {
            None => TextVerdict::Open,
            Some(length) => verdict(text.get(TAG.len()..length).and_then(calls_of), length),
        },
        Some(_) => TextVerdict::Text,
    }
}

/// The bare JSON value at `start`, which begins like a call.
pub(super) fn bare(text: &str, start: usize, end: &mut JsonEnd, offered: &[String]) -> TextVerdict {
    let Some(length) = end.find(text, start) else {
        return TextVerdict::Open;
    };
    let calls = text.get(start..length).and_then(calls_of);
    let calls = calls.filter(|calls| calls.iter().all(|call| offered.contains(&call.name)));
    verdict(calls, length)
}

pub(super) fn verdict(calls: Option<Vec<FoundCall>>, length: usize) -> TextVerdict {
    match calls.filter(|calls| !calls.is_empty()) {
        Some(calls) => TextVerdict::Calls(calls, length),
        None => TextVerdict::Text,
    }
}

/// The call of a JSON object, or the calls of a list.
pub(super) fn calls_of(json: &str) -> Option<Vec<FoundCall>> {
    let json = json.trim();
    if json.starts_with('[') {
        let entries: Vec<&RawValue> = serde_json::from_str(json).ok()?;
        return entries.iter().map(|entry| call_of(entry.get())).collect();
    }
    Some(vec![call_of(json)?])
}

fn call_of(json: &str) -> Option<FoundCall> {
    let object = RawObject::parse(json).ok()?;
    let inner = object.get_some("function");
    let inner = inner.and_then(|inner| RawObject::parse(inner.get()).ok());
    let object = inner.unwrap_or(object);
    let member = |names: &[&str]| names.iter().find_map(|name| object.get_some(name));
    let name: String = serde_json::from_str(member(&["name", "tool_name"])?.get()).ok()?;
    let arguments = member(&["arguments", "parameters", "args", "input", "tool_args"]);
    let arguments = arguments.map_or("{}", RawValue::get);
    // Some models quote the arguments.
    match serde_json::from_str::<String>(arguments) {
        Ok(text) => call(name, text.trim()),
        Err(_) => call(name, arguments),
    }
}

/// A call with this name, if it can be one. Arguments that are not valid are left to the repair of arguments.
pub(super) fn call(name: String, arguments: &str) -> Option<FoundCall> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_legal) {
        return None;
    }
    let arguments = if arguments.is_empty() {
        "{}"
    } else {
        arguments
    };
    Some(FoundCall {
        name,
        arguments: arguments.to_owned(),
    })
}
