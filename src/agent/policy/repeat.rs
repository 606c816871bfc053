//! The guard against a model that makes the same call again and again while nothing changes.
//!
//! It reads the last [`WINDOW`] answered calls of the turn. A call is held back if enough of them were the same call
//! with one and the same result, and no other tool has made progress since. Calls are remembered as hashes. Another
//! version of the program may compute other hashes for a turn that it resumes; the guard then holds back less.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use net::polling::{LONG_BYTES, block_in_place_if};
use tools::ToolOutput;

/// Number of the answered calls that the guard looks at.
const WINDOW: usize = 8;
/// Most different calls of one turn that are remembered to tell new ones from old ones. Beyond it every further call counts
/// as new, so that the guard holds back less.
const MOST_KNOWN: usize = 65_536;

/// Number of samples of a large image or file that its digest covers.
const SAMPLES: usize = 64;
/// Size of one sample, in bytes.
const SAMPLE_BYTES: usize = 1024;

/// A hash of a call's tool and arguments. The order of keys and the difference between `1` and `1.0` do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct CallSignature {
    tool: u64,
    arguments: u64,
}

/// A hash of everything that a call brought: text, images, frames and files. Of a large image or file samples count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(crate) struct ResultDigest(u64);

/// A call that the model has an answer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnsweredCall {
    pub(crate) call: CallSignature,
    pub(crate) result: ResultDigest,
    /// It succeeded, and its tool may change something.
    pub(crate) may_change: bool,
}

/// Watches the calls of one turn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RepeatGuard {
    /// Which identical call is held back; none if 0.
    threshold: usize,
    window: VecDeque<PastCall>,
    /// The calls of the turn with their results, each once.
    known: HashSet<(CallSignature, ResultDigest)>,
    /// Batches in a row of nothing but suppressed calls.
    suppressed_batches: u32,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct PastCall {
    call: CallSignature,
    result: ResultDigest,
    /// It may have changed something, and no earlier call of the turn was the same with the same result.
    is_progress: bool,
}

impl CallSignature {
    /// The signature of a call. Arguments that are not JSON are compared as text.
    pub(crate) fn new(name: &str, arguments: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        match serde_json::from_str::<Value>(arguments) {
            Ok(value) => hash_value(&value, &mut hasher),
            Err(_) => arguments.hash(&mut hasher),
        }
        Self {
            tool: hash(|hasher| name.hash(hasher)),
            arguments: hasher.finish(),
        }
    }
}

impl ResultDigest {
    /// As [`Self::of`], but does not block the thread of the runtime if the text is long.
    pub(crate) fn of_whole(output: &ToolOutput) -> Self {
        let long = output.content.len() > LONG_BYTES;
        block_in_place_if(long, || Self::of(output))
    }

    /// The digest of a result before anything of it is shortened or stored.
    pub(crate) fn of(output: &ToolOutput) -> Self {
        Self(hash(|hasher| {
            output.content.hash(hasher);
            let images = output.images.iter().chain(&output.frames);
            images.for_each(|image| hash_content(image.content.as_held(), hasher));
            for file in &output.files {
                file.path.hash(hasher);
                hash_content(&file.content, hasher);
            }
        }))
    }
}

impl RepeatGuard {
    /// A guard that holds back the `threshold`th identical call; 0 holds back none.
    pub(crate) fn new(threshold: u32) -> Self {
        Self {
            threshold: usize::try_from(threshold).unwrap_or(usize::MAX),
            window: VecDeque::with_capacity(WINDOW),
            known: HashSet::new(),
            suppressed_batches: 0,
        }
    }

    /// Whether the call may run. Calls of the same batch are not known yet and do not count.
    pub(crate) fn admits(&self, call: CallSignature) -> bool {
        let Some(needed) = self.threshold.checked_sub(1) else {
            return true;
        };
        let mut same = self.window.iter().filter(|past| past.call == call);
        !same.any(|past| self.is_stuck(call, past.result, needed))
    }

