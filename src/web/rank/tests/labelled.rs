//! Measures how often the selected passages hold the known answer, compared with simpler uses of the same budget.

#![expect(clippy::print_stdout, reason = "the figures are printed")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use futures_util::future::join_all;
use serde::Deserialize;

use super::*;
use crate::{RawPage, extract};

/// A question, and the pages of a search engine in its order.
#[derive(Debug, Deserialize)]
struct Question {
    question: String,
    /// A phrase of the right page only.
    answer: String,
    page: String,
    candidates: Vec<String>,
}

/// The headers of a saved page.
#[derive(Debug, Deserialize)]
struct Served {
    url: String,
    content_type: String,
}

/// The uses of a budget that held the answer.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Packed passages.
    packed: bool,
    /// The pages in the provider's order, cut at the end of the budget.
    truncated: bool,
    /// Equal parts of the start of each page.
    shared: bool,
}

fn folder(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/web")
        .join(name)
}

fn load(name: &str) -> Candidate {
    let long = folder("ranking").join(format!("{name}.md"));
    if let Ok(markdown) = fs::read_to_string(long) {
        let title = markdown.lines().next().unwrap().trim_start_matches("# ");
        return page(title, &markdown);
    }
    let path = folder("pages").join(format!("{name}.html"));
    let served = fs::read_to_string(path.with_extension("json")).unwrap();
    let served: Served = serde_json::from_str(&served).unwrap();
    let document = extract(&RawPage {
        url: served.url,
        content_type: Some(served.content_type),
        body: Bytes::from(fs::read(path).unwrap()),
        cut: false,
    });
    let document = document.unwrap();
    page(&document.title, &document.markdown)
}

/// The start of a text with so many tokens.
fn first(text: &str, budget: usize) -> String {
    let mut quarters = 0;
    let within = text.chars().take_while(|character| {
        quarters += tokens::quarters(*character);
        quarters <= budget * 4
    });
    within.collect()
}

/// Whether a text holds a phrase, wherever its lines and its marks of emphasis are.
fn holds(text: &str, phrase: &str) -> bool {
    let plain = |text: &str| {
        let marks = text.replace(['*', '_', '`', '\\'], "");
        marks.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    plain(text).contains(&plain(phrase))
}

#[tokio::test]
async fn packed_passages_hold_the_answer_more_often_than_beginnings_do() {
    let questions = fs::read_to_string(folder("ranking").join("questions.json")).unwrap();
    let questions: Vec<Question> = serde_json::from_str(&questions).unwrap();
    assert!(questions.len() >= 30);
    let mut pages: HashMap<String, Candidate> = HashMap::new();
    for asked in &questions {
        assert!((5..=8).contains(&asked.candidates.len()), "{asked:?}");
        assert_ne!(asked.candidates[0], asked.page);
        for name in &asked.candidates {
            let known = pages.entry(name.clone()).or_insert_with(|| load(name));
            assert_eq!(
                holds(&known.markdown, &asked.answer),
                *name == asked.page,
                "{name} and \"{}\"",
                asked.answer
            );
        }
    }
    println!(
        "{:>6} {:>8} {:>8} {:>8}",
        "tokens", "packed", "first N", "shares"
    );
    for budget in [512, 1024, 2048, 4096] {
        let held = questions.iter().map(|asked| ask(asked, &pages, budget));
        let held = join_all(held).await;
        let count = |of: fn(&Held) -> bool| held.iter().filter(|held| of(held)).count();
        let (packed, truncated, shared) = (
            count(|held| held.packed),
            count(|held| held.truncated),
            count(|held| held.shared),
        );
        let percent = |count: usize| 100.0 * count as f64 / questions.len() as f64;
        println!(
            "{budget:>6} {:>6.0} % {:>6.0} % {:>6.0} %",
            percent(packed),
            percent(truncated),
            percent(shared)
        );
        for (asked, held) in questions.iter().zip(&held) {
            if !held.packed {
                println!("       lacks {:?} for {:?}", asked.answer, asked.question);
            }
        }
        // At most a fifth of the misses of the better alternative.
        let missed = questions.len() - truncated.max(shared);
        assert!(
            (questions.len() - packed) * 5 <= missed,
            "{budget} tokens: {packed}, {truncated} and {shared} of {}",
            questions.len()
        );
    }
}

/// Uses one budget for one question in all ways.
async fn ask(asked: &Question, pages: &HashMap<String, Candidate>, budget: usize) -> Held {
    let candidates: Vec<Candidate> = asked
        .candidates
        .iter()
        .map(|name| pages[name].clone())
        .collect();
    let chosen = packed(&asked.question, &candidates, budget).await;
    let mut passages = chosen.iter().flat_map(|one| &one.passages);
    let texts: Vec<&str> = candidates
        .iter()
        .map(|candidate| candidate.markdown.as_str())
        .collect();
    let share = budget / texts.len();
    Held {
        packed: passages.any(|text| holds(text, &asked.answer)),
        truncated: holds(&first(&texts.join("\n\n"), budget), &asked.answer),
        shared: texts
            .iter()
            .any(|text| holds(&first(text, share), &asked.answer)),
    }
}
