//! Marks as Markdown links, and what front ends make of them.

use serde_json::{Value, json};

use super::stage::{Site, hit};
use super::{builder, builder_with, cited, message, read, search, sources};
use crate::support::app::TestApp;
use crate::support::ask::{ask, assistant, user, with};
use crate::support::script::{text, text_and_calls};
use crate::support::upstream::{MODEL, ScriptedUpstream};

/// Parentheses and pipes in a URL would end a link or a cell of a table.
const PATHS: [&str; 3] = ["/fjords?of=(Norway)", "/glaciers?a=1|2", "/inlets"];

async fn three(pages: &Site) -> Site {
    let hits = PATHS.map(|path| hit(&pages.url(path), path, "On a fjord."));
    Site::engine(hits).await
}

/// The marks that Open WebUI shows in a text, each with the page that it leads to. It renders a link as a link, and takes
/// any other `[n]` for the n-th source by the order of the annotations; where there is none, the mark is gone.
fn shown(text: &str, annotations: &Value) -> Vec<(String, Option<String>)> {
    let mut order: Vec<String> = Vec::new();
    for annotation in annotations.as_array().into_iter().flatten() {
        let url = annotation["url_citation"]["url"].as_str().unwrap();
        if !order.iter().any(|known| known == url) {
            order.push(url.to_owned());
        }
    }
    let mut shown = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('[') {
        rest = &rest[at..];
        let link = rest.strip_prefix('[').and_then(|inner| {
            let (mark, after) = inner.split_once("](")?;
            let (url, after) = after.split_once(')')?;
            mark.starts_with('[').then_some((mark, url, after))
        });
        if let Some((mark, url, after)) = link {
            shown.push((mark.to_owned(), Some(url.to_owned())));
            rest = after;
            continue;
        }
        let (inner, after) = rest[1..].split_once(']').unwrap();
        for number in inner.split(", ") {
            let place = number.parse::<usize>().unwrap() - 1;
            shown.push((format!("[{number}]"), order.get(place).cloned()));
        }
        rest = after;
    }
    shown
}

/// The text of an answer and its annotations, streamed or not.
async fn answer(app: &TestApp, body: Value, streamed: bool) -> (String, Value) {
    if !streamed {
        let body = app.post_chat(body).await.completion();
        let message = message(&body);
        let content = message["content"].as_str().unwrap().to_owned();
        return (content, message["annotations"].clone());
    }
    let collected = app.stream_chat(body).await.collect().await;
    let annotations = collected.frames.iter().find_map(|frame| {
        let chunk: Value = serde_json::from_str(&frame.data).ok()?;
        chunk["choices"][0]["delta"].get("annotations").cloned()
    });
    (collected.text, annotations.unwrap_or_default())
}

fn linked(body: Value) -> Value {
    with(body, "agent", json!({"citations": "links"}))
}

#[tokio::test]
async fn with_links_every_mark_leads_to_its_page() {
    let pages = Site::pages().await;
    let engine = three(&pages).await;
    let upstream = ScriptedUpstream::start([]).await;
    let app = builder(&upstream, &engine).start().await;
    // What a front end makes of the marks alone: numbers of sources, 0 for a mark that is gone.
    for (says, with_marks) in [
        ("It stands [1] by the sea [2].", vec![1, 2]),
        ("Second first [2], then the first [1].", vec![1, 2]),
        ("Only the second source [2] says so.", vec![0]),
        ("[3] and again [3]", vec![0, 0]),
        ("Both [3, 1] of them.", vec![0, 3]),
        ("Of no source [1] [9].", vec![1, 0]),
    ] {
        for streamed in [false, true] {
            for (style, known) in [("marks", with_marks.clone()), ("links", Vec::new())] {
                upstream.push(search("fjord"));
                upstream.push(text(says));
                let body = with(ask("x"), "agent", json!({"citations": style}));
                let (content, annotations) = answer(&app, body, streamed).await;
                let told = upstream.last().tool_results().remove(0).1;
                let found = sources(&told);
                assert_eq!(found.len(), 3, "{told}");
                let page = |number: u64| {
                    let known = found.iter().find(|(known, _)| *known == number);
                    known.map(|(_, url)| url.clone())
                };
                let shown = shown(&content, &annotations);
                if style == "marks" {
                    assert_eq!(content, says);
                    let urls: Vec<_> = shown.into_iter().map(|(_, url)| url).collect();
                    let known: Vec<_> = known.into_iter().map(page).collect();
                    assert_eq!(urls, known, "{says}");
                    continue;
                }
                for (mark, url) in shown {
                    let number = mark.trim_matches(['[', ']']).parse().unwrap();
                    let expected = page(number).map(|url| {
                        let url = url.replace('(', "%28").replace(')', "%29");
                        url.replace('|', "%7C")
                    });
                    assert_eq!(url, expected, "{says}: {content}");
                }
                for (link, url) in cited(&content, &annotations) {
                    assert!(link.starts_with("[[") && link.ends_with(')'), "{link}");
                    let number = link.trim_start_matches('[').split(']').next().unwrap();
                    assert_eq!(page(number.parse().unwrap()), Some(url));
                }
            }
        }
    }
}

