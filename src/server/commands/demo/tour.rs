//! The requests that the demo sends through its HTTP API, and the printing of their answers.
//!
//! The requests are data (`tour.json`), and so are the examples that are printed at the end.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Client;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::list;
use net::ClientOptions;

/// Longest time of one request of the tour.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(50);
/// The first bytes of every PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The requests that the demo sends, and the examples that it prints afterwards.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tour {
    welcome: String,
    stops: Vec<TourRequest>,
    /// The first example, answered in one piece.
    whole: TourRequest,
    /// Lines of Python that send the same request. `{base}` is replaced by the address of the server.
    python: Vec<String>,
    pub(super) proposals: Vec<TourRequest>,
    reads: Vec<String>,
}

/// A chat request with its title.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TourRequest {
    title: String,
    /// Whether it needs code execution.
    #[serde(default)]
    code: bool,
    /// Whether a person then approves the waiting calls.
    #[serde(default)]
    approve: bool,
    /// The body as it is sent.
    pub(super) request: Box<RawValue>,
}

/// The server and the host on which the tour runs.
#[derive(Debug)]
pub(super) struct TourPlace {
    /// The address of the server.
    pub(super) base: String,
    /// The address of the console.
    pub(super) console: Option<String>,
    /// What this host lacks, each with the reason and the remedy.
    pub(super) missing: Vec<String>,
    /// Whether this host can run code.
    pub(super) code: bool,
    /// The directory for saved files.
    pub(super) downloads: PathBuf,
}

/// Turns one answer into lines for people.
#[derive(Debug, Default)]
struct AnswerPrinter {
    lines: Vec<String>,
    /// The whole text so far.
    text: String,
    /// The part of it that is not among the lines yet.
    pending: String,
    links: Vec<Value>,
    /// Files that were produced.
    files: Vec<Value>,
}

impl Tour {
    /// Reads the tour.
    pub(super) fn load() -> serde_json::Result<Self> {
        serde_json::from_str(include_str!("tour.json"))
    }

    /// Sends the requests one after another and prints each answer.
    pub(super) async fn show(&self, place: &TourPlace, out: &mut dyn Write) -> anyhow::Result<()> {
        let base = &*place.base;
        let options = ClientOptions {
            request_timeout: Some(REQUEST_TIMEOUT),
            tls: false,
            ..ClientOptions::default()
        };
        let client = options.build()?;
        if let Some(console) = &place.console {
            writeln!(out, "\nThe console, for a browser: {console}")?;
        }
        writeln!(out, "\n{}", self.welcome)?;
        for line in &place.missing {
            writeln!(out, "\n{line}")?;
        }
        let is_possible = |stop: &&TourRequest| place.code || !stop.code;
        for (number, stop) in (1..).zip(self.stops.iter().filter(is_possible)) {
            writeln!(out, "\n[{number}] {}", stop.title)?;
            let shown = ask(&client, place, stop.request.get()).await?;
            writeln!(out, "{}", shown.lines.join("\n"))?;
            if stop.approve {
                for line in approve(&client, base).await? {
                    writeln!(out, "{line}")?;
                }
            }
        }
        writeln!(out, "\nStill serving at {base}/v1 until Ctrl-C. Try:\n")?;
        if let Some(console) = &place.console {
            writeln!(out, "  # a chat that shows what happens\n  {console}\n")?;
        }
        let ask = format!("{base}/v1/chat/completions -H 'content-type: application/json'");
        let (title, body) = (&self.whole.title, self.whole.request.get());
        let jq = "jq -r '.choices[0].message.content'";
        writeln!(
            out,
            "  # {title}\n  curl -s {ask} \\\n    -d '{body}' | {jq}\n"
        )?;
        writeln!(out, "# the same in Python, with `pip install openai`")?;
        // Without indentation, so that it can be copied.
        for line in &self.python {
            writeln!(out, "{}", line.replace("{base}", base))?;
        }
        let curl = format!("\n  curl -N {ask}");
        for proposal in self.proposals.iter().filter(is_possible) {
            let (title, body) = (&proposal.title, proposal.request.get());
            writeln!(out, "\n  # {title}{curl} \\\n    -d '{body}'")?;
        }
        writeln!(out)?;
        for path in &self.reads {
            writeln!(out, "  curl {base}{path}")?;
        }
        writeln!(out)?;
        Ok(out.flush()?)
    }
}

