//! Small pages in the markup of ten generators. Each file ends in what is expected of it: the lines that its Markdown must
//! have, in their order, and texts that it must not have.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use web::{RawPage, extract};

/// What is wrong with the Markdown of a page.
fn faults(file: &str) -> Vec<String> {
    let (html, expected) = file.split_once("\n<!--has\n").unwrap();
    let (wanted, unwanted) = expected.split_once("\n-->\n<!--not\n").unwrap();
    let unwanted = unwanted.trim_end().strip_suffix("-->").unwrap();
    let document = extract(&RawPage {
        url: "https://www.example.test/page".to_owned(),
        content_type: Some("text/html; charset=utf-8".to_owned()),
        body: Bytes::from(html.to_owned()),
        cut: false,
    });
    let document = match document {
        Ok(document) => document,
        Err(error) => return vec![error.to_string()],
    };
    let mut lines = document.markdown.lines();
    let lacks = wanted
        .lines()
        .find(|wanted| !lines.any(|line| line == *wanted));
    let has = unwanted
        .lines()
        .filter(|text| !text.is_empty() && document.markdown.contains(text));
    let mut faults: Vec<String> = lacks
        .map(|line| format!("lacks the line {line:?}"))
        .into_iter()
        .chain(has.map(|text| format!("has {text:?}")))
        .collect();
    if !faults.is_empty() {
        faults.push(document.markdown);
    }
    faults
}

#[test]
fn pages_of_generators_keep_their_text_and_lose_their_frame() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web/sites");
    let mut pages: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    pages.sort();
    assert!(pages.len() >= 40);
    let mut failed = String::new();
    for page in pages {
        let faults = faults(&fs::read_to_string(&page).unwrap());
        if !faults.is_empty() {
            failed.push_str(&format!("\n{}: {}\n", page.display(), faults.join("\n")));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}