#[tokio::test]
async fn a_link_arrives_whole_and_code_is_left_alone() {
    let pages = Site::pages().await;
    let engine = three(&pages).await;
    let says = "Zürich [1], `a[1]` and [1, 2]\n```\nx[1]\n```\nthe end [3";
    for streamed in [false, true] {
        let asks = [("web_search", json!({"query": "fjord"}))];
        let upstream =
            ScriptedUpstream::start([text_and_calls("First [1", asks), text(says)]).await;
        // The server's setting; a request may have it otherwise.
        let setting = "citations = \"links\"";
        let app = builder_with(setting, &upstream, &engine).start().await;
        let (content, annotations) = answer(&app, ask("x"), streamed).await;
        let found = sources(&upstream.last().tool_results().remove(0).1);
        let url = |number: usize| {
            let url = found[number - 1].1.replace('(', "%28").replace(')', "%29");
            url.replace('|', "%7C")
        };
        let [one, two] = [1, 2].map(|number| format!("[[{number}]]({})", url(number)));
        let expected =
            format!("First [1\n\nZürich {one}, `a[1]` and {one}{two}\n```\nx[1]\n```\nthe end [3");
        assert_eq!(content, expected, "streamed: {streamed}");
        assert_eq!(cited(&content, &annotations).len(), 3);
        upstream.push(search("fjord"));
        upstream.push(text("So [1]."));
        let body = with(ask("x"), "agent", json!({"citations": "marks"}));
        assert_eq!(answer(&app, body, streamed).await.0, "So [1].");
    }
}

#[tokio::test]
async fn the_history_keeps_the_mark_and_a_client_may_bring_the_link() {
    let pages = Site::pages().await;
    let engine = three(&pages).await;
    let upstream = ScriptedUpstream::start([search("fjord"), text("So [2], and [1, 3].")]).await;
    let app = builder(&upstream, &engine).start().await;
    let body = linked(with(ask("one"), "session_id", json!("s")));
    let (content, _) = answer(&app, body, true).await;
    assert!(content.starts_with("So [[2]]("), "{content}");
    let marks = "So [2], and [1, 3].";
    for (number, seen) in [content.as_str(), marks].into_iter().enumerate() {
        // The page that the second turn reads has a number above those of the first.
        upstream.push(read(&pages.url("/long")));
        upstream.push(text("More [4]."));
        let question = format!("two {number}");
        let messages = json!([user("one"), assistant(seen), user(&question)]);
        let body = json!({"model": MODEL, "session_id": "s", "messages": messages});
        let (content, _) = answer(&app, linked(body), number == 0).await;
        assert_eq!(content, format!("More [[4]]({}).", pages.url("/long")));
        let roles = [
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
            "assistant",
            "tool",
        ];
        assert_eq!(upstream.last().roles(), roles);
        assert_eq!(upstream.last().messages()[3]["content"], marks);
    }
    // An edit of the answer is an edit.
    upstream.push(text("Well."));
    let edited = content.replace("So", "Not so");
    let messages = json!([user("one"), assistant(&edited), user("two")]);
    let body = json!({"model": MODEL, "session_id": "s", "messages": messages});
    answer(&app, body, false).await;
    assert_eq!(upstream.last().roles(), ["user", "assistant", "user"]);
    assert_eq!(upstream.last().messages()[1]["content"], edited);
}
