//! Replaces what differs from run to run, and nothing else: ids, ports, times, durations, and words for people.
//!
//! The same id always has the same placeholder, so that a golden file shows where each one appears again.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Ids of a fixed form: prefix, lengths of the rest now and in earlier versions, whether the rest is hexadecimal.
const IDS: [(&str, &[usize], bool); 9] = [
    ("chatcmpl-", &[48, 32], true),
    ("req_", &[32], true),
    ("sess_", &[48, 32], true),
    ("conv_", &[32], true),
    ("apr_", &[48], true),
    ("mcpr_", &[48], true),
    ("file-", &[32], true),
    ("call_", &[24], false),
    ("msg_", &[24], false),
];

/// Digits of the id of a run, by itself or within the ids of a response, its items and its container.
const RUN_DIGITS: usize = 48;

/// The beginning of the id of an item that belongs to a conversation and no run, and the length of the rest.
const ITEM: &str = "in_";
const ITEM_LENGTH: usize = 46;

/// Members and headers whose number is a point in time.
const TIMES: [&str; 6] = [
    "\"completed_at\":",
    "\"created\":",
    "\"created_at\":",
    "\"updated_at\":",
    "\"expires_at\":",
    "webhook-timestamp: ",
];

/// Members and headers whose number is a duration.
const DURATIONS: [&str; 5] = [
    "\"duration_ms\":",
    "\"execution_time_ms\":",
    "openai-processing-ms: ",
    "x-loopwright-overhead-ms: ",
    "\"took_ms\":",
];

/// The run that wrote a session last, which a database of an earlier version does not have.
const LAST_RUN: &str = "\"last_run\":";

/// The session in a call of a tool.
const SESSION_KEY: &str = "\"session_key\":\"";

/// Headers whose value says nothing about the product.
const OPAQUE: [&str; 2] = ["date: ", "webhook-signature: "];

/// What comes before a text for people: the message of an error, the message of a notice.
const WORDS: [&str; 2] = ["\"error\":{\"message\":", "\",\"message\":"];

/// Seconds around now in which a time counts as now: a question may be open for a day.
const NOW: u64 = 25 * 60 * 60;

/// The placeholders so far.
#[derive(Debug, Default)]
pub(crate) struct Stable {
    known: HashMap<String, String>,
    counts: HashMap<String, usize>,
    any_time: bool,
}

impl Stable {
    /// Placeholders for all times, not only for those of now, and for what else differs between two databases.
    pub(super) fn without_times() -> Self {
        Self {
            any_time: true,
            ..Self::default()
        }
    }

    /// The text with placeholders.
    pub(super) fn of(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = '\n';
        while let Some(first) = rest.chars().next() {
            let (placeholder, taken) = self
                .placeholder(rest, before)
                .unwrap_or_else(|| (first.to_string(), first.len_utf8()));
            out.push_str(&placeholder);
            before = rest[..taken].chars().next_back().unwrap();
            rest = &rest[taken..];
        }
        out
    }

