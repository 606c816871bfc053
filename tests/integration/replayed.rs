//! What model servers were seen to send, one file per situation: `tests/upstreams/*.jsonl`. A new report is a new file.
//!
//! Every line of a file is a JSON object. A file is a list of cases:
//!
//! | line | members |
//! |---|---|
//! | `{"all": {…}}` | the first line, optional: members that every case of the file has |
//! | `{"case": "title", …}` | begins a case, below |
//! | `{"turn": …}` | the client sends a request, below; a case without this line asks `Go` once |
//! | `{"sent": {…}, …}` | one model call: what the server must be sent, and what it answers, below |
//! | `{"ran": [{"srv_x": {…}}, …]}` | the calls that the webhook got in this turn, with their arguments; no others |
//! | `{"got": {…}}` | what the client got, below; without this line nothing but an error is excluded |
//!
//! Each may have `note`, and, except for the first two, `only`: a word or a list of words (`chat`, `responses`, `whole`,
//! `streamed`) that all must hold of the client's request for the line to count.
//!
//! **Case.** `upstream`: the settings of the model server, or a list of them for several in fail-over order. `server`: lines
//! of TOML for the configuration of a process of its own. `tools`: server-side tools, whose names begin with `srv_`, each with
//! its result as a text, or as `{"text"|"json"|"status", "parameters"}`. `client_tools`: names of tools of the client.
//! `request`: more members of every request. `session`: the requests name a session and bring only what is new; else they
//! bring the whole conversation as the client has it. `each`: a list of objects whose members stand for `${name}` in the case;
//! the case is run with each. `dialects`: `["chat"]` leaves the Responses API out, and `why` says for which reason.
//!
//! **Turn.** A text, a list of messages, or `{"results": {"tool": "text"}}` for the client's answers to its calls. `restart`:
//! the server is killed and started again before it. `model`: another model of the same server. `request`: as above.
//!
//! **Model call.** `sent` maps JSON pointers into the request's body to what must be there; negative numbers count from the
//! end. `roles` stands for the list of roles, `header NAME` for a header, `after_ms` for the least time since the call
//! before. `at` is the number of the server in `upstream`, `times` how often the same comes in a row. Its answer is one of
//!
//! - `say`: a text or a message, spelled as the request asks for it, streamed in small pieces or whole; with `finish`.
//! - `stream`: a list. An object is a delta; with `$choice` the choice, with `$chunk` the chunk is given as a whole, and
//!   `{"$finish": "stop"}` is the last choice, which may have other members beside it. A text is sent as it is. `[DONE]`
//!   follows, except with `"done": false`.
//! - `whole`: the message of a whole completion; with `finish`.
//! - `body`: JSON or a text that is sent as it is.
//!
//! with `status`, `headers` (null leaves one out), `pieces` (bytes per write), `cut` (`"close"`, `"reset"`: how the connection
//! breaks off at the end) and `compress` (`"unless_identity"`: with gzip, unless the request asks for `identity` alone; `"if_named"`:
//! with a coding that the request names; `"gzip"`, `"deflate"`: whatever the request asks for). In `say`, `stream` and `whole`, `«d83d»` becomes the escape `\ud83d`.
//!
//! **Got.** `content`, `reasoning`, `finish_reason`, `stop_reason`, `tool_calls` (without ids), `error`, `status`, and in chat
//! completions `message`, `choice` and `raw` (all that came, as a text). With `error` there must be one, without it none; the
//! text before an error counts only where it is streamed.
//!
//! **What is expected** is equal, except for objects with one of these members: `$absent`; `$any`, which is there; `$has` and
//! `$lacks`, a text or a list of texts in it; `$like`, an object with at least these members, or a list of such; `$len`;
//! `$one` of a list; `$json`, a text that is this JSON.
//!
//! Every case is run streamed and not, through chat completions and the Responses API, with the store in memory and with
//! SQLite, or PostgreSQL with `LOOPWRIGHT_TEST_STORE=postgres`; with a restart only with the latter two. Model servers of one
//! process have the models of one case each, so that many cases share it. `LOOPWRIGHT_REPLAY=text` runs the files whose name
//! has that text.

mod broken;
mod client;
mod expect;
mod file;
mod play;
mod server;
mod strict;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use file::Case;
use play::{Run, Store};

/// How many conversations are held at a time.
const AT_ONCE: usize = 8;
/// Most characters of a fault in the report.
const LONGEST_FAULT: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reported_situation_ends_well() {
    let (cases, mut problems) = file::all();
    let mut groups: BTreeMap<String, Vec<Arc<Case>>> = BTreeMap::new();
    for case in cases {
        groups
            .entry(case.server())
            .or_default()
            .push(Arc::new(case));
    }
    let mut runs = 0;
    for cases in groups.into_values() {
        for store in [Store::Memory, Store::Kept] {
            let (count, found) = play::group(&cases, store).await;
            runs += count;
            problems.extend(found);
        }
    }
    assert!(problems.is_empty(), "{}", report(runs, problems));
}

/// The problems by file and line; what several conversations have in common once.
fn report(runs: usize, problems: Vec<play::Problem>) -> String {
    let mut places: BTreeMap<(String, usize), BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for problem in problems {
        let mut fault = problem.text;
        if let Some((end, _)) = fault.char_indices().nth(LONGEST_FAULT) {
            fault.truncate(end);
        }
        let faults = places.entry((problem.file, problem.line)).or_default();
        faults.entry(fault).or_default().push(problem.run);
    }
    let mut text = format!("faults at {} lines in {runs} conversations", places.len());
    for ((file, line), faults) in places {
        let _infallible = write!(text, "\n\n{file}:{line}");
        for (fault, mut of) in faults {
            of.sort();
            of.dedup();
            let _infallible = write!(text, "\n  {fault}\n    in {}", of[0]);
            if of.len() > 1 {
                let _infallible = write!(text, " and {} more", of.len() - 1);
            }
        }
    }
    text
}

/// Whether the run concerns a conversation at all.
fn is_wanted(file: &str) -> bool {
    std::env::var("LOOPWRIGHT_REPLAY").map_or(true, |wanted| file.contains(&wanted))
}

/// A run for a person to read.
impl std::fmt::Display for Run {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.case.title, self.way)
    }
}
