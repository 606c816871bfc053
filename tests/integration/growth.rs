//! What a turn writes and reads does not depend on what was there before it: counted, not timed.

use http::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::recorded::Recorded;
use super::support::script::{Reply, calls, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, Webhook};

/// The pages of each transaction in a write-ahead log.
fn transactions(log: &[u8]) -> Vec<usize> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let page = number(&log[8..]) as usize;
    let mut transactions = vec![0];
    for frame in log[32..].chunks_exact(24 + page) {
        // The frames of the log before have other salts.
        if frame[8..16] != log[16..24] {
            break;
        }
        *transactions.last_mut().unwrap() += 1;
        // The last one of a transaction has the size of the database.
        if number(&frame[4..]) > 0 {
            transactions.push(0);
        }
    }
    transactions
}

/// Reads the database as long as the connection is open, so that its log is kept.
fn keep_log(app: &mut TestApp) -> Connection {
    let reader = Connection::open(app.dir().join("sessions.db")).unwrap();
    reader
        .execute_batch("BEGIN; SELECT * FROM sessions")
        .unwrap();
    reader
}

/// Sessions of the larger store, and the bytes of each: far more than a connection keeps in memory.
const SESSIONS: usize = 1000;
const SESSION_BYTES: usize = 16 << 10;

/// Transactions that the server may write beside a turn.
const BESIDE: usize = 2;
/// Turns of which the least cost counts.
const TURNS: usize = 8;
/// Pages more that a write may touch where indexes are one level deeper, and the bytes of as many reads.
const DEEPER_PAGES: usize = 8;
const DEEPER_BYTES: u64 = 64 << 12;

/// Calls the tool as often as the last message of the user says, and then answers.
fn model(request: &Recorded) -> Reply {
    let messages = request.messages();
    let asked = messages.iter().rposition(|it| it["role"] == "user");
    let asked = asked.unwrap();
    let rounds: usize = messages[asked]["content"]
        .as_str()
        .and_then(|it| it.parse().ok())
        .unwrap_or(0);
    let done = messages[asked..].iter().filter(|it| it["role"] == "tool");
    let done = done.count();
    if done < rounds {
        calls([("t", json!({ "n": done }))])
    } else {
        text("Done.")
    }
}

struct Grown {
    app: TestApp,
    _upstream: ScriptedUpstream,
    _hook: Webhook,
}

/// What one turn wrote and read.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    transactions: usize,
    pages: usize,
    bytes_read: u64,
}

impl Grown {
    async fn start() -> Self {
        let upstream = ScriptedUpstream::answering(model).await;
        let hook = Webhook::start().await.on("t", webhook::text("r"));
        let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
        let app = builder.toml("dispatch_idempotent = true").start().await;
        Self {
            app,
            _upstream: upstream,
            _hook: hook,
        }
    }

    /// Bytes that the process has read from files.
    fn bytes_read(&self) -> u64 {
        let account = std::fs::read_to_string(format!("/proc/{}/io", self.app.pid())).unwrap();
        let read = account
            .lines()
            .find_map(|line| line.strip_prefix("rchar: "));
        read.unwrap().parse().unwrap()
    }

    fn log(&mut self) -> Vec<usize> {
        let log = std::fs::read(self.app.dir().join("sessions.db-wal")).unwrap();
        let mut all = transactions(&log);
        assert_eq!(all.pop(), Some(0), "an unfinished transaction");
        all
    }

    /// The cost of a turn of so many rounds in this session.
    async fn turn(&mut self, session: &str, rounds: usize) -> Cost {
        let before = self.log().len();
        let read_before = self.bytes_read();
        let turn = ask_with(&rounds.to_string(), ["t"]);
        let turn = with(turn, "session_id", json!(session));
        assert_eq!(self.app.post_chat(turn).await.content(), "Done.");
        let bytes_read = self.bytes_read() - read_before;
        let log = self.log();
        // The log begins anew if all of it was in the database before the reader came.
        let before = before.min(log.len());
        Cost {
            transactions: log.len() - before,
            pages: log[before..].iter().sum(),
            bytes_read,
        }
    }

