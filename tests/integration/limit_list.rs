//! The list of all limits, `loopwright manual limits`, is made from the doc comments of the constants.
//!
//! The doc comment of a numeric constant begins with a word that says whether the number is a limit. That of a limit
//! says what happens there, and ends with `Tried by` and a test if there is one. `INSTA_UPDATE=always` writes the tables
//! of the page anew.

mod numbers;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use numbers::NumberConstant;

const PAGE: &str = "src/manual/limits.md";

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

/// Limits, other numbers, and limits that no test tries, of each room. A new limit needs an attack or a user that needs
/// it. Where there are fewer, the table is lowered in the same commit.
const ROOMS: &[(&str, [usize; 3])] = &[
    ("agent", [11, 8, 7]),
    ("app", [4, 0, 3]),
    ("blobs", [11, 5, 10]),
    ("chat", [11, 2, 3]),
    ("cluster", [3, 0, 3]),
    ("config", [9, 9, 7]),
    ("demo", [5, 2, 5]),
    ("http", [33, 14, 16]),
    ("ids", [3, 5, 0]),
    ("main", [1, 3, 1]),
    ("media", [4, 1, 2]),
    ("metrics", [3, 0, 1]),
    ("net", [3, 5, 3]),
    ("openai", [8, 0, 2]),
    ("parted", [1, 2, 1]),
    ("polling", [1, 1, 0]),
    ("ranking", [3, 0, 3]),
    ("quota", [3, 0, 1]),
    ("responses", [0, 1, 0]),
    ("runs", [4, 5, 1]),
    ("sandbox", [63, 19, 39]),
    ("session", [4, 2, 2]),
    ("store", [48, 19, 30]),
    ("tools", [109, 21, 55]),
    ("upstream", [20, 2, 11]),
    ("web", [60, 17, 41]),
];

/// Files in which times are written outside of constants: default settings.
const TIMES: &[&str] = &["net/client.rs", "upstream/retry.rs", "web/fetch/body.rs"];
/// Files in which a number of elements is written outside of constants: the length of a mark.
const TAKEN: &[&str] = &["store/check.rs"];

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

#[test]
fn rooms_have_as_many_limits_as_the_table_says() {
    let mut counted: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for constant in numbers::all() {
        let [limits, others, untried] = counted.entry(constant.room().to_owned()).or_default();
        match is_limit(&constant) {
            true => *limits += 1,
            false => *others += 1,
        }
        *untried += usize::from(is_limit(&constant) && constant.tried.is_none());
    }
    let table = ROOMS
        .iter()
        .map(|(room, counts)| ((*room).to_owned(), *counts));
    let table: BTreeMap<String, [usize; 3]> = table.collect();
    let rooms: BTreeSet<&String> = counted.keys().chain(table.keys()).collect();
    let mut wrong = String::new();
    for room in rooms {
        let (now, said) = (counted.get(room), table.get(room));
        if now != said {
            let _ = writeln!(wrong, "(\"{room}\", {now:?}), and the table says {said:?}");
        }
    }
    assert!(
        wrong.is_empty(),
        "limits, other numbers, untried limits:\n{wrong}"
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
    if std::env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
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
        for (file, text) in numbers::sources() {
            let code = numbers::without_constants(&text);
            let calls = code.split(start).skip(1).map(|rest| {
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
