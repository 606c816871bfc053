//! What is kept of realistic pages, against their main text as marked by hand and against a plain conversion of the
//! whole page.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use web::{Document, RawPage, extract};

/// What is expected of a page, beside its main text.
#[derive(Debug, Deserialize)]
struct Expected {
    url: String,
    content_type: String,
    title: Option<String>,
    date: Option<String>,
    canonical: Option<String>,
    keep: Vec<String>,
    drop: Vec<String>,
}

struct Page {
    name: String,
    raw: RawPage,
    main: String,
    expected: Expected,
}

/// How much of the words of one text another has, and how many of its own are among them.
#[derive(Debug, Clone, Copy, Default)]
struct Overlap {
    common: usize,
    wanted: usize,
    got: usize,
}

impl Overlap {
    fn of(wanted: &str, got: &str) -> Self {
        let mut left: HashMap<String, usize> = HashMap::new();
        let (wanted, got) = (words(wanted), words(&without_targets(got)));
        for word in &wanted {
            *left.entry(word.clone()).or_default() += 1;
        }
        let mut common = 0;
        for word in &got {
            if let Some(count) = left.get_mut(word).filter(|count| **count > 0) {
                *count -= 1;
                common += 1;
            }
        }
        Self {
            common,
            wanted: wanted.len(),
            got: got.len(),
        }
    }

    fn precision(self) -> f64 {
        self.common as f64 / self.got.max(1) as f64
    }

    fn recall(self) -> f64 {
        self.common as f64 / self.wanted.max(1) as f64
    }
}

fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for character in text.to_lowercase().chars() {
        // Scripts without spaces: each character counts.
        let alone = matches!(character, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}');
        if alone || !character.is_alphanumeric() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            if alone {
                words.push(character.to_string());
            }
        } else {
            word.push(character);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

fn without_targets(markdown: &str) -> String {
    let mut parts = markdown.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.push(' ');
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    text
}

fn pages() -> Vec<Page> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web/pages");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "html")
        })
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let expected = fs::read_to_string(path.with_extension("json")).unwrap();
            let expected: Expected = serde_json::from_str(&expected).unwrap();
            Page {
                name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                raw: RawPage {
                    url: expected.url.clone(),
                    content_type: Some(expected.content_type.clone()),
                    body: Bytes::from(fs::read(path).unwrap()),
                    cut: false,
                },
                main: fs::read_to_string(path.with_extension("main.txt")).unwrap(),
                expected,
            }
        })
        .collect()
}

/// The whole page as Markdown, as one has it without looking for its main part.
fn plain(page: &Page) -> String {
    let label = page.name.as_str();
    let charset = match label {
        "japanese" => encoding_rs::SHIFT_JIS,
        "russian" => encoding_rs::WINDOWS_1251,
        "chinese" => encoding_rs::GBK,
        _ => encoding_rs::UTF_8,
    };
    let html = charset.decode(&page.raw.body).0.into_owned();
    let tags = vec!["script", "style", "title", "head"];
    let converter = htmd::HtmlToMarkdown::builder().skip_tags(tags).build();
    converter.convert(&html).unwrap()
}

fn snapshot(document: &Document) -> String {
    let none = String::new();
    format!(
        "title: {}\ndate: {}\ncanonical: {}\nkind: {:?}\ncut: {}\n\n{}\n",
        document.title,
        document.date.as_ref().unwrap_or(&none),
        document.canonical.as_ref().unwrap_or(&none),
        document.kind,
        document.cut,
        document.markdown
    )
}

#[test]
fn main_text_is_kept_and_the_rest_is_gone() {
    let mut failed = Vec::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    println!(
        "{:<12} {:>9} {:>7}   plain: {:>9} {:>7}",
        "page", "precision", "recall", "precision", "recall"
    );
    let pages = pages();
    assert!(pages.len() >= 14);
    for page in &pages {
        let document = extract(&page.raw).unwrap();
        let all = format!("{}\n{}", document.title, document.markdown);
        for phrase in &page.expected.keep {
            if !all.contains(phrase.as_str()) {
                failed.push(format!("{}: lacks {phrase:?}", page.name));
            }
        }
        for phrase in &page.expected.drop {
            if all.contains(phrase.as_str()) {
                failed.push(format!("{}: has {phrase:?}", page.name));
            }
        }
        let facts = [
            (page.expected.title.as_ref(), Some(&document.title)),
            (page.expected.date.as_ref(), document.date.as_ref()),
            (
                page.expected.canonical.as_ref(),
                document.canonical.as_ref(),
            ),
        ];
        for (wanted, got) in facts.into_iter().filter(|(wanted, _)| wanted.is_some()) {
            if wanted != got {
                failed.push(format!("{}: {wanted:?} is {got:?}", page.name));
            }
        }
        let (own, other) = (
            Overlap::of(&page.main, &all),
            Overlap::of(&page.main, &plain(page)),
        );
        println!(
            "{:<12} {:>9.3} {:>7.3}          {:>9.3} {:>7.3}",
            page.name,
            own.precision(),
            own.recall(),
            other.precision(),
            other.recall()
        );
        ours.push(own);
        theirs.push(other);
        insta::with_settings!({snapshot_path => "snapshots", prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(page.name.as_str(), snapshot(&document));
        });
    }
    // Every page counts the same, however long it is.
    let mean = |of: &[Overlap], figure: fn(Overlap) -> f64| {
        of.iter().map(|&overlap| figure(overlap)).sum::<f64>() / of.len() as f64
    };
    let (precision, recall) = (
        mean(&ours, Overlap::precision),
        mean(&ours, Overlap::recall),
    );
    let (plain_precision, plain_recall) = (
        mean(&theirs, Overlap::precision),
        mean(&theirs, Overlap::recall),
    );
    println!(
        "{:<12} {precision:>9.3} {recall:>7.3}          {plain_precision:>9.3} {plain_recall:>7.3}",
        "mean"
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(recall >= 0.95, "{recall}");
    assert!(precision >= 0.9, "{precision}");
    // Of what a plain conversion has too much, at most a third is left.
    assert!(
        1.0 - precision < (1.0 - plain_precision) / 3.0,
        "{precision} {plain_precision}"
    );
}
