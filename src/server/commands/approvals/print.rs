//! Calls that wait, as a person reads them.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::commands::client::plain::{columns, compact, cut, plain, pretty};

/// Most columns that the name of a tool takes in the list; the rest is cut.
/// Tried by `approvals::print::what_is_too_long_for_the_line_is_cut`.
const MAX_TOOL_COLUMNS: usize = 32;
/// Number of seconds in a minute.
const MINUTE: i64 = 60;
/// Number of seconds in an hour.
const HOUR: i64 = 60 * MINUTE;
/// Number of seconds in a day.
const DAY: i64 = 24 * HOUR;
/// What stands between two columns.
const GAP: &str = "  ";
/// What stands before the lines of an entry that follow its first one.
const INDENT: &str = "    ";

/// A call that waits, as the server lists it.
#[derive(Debug, Deserialize)]
pub(super) struct ListedCall {
    pub(super) approval_id: String,
    arguments: Box<RawValue>,
    expires_at: i64,
    reason: Option<String>,
    round: u32,
    rule: Option<Box<RawValue>>,
    run_id: String,
    /// `None` for a turn that is not stored.
    session_id: Option<String>,
    tool: String,
    tool_call_id: String,
}

/// Shown in a column without a value.
const NONE: &str = "-";

/// The list, for lines of `width` columns. An id is never cut.
pub(super) fn table(calls: &[ListedCall], now: i64, width: usize) -> String {
    if calls.is_empty() {
        return "nothing waits\n".to_owned();
    }
    let head = ["ID", "LEFT", "TOOL", "SESSION"].map(ToOwned::to_owned);
    let row = |call: &ListedCall| {
        let tool = cut(&plain(&call.tool), MAX_TOOL_COLUMNS);
        [
            plain(&call.approval_id),
            left(call.expires_at - now),
            tool,
            or_none(call.session_id.as_deref()),
        ]
    };
    let rows: Vec<[String; 4]> = calls.iter().map(row).collect();
    let widest = |column: usize| {
        let all = std::iter::once(&head).chain(&rows);
        let cells = all.filter_map(|row| row.get(column));
        cells.map(|cell| columns(cell)).max().unwrap_or_default()
    };
    let widths = [0, 1, 2, 3].map(widest);
    let mut out = line_of(&head, &widths, width);
    for (row, call) in rows.iter().zip(calls) {
        out.push_str(&line_of(row, &widths, width));
        let reason = call.reason.as_deref().map(plain);
        let arguments = Some(compact(call.arguments.get()));
        for (name, text) in [("reason", reason), ("arguments", arguments)] {
            if let Some(text) = text {
                let line = format!("{INDENT}{name}: {text}");
                out.push_str(&cut(&line, width));
                out.push('\n');
            }
        }
    }
    out
}

/// A row of the table.
fn line_of(cells: &[String; 4], widths: &[usize; 4], width: usize) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| {
        let missing = width.saturating_sub(columns(cell));
        format!("{cell}{}", " ".repeat(missing))
    });
    let mut padded = padded.collect::<Vec<_>>().into_iter();
    let mut line = padded.next().unwrap_or_default();
    let rest: String = padded.map(|cell| format!("{GAP}{cell}")).collect();
    let left = width.saturating_sub(columns(&line));
    line.push_str(&cut(rest.trim_end(), left));
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

/// All of a call.
pub(super) fn all_of(call: &ListedCall, now: i64) -> String {
    let rule = call.rule.as_ref().map(|rule| compact(rule.get()));
    let mut out = String::new();
    for (name, text) in [
        ("id", plain(&call.approval_id)),
        ("tool", plain(&call.tool)),
        ("session", or_none(call.session_id.as_deref())),
        ("left", left(call.expires_at - now)),
        ("reason", or_none(call.reason.as_deref())),
        ("rule", rule.unwrap_or_else(|| NONE.to_owned())),
        ("run", plain(&call.run_id)),
        ("round", call.round.to_string()),
        ("call", plain(&call.tool_call_id)),
    ] {
        let _a_string_takes_all = writeln!(out, "{name:<9}{text}");
    }
    let _a_string_takes_all = write!(out, "arguments\n{}", pretty(call.arguments.get()));
    out
}

