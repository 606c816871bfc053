//! Reads the numeric constants and the tests from the sources.

use std::collections::BTreeMap;

use super::super::architecture::modules::place;
use super::super::architecture::product::{code, files};

/// Types of numbers. Types of several limits end with `Limits`.
const TYPES: &[&str] = &[
    "usize",
    "isize",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "f32",
    "f64",
    "Duration",
    "NonZeroUsize",
    "NonZeroU32",
    "NonZeroU64",
    "Backoff",
    "Extent",
    "Option",
    "RangeInclusive",
    "Signal",
];
/// Marks the last line of a doc comment that names a test.
const TRIED: &str = "Tried by `";

/// A constant that is a number, or several.
#[derive(Debug)]
pub(super) struct NumberConstant {
    /// The path of the file within `src`.
    pub(super) file: String,
    pub(super) name: String,
    /// The type.
    pub(super) kind: String,
    /// The expression of the value.
    pub(super) value: String,
    /// The values of all constants of the file, by name.
    pub(super) beside: BTreeMap<String, String>,
    /// The doc comment in one line, without the test.
    pub(super) doc: String,
    /// The end of the path of the test that tries it.
    pub(super) tried: Option<String>,
}

impl NumberConstant {
    /// The module.
    pub(super) fn room(&self) -> &str {
        room(&self.file)
    }

    /// The path within the room.
    pub(super) fn shown(&self) -> String {
        match place(&self.file).1 {
            "" => self.name.clone(),
            within => format!("{}::{}", within.replace('/', "::"), self.name),
        }
    }

    pub(super) fn first_word(&self) -> &str {
        let first = self.doc.split(|c: char| !c.is_alphanumeric()).next();
        first.unwrap_or_default()
    }
}

/// The module that a file within `src` is of.
pub(super) fn room(file: &str) -> &str {
    place(file).0
}

/// Name, type and value of the constant that a line begins, and the number of its lines.
fn constant(lines: &[&str]) -> Option<(String, String, String, usize)> {
    let line = lines.first()?.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    // Parameters of a type end with a comma.
    let line = line.strip_prefix("const ")?;
    let line = Some(line).filter(|line| !line.trim_end().ends_with(','))?;
    let (name, _) = line.split_once(':')?;
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let count = 1 + lines
        .iter()
        .position(|line| line.trim_end().ends_with(';'))?;
    let whole = lines[..count]
        .iter()
        .map(|line| line.split(" // ").next().unwrap());
    let whole = whole.map(str::trim).collect::<Vec<_>>().join(" ");
    let (_, rest) = whole.split_once("const ")?.1.split_once(':')?;
    let (kind, value) = rest.split_once(" =")?;
    let value = value.trim().trim_end_matches(';').to_owned();
    Some((name.to_owned(), kind.trim().to_owned(), value, count))
}

/// Whether a type is that of a number, or of several.
fn is_number(kind: &str) -> bool {
    let array = kind
        .strip_prefix('[')
        .and_then(|array| array.split(';').next());
    let words = array
        .unwrap_or(kind)
        .split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut words =
        words.filter(|word| !word.is_empty() && !matches!(*word, "std" | "time" | "num" | "ops"));
    let known = |word: &str| TYPES.contains(&word) || word.ends_with("Limits");
    // Numbers of system calls and options.
    let of_system = kind.starts_with('[') && kind.contains("i64") || kind.contains('&');
    !of_system && words.all(known)
}

/// The constants of all sources that are numbers, in the order of their files.
pub(super) fn all() -> Vec<NumberConstant> {
    let mut found = Vec::new();
    for (file, text) in code() {
        let lines: Vec<&str> = text.lines().collect();
        let all = (0..lines.len()).filter_map(|at| Some((at, constant(&lines[at..])?)));
        let all: Vec<_> = all.collect();
        let beside = all
            .iter()
            .map(|(_, (name, _, value, _))| (name.clone(), value.clone()));
        let beside: BTreeMap<String, String> = beside.collect();
        for (at, (name, kind, value, _)) in all {
            if is_number(&kind) {
                let (doc, tried) = doc(&lines[..at]);
                let (file, beside) = (file.clone(), beside.clone());
                found.push(NumberConstant {
                    file,
                    name,
                    kind,
                    value,
                    beside,
                    doc,
                    tried,
                });
            }
        }
    }
    assert!(
        found.len() > 300,
        "only {} constants were found",
        found.len()
    );
    // Of the files of a module, the one above the others comes first.
    found.sort_by_key(|constant| {
        let (module, within) = place(&constant.file);
        (module.to_owned(), !within.is_empty())
    });
    found
}

/// The doc comment at the end of these lines, in one line, and the test that it names.
fn doc(before: &[&str]) -> (String, Option<String>) {
    let lines = before.iter().rev().map(|line| line.trim_start());
    let lines = lines.skip_while(|line| line.starts_with("#["));
    let lines = lines.map_while(|line| line.strip_prefix("///"));
    let mut lines: Vec<&str> = lines.map(str::trim).collect();
    lines.reverse();
    let tried = lines
        .last()
        .and_then(|line| line.strip_prefix(TRIED)?.strip_suffix("`."));
    let tried = tried.map(ToOwned::to_owned);
    if tried.is_some() {
        lines.pop();
    }
    let doc = lines.join(" ").replace("[`", "`").replace("`]", "`");
    (doc, tried)
}

/// A text without its constants and comments.
pub(super) fn without_constants(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (mut kept, mut at) = (String::new(), 0);
    while at < lines.len() {
        match constant(&lines[at..]) {
            Some((.., count)) => at += count,
            None => {
                if !lines[at].trim_start().starts_with("//") {
                    kept.push_str(lines[at]);
                    kept.push('\n');
                }
                at += 1;
            }
        }
    }
    kept
}

/// The paths of all tests: the modules without those named `tests`, and the name.
pub(super) fn tests() -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in files("src").into_iter().chain(files("tests")) {
        let modules = file.trim_end_matches(".rs").split('/');
        let modules: Vec<&str> = modules
            .filter(|module| !matches!(*module, "lib" | "tests"))
            .collect();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((_, rest)) = line.split_once("fn ") else {
                continue;
            };
            let attributes = lines[..at].iter().rev();
            let mut attributes =
                attributes.take_while(|line| line.starts_with("#[") || line.starts_with("//"));
            // Tests of containment are run for each world, and those of the store for each engine.
            let is_test = attributes
                .any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test"))
                || ["(world: World", "(subject: TestStore"]
                    .iter()
                    .any(|of| rest.contains(of));
            if is_test {
                let name = rest.split('(').next().unwrap();
                found.push(format!("::{}::{name}", modules.join("::")));
            }
        }
    }
    found
}
