//! Which files of a member import which others, and for what.

use std::collections::{BTreeMap, BTreeSet};

use super::super::is_of_word;
use super::super::test_items::without_comments;

/// For each file the files that it imports, with the names.
pub(super) type Imports = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// The imports of the files of a member, by their paths within it.
pub(super) fn imports(files: &BTreeMap<String, String>) -> Imports {
    let of_file = |(file, text): (&String, &String)| {
        let mut imported: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for path in paths(&without_comments(text)) {
            if let Some((other, name)) = target(file, &path, files)
                && !is_above(file, &other)
                && !is_above(&other, file)
            {
                imported.entry(other).or_default().insert(name);
            }
        }
        (file.clone(), imported)
    };
    files.iter().map(of_file).collect()
}

/// Whether a file is the other one, or that of a folder in which the other one is.
fn is_above(file: &str, other: &str) -> bool {
    let within = other.strip_prefix(file);
    within.is_some_and(|rest| file.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// The file that a path in `file` leads to, and what it names there; `None` if that is not of the member.
fn target(file: &str, path: &str, files: &BTreeMap<String, String>) -> Option<(String, String)> {
    let mut segments: Vec<&str> = path.split("::").collect();
    let mut base: Vec<&str> = file.split('/').filter(|name| !name.is_empty()).collect();
    match *segments.first()? {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            let climbs = segments.iter().take_while(|name| **name == "super").count();
            base.truncate(base.len().saturating_sub(climbs));
            segments.drain(1..climbs);
        }
        // A module below this one; all others are of other crates.
        _ => segments.insert(0, "self"),
    }
    let names = base.iter().chain(&segments[1..]).copied();
    let names: Vec<&str> = names.filter(|name| *name != "self").collect();
    let modules = (0..=names.len())
        .rev()
        .find(|end| files.contains_key(&names[..*end].join("/")))?;
    let name = match names[modules..].join("::") {
        whole if whole.is_empty() => (*names.last()?).to_owned(),
        name => name,
    };
    Some((names[..modules].join("/"), name))
}

/// All paths of a code that may lead to files of its member: those of imports, and those that are written where they are used.
fn paths(code: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let Some(first) = tree(line) else {
            rest.push_str(line);
            rest.push('\n');
            continue;
        };
        let mut whole = first.to_owned();
        while !whole.contains(';')
            && let Some(line) = lines.next()
        {
            whole.push_str(line);
        }
        let whole = whole.split(';').next().unwrap_or_default();
        add_tree("", whole, &mut found);
    }
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in rest.match_indices(start) {
            let before = &rest[..at];
            // `super::super::` is one path.
            if !before.ends_with(is_of_word) && !before.ends_with("::") {
                let in_path = |c: char| is_of_word(c) || c == ':';
                let path = rest[at..].split(|c| !in_path(c)).next().unwrap_or_default();
                found.push(path.trim_end_matches(':').to_owned());
            }
        }
    }
    found
}

/// What a line imports, up to its end.
fn tree(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(scope) if scope.starts_with('(') => scope.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    line.trim_start().strip_prefix("use ")
}

/// Adds the paths of an import, whose braces hold several.
fn add_tree(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let name = tree.split_whitespace().next().unwrap_or_default();
        let path = format!("{prefix}{}", name.trim_start_matches("::"));
        found.extend((!name.is_empty()).then_some(path));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim_start_matches("::"));
    let list = list.strip_suffix('}').unwrap_or(list);
    let (mut depth, mut from) = (0, 0);
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                add_tree(&prefix, &list[from..at], found);
                from = at + 1;
            }
            _ => {}
        }
    }
    add_tree(&prefix, &list[from..], found);
}
