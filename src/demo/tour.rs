//! The requests that the demo sends through its own HTTP API, and how it prints what comes back.

mod code;
mod web;

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, ensure};
use reqwest::Client;
use serde_json::{Value, json};

use super::{Code, Pages};
use crate::net::ClientOptions;

/// Longest time of one request of the tour.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(50);

/// One stop of the tour.
struct Stop {
    title: &'static str,
    prompt: &'static str,
    session: Option<&'static str>,
    stream: bool,
    /// Whether the request asks for code execution.
    code: bool,
}

const STOPS: [Stop; 8] = [
    Stop {
        title: "Two tools in one batch, streamed: the client declares nothing and runs nothing",
        prompt: "What is the weather in Oslo and Nairobi?",
        session: None,
        stream: true,
        code: false,
    },
    Stop {
        title: "Several rounds, answered in one piece",
        prompt: "What is the state of ticket 4711?",
        session: None,
        stream: false,
        code: false,
    },
    Stop {
        title: "A session: only what is new is sent",
        prompt: "Hello, my name is Ada.",
        session: Some("demo-session"),
        stream: true,
        code: false,
    },
    Stop {
        title: "The same session, one message later: the history is the server's",
        prompt: "What is my name?",
        session: Some("demo-session"),
        stream: true,
        code: false,
    },
    Stop {
        title: "Python, isolated from this machine: code with live output, a plot and a file",
        prompt: "Plot the temperatures of Lisbon, Oslo and Nairobi.",
        session: Some("demo-plot"),
        stream: true,
        code: true,
    },
    Stop {
        title: "The same session: the interpreter still has its variables",
        prompt: "What is the average of them?",
        session: Some("demo-plot"),
        stream: true,
        code: true,
    },
    Stop {
        title: "The web, here a small one of the demo's own: search, a page, and an answer with citations",
        prompt: "Who built the lighthouse of Velmouth, and how tall is its tower?",
        session: None,
        stream: true,
        code: false,
    },
    Stop {
        title: "No tool needed",
        prompt: "What can you do?",
        session: None,
        stream: true,
        code: false,
    },
];

/// Sends the requests one after another and prints each answer.
pub(super) async fn show(
    base: &str,
    code: &Code,
    pages: &Pages,
    out: &mut (impl Write + Send),
) -> anyhow::Result<()> {
    let options = ClientOptions {
        request_timeout: Some(REQUEST_TIMEOUT),
        tls: false,
        ..ClientOptions::default()
    };
    let client = options.build()?;
    writeln!(
        out,
        "\nloopwright demo. The model is scripted and only looks for words; the loop, the tools, the"
    )?;
    writeln!(out, "sessions and the HTTP API are the real ones.")?;
    if let Code::Missing(why) = code {
        writeln!(out, "\nWithout code execution: {why}")?;
    }
    if let Pages::Unreadable(why) = pages {
        writeln!(out, "\nWithout page reading: {why}")?;
    }
    let possible = |stop: &&Stop| !stop.code || matches!(code, Code::Offered);
    for (number, stop) in (1..).zip(STOPS.iter().filter(possible)) {
        writeln!(out, "\n[{number}] {}", stop.title)?;
        writeln!(out, "    user       {}", stop.prompt)?;
        let answer = ask(&client, base, stop).await?;
        if stop.stream {
            for file in print_stream(&answer, out)? {
                code::show_file(&client, base, &file, out).await?;
            }
        } else {
            print_answer(&serde_json::from_str(&answer)?, out)?;
        }
    }
    print_farewell(base, out)
}

async fn ask(client: &Client, base: &str, stop: &Stop) -> anyhow::Result<String> {
    let mut body = json!({
        "model": "loopwright-demo",
        "stream": stop.stream,
        "messages": [{"role": "user", "content": stop.prompt}],
    });
    if let Some(session) = stop.session {
        body["session_id"] = session.into();
    }
    if stop.code {
        body["enable_code_execution"] = true.into();
    }
    let request = client.post(format!("{base}/v1/chat/completions"));
    let request = request
        .header("content-type", "application/json")
        .body(body.to_string());
    let response = request
        .send()
        .await
        .context("the demo's own request failed")?;
    let status = response.status();
    let text = response.text().await?;
    ensure!(
        status.is_success(),
        "the demo's own request was answered with {status}: {text}"
    );
    Ok(text)
}

