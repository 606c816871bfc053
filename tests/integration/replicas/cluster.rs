//! Runs of one replica that another one is asked about.

mod key;

use http::Method;

use super::super::support::client::Answer;
use super::super::support::events::EventReader;
use super::super::support::script::text_and_calls;
use super::super::support::unreachable_url;
use super::*;

const CLUSTER: &str = "cluster_listen = \"127.0.0.1:0\"\ncluster_key_env = \"CLUSTER_KEY\"\n";
const CLUSTER_KEY: &str = "cluster-key-0123456789";
/// Two API keys.
const KEYS: &str =
    "[[api_keys]]\nname = \"alice\"\nenv = \"ALICE\"\n[[api_keys]]\nname = \"bob\"\nenv = \"BOB\"";
const ALICE: &str = "alice-key-0123456789";
const BOB: &str = "bob-key-0123456789-bob";
const REPLICA: &str = "x-loopwright-replica";

/// What two replicas have in common.
struct Fleet {
    database: String,
    upstream: ScriptedUpstream,
    hook: Webhook,
}

impl Fleet {
    async fn new(upstream: ScriptedUpstream, hook: Webhook) -> Self {
        Self {
            database: PostgresServer::shared().create_database().await,
            upstream,
            hook,
        }
    }

    /// How a replica with these settings is started.
    fn member(&self, name: &str, settings: &str) -> Builder {
        let builder = TestApp::builder().upstream(&self.upstream);
        let builder = builder.dispatch(&self.hook).toml(settings);
        let builder = builder.args(["--replica-name", name]);
        let secrets = [("CLUSTER_KEY", CLUSTER_KEY), ("ALICE", ALICE), ("BOB", BOB)];
        let builder = secrets
            .into_iter()
            .fold(builder, |builder, (name, value)| builder.env(name, value));
        builder.env("LOOPWRIGHT_SESSION_STORE", &self.database)
    }

    /// Two replicas with the same settings.
    async fn two(&self, settings: &str) -> [TestApp; 2] {
        let first = self.member("first", settings).start();
        let second = self.member("second", settings).start();
        let (first, second) = tokio::join!(first, second);
        [first, second]
    }
}

/// The same request for a run that goes on without a client.
fn finishing(body: Value) -> Value {
    with(body, "agent", json!({"on_disconnect": "finish"}))
}

fn path(run: &str) -> String {
    format!("/v1/chat/completions/{run}")
}

/// The same run among responses.
fn response_path(run: &str) -> String {
    format!("/v1/responses/{}", run.replace("chatcmpl-", "resp_"))
}

/// The answer where events were asked for.
async fn no_events(client: &Client, run: &str) -> Answer {
    match client.events(run, 0).await {
        Ok(_) => panic!("a stream"),
        Err(answer) => answer,
    }
}

