mod hostile;
mod labelled;

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::rank::tokens;

fn page(title: &str, markdown: &str) -> Candidate {
    Candidate {
        title: title.to_owned(),
        snippet: String::new(),
        markdown: markdown.to_owned(),
    }
}

async fn packed(query: &str, candidates: &[Candidate], budget: usize) -> Vec<Chosen> {
    let ranker = Ranker::new(None).unwrap();
    ranker
        .pack(&[query.to_owned()], candidates.to_vec(), budget)
        .await
}

/// Different paragraphs without matches.
fn filler(paragraphs: usize) -> String {
    let words = [
        "river", "garden", "window", "paper", "morning", "letter", "stone", "market", "winter",
        "bridge",
    ];
    let sentence = |seed: usize| {
        let pick = |step: usize| words[(seed * 7 + step * 3 + seed / 10) % words.len()];
        format!(
            "The {} beside the {} stood near a {} for year {seed}, and nobody minded the {}.",
            pick(1),
            pick(2),
            pick(3),
            pick(4)
        )
    };
    let paragraph = |number: usize| {
        (0..8)
            .map(|n| sentence(number * 8 + n))
            .collect::<Vec<_>>()
            .join(" ")
    };
    (0..paragraphs)
        .map(paragraph)
        .collect::<Vec<_>>()
        .join("\n\n")
}

#[tokio::test]
async fn a_short_text_is_quoted_whole_and_a_snippet_replaces_a_missing_one() {
    let candidates = [
        page("One", "Cats sleep.\n"),
        Candidate {
            snippet: "Cats purr.".to_owned(),
            ..page("Two", "")
        },
        page("Three", ""),
    ];
    let chosen = packed("cats", &candidates, 1000).await;
    let texts: Vec<&str> = chosen
        .iter()
        .flat_map(|one| &one.passages)
        .map(String::as_str)
        .collect();
    assert_eq!(texts, ["Cats sleep.", "Cats purr."]);
    assert!(chosen[0].whole);
    assert_eq!(packed("cats", &candidates, 10).await, []);
    assert_eq!(packed("cats", &[], 1000).await, []);
}

#[tokio::test]
async fn the_passage_that_answers_is_found_deep_in_a_long_page() {
    let markdown = format!(
        "# Harbour guide\n\n{}\n\n## Tides\n\nThe lighthouse of Varn was built in 1861 by Edda Holm.\n\n{}",
        filler(60),
        filler(60),
    );
    let other = filler(80);
    let candidates = [page("Other", &other), page("Guide", &markdown)];
    let chosen = packed("who built the lighthouse of Varn", &candidates, 1000).await;
    assert_eq!(chosen[0].candidate, 1);
    assert!(!chosen[0].whole);
    let text = chosen[0].passages.join("\n");
    assert!(text.contains("Edda Holm"), "{text}");
}

#[tokio::test]
async fn headings_above_a_passage_are_searched_and_quoted() {
    let markdown = format!(
        "# Zoo\n\n## Penguins\n\n{}\n\n### Feeding\n\n{}\n\n## Bears\n\n{}",
        filler(30),
        "At three o'clock, herring from a bucket. ".repeat(30),
        filler(30)
    );
    let candidates = [page("T", &markdown)];
    let chosen = packed("penguins feeding", &candidates, 700).await;
    let text = chosen[0].passages.join("\n");
    assert!(text.contains("herring"), "{text}");
    assert!(text.contains("(Zoo › Penguins"), "{text}");
    assert!(!text.contains("(Zoo › Bears"), "{text}");
}

#[tokio::test]
async fn the_budget_holds_whatever_the_texts() {
    let long = filler(400);
    let unbroken = "x".repeat(300_000);
    let table = format!("|a|b|\n|-|-|\n{}", "|river|paper|\n".repeat(5000));
    let candidates: Vec<Candidate> = [&long, &unbroken, &table]
        .iter()
        .map(|text| page("title", text))
        .collect();
    for (query, budget) in [
        ("river paper", 4096),
        ("river", 500),
        ("nothing", 900),
        ("x", 8192),
        ("", 700),
    ] {
        let chosen = packed(query, &candidates, budget).await;
        let used: usize = chosen
            .iter()
            .flat_map(|one| &one.passages)
            .map(|text| tokens::estimate(text))
            .sum();
        assert!(used <= budget, "{query}: {used} of {budget}");
        assert!(!chosen.is_empty(), "{query}");
    }
}

#[tokio::test]
async fn duplicates_are_quoted_once_and_several_sources_are_quoted() {
    let copied = "The comet returns every seventy-six years and was last seen in 1986 by many.";
    let candidates = [
        page("A", copied),
        page("B", copied),
        page("C", "A comet is ice and dust."),
    ];
    let chosen = packed("comet", &candidates, 2000).await;
    let sources: Vec<usize> = chosen.iter().map(|one| one.candidate).collect();
    assert_eq!(sources.len(), 2, "{chosen:?}");
    assert!(sources.contains(&2), "{chosen:?}");
}

