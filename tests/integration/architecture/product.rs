//! The sources of the product.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::test_items::{MARKS, without_tests};

/// All files below a folder, by their paths within it.
pub(crate) fn files(folder: &str) -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut found, mut folders) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(&root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// The sources that are compiled into the product, by their paths within `src`, with the tests in them.
pub(crate) fn texts() -> BTreeMap<String, String> {
    let all = files("src");
    let mut of_tests = Vec::new();
    for (file, text) in &all {
        for rest in MARKS.iter().flat_map(|mark| text.split(mark).skip(1)) {
            let mut lines = rest.lines().map(str::trim);
            let item = lines.find(|line| !line.is_empty() && !line.starts_with("#["));
            if let Some((_, name)) =
                item.and_then(|item| item.strip_suffix(';')?.rsplit_once("mod "))
            {
                let folder = file.trim_end_matches(".rs");
                let folder = folder.strip_suffix("/lib").unwrap_or(folder);
                of_tests.push(format!("{folder}/{name}"));
            }
        }
    }
    let is_test = |file: &String| {
        let module = file.trim_end_matches(".rs");
        of_tests
            .iter()
            .any(|test| module == test || module.starts_with(&format!("{test}/")))
    };
    all.into_iter().filter(|(file, _)| !is_test(file)).collect()
}

/// The same without tests.
pub(crate) fn code() -> BTreeMap<String, String> {
    let texts = texts().into_iter();
    texts
        .map(|(file, text)| (file, without_tests(&text)))
        .collect()
}