    /// The least of what several turns cost, each in a new session and in an old one: a checkpoint may run beside some.
    async fn least_costs(&mut self, new: &str) -> [Cost; 2] {
        self.turn("warm", 1).await;
        let mut least: Option<[Cost; 2]> = None;
        for number in 0..TURNS {
            let new = self.turn(&format!("{new}{number}"), 3).await;
            let turns = [new, self.turn("old", 3).await];
            let before = least.unwrap_or(turns);
            least = Some([0, 1].map(|at| Cost {
                transactions: turns[at].transactions.min(before[at].transactions),
                pages: turns[at].pages.min(before[at].pages),
                bytes_read: turns[at].bytes_read.min(before[at].bytes_read),
            }));
        }
        least.unwrap()
    }

    /// Stores a conversation of that many bytes, in messages of 1 KB.
    async fn import(&self, session: &str, bytes: usize) {
        let messages: Vec<Value> = (0..bytes >> 10)
            .map(|number| {
                let role = ["user", "assistant"][number % 2];
                json!({"role": role, "content": format!("{number:01024}")})
            })
            .collect();
        let path = format!("/v1/sessions/{session}");
        let put = json!({ "messages": messages });
        let put = self.app.client().send(Method::PUT, &path, &put).await;
        assert_eq!(put.status, 201, "{}", put.text());
    }
}

#[tokio::test]
async fn each_of_a_hundred_rounds_is_one_write_of_the_same_size() {
    let mut grown = Grown::start().await;
    grown.turn("warm", 1).await;
    let _reader = keep_log(&mut grown.app);
    grown.turn("warm", 1).await;
    let one = grown.turn("one", 1).await;
    let ten = grown.turn("ten", 10).await;
    let hundred = grown.turn("hundred", 100).await;
    assert!(ten.transactions <= one.transactions + 9 + BESIDE);
    assert!(hundred.transactions <= one.transactions + 99 + BESIDE);
    // Pages are split while they fill, so that a few more are written than at first.
    let (first, rest) = (ten.pages - one.pages, hundred.pages - ten.pages);
    assert!(
        rest <= 10 * first * 3 / 2,
        "9 rounds: {first} pages, 90 more: {rest}"
    );
}

#[tokio::test]
async fn a_round_writes_the_same_whatever_the_length_of_the_history() {
    let mut grown = Grown::start().await;
    // 1,000, 10,000 and 100,000 tokens.
    let lengths = [4 << 10, 40 << 10, 400 << 10];
    for bytes in lengths {
        grown.import(&bytes.to_string(), bytes).await;
    }
    let _reader = keep_log(&mut grown.app);
    let mut costs = Vec::new();
    for bytes in lengths {
        let session = bytes.to_string();
        // The first turn after an import has a longer way to its end.
        grown.turn(&session, 1).await;
        let few = grown.turn(&session, 1).await;
        let many = grown.turn(&session, 11).await;
        let most = few.transactions + 10 + BESIDE;
        assert!(many.transactions <= most, "{bytes} bytes");
        costs.push((few, many));
    }
    let (first_few, first_many) = costs[0];
    for (few, many) in &costs {
        assert!(few.pages <= first_few.pages + DEEPER_PAGES, "{costs:?}");
        let more = first_many.pages - first_few.pages + DEEPER_PAGES;
        assert!(many.pages - few.pages <= more, "{costs:?}");
    }
}

#[tokio::test]
async fn a_turn_costs_the_same_in_a_store_with_many_sessions() {
    let mut grown = Grown::start().await;
    grown.import("old", SESSION_BYTES).await;
    grown.turn("warm", 1).await;
    let reader = keep_log(&mut grown.app);
    let empty = grown.least_costs("first").await;
    drop(reader);
    for number in 0..SESSIONS {
        grown.import(&format!("s{number}"), SESSION_BYTES).await;
    }
    let _reader = keep_log(&mut grown.app);
    let full = grown.least_costs("last").await;
    let costs = [empty, full];
    for (empty, full) in empty.iter().zip(&full) {
        let most = empty.transactions + BESIDE;
        assert!(full.transactions <= most, "{costs:?}");
        assert!(full.pages <= empty.pages + DEEPER_PAGES, "{costs:?}");
        let most = empty.bytes_read + DEEPER_BYTES;
        assert!(full.bytes_read <= most, "{costs:?}");
    }
}