/// Approves every call that waits, and says how.
async fn approve(client: &Client, base: &str) -> anyhow::Result<Vec<String>> {
    const YES: &str = r#"{"decision":"approve"}"#;
    let approvals = format!("{base}/v1/agent/approvals");
    let listed = client.get(&approvals).send().await?.error_for_status()?;
    let listed: Value = serde_json::from_str(&listed.text().await?)?;
    let mut shown = AnswerPrinter::default();
    for approval in list(&listed["data"]) {
        let url = format!("{approvals}/{}", text(approval, "approval_id"));
        let request = client.post(&url).header("content-type", "application/json");
        let decided = request.body(YES).send().await?.error_for_status()?;
        shown.line(
            "waits",
            &format!("{} {}", text(approval, "tool"), approval["arguments"]),
        );
        shown.line(
            "person",
            &format!("curl {url} -H 'content-type: application/json' -d '{YES}'"),
        );
        shown.line("", &decided.text().await?);
    }
    ensure!(!shown.lines.is_empty(), "no call of the demo waits");
    Ok(shown.lines)
}

async fn ask(client: &Client, place: &TourPlace, body: &str) -> anyhow::Result<AnswerPrinter> {
    let base = &*place.base;
    let request = client.post(format!("{base}/v1/chat/completions"));
    let request = request.header("content-type", "application/json");
    let response = request.body(body.to_owned()).send().await;
    let response = response.context("the demo's own request failed")?;
    let status = response.status();
    let answer = response.text().await?;
    ensure!(
        status.is_success(),
        "the demo's own request got {status}: {answer}"
    );
    let mut shown = AnswerPrinter::default();
    let request: Value = serde_json::from_str(body)?;
    if let Some(message) = request["messages"].get(0) {
        shown.line("user", text(message, "content"));
    }
    // An answer in one piece is one line, too.
    let data = answer
        .lines()
        .map(|line| line.strip_prefix("data: ").unwrap_or(line));
    for object in data.filter(|data| data.starts_with('{')) {
        shown.add(&serde_json::from_str(object)?)?;
    }
    for file in std::mem::take(&mut shown.files) {
        let url = format!("{base}/v1/files/{}/content", text(&file, "id"));
        let response = client.get(&url).send().await?.error_for_status()?;
        let bytes = response.bytes().await?;
        shown.line("file", &format!("{}, {}", url, png(&bytes)?));
        let name = text(&file, "filename");
        let path = place
            .downloads
            .join(Path::new(name).file_name().unwrap_or_default());
        std::fs::write(&path, &bytes).with_context(|| format!("cannot save {name}"))?;
        shown.line("", &format!("downloaded: {name} -> {}", path.display()));
    }
    Ok(shown)
}

impl AnswerPrinter {
    /// Adds a chunk, or an answer in one piece.
    fn add(&mut self, chunk: &Value) -> anyhow::Result<()> {
        ensure!(
            chunk.get("error").is_none(),
            "the stream ended with {chunk}"
        );
        for call in list(&chunk["agentic_tool_calls"]) {
            let result = text(call, "result_content");
            self.call(
                call,
                &format!("-> {} {}", text(call, "name"), text(call, "arguments")),
            );
            self.completed(call, &format!(": {result}"));
        }
        let choice = &chunk["choices"][0];
        for part in ["delta", "message"] {
            self.text.push_str(text(&choice[part], "content"));
            self.pending.push_str(text(&choice[part], "content"));
            self.links
                .extend_from_slice(list(&choice[part]["annotations"]));
        }
        match (text(chunk, "type"), text(chunk, "phase")) {
            ("agentic_tool_call_progress", "calling") => self.calling(chunk),
            ("agentic_tool_call_progress", _) => self.complete(chunk)?,
            ("agentic_tool_output", _) => self.block(text(chunk, "stream"), text(chunk, "text")),
            ("file_produced", _) => self.files.push(chunk["file"].clone()),
            _ => {}
        }
        if choice["finish_reason"].is_string() {
            self.flush_text();
            self.print_links()?;
            let (agent, session) = (&chunk["agent"], &chunk["session_id"]);
            if agent.is_object() {
                let reason = text(agent, "stop_reason");
                let (calls, rounds) = (&agent["model_calls"], &agent["rounds"]);
                let counts = format!("model calls: {calls}, rounds with tools: {rounds}");
                let session = session.as_str().unwrap_or("none");
                self.line("done", &format!("{reason}; {counts}, session: {session}"));
            }
        }
        Ok(())
    }