    /// Records a call that the model has an answer to. Suppressed calls are not recorded.
    pub(crate) fn answered(&mut self, answered: AnsweredCall) {
        let AnsweredCall { call, result, .. } = answered;
        let is_new = match self.known.len() < MOST_KNOWN {
            true => self.known.insert((call, result)),
            false => !self.known.contains(&(call, result)),
        };
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back(PastCall {
            call,
            result,
            is_progress: answered.may_change && is_new,
        });
    }

    /// Records the end of a batch.
    pub(crate) fn batch_ended(&mut self, all_suppressed: bool) {
        self.suppressed_batches = match all_suppressed {
            true => self.suppressed_batches.saturating_add(1),
            false => 0,
        };
    }

    /// Whether the turn ends, because two batches in a row had only suppressed calls.
    pub(crate) fn ends_turn(&self) -> bool {
        self.suppressed_batches >= 2
    }

    /// Whether the call had this result `needed` times, and no other tool has made progress since the first of the last
    /// `needed` times.
    fn is_stuck(&self, call: CallSignature, result: ResultDigest, needed: usize) -> bool {
        let past = self.window.iter().enumerate();
        let same = past.filter(|(_, past)| past.call == call && past.result == result);
        let Some((first, _)) = same.rev().nth(needed.saturating_sub(1)) else {
            return false;
        };
        let mut later = self.window.iter().skip(first + 1);
        !later.any(|past| past.is_progress && past.call.tool != call.tool)
    }
}

fn hash(write: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    write(&mut hasher);
    hasher.finish()
}

