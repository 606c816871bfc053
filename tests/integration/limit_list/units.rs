//! Shows values in plain units.

use std::collections::BTreeMap;

use super::numbers::NumberConstant;

/// Units of time in milliseconds, the longest first.
const TIMES: [(f64, &str); 5] = [
    (86_400_000.0, "d"),
    (3_600_000.0, "h"),
    (60_000.0, "min"),
    (1000.0, "s"),
    (1.0, "ms"),
];
const SIZES: [(f64, &str); 3] = [
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
];
/// Ways to make a `Duration`, with their units in milliseconds.
const MADE: [(&str, f64); 3] = [
    ("Duration::from_secs", 1000.0),
    ("Duration::from_millis", 1.0),
    ("Duration::from_mins", 60_000.0),
];

/// The value of a constant, in the units that its name or doc comment tells.
pub(super) fn value(constant: &NumberConstant) -> String {
    let NumberConstant {
        name, doc, kind, ..
    } = constant;
    let bytes = !doc.contains("characters") && !kind.starts_with("f");
    let bytes = bytes && (name.contains("BYTES") || doc.contains("byte"));
    shown(&constant.value, &constant.beside, bytes)
}

fn shown(text: &str, beside: &BTreeMap<String, String>, bytes: bool) -> String {
    let text = text.trim();
    let list = |inside: &str| {
        let parts = split(inside)
            .into_iter()
            .filter(|part| !part.trim().is_empty());
        let parts: Vec<String> = parts.map(|part| field(part, beside, bytes)).collect();
        parts.join(", ")
    };
    if let Some(number) = evaluate(text, beside) {
        return match text.contains("Duration") || is_time(text, beside) {
            true => in_units(number, &TIMES),
            false if bytes => in_units(number, &SIZES),
            false => plain(number),
        };
    }
    if let Some((from, to)) = text.split_once("..=") {
        return format!(
            "{} to {}",
            shown(from, beside, bytes),
            shown(to, beside, bytes)
        );
    }
    let open = text
        .find(['{', '[', '('])
        .filter(|_| text.ends_with(['}', ']', ')']));
    match open {
        Some(open) => list(&text[open + 1..text.len() - 1]),
        None => format!("`{text}`"),
    }
}

/// One field of a struct or one element of a list.
fn field(text: &str, beside: &BTreeMap<String, String>, bytes: bool) -> String {
    match text.trim().split_once(": ") {
        Some((name, value)) => format!(
            "{name} {}",
            shown(value, beside, bytes || name.contains("bytes"))
        ),
        None => shown(text, beside, bytes),
    }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

fn is_time(name: &str, beside: &BTreeMap<String, String>) -> bool {
    beside
        .get(name)
        .is_some_and(|value| value.contains("Duration"))
}

/// The number in the largest unit in which it is whole.
fn in_units(number: f64, units: &[(f64, &str)]) -> String {
    let fits = |(size, _): &&(f64, &str)| number >= *size && (number / size).fract() == 0.0;
    match units.iter().find(fits) {
        Some((size, unit)) => format!("{} {unit}", plain(number / size)),
        None => plain(number),
    }
}

/// A number with commas between groups of three digits.
fn plain(number: f64) -> String {
    let text = format!("{number}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut shown = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown + rest
}

/// The number that an expression makes; of times, in milliseconds.
fn evaluate(text: &str, beside: &BTreeMap<String, String>) -> Option<f64> {
    let text = text.trim();
    for operators in [&["<<"][..], &[" + ", " - "], &[" * ", " / "]] {
        let found = operators
            .iter()
            .filter_map(|operator| Some((last(text, operator)?, *operator)));
        if let Some((at, operator)) = found.max_by_key(|(at, _)| *at) {
            let left = evaluate(&text[..at], beside)?;
            let right = evaluate(&text[at + operator.len()..], beside)?;
            return Some(match operator.trim() {
                "<<" => left * right.exp2(),
                "+" => left + right,
                "-" => left - right,
                "*" => left * right,
                _ => left / right,
            });
        }
    }
    if let Some(inside) = text
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    {
        return evaluate(inside, beside);
    }
    for (start, unit) in MADE {
        if let Some(rest) = text.strip_prefix(start) {
            return Some(evaluate(rest, beside)? * unit);
        }
    }
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16)
            .ok()
            .map(|number| number as f64),
        None if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => digits.parse().ok(),
        None => evaluate(beside.get(text)?, beside),
    }
}

/// Where an operator stands last outside of brackets.
fn last(text: &str, operator: &str) -> Option<usize> {
    let places = text.rmatch_indices(operator).map(|(at, _)| at);
    let outside = |at: &usize| {
        let before = &text[..*at];
        before.matches('(').count() == before.matches(')').count()
    };
    places.into_iter().find(outside)
}
