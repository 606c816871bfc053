//! The demo as its users see it, and what is printed where pages cannot be parsed.

use serde_json::Value;
use tokio::io::AsyncBufReadExt;

use super::support::client::Client;
use super::support::within;

/// A demo whose temporary files lie in a directory of the test's.
fn demo(temporary: &std::path::Path) -> tokio::process::Command {
    let mut demo = tokio::process::Command::new(env!("CARGO_BIN_EXE_loopwright"));
    demo.args(["demo", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", temporary)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    demo
}

/// Follows a tour until a line begins like this, then stops the demo; returns everything that was shown.
async fn stopped_at(mut demo: tokio::process::Command, until: &str) -> String {
    let mut demo = demo.spawn().unwrap();
    let mut lines = tokio::io::BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut shown = String::new();
    loop {
        let line = within("the tour", lines.next_line()).await.unwrap();
        let line = line.expect("the tour goes on");
        shown.push_str(&line);
        shown.push('\n');
        if line.starts_with(until) {
            break;
        }
    }
    let kill = format!("kill -TERM {}", demo.id().unwrap());
    let killed = tokio::process::Command::new("/bin/sh")
        .args(["-c", &kill])
        .status();
    assert!(killed.await.unwrap().success());
    let status = within("the demo to stop", demo.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0), "after {until}");
    shown
}

fn is_empty(directory: &std::path::Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[tokio::test]
#[cfg_attr(not(feature = "mcp"), ignore = "needs the feature")]
async fn the_demo_stops_cleanly_in_the_middle_of_its_tour_and_after_it() {
    // The fifth stop runs code.
    for until in ["loopwright demo", "[2] ", "[5] ", "Still serving at "] {
        let temporary = tempfile::tempdir().unwrap();
        let shown = stopped_at(demo(temporary.path()), until).await;
        assert!(is_empty(temporary.path()), "after {until}");
        if until.starts_with("Still") {
            let shown = &*shown;
            let (before, _) = shown.split_once("loopwright demo").unwrap();
            assert!(
                before.contains("The console, for a browser: http://"),
                "{before}"
            );
            for part in [
                "code       | ",
                "stdout     | ",
                "downloaded: temperatures.png -> ",
                "result 18.3",
                "-> web_search Who built the lighthouse of Velmouth",
                "sources at 127.0.0.1",
                "-> read_page http://127.0.0.1:",
                "by the engineer Ines Halloran [1].",
                "The tower is 38 metres tall",
                "cited      [1] Gannet Head, the lighthouse of Velmouth",
                "-> harbour__get_tides {\"harbour\":\"Velmouth\"}",
                "- Velmouth: high water at 06:12 and 18:37, low water at 12:21",
            ] {
                assert!(shown.contains(part), "{part}\n{shown}");
            }
        }
    }
}

/// An example of the farewell: the URL and the body of the printed command.
#[derive(Debug)]
struct Example {
    url: String,
    body: Value,
}

/// The chat requests among the printed commands.
fn examples(farewell: &str) -> Vec<Example> {
    let commands = farewell.split("curl -").skip(1);
    let example = |command: &str| {
        let (_flag, command) = command.split_once(' ').unwrap();
        let (url, rest) = command.split_once(' ').unwrap();
        let (_, rest) = rest.split_once("-d '").unwrap();
        let (body, _) = rest.split_once('\'').unwrap();
        Example {
            url: url.to_owned(),
            body: serde_json::from_str(body).unwrap(),
        }
    };
    commands.map(example).collect()
}

#[tokio::test]
async fn what_the_farewell_of_the_demo_prints_is_answered_with_a_tools_result() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = demo(temporary.path()).spawn().unwrap();
    let mut lines = tokio::io::BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut farewell = String::new();
    // The last of the commands that are printed.
    while !farewell.trim_end().ends_with("/v1/models") {
        let line = within("the farewell", lines.next_line()).await.unwrap();
        let line = line.expect("the demo goes on");
        if line.starts_with("Still serving at ") || !farewell.is_empty() {
            farewell.push_str(&line);
            farewell.push('\n');
        }
    }
    for part in [
        "| jq -r '.choices[0].message.content'\n",
        "\nclient = OpenAI(base_url=\"http://127.0.0.1:",
    ] {
        assert!(farewell.contains(part), "{part}\n{farewell}");
    }
    let examples = examples(&farewell);
    assert!(examples.len() >= 2, "{farewell}");
    for Example { url, body } in examples {
        let origin = url.strip_suffix("/v1/chat/completions").unwrap();
        let stream = Client::new(origin).stream_chat(body.clone()).await;
        let stream = stream.collect().await;
        let done = stream.phase("complete");
        assert!(!done.is_empty(), "{body}: {}", stream.transcript());
        for call in done {
            assert_eq!(call["status"], "ok", "{body}: {call}");
        }
        assert_eq!(stream.finish_reason(), "stop");
        // Paths that the scripted model does not have are refused in words.
        for path in ["/v1/messages", "/v1/embeddings", "/v1/threads"] {
            let refused = Client::new(origin)
                .post(path, &serde_json::json!({"model": body["model"]}))
                .await;
            assert_eq!(refused.status, 404, "{path}");
            let error: Value = serde_json::from_str(&refused.text()).unwrap();
            assert!(
                error["error"]["message"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
                "{path}: {error}"
            );
        }
    }
}

/// The binary in a mount namespace without `/proc`, where it cannot start itself.
fn without_proc(arguments: &str, temporary: &std::path::Path) -> tokio::process::Command {
    let command = format!(
        "mount -t tmpfs none /proc && exec {} {arguments}",
        env!("CARGO_BIN_EXE_loopwright")
    );
    let mut hidden = tokio::process::Command::new("unshare");
    hidden
        .args(["--map-root-user", "--mount", "sh", "-c", &command])
        .env("TMPDIR", temporary)
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    hidden
}

#[tokio::test]
#[ignore = "needs a mount namespace"]
async fn where_pages_cannot_be_parsed_the_demo_says_so_and_cites_summaries() {
    let temporary = tempfile::tempdir().unwrap();
    let hidden = without_proc("demo --listen 127.0.0.1:0", temporary.path());
    let shown = stopped_at(hidden, "Still serving at ").await;
    let said = shown.lines().filter(|line| {
        line.starts_with("Without page reading: a process for parsing cannot be started")
    });
    assert_eq!(said.count(), 1, "{shown}");
    for part in ["sources at 127.0.0.1", "cited      [1] ", "No tool needed"] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[tokio::test]
#[ignore = "needs a mount namespace"]
async fn where_pages_cannot_be_parsed_the_log_says_so_at_the_start() {
    let temporary = tempfile::tempdir().unwrap();
    let started = |arguments: &str| {
        let arguments = format!(
            "--listen 127.0.0.1:0 --upstream http://127.0.0.1:9/v1 --session-store memory: {arguments} 2>&1"
        );
        let hidden = without_proc(&arguments, temporary.path());
        stopped_at(hidden, "loopwright ready on ")
    };
    let shown = started("--enable-search --search-url http://127.0.0.1:9").await;
    let said = shown
        .lines()
        .filter(|line| line.contains("pages cannot be read"));
    assert_eq!(said.count(), 1, "{shown}");
    assert!(!started("").await.contains("pages cannot be read"));
}

#[tokio::test]
async fn without_python_the_demo_says_so_and_shows_the_rest() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = demo(temporary.path());
    demo.env("PATH", temporary.path());
    let shown = stopped_at(demo, "Still serving at ").await;
    let said: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("Without code execution: "))
        .collect();
    let [said] = said[..] else {
        panic!("{shown}");
    };
    assert!(said.contains("install one"), "{said}");
    assert!(!shown.contains("execute_python"), "{shown}");
    assert!(shown.contains("cited      [1] "), "{shown}");
    assert!(shown.contains("No tool needed"), "{shown}");
    assert!(is_empty(temporary.path()));
}