#[tokio::test]
async fn without_matches_all_texts_are_quoted_from_their_start() {
    let (one, two) = (filler(40), filler(50));
    let candidates = [page("A", &one), page("B", &two)];
    let chosen = packed("zzz", &candidates, 1200).await;
    assert_eq!(
        chosen.iter().map(|one| one.candidate).collect::<Vec<_>>(),
        [0]
    );
    assert!(
        chosen[0].passages[0].starts_with(one.lines().next().unwrap().get(..40).unwrap()),
        "{chosen:?}"
    );
}

#[tokio::test]
async fn other_scripts_are_ranked_too() {
    let candidates = [
        page("駅", "京都駅から金閣寺まではバスで四十分かかります。"),
        page("天気", "東京の天気は晴れです。明日は雨が降るでしょう。"),
    ];
    let chosen = packed("東京 天気", &candidates, 500).await;
    assert_eq!(chosen[0].candidate, 1);
}

/// Answers one request for embeddings after checking it.
async fn embedder(listener: TcpListener, answer: impl Fn(&Value) -> String) -> io::Result<Value> {
    let (mut stream, _) = listener.accept().await?;
    let mut request = Vec::new();
    let body = loop {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).await?;
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let size: usize = head
            .split("content-length: ")
            .nth(1)
            .unwrap()
            .lines()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        if body.len() >= size {
            assert!(head.starts_with("post /v1/embeddings "), "{head}");
            assert!(head.contains("authorization: bearer sk-test"), "{head}");
            break body.to_owned();
        }
    };
    let body: Value = serde_json::from_str(&body).unwrap();
    stream.write_all(answer(&body).as_bytes()).await?;
    Ok(body)
}

fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

async fn with_embeddings(answer: impl Fn(&Value) -> String) -> (Vec<Chosen>, Value) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/embeddings", listener.local_addr().unwrap());
    let ranker = Ranker::new(Some(EmbeddingSettings {
        url: url.parse().unwrap(),
        api_key: Some("sk-test".into()),
        model: "embed".to_owned(),
        timeout: Duration::from_secs(10),
        certificates: net::CaCertificates::default(),
    }));
    let candidates = [
        page("A", "The cat sat on the cat."),
        page("B", "A kitten, no cat, plays."),
        page("C", "Dogs bark."),
    ];
    let queries = ["cat".to_owned()];
    let ranker = ranker.unwrap();
    let (chosen, asked) = tokio::join!(
        ranker.pack(&queries, candidates.to_vec(), 1000),
        embedder(listener, answer)
    );
    (chosen, asked.unwrap())
}

#[tokio::test]
async fn embeddings_change_the_order() {
    let near = |text: &str| {
        if text.contains("kitten") || text == "cat" {
            [1.0, 0.0]
        } else {
            [0.0, 1.0]
        }
    };
    let (chosen, asked) = with_embeddings(|body| {
        let texts = body["input"].as_array().unwrap().iter().enumerate();
        let data: Vec<Value> = texts
            .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": near(text.as_str().unwrap())}))
            .collect();
        ok(&json!({"object": "list", "data": data, "model": "embed"}).to_string())
    })
    .await;
    assert_eq!(
        (&asked["model"], &asked["input"][0]),
        (&json!("embed"), &json!("cat"))
    );
    let order: Vec<usize> = chosen.iter().map(|one| one.candidate).collect();
    assert!(order.contains(&1), "{order:?}");
    let without = packed(
        "cat",
        &[
            page("A", "The cat sat on the cat."),
            page("B", "A kitten, no cat, plays."),
            page("C", "Dogs bark."),
        ],
        1000,
    )
    .await;
    assert_eq!(without[0].candidate, 0);
    assert_ne!(
        order,
        without.iter().map(|one| one.candidate).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn without_embeddings_words_decide() {
    let plain = packed(
        "cat",
        &[
            page("A", "The cat sat on the cat."),
            page("B", "A kitten, no cat, plays."),
            page("C", "Dogs bark."),
        ],
        1000,
    )
    .await;
    for answer in [
        "HTTP/1.1 500 Oops\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned(),
        ok("nonsense"),
        ok(r#"{"data":[]}"#),
        ok(r#"{"data":[{"index":9,"embedding":[1.0]}]}"#),
        ok(r#"{"data":[{"index":0,"embedding":[1.0]},{"index":1,"embedding":[1.0, 2.0]}]}"#),
        String::new(),
    ] {
        let (chosen, _) = with_embeddings(|_| answer.clone()).await;
        assert_eq!(chosen, plain, "{answer}");
    }
}
