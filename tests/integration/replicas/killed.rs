//! kill -9 of a replica, again and again, while both serve the same sessions: every history is a sequence of whole turns and
//! broken-off ones, and tells of each effect of a tool once.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::Method;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::support::ask::ask;

/// How often the replica is killed.
const KILLS: u64 = 50;
/// Sessions that both replicas serve.
const SESSIONS: u64 = 200;
/// Turns that are asked for at the same time.
const CLIENTS: u64 = 24;
/// Tool rounds of a turn.
const ROUNDS: u64 = 2;
/// Sessions that are read at the same time at the end.
const CLOSED_AT_ONCE: usize = 16;
/// Longest time between the start of the replica and its end.
const LONGEST_LIFE_MS: u64 = 300;
/// What the random points and the choices of sessions are drawn from.
const SEED: u64 = 0x15;

/// A turn of a session, by their numbers.
type Turn = (u64, u64);
/// What a tool did: the turn and its round.
type Effect = (Turn, u64);

/// What the clients know.
#[derive(Debug, Default)]
struct Asked {
    turns: AtomicU64,
    /// Turns whose answers came.
    answered: Mutex<HashSet<Turn>>,
}

fn question((session, turn): Turn) -> String {
    format!("turn {session} {turn}")
}

fn turn_of(message: &Value) -> Option<Turn> {
    let text = message["content"].as_str()?.strip_prefix("turn ")?;
    let (session, turn) = text.split_once(' ')?;
    Some((session.parse().ok()?, turn.parse().ok()?))
}

fn effect_of(arguments: &Value) -> Effect {
    let number = |name: &str| arguments[name].as_u64().unwrap();
    ((number("session"), number("turn")), number("round"))
}

/// A model that asks for an effect in each of two rounds, and then has an answer; any other question it only answers.
fn two_rounds(request: &Recorded) -> Reply {
    let messages = request.messages();
    let asked = messages
        .iter()
        .rposition(|message| message["role"] == "user");
    let current = &messages[asked.unwrap()..];
    let Some((session, turn)) = turn_of(&current[0]) else {
        return text("Nothing to do.");
    };
    let rounds = current
        .iter()
        .filter(|message| message["tool_calls"].is_array());
    match rounds.count() as u64 {
        round if round < ROUNDS => calls([(
            "t",
            json!({"session": session, "turn": turn, "round": round}),
        )]),
        _ => text(&format!("re {}", question((session, turn)))),
    }
}

fn name(session: u64) -> String {
    format!("s{session}")
}

/// Asks for turns of any session at one replica or the other until the end. Only what was answered counts.
async fn client(
    number: u64,
    replicas: [watch::Receiver<Client>; 2],
    asked: Arc<Asked>,
    end: CancellationToken,
) {
    let mut random = StdRng::seed_from_u64(SEED + 1 + number);
    while !end.is_cancelled() {
        let session = random.random_range(0..SESSIONS);
        let client = replicas[random.random_range(0..2_usize)].borrow().clone();
        let turn = (session, asked.turns.fetch_add(1, Ordering::Relaxed));
        let body = with(
            ask_with(&question(turn), ["t"]),
            "session_id",
            json!(name(session)),
        );
        let request = client
            .request(Method::POST, "/v1/chat/completions")
            .header("content-type", "application/json")
            .body(body.to_string());
        let Ok(answer) = request.send().await else {
            continue;
        };
        let status = answer.status();
        let Ok(body) = answer.bytes().await else {
            continue;
        };
        if status == 200 {
            let body: Value = serde_json::from_slice(&body).unwrap();
            let content = &body["choices"][0]["message"]["content"];
            assert_eq!(*content, format!("re {}", question(turn)));
            asked.answered.lock().insert(turn);
        }
    }
}

/// One more turn in a session, which is free as soon as the leases of the dead have expired.
async fn close(client: &Client, session: u64) {
    let body = with(ask("Close."), "session_id", json!(name(session)));
    eventually("a free session", async || {
        let answer = client.post_chat(body.clone()).await;
        (answer.status == 200).then(|| assert_eq!(answer.content(), "Nothing to do."))
    })
    .await;
}

/// What the histories tell.
#[derive(Debug, Default)]
struct Told {
    turns: HashSet<Turn>,
    whole: HashSet<Turn>,
    /// The effects, and whether their results say that the call was broken off.
    effects: HashMap<Effect, bool>,
}

