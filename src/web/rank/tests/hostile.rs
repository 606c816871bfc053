//! Pages that were made to be selected, or to take long.

use super::*;
use crate::rank::{cut, pack, score};

/// Most passages that are compared with the selected ones, and the word pairs in one.
const COMPARED_WORDS: usize = 300;

fn work(query: &str, candidates: &[Candidate], budget: usize) -> (usize, pack::Packed) {
    let passages = cut(candidates, budget);
    let scores = score::score(query, &passages);
    let packed = pack::pack(candidates, &passages, &scores, budget);
    (passages.len(), packed)
}

fn tokens_of(chosen: &Chosen) -> usize {
    let texts = chosen.passages.iter();
    texts.map(|text| tokens::estimate(text)).sum()
}

#[tokio::test]
async fn a_page_stuffed_with_the_words_of_the_query_does_not_push_out_others() {
    let stuffed: Vec<String> = (0..400)
        .map(|n| format!("Best tide mill builder {n}: tide mill builder, who built the tide mill, shop {}.\n", n * 7))
        .collect();
    let honest = format!(
        "{}\n\nThe tide mill at Sorrel Point was built by Anna Wray in 1740.\n\n{}",
        filler(20),
        filler(20)
    );
    let other = format!(
        "{}\n\nNobody knows who built the mill of Harn, which the tide drove.",
        filler(30)
    );
    let candidates = [
        page(
            "Tide mill builder, who built the tide mill",
            &stuffed.join("\n"),
        ),
        page("Sorrel Point", &honest),
        page("Harn", &other),
    ];
    for budget in [512, 1024, 4096, 8192] {
        let chosen = packed("who built the tide mill", &candidates, budget).await;
        let text: String = chosen.iter().flat_map(|one| one.passages.clone()).collect();
        assert!(text.contains("Anna Wray"), "{budget}: {chosen:?}");
        let stuffed = chosen.iter().find(|one| one.candidate == 0);
        let used = stuffed.map_or(0, tokens_of);
        // It gets what the others leave.
        assert!(
            budget > 2048 || used * 4 <= budget * 3,
            "{used} of {budget}"
        );
        let sources: Vec<usize> = chosen.iter().map(|one| one.candidate).collect();
        assert!(
            budget < 1024 || sources.contains(&2),
            "{budget}: {sources:?}"
        );
    }
}

#[tokio::test]
async fn a_single_matching_source_may_take_the_whole_budget() {
    let cats = filler(60).replace("garden", "cat");
    let candidates = [page("A", &cats), page("B", &filler(20))];
    let chosen = packed("cat", &candidates, 2000).await;
    assert_eq!(chosen.len(), 1, "{chosen:?}");
    let used = tokens_of(&chosen[0]);
    assert!(used > 1500, "{used}");
}

#[tokio::test]
async fn a_long_row_of_a_table_is_quoted_in_part() {
    let cells: Vec<String> = (0..20_000)
        .map(|n| format!(" cell{n} value{} |", n * 3))
        .collect();
    let row = format!("| a | b |\n|---|---|\n|{}\n", cells.concat());
    let candidates = [page("Table", &row), page("Other", "Nothing of the kind.")];
    for budget in [512, 2048] {
        let chosen = packed("cell15003", &candidates, budget).await;
        let text = chosen[0].passages.join("\n");
        assert!(text.contains("cell15003 value45009"), "{text}");
        assert!(tokens_of(&chosen[0]) <= budget);
    }
}

#[tokio::test]
async fn rows_that_differ_only_in_values_are_no_duplicates() {
    let rows: Vec<String> = (0..200)
        .map(|n| {
            format!(
                "The station number {n} measured {} millimetres of rain on the day before.\n\n",
                n * 13
            )
        })
        .collect();
    let candidates = [page("Rain", &rows.concat())];
    let chosen = packed("rain measured by station number 117", &candidates, 1024).await;
    let text = chosen[0].passages.join("\n");
    assert!(text.contains("1521 millimetres"), "{text}");
    let chosen = packed("rain", &candidates, 1024).await;
    let used = tokens_of(&chosen[0]);
    assert!(used > 700, "{used}");
}

#[test]
fn the_time_is_linear_in_the_text() {
    let word = |bytes: usize| page("W", &"spam ".repeat(bytes / 5));
    let unbroken = |bytes: usize| page("U", &"x".repeat(bytes));
    let tiny = |bytes: usize| {
        let paragraphs =
            (0..bytes / 40).map(|n| format!("Spam number {n} of many, {}.\n\n", n * 31));
        page("T", &paragraphs.collect::<String>())
    };
    let same = |bytes: usize| page("S", &format!("{}\n\n", filler(1)).repeat(bytes / 700));
    let kinds: [(&str, &dyn Fn(usize) -> Candidate); 4] = [
        ("word", &word),
        ("unbroken", &unbroken),
        ("tiny", &tiny),
        ("same", &same),
    ];
    for (name, kind) in kinds {
        let budget = 8192;
        let mut works = Vec::new();
        for bytes in [64 << 10, 256 << 10, 1 << 20] {
            let candidates = [
                kind(bytes),
                page("Other", "There is spam here, and a river."),
            ];
            let (passages, packed) = work("spam river x", &candidates, budget);
            // No passage is below half the size, except for the last and short ones.
            assert!(passages <= bytes / 130 + 10, "{name}: {passages}");
            let sources = packed.chosen.iter().any(|one| one.candidate == 1);
            assert!(sources, "{name}: {:?}", packed.chosen);
            works.push(packed.compared);
        }
        // The comparisons depend on the budget and not on the length of the text.
        let most = budget / 100 * budget / 100 * COMPARED_WORDS * 2;
        assert!(works.iter().all(|work| *work <= most), "{name}: {works:?}");
    }
}

#[test]
fn five_thousand_paragraphs_are_all_ranked() {
    let paragraphs: Vec<String> = (0..5000)
        .map(|n| match n {
            4900 => "The heron nests in the old mill.\n\n".to_owned(),
            _ => format!("Number {n}.\n\n"),
        })
        .collect();
    let candidates = [page("P", &paragraphs.concat())];
    let (_, packed) = work("where does the heron nest", &candidates, 512);
    let text = packed.chosen[0].passages.join("\n");
    assert!(text.contains("old mill"), "{text}");
}

#[test]
fn short_texts_leave_more_passages_for_long_ones() {
    assert_eq!(fair(vec![1, 5000, 2], 100), 97);
    assert_eq!(fair(vec![60, 60], 100), 50);
    assert_eq!(fair(vec![50, 50], 100), usize::MAX);
    assert_eq!(fair(vec![], 100), usize::MAX);
}