/// Returns the files that were produced.
fn print_stream(text: &str, out: &mut impl Write) -> anyhow::Result<Vec<Value>> {
    let mut files = Vec::new();
    let (mut said, mut whole) = (String::new(), String::new());
    let mut links = Vec::new();
    for line in text.lines() {
        let Some(data) = line.strip_prefix("data: ").filter(|data| *data != "[DONE]") else {
            continue;
        };
        let chunk: Value = serde_json::from_str(data)?;
        ensure!(chunk.get("error").is_none(), "the stream ended with {data}");
        if let Some(content) = chunk["choices"][0]["delta"]["content"].as_str() {
            said.push_str(content);
            whole.push_str(content);
        }
        if let Some(more) = chunk["choices"][0]["delta"]["annotations"].as_array() {
            links.extend_from_slice(more);
        }
        if chunk["phase"].is_string() {
            print_text(&mut said, out)?;
            print_progress(&chunk, out)?;
        }
        if chunk["type"] == "agentic_tool_output" {
            code::print_output(&chunk, out)?;
        }
        if chunk["type"] == "file_produced" {
            files.push(chunk["file"].clone());
        }
        if chunk["choices"][0]["finish_reason"].is_string() {
            print_text(&mut said, out)?;
            web::print_links(&whole, &links, out)?;
            print_summary(&chunk, out)?;
        }
    }
    Ok(files)
}

fn print_progress(chunk: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    let round = &chunk["round"];
    if chunk["phase"] == "calling" {
        if code::print_calling(chunk, out)? || web::print_calling(chunk, out)? {
            return Ok(());
        }
        let name = chunk["tool_name"].as_str().unwrap_or_default();
        writeln!(
            out,
            "    round {round}    -> {name} {}",
            chunk["data"]["arguments"]
        )?;
    } else if !code::print_complete(chunk, out)? && !web::print_complete(chunk, out)? {
        let content = chunk["data"]["content"].as_str().unwrap_or_default();
        let status = chunk["status"].as_str().unwrap_or_default();
        writeln!(
            out,
            "    round {round}    <- {status} in {} ms: {content}",
            chunk["duration_ms"]
        )?;
    }
    Ok(())
}

fn print_answer(answer: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    for call in answer["agentic_tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let text = |key: &str| call[key].as_str().unwrap_or_default();
        let (round, took) = (&call["round"], &call["duration_ms"]);
        writeln!(
            out,
            "    round {round}    -> {} {}",
            text("name"),
            text("arguments")
        )?;
        writeln!(
            out,
            "    round {round}    <- {} in {took} ms: {}",
            text("status"),
            text("result_content")
        )?;
    }
    let mut content = answer["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    print_text(&mut content, out)?;
    print_summary(answer, out)
}

fn print_text(said: &mut String, out: &mut impl Write) -> anyhow::Result<()> {
    for line in said.lines().filter(|line| !line.is_empty()) {
        writeln!(out, "    assistant  {line}")?;
    }
    said.clear();
    Ok(())
}

fn print_summary(answer: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    let agent = &answer["agent"];
    if agent.is_null() {
        return Ok(());
    }
    let reason = agent["stop_reason"].as_str().unwrap_or_default();
    let session = answer["session_id"].as_str().unwrap_or("none");
    let (calls, rounds) = (&agent["model_calls"], &agent["rounds"]);
    writeln!(
        out,
        "    done       {reason}; model calls: {calls}, rounds with tools: {rounds}, session: {session}"
    )?;
    Ok(())
}

fn print_farewell(base: &str, out: &mut impl Write) -> anyhow::Result<()> {
    let example = r#"{"model":"loopwright-demo","stream":true,"messages":[{"role":"user","content":"Weather in Lima?"}]}"#;
    writeln!(out, "\nStill serving at {base}/v1 until Ctrl-C. Try:\n")?;
    writeln!(
        out,
        "  curl -N {base}/v1/chat/completions -H 'content-type: application/json' \\"
    )?;
    writeln!(out, "    -d '{example}'")?;
    writeln!(out, "  curl {base}/v1/sessions/demo-session")?;
    writeln!(out, "  curl {base}/v1/agent/tools\n")?;
    out.flush()?;
    Ok(())
}
