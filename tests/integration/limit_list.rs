//! The list of all limits, `loopwright manual limits`, is made from the doc comments of the constants; and the modules, each a
//! member of the workspace or a part of one, stay within their budgets of code and limits.
//!
//! The doc comment of a numeric constant begins with a word that says whether the number is a limit. That of a limit
//! says what happens there, and ends with `Tried by` and a test if there is one. `INSTA_UPDATE=always` writes the tables
//! of the page anew, and lowers budgets.

mod numbers;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::architecture::product::code;
use super::architecture::test_items::lines_of_code;
use numbers::NumberConstant;

const PAGE: &str = "src/server/commands/manual/limits.md";

/// First words of the doc comment of a limit.
const LIMITS: &[&str] = &[
    "Most", "Longest", "Largest", "Deepest", "Least", "Shortest", "How", "Pause",
];
/// First words of the doc comment of any other number.
const OTHERS: &[&str] = &[
    "Default",
    "Memory",
    "Number",
    "Numbers",
    "Share",
    "Size",
    "Threshold",
    "Unit",
    "Weight",
];
/// Parts of names that only limits have.
const OF_LIMITS: &[&str] = &[
    "MAX", "MIN", "MOST", "LEAST", "LONGEST", "SHORTEST", "LIMIT", "WAIT", "TIMEOUT", "TTL",
];

/// What each room has.
const COUNTED: [&str; 4] = [
    "lines of code",
    "limits",
    "other numbers",
    "limits that no test tries",
];
/// How much of that each room may have. Lines of tests, comments and white space are no code. More code needs a feature
/// that needs it, and a new limit an attack or a user. Where there is less, the table is lowered in the same commit.
const ROOMS: &[(&str, [usize; 4])] = &[
    ("agent", [11249, 15, 11, 7]),
    ("app", [839, 7, 0, 3]),
    ("approvals", [283, 2, 4, 1]),
    ("blobs", [1104, 11, 5, 10]),
    ("answer", [123, 0, 0, 0]),
    ("end", [24, 0, 0, 0]),
    ("chat", [1821, 0, 2, 0]),
    ("client", [268, 1, 0, 1]),
    ("cluster", [275, 3, 0, 3]),
    ("config", [5158, 10, 10, 7]),
    ("copies", [101, 0, 2, 0]),
    ("demo", [1077, 5, 2, 5]),
    ("fields", [1180, 14, 0, 3]),
    ("health", [60, 0, 0, 0]),
    ("hooks", [1343, 1, 0, 1]),
    ("http", [11561, 38, 15, 17]),
    ("ids", [435, 3, 5, 0]),
    ("launch", [528, 2, 1, 2]),
    ("main", [288, 1, 1, 1]),
    ("manual", [132, 0, 0, 0]),
    ("media", [228, 4, 1, 2]),
    ("metrics", [851, 3, 0, 1]),
    ("net", [994, 3, 5, 3]),
    ("openai", [1679, 8, 0, 2]),
    ("segments", [413, 1, 2, 1]),
    ("polling", [101, 1, 1, 0]),
    ("policy", [3, 0, 0, 0]),
    ("protocol", [4, 0, 0, 0]),
    ("quota", [476, 3, 0, 1]),
    ("ranking", [114, 3, 0, 3]),
    ("redact", [749, 7, 1, 0]),
    ("responses", [5021, 0, 1, 0]),
    ("rules", [1742, 11, 0, 0]),
    ("runs", [1787, 5, 5, 1]),
    ("sandbox", [9212, 63, 19, 39]),
    ("server", [19, 0, 0, 0]),
    ("session", [2405, 4, 2, 2]),
    ("shutdown", [51, 0, 0, 0]),
    ("sse", [237, 0, 0, 0]),
    ("store", [8326, 46, 19, 28]),
    ("telemetry", [102, 0, 0, 0]),
    ("tools", [12130, 109, 23, 55]),
    ("traces", [793, 2, 0, 1]),
    ("upstream", [5759, 20, 2, 11]),
    ("web", [7545, 60, 17, 41]),
];

/// Files in which times are written outside of constants: default settings.
const TIMES: &[&str] = &["net/client.rs", "upstream/retry.rs", "web/fetch/body.rs"];
/// Files in which a number of elements is written outside of constants: the length of a mark.
const TAKEN: &[&str] = &["store/check.rs"];

/// Whether tables are written anew.
fn update() -> bool {
    std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always")
}

fn is_limit(constant: &NumberConstant) -> bool {
    LIMITS.contains(&constant.first_word())
}

