//! Import cycles: files of one member that import each other in a ring. What a file and the files in its folder import of each
//! other does not count.

mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::product::code;
use super::test_items::without_tests;
use imports::{Imports, imports};

/// The cycles of a member, each with its files in order.
fn cycles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = (imports.keys())
        .map(|file| (file.as_str(), reached_from(file, imports)))
        .collect();
    let rings = reached.iter().map(|(file, reached_files)| {
        let back = |other: &&&str| reached[**other].contains(file);
        reached_files.iter().filter(back).copied().collect()
    });
    let rings: BTreeSet<BTreeSet<&str>> = rings.collect();
    rings.into_iter().filter(|ring| !ring.is_empty()).collect()
}

/// The files that a file imports, and those that they import, and so on.
fn reached_from<'a>(file: &str, imports: &'a Imports) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for other in imports[file].keys() {
            if reached.insert(other.as_str()) {
                open.push(other);
            }
        }
    }
    reached
}

/// The files of a cycle, with the names for which each imports another.
fn described(cycle: &BTreeSet<&str>, imports: &Imports) -> String {
    let mut text = String::new();
    for file in cycle {
        for (other, names) in &imports[*file] {
            if cycle.contains(other.as_str()) {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                let _ = writeln!(text, "  {file} -> {other} because of {}", names.join(", "));
            }
        }
    }
    text
}

/// The files of each member, by their paths without `.rs` within it; of `lib.rs` the path is empty.
fn members() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut members: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for (file, text) in code() {
        // The root package has one file.
        let Some((member, file)) = file.split_once('/') else {
            continue;
        };
        let file = file.strip_suffix(".rs").filter(|file| *file != "lib");
        let files = members.entry(member.to_owned()).or_default();
        files.insert(file.unwrap_or_default().to_owned(), text);
    }
    assert!(
        members.len() > 10,
        "only {} members were found",
        members.len()
    );
    members
}

#[test]
fn no_files_import_each_other_in_a_ring() {
    let mut wrong = String::new();
    for (member, files) in members() {
        let imports = imports(&files);
        for cycle in cycles(&imports) {
            let (files, text) = (cycle.len(), described(&cycle, &imports));
            let _ = writeln!(wrong, "{member}: {files} files\n{text}");
        }
    }
    assert!(wrong.is_empty(), "import cycles:\n{wrong}");
}

/// The cycles of files with these texts, each as a line.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter();
    let files = files.map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
    let imports = imports(&files.collect());
    let cycles = cycles(&imports);
    let lines = cycles.iter().map(|cycle| {
        let files: Vec<&str> = cycle.iter().copied().collect();
        files.join(" ")
    });
    lines.collect()
}

#[test]
fn a_ring_of_imports_is_found_in_every_form() {
    let ring: &[&str] = &["a b c d"];
    for (a, expected) in [
        ("use crate::b::B;", ring),
        ("pub(crate) use super::b::{self, B as C};", ring),
        ("use crate::{\n    d,\n    b::{B, c::*},\n};", ring),
        ("fn f() -> super::b::B {}", ring),
        ("use crate::d::D;", &["a d"]),
        ("// use crate::b::B;", &[]),
        ("/* use crate::b::B; */", &[]),
        ("use other::b::B;", &[]),
        ("use crate::bb::B;", &[]),
    ] {
        let files = [
            ("", "mod a;\nmod b;\nmod c;\nmod d;\nmod e;"),
            ("a", a),
            ("b", "use super::c::C;"),
            ("c", "use crate::d::D;"),
            ("d", "use crate::a::A;"),
            ("e", "use crate::a::A;"),
        ];
        assert_eq!(found(&files), expected, "{a}");
    }
}

#[test]
fn imports_between_a_file_and_those_in_its_folder_do_not_count() {
    let files = [
        ("", "pub use a::A;"),
        ("a", "mod b;\nuse self::b::B;\nuse crate::Whole;"),
        ("a/b", "mod c;\nuse c::C;\nuse super::A;"),
        ("a/b/c", "use crate::a::{A, b::B};"),
    ];
    assert_eq!(found(&files), Vec::<String>::new());
    let mut siblings = files.to_vec();
    siblings.push(("a/d", "use super::b::c::C;"));
    siblings[3].1 = "use super::super::d::D;";
    assert_eq!(found(&siblings), ["a/b/c a/d"]);
}

#[test]
fn imports_of_tests_do_not_count() {
    let b = "use super::b::B;";
    for (a, count) in [
        (b.to_owned(), 1),
        (format!("#[cfg(test)]\n{b}"), 0),
        (format!("#[cfg(test)]\nmod tests {{\n    {b}\n}}"), 0),
    ] {
        let a = without_tests(&a);
        let files = [("a", &*a), ("b", "use crate::a::A;")];
        assert_eq!(found(&files).len(), count, "{a}");
    }
}

#[test]
fn a_cycle_is_described_by_its_imports() {
    let files = [
        ("a", "use crate::b::{self, c::D};"),
        ("b", "use super::a::*;"),
    ];
    let files = files.map(|(file, text)| (file.to_owned(), text.to_owned()));
    let imports = imports(&BTreeMap::from(files));
    let [cycle] = &cycles(&imports)[..] else {
        panic!("one cycle");
    };
    let expected = "  a -> b because of `b`, `c::D`\n  b -> a because of `*`\n";
    assert_eq!(described(cycle, &imports), expected);
}
