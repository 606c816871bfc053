//! The guard against a model that makes the same call again and again.
//!
//! Identical calls are suppressed from the `threshold`-th on, counted over the whole turn and for every tool. The rule is
//! that of the storm breaker of dirge, a port of DeepSeek-Reasonix.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use super::super::stop::StopReason;

/// A hash of a call's name and arguments. The order of keys and the difference between `1` and `1.0` do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallSignature(u64);

/// Counts the calls of one turn.
#[derive(Debug, Clone)]
pub struct RepeatGuard {
    threshold: u32,
    seen: HashMap<CallSignature, u32>,
    /// An earlier batch had only suppressed calls.
    had_suppressed_batch: bool,
}

impl CallSignature {
    /// The signature of a call. Arguments that are not JSON are compared as text.
    pub fn new(name: &str, arguments: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        match serde_json::from_str::<Value>(arguments) {
            Ok(value) => hash_value(&value, &mut hasher),
            Err(_) => arguments.hash(&mut hasher),
        }
        Self(hasher.finish())
    }
}

impl RepeatGuard {
    /// A guard that lets `threshold - 1` identical calls through.
    pub fn new(threshold: u32) -> Self {
        Self {
            threshold: threshold.max(2),
            seen: HashMap::new(),
            had_suppressed_batch: false,
        }
    }

    /// Whether the call may run; counts it if so.
    pub fn admit(&mut self, call: CallSignature) -> bool {
        let count = self.seen.entry(call).or_insert(0);
        if *count + 1 >= self.threshold {
            return false;
        }
        *count += 1;
        true
    }

    /// Records a batch. The second batch that has only suppressed calls ends the turn.
    pub fn batch_ended(&mut self, all_suppressed: bool) -> Option<StopReason> {
        let ends = all_suppressed && self.had_suppressed_batch;
        self.had_suppressed_batch |= all_suppressed;
        ends.then_some(StopReason::RepeatedCalls)
    }
}

fn hash_value(value: &Value, hasher: &mut DefaultHasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(flag) => flag.hash(hasher),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.hash(hasher),
            None => hash_float(number.as_f64().unwrap_or(f64::NAN), hasher),
        },
        Value::String(text) => text.hash(hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash_value(item, hasher));
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            entries.len().hash(hasher);
            for (key, item) in entries {
                key.hash(hasher);
                hash_value(item, hasher);
            }
        }
    }
}

/// Hashes a whole float like the integer that it equals.
fn hash_float(number: f64, hasher: &mut DefaultHasher) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "whole and below 2^53: the cast is exact"
        )]
        let whole = number as i64;
        whole.hash(hasher);
    } else {
        number.to_bits().hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identical_calls_are_suppressed_from_the_third_on() {
        let mut guard = RepeatGuard::new(3);
        let call = CallSignature::new("f", r#"{"a":1,"b":[2]}"#);
        assert_eq!(call, CallSignature::new("f", r#"{ "b":[2.0], "a":1.0 }"#));
        assert!(guard.admit(call) && guard.admit(call));
        assert!(guard.admit(CallSignature::new("f", r#"{"a":2,"b":[2]}"#)));
        assert!(guard.admit(CallSignature::new("g", r#"{"a":1,"b":[2]}"#)));
        assert!(!guard.admit(call) && !guard.admit(call));
    }

    #[test]
    fn different_texts_are_different_calls() {
        let signature = |text: &str| CallSignature::new("f", text);
        for (a, b) in [
            ("{", "{{"),
            ("1", "\"1\""),
            ("null", "false"),
            ("[1,[2]]", "[[1],2]"),
            ("1.5", "1.25"),
        ] {
            assert_ne!(signature(a), signature(b), "{a} {b}");
        }
    }

    #[test]
    fn the_second_batch_of_suppressed_calls_ends_the_turn() {
        let ended = Some(StopReason::RepeatedCalls);
        for (batches, expected) in [
            (&[true][..], None),
            (&[true, true], ended),
            (&[true, false, true], ended),
            (&[false, false], None),
        ] {
            let mut guard = RepeatGuard::new(3);
            let last = batches.iter().map(|batch| guard.batch_ended(*batch)).last();
            assert_eq!(last, Some(expected), "{batches:?}");
        }
    }
}