impl Told {
    /// Reads a history: turns one after the other, each with the calls of its own rounds in order.
    fn read(&mut self, session: u64, messages: &[Value]) {
        let mut rest = messages;
        while let [first, ..] = rest {
            assert_eq!(first["role"], "user", "{first} in {messages:?}");
            let after = &rest[1..];
            let next = after.iter().position(|message| message["role"] == "user");
            let (turn, following) = after.split_at(next.unwrap_or(after.len()));
            if let Some(asked) = turn_of(first) {
                assert_eq!(asked.0, session, "{messages:?}");
                assert!(self.turns.insert(asked), "{first} twice in {messages:?}");
                self.read_turn(asked, turn);
            }
            rest = following;
        }
    }

    fn read_turn(&mut self, asked: Turn, messages: &[Value]) {
        let mut rest = messages.iter();
        for round in 0..=ROUNDS {
            let Some(message) = rest.next() else {
                return;
            };
            assert_eq!(message["role"], "assistant", "{messages:?}");
            if round == ROUNDS {
                assert_eq!(message["content"], format!("re {}", question(asked)));
                assert!(self.whole.insert(asked));
                continue;
            }
            let [call] = message["tool_calls"].as_array().unwrap().as_slice() else {
                panic!("not one call: {messages:?}");
            };
            let arguments = call["function"]["arguments"].as_str().unwrap();
            let effect = effect_of(&serde_json::from_str(arguments).unwrap());
            assert_eq!(effect, (asked, round), "{messages:?}");
            let result = rest.next().unwrap();
            assert_eq!(result["tool_call_id"], call["id"], "{messages:?}");
            let result = result["content"].as_str().unwrap();
            let is_interrupted = result.contains("interrupted");
            assert!(is_interrupted || result == "done", "{result}");
            let twice = self.effects.insert(effect, is_interrupted);
            assert_eq!(twice, None, "{effect:?} twice");
        }
        assert_eq!(rest.next(), None, "{messages:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn kill_9_of_a_replica_loses_and_doubles_nothing_of_what_two_replicas_serve() {
    let database = PostgresServer::shared().create_database().await;
    let database = format!("{database}&lease_seconds=2");
    let upstream = ScriptedUpstream::answering(two_rounds).await;
    let hook = Webhook::start().await.on("t", webhook::text("done"));
    let steady = replica(&upstream, &hook, &database).await;
    let mut dying = replica(&upstream, &hook, &database).await;
    let (current, dying_client) = watch::channel(dying.client().clone());
    let (_steady, steady_client) = watch::channel(steady.client().clone());
    let (asked, end) = (Arc::<Asked>::default(), CancellationToken::new());
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let replicas = [steady_client.clone(), dying_client.clone()];
        clients.spawn(client(number, replicas, asked.clone(), end.clone()));
    }
    let mut random = StdRng::seed_from_u64(SEED);
    for _ in 0..KILLS {
        // Waits for nothing: this is the random point.
        let life = random.random_range(0..LONGEST_LIFE_MS);
        tokio::time::sleep(Duration::from_millis(life)).await;
        dying.kill9().await;
        dying.restart().await;
        current.send_replace(dying.client().clone());
    }
    end.cancel();
    while let Some(ended) = clients.join_next().await {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }

    let mut told = Told::default();
    let histories = stream::iter(0..SESSIONS).map(async |session| {
        close(steady.client(), session).await;
        let path = format!("/v1/sessions/{}", name(session));
        let (one, other) = tokio::join!(steady.get(&path), dying.get(&path));
        let messages = one.json()["messages"].clone();
        assert_eq!(messages, other.json()["messages"]);
        (session, messages)
    });
    let mut histories = pin!(histories.buffer_unordered(CLOSED_AT_ONCE));
    while let Some((session, messages)) = histories.next().await {
        told.read(session, messages.as_array().unwrap());
    }
    let answered = asked.answered.lock();
    let lost: Vec<&Turn> = answered.difference(&told.whole).collect();
    assert!(lost.is_empty(), "answered and lost: {lost:?}");
    let mut done = HashSet::new();
    for call in hook.calls() {
        let effect = effect_of(call.arguments());
        assert!(done.insert(effect), "{effect:?} was done twice");
        assert!(
            told.effects.contains_key(&effect),
            "{effect:?} is not told of"
        );
    }
    // A call that was written down and then not begun is told of as broken off.
    for (effect, is_interrupted) in &told.effects {
        assert!(
            *is_interrupted || done.contains(effect),
            "{effect:?} was not done"
        );
    }
    let broken = told.effects.values().filter(|interrupted| **interrupted);
    assert!(broken.count() > 0, "no kill fell within a turn");
    assert!(answered.len() as u64 > SESSIONS, "{} turns", answered.len());
}