#[test]
fn every_number_is_a_limit_or_says_what_else_it_is() {
    let mut wrong = Vec::new();
    for constant in numbers::all() {
        let at = format!("{}: {}", constant.file, constant.name);
        let first = constant.first_word();
        if first.is_empty() {
            wrong.push(format!("{at} has no doc comment"));
        } else if !LIMITS.contains(&first) && !OTHERS.contains(&first) {
            wrong.push(format!(
                "{at}: its doc comment begins with '{first}'; limits begin with {LIMITS:?}, other numbers with {OTHERS:?}"
            ));
        }
        let mut parts = constant.name.split('_');
        let named = constant.kind.contains("Duration")
            || parts.any(|part| OF_LIMITS.contains(&part)) && first != "Default";
        if named && OTHERS.contains(&first) {
            wrong.push(format!("{at} is a limit by its name or type"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_tests_of_limits_exist() {
    let tests = numbers::tests();
    assert!(tests.len() > 1500, "only {} tests were found", tests.len());
    let mut wrong = Vec::new();
    for constant in numbers::all() {
        let Some(tried) = &constant.tried else {
            continue;
        };
        let exists = || {
            let ends = |test: &String| test.ends_with(&format!("::{tried}"));
            tests.iter().any(ends)
        };
        if !is_limit(&constant) || !exists() {
            let NumberConstant { file, name, .. } = &constant;
            wrong.push(format!("{file}: {name} is tried by {tried}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the rooms have, in the order of [`COUNTED`].
fn counted() -> BTreeMap<String, [usize; 4]> {
    let mut rooms: BTreeMap<String, [usize; 4]> = BTreeMap::new();
    for (file, text) in code() {
        let [lines, ..] = rooms.entry(numbers::room(&file).to_owned()).or_default();
        *lines += lines_of_code(&text);
    }
    for constant in numbers::all() {
        let room = rooms.entry(constant.room().to_owned());
        let [_, limits, others, untried] = room.or_default();
        match is_limit(&constant) {
            true => *limits += 1,
            false => *others += 1,
        }
        *untried += usize::from(is_limit(&constant) && constant.tried.is_none());
    }
    rooms
}

#[test]
fn rooms_have_exactly_what_the_table_allows() {
    let counted = counted();
    let row = |room: &str, counts: &[usize; 4]| format!("    ({room:?}, {counts:?}),");
    let (mut wrong, mut lower) = (String::new(), Vec::new());
    for (room, now) in &counted {
        let Some((_, most)) = ROOMS.iter().find(|(name, _)| name == room) else {
            let _ = writeln!(wrong, "not in the table:\n{}", row(room, now));
            continue;
        };
        let both = || now.iter().zip(most).zip(COUNTED);
        let more = both().filter(|((now, most), _)| now > most);
        let more: Vec<&str> = more.map(|(_, what)| what).collect();
        if !more.is_empty() {
            let more = more.join(" and ");
            let _ = writeln!(wrong, "more {more} than allowed:\n{}", row(room, now));
        }
        let least: Vec<usize> = both().map(|((now, most), _)| *now.min(most)).collect();
        if least != most {
            lower.push((row(room, most), format!("    ({room:?}, {least:?}),")));
        }
    }
    for (room, _) in ROOMS
        .iter()
        .filter(|(room, _)| !counted.contains_key(*room))
    {
        let _ = writeln!(wrong, "no such room: {room}");
    }
    if update() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file!());
        let mut table = fs::read_to_string(&path).unwrap();
        for (before, after) in lower.drain(..) {
            table = table.replacen(&before, &after, 1);
        }
        fs::write(path, table).unwrap();
    }
    for (_, after) in &lower {
        let _ = writeln!(wrong, "less than allowed; lower the table:\n{after}");
    }
    assert!(
        wrong.is_empty(),
        "each row has {COUNTED:?}; INSTA_UPDATE=always lowers rows:\n{wrong}"
    );
}

#[test]
fn the_page_of_the_manual_has_every_limit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let head = page.split("\n## ").next().unwrap().trim_end();
    let mut made = format!("{head}\n");
    let mut room = String::new();
    for constant in numbers::all().into_iter().filter(is_limit) {
        if constant.room() != room {
            constant.room().clone_into(&mut room);
            let _ = writeln!(
                made,
                "\n## `{room}`\n\n| limit | value | what it bounds | test |"
            );
            made.push_str("|---|---|---|---|\n");
        }
        let tried = constant.tried.as_ref();
        let tried = tried.map_or_else(|| "—".to_owned(), |test| format!("`{test}`"));
        let (name, value, doc) = (
            constant.shown(),
            units::value(&constant),
            constant.doc.replace('|', "\\|"),
        );
        let _ = writeln!(made, "| `{name}` | {value} | {doc} | {tried} |");
    }
    if update() {
        fs::write(path, made).unwrap();
    } else {
        let lines = made.lines().zip(page.lines());
        let changed: Vec<_> = lines.filter(|(made, page)| made != page).take(3).collect();
        assert!(
            made == page,
            "{PAGE} is written by INSTA_UPDATE=always; first differences: {changed:#?}"
        );
    }
}

#[test]
fn limits_are_not_written_outside_of_constants() {
    for (start, files) in [("Duration::from_", TIMES), (".take(", TAKEN)] {
        let mut found = BTreeSet::new();
        for (file, text) in code() {
            let text = numbers::without_constants(&text);
            let calls = text.split(start).skip(1).map(|rest| {
                let name = |c: char| c.is_ascii_lowercase() || c == '_';
                rest.trim_start_matches(name).trim_start_matches('(')
            });
            let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).count();
            // One element is the first one.
            let numbers = calls.filter(|rest| digits(rest) > usize::from(start == ".take("));
            if numbers.count() > 0 {
                found.insert(file);
            }
        }
        let known: BTreeSet<String> = files.iter().map(ToString::to_string).collect();
        assert_eq!(found, known, "{start}");
    }
}