/// Hashes an image or a file. Of a large one the length, samples at even distances and the end count: a turn may bring
/// hundreds of megabytes, and a change of a compressed format changes all that follows, or a checksum at the end.
fn hash_content(content: &[u8], hasher: &mut DefaultHasher) {
    content.len().hash(hasher);
    let distance = content.len().div_ceil(SAMPLES).max(SAMPLE_BYTES);
    for part in content.chunks(distance) {
        hasher.write(part.get(..SAMPLE_BYTES).unwrap_or(part));
    }
    let end = content.len().saturating_sub(SAMPLE_BYTES);
    hasher.write(content.get(end..).unwrap_or_default());
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
    /// Number up to which floats are exact: 2 to the power of 53.
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

    fn digest(text: &str) -> ResultDigest {
        ResultDigest::of(&ToolOutput {
            content: text.to_owned(),
            ..ToolOutput::default()
        })
    }

    /// Plays calls written as `tool arguments=result`, each a batch of its own, and says which of them ran. A tool in
    /// capitals may change something. A call with `!` fails. Calls joined by `+` are one batch.
    fn played(threshold: u32, script: &str) -> String {
        let mut guard = RepeatGuard::new(threshold);
        let batches = script.split_whitespace().map(|batch| {
            let calls = batch.split('+').map(|call| {
                let (call, result) = call.split_once('=').unwrap();
                let (name, arguments) = call.split_at(1);
                (CallSignature::new(name, arguments), name, result)
            });
            let calls: Vec<_> = calls.collect();
            let ran: Vec<bool> = calls.iter().map(|(call, ..)| guard.admits(*call)).collect();
            for ((call, name, result), _) in calls.iter().zip(&ran).filter(|(_, ran)| **ran) {
                guard.answered(AnsweredCall {
                    call: *call,
                    result: digest(result),
                    may_change: name.chars().all(char::is_uppercase) && !result.ends_with('!'),
                });
            }
            guard.batch_ended(!ran.contains(&true));
            let mut shown: String = ran.iter().map(|ran| if *ran { 'r' } else { '-' }).collect();
            if guard.ends_turn() {
                shown.push('.');
            }
            shown
        });
        batches.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_call_is_held_back_where_nothing_has_changed() {
        for (threshold, script, expected) in [
            (3, "a1=x a1=x a1=x a1=x", "r r - -."),
            (2, "a1=x a1=x a1=x", "r - -."),
            (0, "a1=x a1=x a1=x a1=x", "r r r r"),
            // Other arguments, another tool, and different results.
            (3, "a1=x a1=x a2=x a3=x b1=x", "r r r r r"),
            (3, "a1=x a1=y a1=z a1=w", "r r r r"),
            (3, "a1=x a1=y a1=x a1=y", "r r r -"),
            // Progress of another tool clears; of the same tool, of a reading one, or a failed or known call does not.
            (3, "T=f E1=ok T=f E2=ok T=f E3=ok T=f", "r r r r r r r"),
            (3, "T=f T=f E1=ok T=f T=f T=f", "r r r r r -"),
            (3, "T=f E1=ok T=f E1=ok T=f T=f T=f", "r r r r r - -."),
            (3, "T=f e1=ok T=f e2=ok T=f T=f", "r r r r - -."),
            (3, "T=f E1=no! T=f E2=no! T=f T=f", "r r r r - -."),
            (3, "A1=x A1=x A2=x A1=x", "r r r -"),
            // Two calls that take turns.
            (3, "a1=x b1=y a1=x b1=y a1=x b1=y", "r r r r - -."),
            (3, "A1=x B1=y A1=x B1=y A1=x B1=y A1=x", "r r r r r - -."),
            // Calls of one batch do not count for one another.
            (3, "a1=x+a1=x+a1=x a1=x a1=x", "rrr - -."),
            // A batch with another call, or other calls in between, and the count of batches begins again.
            (3, "a1=x a1=x a1=x a1=x+a2=y a1=x a1=x", "r r - -r - -."),
            (3, "a1=x a1=x a1=x a2=x a1=x a3=x", "r r - r - r"),
        ] {
            assert_eq!(played(threshold, script), expected, "{threshold} {script}");
        }
    }

    #[test]
    fn only_the_last_eight_calls_count() {
        let others = |count: usize| -> String { (0..count).map(|n| format!(" b{n}=x")).collect() };
        for (between, last) in [(6, "-"), (7, "r")] {
            let script = format!("a1=x a1=x{} a1=x", others(between));
            let shown = played(3, &script);
            assert_eq!(shown.rsplit(' ').next(), Some(last), "{between}");
        }
        let eight = format!("{}a1=x", "a1=x ".repeat(7));
        assert_eq!(played(8, &eight), "r r r r r r r -");
    }

    #[test]
    fn the_form_of_the_arguments_does_not_count_but_their_values_do() {
        let signature = |text: &str| CallSignature::new("f", text);
        assert_eq!(
            signature(r#"{"a":1,"b":[2]}"#),
            signature(r#"{ "b":[2.0], "a":1.0 }"#)
        );
        for (a, b) in [
            ("{", "{{"),
            ("1", "\"1\""),
            ("null", "false"),
            ("[1,[2]]", "[[1],2]"),
            ("1.5", "1.25"),
        ] {
            assert_ne!(signature(a), signature(b), "{a} {b}");
        }
        assert_ne!(CallSignature::new("f", "{}"), CallSignature::new("g", "{}"));
    }

    #[test]
    fn images_and_files_are_part_of_a_result() {
        let image = |byte: u8| tools::ToolImage {
            mime_type: "image/png".into(),
            content: vec![byte].into(),
        };
        let with = |images: Vec<_>, frames: Vec<_>| {
            ResultDigest::of(&ToolOutput {
                images,
                frames,
                ..ToolOutput::default()
            })
        };
        assert_eq!(with(vec![image(1)], vec![]), with(vec![image(1)], vec![]));
        let large = |at: usize| {
            let mut content = vec![0; 1 << 20];
            content[at] = 1;
            let content = content.into();
            let image = tools::ToolImage {
                content,
                ..image(0)
            };
            with(vec![image], vec![])
        };
        assert_ne!(large(0), large((1 << 20) - 1));
        assert_ne!(large(1 << 19), large(0));
        assert_ne!(with(vec![image(1)], vec![]), with(vec![image(2)], vec![]));
        assert_ne!(with(vec![], vec![image(1)]), with(vec![], vec![]));
    }
}