    /// What stands for the beginning of a text, and how many of its bytes that replaces.
    fn placeholder(&mut self, rest: &str, before: char) -> Option<(String, usize)> {
        if before.is_ascii_alphanumeric() {
            return None;
        }
        if before == '\n'
            && let Some(name) = OPAQUE.iter().find(|name| rest.starts_with(**name))
        {
            let length = rest.find('\n').unwrap_or(rest.len());
            return Some((format!("{name}<any>"), length));
        }
        if let Some(name) = TIMES.iter().find(|name| rest.starts_with(**name)) {
            let digits = span(&rest[name.len()..], |byte| byte.is_ascii_digit());
            let time: u64 = rest[name.len()..][..digits].parse().ok()?;
            let replaced = self.any_time || time.abs_diff(now()) < NOW;
            return replaced.then(|| (format!("{name}<time>"), name.len() + digits));
        }
        if self.any_time
            && let Some(value) = rest.strip_prefix(LAST_RUN)
        {
            let length = value.find(',').unwrap_or(value.len());
            return Some((format!("{LAST_RUN}<any>"), LAST_RUN.len() + length));
        }
        if let Some(name) = DURATIONS.iter().find(|name| rest.starts_with(**name)) {
            let number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
            let digits = span(&rest[name.len()..], number);
            return (digits > 0).then(|| (format!("{name}<ms>"), name.len() + digits));
        }
        if let Some(tail) = rest.strip_prefix(ITEM) {
            let length = span(tail, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if length == ITEM_LENGTH {
                return Some((self.name(ITEM, &tail[..length]), ITEM.len() + length));
            }
        }
        let digits = span(rest, |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits == RUN_DIGITS && !rest.starts_with("00000000") {
            return Some((self.name("run-", &rest[..digits]), digits));
        }
        for (prefix, lengths, hexadecimal) in IDS {
            if let Some(tail) = rest.strip_prefix(prefix) {
                let fits = |byte: u8| match hexadecimal {
                    true => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
                    false => byte.is_ascii_alphanumeric(),
                };
                // Ids of the scripted model server count up from zero.
                let length = span(tail, fits);
                let fresh = lengths.contains(&length) && !tail.starts_with("00000000");
                return fresh.then(|| (self.name(prefix, &tail[..length]), prefix.len() + length));
            }
        }
        if let Some(key) = rest.strip_prefix(SESSION_KEY) {
            let length = key.find('"')?;
            let name = self.name("session_key-", &key[..length]);
            return Some((format!("{SESSION_KEY}{name}"), SESSION_KEY.len() + length));
        }
        if let Some(trace) = rest.strip_prefix("traceparent: 00-") {
            let fields: Vec<&str> = trace.lines().next()?.split('-').collect();
            let [trace, span, flags] = fields.as_slice() else {
                return None;
            };
            let length = "traceparent: 00-".len() + trace.len() + span.len() + flags.len() + 2;
            let (trace, span) = (self.name("trace-", trace), self.name("span-", span));
            return Some((format!("traceparent: 00-{trace}-{span}-{flags}"), length));
        }
        let port = rest.strip_prefix("127.0.0.1:")?;
        let digits = span(port, |byte| byte.is_ascii_digit());
        let name = self.name("port-", &port[..digits]);
        (digits > 0).then(|| {
            (
                format!("127.0.0.1:{name}"),
                rest.len() - port.len() + digits,
            )
        })
    }

    fn name(&mut self, prefix: &str, id: &str) -> String {
        if let Some(known) = self.known.get(&format!("{prefix}{id}")) {
            return known.clone();
        }
        let count = self.counts.entry(prefix.to_owned()).or_default();
        *count += 1;
        let name = format!("<{prefix}{count}>");
        self.known.insert(format!("{prefix}{id}"), name.clone());
        name
    }
}

/// An answer's body with `<message>` for the words of errors and notices; those of the scripted model server stay.
pub(super) fn without_words(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((position, mark)) = WORDS
        .iter()
        .filter_map(|mark| Some((rest.find(mark)?, mark)))
        .min()
    {
        let (head, tail) = rest.split_at(position + mark.len());
        out.push_str(head);
        let length = json_string(tail);
        let (words, after) = tail.split_at(length);
        let own = length > 2 && !words.contains("scripted") && is_words(head, mark);
        out.push_str(if own { "\"<message>\"" } else { words });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A message that follows another member is a notice's only if that is its kind.
fn is_words(head: &str, mark: &str) -> bool {
    let Some(before) = head.strip_suffix("\",\"message\":") else {
        return mark == WORDS[0];
    };
    let kind = before.rfind('"').map_or(before, |quote| &before[..quote]);
    kind.ends_with("\"kind\":")
}

/// The length of the JSON string that a text begins with, its quotes included; 0 where it begins with none.
fn json_string(text: &str) -> usize {
    let mut escaped = false;
    for (position, byte) in text.bytes().enumerate() {
        match byte {
            _ if position == 0 && byte != b'"' => return 0,
            _ if position == 0 => {}
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return position + 1,
            _ => {}
        }
    }
    0
}

fn span(text: &str, fits: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| fits(*byte)).count()
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

#[test]
fn ids_keep_their_identity_and_everything_else_its_bytes() {
    let id = |digit: char| digit.to_string().repeat(32);
    let text = format!(
        "req_{a} req_{b} req_{a} xreq_{a} \"created\":{now} \"created\":1000 127.0.0.1:81 127.0.0.1:82 127.0.0.1:81 \"duration_ms\":12,",
        a = id('1'),
        b = id('2'),
        now = now(),
    );
    let expected = format!(
        "<req_1> <req_2> <req_1> xreq_{} \"created\":<time> \"created\":1000 127.0.0.1:<port-1> 127.0.0.1:<port-2> 127.0.0.1:<port-1> \"duration_ms\":<ms>,",
        id('1'),
    );
    assert_eq!(Stable::default().of(&text), expected);
}

#[test]
fn words_are_those_of_errors_and_notices() {
    for (body, expected) in [
        (
            r#"{"error":{"message":"no \"x\"","type":"t"}}"#,
            r#"{"error":{"message":"<message>","type":"t"}}"#,
        ),
        (
            r#"{"notice":{"kind":"retry","message":"again"},"a":"b","message":"c"}"#,
            r#"{"notice":{"kind":"retry","message":"<message>"},"a":"b","message":"c"}"#,
        ),
        (
            r#"{"error":{"message":"scripted words"}}"#,
            r#"{"error":{"message":"scripted words"}}"#,
        ),
    ] {
        assert_eq!(without_words(body), expected);
    }
}
