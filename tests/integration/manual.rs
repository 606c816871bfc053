//! The manual and the README, held against the built binary.

use std::collections::BTreeSet;
use std::process::{Command, Output};

const README: &str = include_str!("../../README.md");
/// A reader's patience.
const MOST_README_LINES: usize = 200;
const SUBJECTS: [&str; 17] = [
    "api",
    "responses",
    "tools",
    "permissions",
    "approvals",
    "mcp",
    "hooks",
    "sandbox",
    "search",
    "sessions",
    "frontends",
    "settings",
    "operations",
    "servers",
    "replicas",
    "limits",
    "speed",
];

fn run(arguments: &[&str]) -> Output {
    let mut binary = Command::new(env!("CARGO_BIN_EXE_loopwright"));
    // The variable that a file for front ends names.
    binary.env("WEBUI_API_KEY", "0123456789abcdef");
    binary.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_manual_prints_every_subject() {
    let list = run(&["manual"]);
    assert_eq!(list.status.code(), Some(0));
    for subject in SUBJECTS {
        let line = format!("\n  {subject} ");
        assert!(text(&list.stdout).contains(&line), "{subject}");
        let page = run(&["manual", subject]);
        assert_eq!(page.status.code(), Some(0), "{subject}");
        let root = env!("CARGO_MANIFEST_DIR");
        let path = format!("{root}/src/server/commands/manual/{subject}.md");
        assert_eq!(text(&page.stdout), std::fs::read_to_string(path).unwrap());
        assert!(page.stderr.is_empty(), "{subject}");
    }
    assert_eq!(text(&list.stdout).lines().count(), SUBJECTS.len() + 2);
}

#[test]
fn an_unknown_subject_is_answered_with_the_list_of_subjects() {
    let unknown = run(&["manual", "cooking"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(unknown.stdout.is_empty());
    let shown = text(&unknown.stderr);
    assert!(shown.contains("'cooking'"), "{shown}");
    for subject in SUBJECTS {
        assert!(shown.contains(&format!("\n  {subject} ")), "{shown}");
    }
}

#[test]
fn the_files_to_copy_for_front_ends_are_valid() {
    let page = run(&["manual", "frontends"]);
    let page = text(&page.stdout);
    let blocks = page.split("```toml\n").skip(1);
    let mut count = 0;
    for block in blocks.map(|rest| rest.split("```").next().unwrap()) {
        count += 1;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("loopwright.toml");
        let upstream = match block.contains("[[upstreams]]") {
            true => "",
            false => "upstream = \"http://localhost:8000/v1\"\n",
        };
        std::fs::write(&file, format!("{upstream}{block}")).unwrap();
        let checked = run(&["check-config", "--config", file.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    }
    assert_eq!(count, 3);
}

#[test]
fn the_readme_begins_with_a_pattern_for_the_tools_of_the_webhook() {
    let start = README.find("--tool-dispatch-url").unwrap();
    let line = README[start..].lines().next().unwrap();
    assert!(line.contains("--dispatch-tools '"), "{line}");
}

#[test]
fn the_readme_is_short() {
    let lines = README.lines().count();
    assert!(lines <= MOST_README_LINES, "{lines} lines");
}

/// Every `--flag` of a text, in order.
fn flags(text: &str) -> Vec<String> {
    let is_part = |one: &char| one.is_ascii_lowercase() || *one == '-';
    let names = text.split("--").skip(1);
    let names = names.map(|rest| rest.chars().take_while(is_part).collect::<String>());
    names.filter(|name| !name.is_empty()).collect()
}

/// The flags that `serve --help` lists; each begins its line.
fn offered() -> BTreeSet<String> {
    let help = run(&["serve", "--help"]);
    assert_eq!(help.status.code(), Some(0));
    let lines = text(&help.stdout).lines().map(str::trim_start);
    let lines = lines.filter(|line| line.starts_with("--"));
    lines
        .filter_map(|line| flags(line).into_iter().next())
        .collect()
}

#[test]
fn the_table_of_the_settings_has_every_flag_of_serve_and_no_other() {
    let offered = offered();
    assert!(offered.len() > 15, "{offered:?}");
    let page = run(&["manual", "settings"]);
    let lines = text(&page.stdout).lines();
    let rows = lines.filter(|line| line.starts_with("| `--"));
    let cells = rows.map(|row| row.split(" | ").next().unwrap());
    let described: BTreeSet<String> = cells.flat_map(flags).collect();
    assert_eq!(described, offered);
}

#[test]
fn the_manual_names_only_settings_flags_and_pages_that_exist() {
    let settings = include_str!("../../config/loopwright.toml");
    let offered = offered();
    for subject in SUBJECTS {
        let page = run(&["manual", subject]);
        let page = text(&page.stdout);
        for rest in page.split("loopwright manual ").skip(1) {
            let word = rest
                .split(|one: char| !one.is_alphanumeric() && one != '[')
                .next();
            let word = word.unwrap();
            assert!(
                word == "[SUBJECT" || SUBJECTS.contains(&word),
                "{subject}: {word}"
            );
        }
        let commands = page
            .lines()
            .filter(|line| line.starts_with("loopwright serve"));
        for flag in commands.flat_map(|line| flags(line.split('#').next().unwrap())) {
            assert!(offered.contains(&flag), "{subject}: {flag}");
        }
        for name in page.split('`').skip(1).step_by(2) {
            if let Some(key) = name
                .strip_prefix("search.")
                .or_else(|| name.strip_prefix("sandbox."))
            {
                let key = key.split(' ').next().unwrap().rsplit('.').next().unwrap();
                assert!(settings.contains(key), "{subject}: {name}");
            }
        }
    }
}