fn or_none(text: Option<&str>) -> String {
    text.map_or_else(|| NONE.to_owned(), plain)
}

/// How long a call can still be decided.
fn left(seconds: i64) -> String {
    match seconds {
        ..=0 => "over".to_owned(),
        1..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => format!("{} h", seconds / HOUR),
        DAY.. => format!("{} d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn call(id: &str, changes: &Value) -> ListedCall {
        let mut call = json!({
            "approval_id": id, "arguments": {"account": "a", "cents": 5}, "expires_at": 4000, "reason": "money", "round": 0,
            "rule": {"level": "server", "index": 0}, "run_id": "chatcmpl-1", "session_id": "s", "tool": "charge",
            "tool_call_id": "call_1", "of_a_later_version": true,
        });
        for (key, value) in changes.as_object().unwrap() {
            call[key] = value.clone();
        }
        serde_json::from_str(&call.to_string()).unwrap()
    }

    #[test]
    fn a_list_has_its_columns_one_below_the_other() {
        assert_eq!(table(&[], 0, 80), "nothing waits\n");
        let calls = [
            call("apr_1", &json!({})),
            call(
                "apr_22",
                &json!({"reason": null, "tool": "read", "expires_at": 400_000}),
            ),
            call("apr_3", &json!({"session_id": null})),
        ];
        let expected = "ID      LEFT  TOOL    SESSION\n\
                        apr_1   1 h   charge  s\n    reason: money\n    arguments: {\"account\":\"a\",\"cents\":5}\n\
                        apr_22  4 d   read    s\n    arguments: {\"account\":\"a\",\"cents\":5}\n\
                        apr_3   1 h   charge  -\n    reason: money\n    arguments: {\"account\":\"a\",\"cents\":5}\n";
        assert_eq!(table(&calls, 400, 80), expected);
    }

    #[test]
    fn what_is_too_long_for_the_line_is_cut() {
        let tool = "x".repeat(MAX_TOOL_COLUMNS + 1);
        let arguments = json!({"a": "y".repeat(1000)});
        let changes = json!({"tool": tool, "arguments": arguments, "reason": "z".repeat(1000)});
        let calls = [call("apr_1", &changes)];
        for width in [30, 80, 200] {
            let shown = table(&calls, 0, width);
            assert_eq!(shown.lines().count(), 4);
            for line in shown.lines().filter(|line| line.ends_with('…')) {
                assert_eq!(line.chars().count(), width, "{line}");
            }
            let cut = shown.lines().filter(|line| line.ends_with('…')).count();
            assert!(cut >= 2, "{shown}");
        }
        let wide = table(&calls, 0, 2000);
        assert!(wide.contains(&format!("{}…  s\n", "x".repeat(MAX_TOOL_COLUMNS - 1))));
        assert!(table(&calls, 0, 3).contains("\napr_1\n"), "ids stay whole");
    }

    #[test]
    fn all_of_a_call_is_shown() {
        let shown = all_of(
            &call("apr_1", &json!({"tool": "a\u{1b}[2Jb", "rule": null})),
            3990,
        );
        let expected = "id       apr_1\ntool     a\\u001b[2Jb\nsession  s\nleft     10 s\nreason   money\nrule     -\n\
                        run      chatcmpl-1\nround    0\ncall     call_1\narguments\n{\n  \"account\": \"a\",\n  \"cents\": 5\n}\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_time_that_is_left_has_one_unit() {
        for (seconds, expected) in [
            (-1, "over"),
            (0, "over"),
            (1, "1 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min"),
            (3600, "1 h"),
            (86_399, "23 h"),
            (86_400, "1 d"),
        ] {
            assert_eq!(left(seconds), expected);
        }
    }
}