    fn line(&mut self, label: &str, text: &str) {
        self.lines.push(format!("    {label:<10} {text}"));
    }

    fn block(&mut self, label: &str, text: &str) {
        for line in text.lines() {
            self.line(label, &format!("| {line}"));
        }
    }

    /// Moves the text to the lines.
    fn flush_text(&mut self) {
        let text = std::mem::take(&mut self.pending);
        for line in text.lines().filter(|line| !line.is_empty()) {
            self.line("assistant", line);
        }
    }

    /// Adds a line about a call, labelled with its round.
    fn call(&mut self, call: &Value, text: &str) {
        self.line(&format!("round {}", call["round"]), text);
    }

    fn completed(&mut self, call: &Value, result: &str) {
        let (status, took) = (text(call, "status"), &call["duration_ms"]);
        self.call(call, &format!("<- {status} in {took} ms{result}"));
    }

    fn calling(&mut self, chunk: &Value) {
        self.flush_text();
        let (data, name) = (&chunk["data"], text(chunk, "tool_name"));
        let arguments = match text(data, "tool_type") {
            "code_execution" => String::new(),
            "web_search" => text(data, "query").to_owned() + text(data, "url"),
            _ => data["arguments"].to_string(),
        };
        self.call(chunk, format!("-> {name} {arguments}").trim_end());
        self.block("code", text(data, "code"));
    }

    fn complete(&mut self, chunk: &Value) -> anyhow::Result<()> {
        let data = &chunk["data"];
        let result = match (text(data, "tool_type"), data["result"].as_str()) {
            ("code_execution", Some(value)) => format!(", result {value}"),
            ("code_execution", None) => String::new(),
            ("web_search", _) => {
                let hosts = list(&data["sources"]).iter().filter_map(Value::as_str);
                let hosts = hosts.collect::<Vec<_>>().join(", ");
                let plural = if data["results_count"] == 1 { "" } else { "s" };
                format!(": {} source{plural} at {hosts}", data["results_count"])
            }
            _ => format!(": {}", text(data, "content")),
        };
        self.completed(chunk, &result);
        self.block("exception", text(data, "exception"));
        for (number, image) in (1..).zip(list(&data["images_base64"])) {
            let image = png(&STANDARD.decode(image.as_str().unwrap_or_default())?)?;
            self.line(&format!("image {number}"), &image);
        }
        Ok(())
    }

    /// Adds each cited source once, with the mark that refers to it.
    fn print_links(&mut self) -> anyhow::Result<()> {
        for citation in std::mem::take(&mut self.links) {
            let citation = &citation["url_citation"];
            let place = |key: &str| usize::try_from(citation[key].as_u64().unwrap_or_default());
            let (start, end) = (place("start_index")?, place("end_index")?);
            let mark: String = self.text.chars().take(end).skip(start).collect();
            ensure!(
                mark.starts_with('[') && mark.ends_with(']'),
                "a citation points at the characters {start} to {end}, which are {mark:?}"
            );
            let cited = format!("{mark} {}", text(citation, "title"));
            if !self.lines.iter().any(|line| line.ends_with(&cited)) {
                self.line("cited", &cited);
                self.line("", text(citation, "url"));
            }
        }
        Ok(())
    }
}

/// Checks an image and says how large it is.
fn png(bytes: &[u8]) -> anyhow::Result<String> {
    ensure!(bytes.starts_with(PNG), "an image is no PNG");
    Ok(format!("PNG, {} bytes", bytes.len()))
}

/// A field that is a text; an empty one where it is not.
fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn citation(start: usize, end: usize, title: &str) -> Value {
        let citation = json!({"start_index": start, "end_index": end, "title": title, "url": "http://a.test/"});
        json!({"type": "url_citation", "url_citation": citation})
    }

    #[test]
    fn links_are_shown_once_and_only_where_their_marks_are() {
        let with = |links: Vec<Value>| AnswerPrinter {
            text: "Zürich – so [1], and [1].".to_owned(),
            links,
            ..AnswerPrinter::default()
        };
        let mut shown = with(vec![citation(12, 15, "Zürich"), citation(21, 24, "Zürich")]);
        shown.print_links().unwrap();
        let expected = "    cited      [1] Zürich\n               http://a.test/";
        assert_eq!(shown.lines.join("\n"), expected);
        let wrong = with(vec![citation(13, 16, "Zürich")]).print_links();
        assert!(wrong.unwrap_err().to_string().contains("13 to 16"));
    }
}