/// Fails unless the answer says that another replica cannot be reached.
fn assert_unreachable(answer: &Answer) {
    answer.assert_error(503, Some("replica_unreachable"));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

/// The internal address of a replica.
async fn internal(app: &TestApp) -> Client {
    let origin = eventually("the internal address in the log", || async {
        let logs = app.logs();
        let line = logs
            .lines()
            .find(|line| line.contains("serving other replicas"))?;
        let (_, rest) = line.split_once("http://127.0.0.1:")?;
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(format!("http://127.0.0.1:{port}"))
    })
    .await;
    Client::new(&origin)
}

/// A tool that never answers, and a model that calls it.
async fn hanging() -> (ScriptedUpstream, Webhook) {
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await.on("t", webhook::hang());
    (upstream, hook)
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_stream_that_is_cut_at_one_replica_goes_on_at_the_other() {
    let gate = Gate::new();
    let upstream = ScriptedUpstream::start([
        text_and_calls("Let me see.", [("t", json!({}))]),
        text("one two three").gate_before(2, &gate),
    ])
    .await;
    let hook = Webhook::start().await.on("t", webhook::text("r"));
    let fleet = Fleet::new(upstream, hook).await;
    let [first, second] = fleet.two(CLUSTER).await;
    let mut stream = first.stream_chat(finishing(in_session("Go"))).await;
    let run = stream.run_id();
    let mut seen = Vec::new();
    while !seen
        .last()
        .is_some_and(|line: &String| line.contains("one"))
    {
        seen.push(stream.next_frame().await.unwrap().data);
    }
    drop(stream);
    let shown = second.get(&path(&run)).await;
    assert_eq!(shown.status, 202);
    assert_eq!(shown.json()["round"], 1, "{}", shown.text());
    let rest = second.client().events(&run, seen.len()).await.unwrap();
    assert_eq!(rest.headers()[REPLICA], "first");
    let past = format!("{}/events?after=1000", path(&run));
    second.get(&past).await.assert_error(400, None);
    gate.open();
    let (rest, _) = rest.collect_with_problems().await;
    assert_eq!(rest.numbers()[0], seen.len() + 1);
    seen.extend(rest.data());
    assert_eq!(seen.last().unwrap(), "[DONE]");
    let log = async |app: &TestApp| {
        let log = app.client().events(&run, 0).await.unwrap();
        log.collect().await.data()
    };
    assert_eq!(log(&first).await, seen);
    // The run is over, and its lines are still where it ran.
    assert_eq!(log(&second).await, seen);
    let answer = eventually("the stored answer", || async {
        let answer = second.get(&path(&run)).await;
        (answer.status != 202).then_some(answer)
    })
    .await;
    assert_eq!(
        answer.completion(),
        first.get(&path(&run)).await.completion()
    );
    assert_eq!(fleet.hook.calls().len(), 1);
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_run_that_was_accepted_is_known_to_the_other_replica() {
    let (upstream, hook) = hanging().await;
    let fleet = Fleet::new(upstream, hook).await;
    let [first, second] = fleet.two(CLUSTER).await;
    for number in 0..10 {
        let body = with(in_session("Go"), "session_id", json!(format!("s{number}")));
        let body = with(body, "agent", json!({"background": true}));
        let accepted = first.post_chat(body).await;
        assert_eq!(accepted.status, 202);
        let id = accepted.json()["id"].as_str().unwrap().to_owned();
        let shown = second.get(&path(&id)).await;
        assert_eq!(shown.status, 202, "{}", shown.text());
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_run_is_cancelled_through_the_other_replica() {
    let (upstream, hook) = hanging().await;
    let fleet = Fleet::new(upstream, hook).await;
    let [first, second] = fleet.two(&format!("{CLUSTER}{KEYS}")).await;
    let [owner, other] = [&first, &second].map(|app| app.client().key(ALICE));
    for (number, form) in ["run", "session", "response", "delete"].iter().enumerate() {
        let stream = owner.stream_chat(finishing(in_session("Go"))).await;
        let run = stream.run_id();
        fleet.hook.called(number + 1).await;
        let wrong = format!("{}/cancel", path(&run));
        let refused = other.post(&wrong, &json!({"mode": "never"})).await;
        refused.assert_error(400, None);
        let answer = match *form {
            "run" => other.post(&wrong, &json!({"mode": "abort"})).await,
            "session" => other.post("/v1/sessions/s/cancel", &json!({})).await,
            "response" => {
                let path = format!("{}/cancel", response_path(&run));
                other.post(&path, &json!({})).await
            }
            _ => other.delete(&path(&run)).await,
        };
        let accepted = matches!(*form, "run" | "session");
        let expected = if accepted { 202 } else { 200 };
        assert_eq!(answer.status, expected, "{form}: {}", answer.text());
        assert_eq!(answer.header(REPLICA), Some("first"), "{form}");
        fleet.hook.dropped(number).await;
        let stream = stream.collect().await;
        assert_eq!(stream.agent()["stop_reason"], "cancelled", "{form}");
        let again = eventually("the end of the run", || async {
            let answer = other.post(&wrong, &json!({})).await;
            (answer.status != 202 && answer.status != 503).then_some(answer)
        })
        .await;
        match *form {
            "delete" => again.assert_error(404, Some("not_found")),
            _ => again.assert_error(409, Some("not_running")),
        };
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL, Python and a host that can isolate it"]
async fn code_is_ended_through_the_other_replica() {
    let code = "import time\nprint('on', flush=True)\ntime.sleep(1000)";
    let upstream =
        ScriptedUpstream::start([calls([("execute_python", json!({ "code": code }))])]).await;
    let fleet = Fleet::new(upstream, Webhook::start().await).await;
    let with_code = ["--enable-code-execution", "--code-exec-timeout=300"];
    let first = fleet.member("first", CLUSTER).args(with_code).start().await;
    let second = fleet.member("second", CLUSTER).start().await;
    let body = with(in_session("Go"), "enable_code_execution", json!(true));
    let body = with(body, "agent", json!({"progress": "named"}));
    let mut stream = first.stream_chat(body).await;
    while stream.next_chunk().await["type"] != "agentic_tool_output" {}
    let cancelled = second.post("/v1/sessions/s/cancel", &json!({})).await;
    assert_eq!(cancelled.status, 202, "{}", cancelled.text());
    let stream = stream.collect().await;
    assert_eq!(stream.agent()["stop_reason"], "cancelled");
    assert_eq!(stream.phase("complete")[0]["status"], "cancelled");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn another_owner_finds_no_run_through_the_other_replica_either() {
    let (upstream, hook) = hanging().await;
    let fleet = Fleet::new(upstream, hook).await;
    let [first, second] = fleet.two(&format!("{CLUSTER}{KEYS}")).await;
    let [alice, bob] = [ALICE, BOB].map(|key| second.client().key(key));
    let stream = first.client().key(ALICE);
    let stream = stream.stream_chat(finishing(in_session("Go"))).await;
    let run = stream.run_id();
    fleet.hook.called(1).await;
    let not_found = |answer: Answer| answer.assert_error(404, Some("not_found"));
    not_found(bob.get(&path(&run)).await);
    not_found(bob.get(&response_path(&run)).await);
    not_found(no_events(&bob, &run).await);
    not_found(bob.delete(&path(&run)).await);
    let none = json!({});
    not_found(bob.post(&format!("{}/cancel", path(&run)), &none).await);
    let cancel = format!("{}/cancel", response_path(&run));
    not_found(bob.post(&cancel, &none).await);
    not_found(bob.post("/v1/sessions/s/cancel", &none).await);
    // Nor with a name that only replicas may give.
    let liar = bob.header("x-loopwright-owner", "alice");
    not_found(liar.get(&path(&run)).await);
    assert_eq!(alice.get(&path(&run)).await.status, 202);
    let events: EventReader = alice.events(&run, 0).await.unwrap();
    assert_eq!(events.headers()[REPLICA], "first");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_replica_that_cannot_be_reached_is_a_temporary_failure_until_it_is_gone() {
    // Nothing is passed on, or nobody listens where it is passed on to.
    let nobody = unreachable_url().await;
    for settings in [
        String::new(),
        format!("cluster_url = \"{nobody}\"\n{CLUSTER}"),
    ] {
        let (upstream, hook) = hanging().await;
        let mut fleet = Fleet::new(upstream, hook).await;
        fleet.database.push_str("&lease_seconds=10");
        let [mut first, second] = fleet.two(&settings).await;
        let stream = first.stream_chat(finishing(in_session("Go"))).await;
        let run = stream.run_id();
        fleet.hook.called(1).await;
        assert_eq!(second.get(&path(&run)).await.status, 202);
        let shown = second.get(&response_path(&run)).await;
        assert_eq!(shown.json()["status"], "in_progress", "{}", shown.text());
        assert_unreachable(&no_events(second.client(), &run).await);
        let events = format!("{}?stream=true", response_path(&run));
        assert_unreachable(&second.get(&events).await);
        for path in [path(&run), response_path(&run), "/v1/sessions/s".to_owned()] {
            let answer = second.post(&format!("{path}/cancel"), &json!({})).await;
            assert_unreachable(&answer);
        }
        for path in [path(&run), response_path(&run)] {
            assert_unreachable(&second.client().delete(&path).await);
        }
        first.kill9().await;
        drop(stream);
        eventually("the interrupted run", || async {
            let answer = no_events(second.client(), &run).await;
            (answer.status != 503).then(|| answer.assert_error(410, Some("run_interrupted")))
        })
        .await;
        let answer = second.post("/v1/sessions/s/cancel", &json!({})).await;
        answer.assert_error(409, Some("not_running"));
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_request_under_the_key_of_a_run_of_another_replica_follows_that_run() {
    let gate = Gate::new();
    let held = gate.clone();
    let upstream = ScriptedUpstream::answering(one_round).await;
    let hook = Webhook::start().await;
    let hook = hook.on_call("t", move |_| webhook::text("r").gated(&held));
    let fleet = Fleet::new(upstream, hook).await;
    let [first, second] = fleet.two(CLUSTER).await;
    let under = |app: &TestApp, key: &str| app.client().header("idempotency-key", key);
    // Its last reader is at the other replica.
    let body = with(
        in_session("Go"),
        "agent",
        json!({"on_disconnect": "cancel"}),
    );
    let one = under(&first, "streamed").stream_chat(body.clone()).await;
    fleet.hook.called(1).await;
    let other = under(&second, "streamed").stream_chat(body).await;
    assert_eq!(other.run_id(), one.run_id());
    assert_eq!(other.headers()[REPLICA], "first");
    let run = one.run_id();
    drop(one);
    gate.release(1);
    let other = other.collect().await;
    assert_eq!(other.text, "re Go");
    let log = first.client().events(&run, 0).await.unwrap();
    assert_eq!(other.data(), log.collect().await.data());
    let post = |client: Client| {
        tokio::spawn(async move { client.post_chat(in_session("More")).await.completion() })
    };
    let one = post(under(&first, "plain"));
    fleet.hook.called(2).await;
    let other = post(under(&second, "plain"));
    gate.release(1);
    assert_eq!(one.await.unwrap(), other.await.unwrap());
    assert_eq!(fleet.hook.calls().len(), 2, "one effect each");
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn a_response_is_read_and_cancelled_through_the_other_replica() {
    let upstream = ScriptedUpstream::start([text("one two").hang_after(2)]).await;
    let fleet = Fleet::new(upstream, Webhook::start().await).await;
    let [first, second] = fleet.two(CLUSTER).await;
    let conversation = first.post("/v1/conversations", &json!({})).await.json();
    let conversation = conversation["id"].as_str().unwrap();
    let body = json!({
        "model": "test-model", "input": "Go", "background": true, "conversation": conversation, "metadata": {"a": "b"},
    });
    let made = first.post("/v1/responses", &body).await.json();
    let path = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    fleet.upstream.called(1).await;
    let shown = second.get(&path).await;
    assert_eq!(shown.header(REPLICA), Some("first"));
    assert_eq!(shown.json(), first.get(&path).await.json());
    assert_eq!(shown.json()["metadata"]["a"], "b");
    let found = format!("/v1/conversations/{conversation}");
    let found = second.get(&found).await.json();
    assert_eq!(found["id"], conversation);
    let mut events = second
        .client()
        .request(Method::GET, &format!("{path}?stream=true&starting_after=0"))
        .send()
        .await
        .unwrap();
    let mut read = String::new();
    while !read.contains("event: response.in_progress") {
        let more = within("events of a response", events.chunk()).await;
        read.push_str(&String::from_utf8_lossy(&more.unwrap().unwrap()));
    }
    assert!(!read.contains("\"sequence_number\":0"), "{read}");
    let ended = second.post(&format!("{path}/cancel"), &json!({})).await;
    assert_eq!(ended.json()["status"], "cancelled", "{}", ended.text());
    while let Some(more) = within("events of a response", events.chunk())
        .await
        .unwrap()
    {
        read.push_str(&String::from_utf8_lossy(&more));
    }
    assert!(read.contains("\"status\":\"cancelled\""), "{read}");
    assert_eq!(first.get(&path).await.json(), ended.json());
}
