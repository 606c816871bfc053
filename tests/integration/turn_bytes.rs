//! The bytes that a turn keeps of images, files and results, and the memory that they cost.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use super::files::uploaded;
use super::support::app::TestApp;
use super::support::ask::{ask_with, with};
use super::support::recorded::Recorded;
use super::support::script::{Reply, calls, text};
use super::support::upstream::ScriptedUpstream;
use super::support::webhook::{self, ToolReply, Webhook};

/// Longest wait for the answer of the flood. Without optimisation, reading it takes most of a minute.
const LONG: Duration = Duration::from_secs(300);
/// The calls of the flood, the images of each, and the bytes of an image.
const FLOOD: (usize, usize, usize) = (20, 10, 1_500_000);

/// Most bytes that may be resident beyond those of the idle process.
const MOST_RESIDENT: usize = 100_000_000;
/// The same while a turn runs that stores nothing: it has its images in memory, and for a model that sees them as base64.
const MOST_UNSTORED: usize = 210_000_000;

/// A tool that brings this many images of this size.
fn images(count: usize, bytes: usize) -> ToolReply {
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(bytes, 7);
    let images = vec![STANDARD.encode(image); count];
    webhook::json(&json!({"content": "seen", "images": images}))
}

fn one_call() -> Reply {
    calls([("t", json!({}))])
}

fn unstored(body: Value) -> Value {
    with(body, "store", json!(false))
}

/// The notices of this kind in an answer.
fn notices(answer: &Value, kind: &str) -> usize {
    let notices = answer["agent"]["notices"].as_array();
    let kinds = notices.into_iter().flatten().map(|notice| &notice["kind"]);
    kinds.filter(|known| *known == kind).count()
}

fn length(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn images_beyond_the_bytes_of_a_turn_are_named_by_their_files_only() {
    let upstream = ScriptedUpstream::start([one_call(), one_call(), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", images(2, 3_000));
    // Room for three images of 4,000 bytes in base64.
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml("max_turn_bytes = 12000").start().await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await.completion();
    let made = &answer["agentic_tool_calls"];
    let kept = |call: &Value| length(&call["result_images_base64"]);
    assert_eq!((kept(&made[0]), kept(&made[1])), (2, 1));
    for call in [&made[0], &made[1]] {
        assert_eq!(length(&call["file_ids"]), 2);
        for id in call["file_ids"].as_array().unwrap() {
            let path = format!("/v1/files/{}/content", id.as_str().unwrap());
            let content = app.get(&path).await.body;
            assert!(content.starts_with(b"\x89PNG") && content.len() == 3_000);
        }
    }
    assert_eq!(notices(&answer, "turn_bytes"), 1);
    assert_eq!(length(&answer["files"]), 0, "an image is not sent twice");
    upstream.assert_same_results(made);
}

#[tokio::test]
async fn what_an_unstored_turn_cannot_keep_is_dropped_and_its_result_says_so() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done.")]).await;
    let file = |name: &str| json!({"name": name, "data": STANDARD.encode([7; 3_000])});
    let image = STANDARD.encode([7; 3_000]);
    let reply = json!({"content": "made", "files": [file("a"), file("b")], "images": [image]});
    let hook = Webhook::start().await.on("t", webhook::json(&reply));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.toml("max_turn_bytes = 4000").start().await;
    let body = unstored(ask_with("Go", ["t"]));
    let answer = app.post_chat(body).await.completion();
    let call = &answer["agentic_tool_calls"][0];
    assert_eq!(length(&call["result_images_base64"]), 0);
    assert_eq!(answer["files"][0]["data"], STANDARD.encode([7; 3_000]));
    assert_eq!(answer["files"][1].get("data"), None);
    let told = call["result_content"].as_str().unwrap();
    assert!(told.contains("the file 'b' is dropped"), "{told}");
    assert!(
        told.contains("1 image(s) of this result were dropped"),
        "{told}"
    );
    assert_eq!(notices(&answer, "turn_bytes"), 1);
    assert_eq!(length(&app.get("/v1/files").await.json()["data"]), 0);
    upstream.assert_same_results(&answer["agentic_tool_calls"]);
}

#[tokio::test]
async fn a_model_that_takes_images_gets_those_that_the_turn_keeps() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", images(3, 3_000));
    let builder = TestApp::builder().dispatch(&hook);
    let toml = upstream.with_quirks("images = true");
    let app = builder
        .toml("max_turn_bytes = 8000")
        .toml(&toml)
        .start()
        .await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await.completion();
    let told = upstream.last();
    assert_eq!(told.body.to_string().matches("data:image/png").count(), 2);
    let result = &told.tool_results()[0].1;
    assert!(
        result.contains("1 image(s) of this result were kept as files"),
        "{result}"
    );
    assert_eq!(length(&answer["agentic_tool_calls"][0]["file_ids"]), 3);
}

/// The images that a request to the model holds, by the text before each of them.
fn images_sent(upstream: &ScriptedUpstream) -> usize {
    let body = upstream.last().body.to_string();
    body.matches("data:image/png;base64").count()
}

#[tokio::test]
async fn the_history_names_images_by_their_files_and_later_turns_show_the_last_of_them() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", images(2, 3_000));
    // Room for three images of 4,000 bytes in base64.
    let builder = TestApp::builder()
        .dispatch(&hook)
        .toml("max_turn_bytes = 12000");
    let toml = upstream.with_quirks("images = true");
    let app = builder.toml(&toml).start().await;
    let ask = |text: &str| with(ask_with(text, ["t"]), "session_id", json!("s"));
    let answer = app.post_chat(ask("One")).await.completion();
    let ids = answer["agentic_tool_calls"][0]["file_ids"].clone();
    assert_eq!(images_sent(&upstream), 2);

    let stored = app.get("/v1/sessions/s").await.json();
    assert!(!stored.to_string().contains("base64"), "{stored}");
    let messages = stored["messages"].as_array().unwrap();
    let parts = messages
        .iter()
        .filter_map(|message| message["content"].as_array());
    let named: Vec<&Value> = parts
        .flatten()
        .filter(|part| part["type"] == "image_file")
        .map(|part| &part["image_file"]["file_id"])
        .collect();
    assert_eq!(named, ids.as_array().unwrap().iter().collect::<Vec<_>>());

    // The second round brings two more; of the four, the next turn shows the last three.
    [one_call(), text("Again.")]
        .into_iter()
        .for_each(|reply| upstream.push(reply));
    app.post_chat(ask("Two")).await.completion();
    assert_eq!(images_sent(&upstream), 4);
    upstream.push(text("Third."));
    app.post_chat(ask("Three")).await.completion();
    assert_eq!(images_sent(&upstream), 3);
    let body = upstream.last().body.to_string();
    assert_eq!(body.matches("[an earlier image").count(), 1, "{body}");

    // A copy of the session shows the same images; without their files there is a text.
    let copied = app
        .client()
        .send(Method::PUT, "/v1/sessions/copy", &stored)
        .await;
    assert_eq!(copied.status, 201, "{}", copied.text());
    app.client().delete("/v1/sessions/s").await;
    upstream.push(text("Copy."));
    let of_copy = |text| with(ask(text), "session_id", json!("copy"));
    app.post_chat(of_copy("Copy")).await.completion();
    assert_eq!(images_sent(&upstream), 2);
    let path = format!("/v1/files/{}", ids[0].as_str().unwrap());
    app.client().delete(&path).await;
    upstream.push(text("Gone."));
    app.post_chat(of_copy("Gone")).await.completion();
    assert_eq!(images_sent(&upstream), 1);
    let body = upstream.last().body.to_string();
    assert_eq!(body.matches("[an image that is not available").count(), 1);
}

#[tokio::test]
async fn an_answer_is_whole_when_the_files_of_its_images_are_deleted_meanwhile() {
    let upstream = ScriptedUpstream::start([one_call(), one_call(), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", images(1, 3_000));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    // Room for the file of one image.
    let toml = "max_file_bytes = 4000\nmax_total_file_bytes = 4000";
    let app = builder.toml(toml).start().await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await.completion();
    let calls = answer["agentic_tool_calls"].as_array().unwrap();
    let texts: Vec<usize> = calls
        .iter()
        .map(|call| call["result_images_base64"][0].as_str().unwrap().len())
        .collect();
    assert_eq!(texts, [0, 4_000]);
}

#[tokio::test]
async fn a_whole_text_beyond_the_bytes_of_a_turn_is_a_file() {
    let upstream = ScriptedUpstream::start([one_call(), text("Done.")]).await;
    let whole = "word ".repeat(1_000);
    let hook = Webhook::start().await.on("t", webhook::text(&whole));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let toml = "max_result_chars = 500\nmax_turn_bytes = 1000";
    let app = builder.toml(toml).start().await;
    let answer = app.post_chat(ask_with("Go", ["t"])).await.completion();
    let call = &answer["agentic_tool_calls"][0];
    let path = format!(
        "/v1/files/{}/content",
        call["file_ids"][0].as_str().unwrap()
    );
    assert_eq!(app.get(&path).await.text(), whole);
    assert_eq!(notices(&answer, "turn_bytes"), 1);
}

/// The largest memory that the process has had resident, in bytes.
#[cfg(target_os = "linux")]
fn peak(app: &TestApp) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", app.pid())).unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with("VmHWM:")).unwrap();
    let number: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    number * 1024
}

/// A turn with far more images than it may keep, of a request with these fields besides.
#[cfg(target_os = "linux")]
async fn flood(model_sees_images: bool, fields: Value) {
    let (count, each, bytes) = FLOOD;
    let round = || calls::<20>(std::array::from_fn(|n| ("t", json!({ "n": n }))));
    assert_eq!(count, 20);
    let upstream = ScriptedUpstream::start([round(), text("Done.")]).await;
    let hook = Webhook::start().await.on("t", images(each, bytes));
    let builder = TestApp::builder().dispatch(&hook);
    let toml = "dispatch_max_answer_bytes = \"64MiB\"\ndispatch_timeout = 300";
    let quirks = upstream.with_quirks(&format!("images = {model_sees_images}"));
    let app = builder.toml(toml).toml(&quirks).start().await;
    let idle = peak(&app);
    let mut body = ask_with("Go", ["t"]);
    for (field, value) in fields.as_object().unwrap() {
        body[field] = value.clone();
    }
    let request = app
        .client()
        .request(Method::POST, "/v1/chat/completions")
        .header("content-type", "application/json")
        .body(body.to_string());
    let answered = async { request.send().await.unwrap().bytes().await.unwrap() };
    let answer = tokio::time::timeout(LONG, answered).await.unwrap();
    let more = peak(&app).saturating_sub(idle);
    let is_stored = fields["store"] != false;
    let most = if is_stored {
        MOST_RESIDENT
    } else {
        MOST_UNSTORED
    };
    assert!(more < most, "{more} bytes: {fields}");
    if fields["stream"] == true {
        assert!(answer.ends_with(b"data: [DONE]\n\n"));
        return;
    }
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let calls = answer["agentic_tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), count);
    let files = if is_stored { each } else { 0 };
    assert!(calls.iter().all(|call| length(&call["file_ids"]) == files));
    let kept = calls
        .iter()
        .map(|call| length(&call["result_images_base64"]));
    // 64 MiB hold 33 images of 2,000,000 bytes in base64.
    assert_eq!(kept.sum::<usize>(), 33);
    let in_message = length(&answer["choices"][0]["message"]["images"]);
    let inline = fields["agent"]["images"] == "inline";
    assert_eq!(in_message, if inline { 33 } else { 0 });
    assert_eq!(notices(&answer, "turn_bytes"), 1);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_of_images_stays_within_the_memory_of_a_turn() {
    flood(false, json!({})).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_of_images_in_a_streamed_turn_stays_within_its_memory() {
    flood(false, json!({"stream": true})).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_of_images_for_a_model_that_sees_them_stays_within_the_memory_of_a_turn() {
    flood(true, json!({})).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_of_images_in_the_message_stays_within_the_memory_of_a_turn() {
    let agent = json!({"images": "inline"});
    flood(false, json!({ "agent": agent })).await;
    flood(false, json!({"agent": agent, "stream": true})).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_of_images_in_an_unstored_turn_stays_within_its_memory() {
    flood(false, json!({"store": false})).await;
    flood(true, json!({"store": false})).await;
}

/// The parts of a message that files may be in, as the model gets them: the name of a file that it is shown, or a text.
fn parts(message: &Value) -> Vec<String> {
    let parts = message["content"].as_array().unwrap();
    let read = |part: &Value| match part["file"]["filename"].as_str() {
        Some(name) => {
            let data = part["file"]["file_data"].as_str().unwrap();
            assert!(data.starts_with("data:") && data.len() > 4_000, "{data}");
            name.to_owned()
        }
        None => part["text"].as_str().unwrap().to_owned(),
    };
    parts.iter().map(read).collect()
}

fn hidden(name: &str) -> String {
    format!("[the file '{name}' (text/plain, 3,000 bytes) cannot be shown]")
}

fn below(name: &str) -> String {
    format!("[the file '{name}' (text/plain, 3,000 bytes) is shown further below]")
}

#[tokio::test]
async fn of_named_files_those_that_are_named_last_are_shown_once() {
    let upstream = ScriptedUpstream::answering(|_| text("Read."))
        .await
        .lenient();
    let hook = Webhook::start().await.on("t", webhook::text("unused"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    // Room for two files of 4,000 bytes in base64.
    let app = builder.toml("max_turn_bytes = 8000").start().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        let file = uploaded(app.client(), name, &[7; 3_000]).await;
        ids.push(file["id"].clone());
    }
    let in_chat = |file: &usize| json!({"type": "file", "file": {"file_id": ids[*file]}});
    let named = [0, 1, 2, 2];
    let expected = [hidden("a"), "b".to_owned(), below("c"), "c".to_owned()];
    // Of two messages, and of one.
    let mut body = ask_with("Go", ["t"]);
    let content = |files: &[usize]| files.iter().map(in_chat).collect::<Vec<_>>();
    body["messages"] = json!([
        {"role": "user", "content": content(&named[..3])},
        {"role": "user", "content": content(&named[3..])},
    ]);
    app.post_chat(body).await.completion();
    let told = upstream.last();
    let told = [parts(&told.messages()[0]), parts(&told.messages()[1])];
    assert_eq!(told.concat(), expected);
    let in_input = |file: &usize| json!({"type": "input_file", "file_id": ids[*file]});
    let input = |files: &[usize]| {
        let parts: Vec<_> = files.iter().map(in_input).collect();
        json!([{"role": "user", "content": parts}])
    };
    let body = json!({"model": "test-model", "input": input(&named)});
    let first = app.post("/v1/responses", &body).await.json();
    assert_eq!(parts(&upstream.last().messages()[0]), expected);
    // The history is shown in the same way, and leaves out what later turns name.
    let after = |input: Value| json!({"model": "test-model", "input": input, "previous_response_id": first["id"]});
    app.post("/v1/responses", &after(json!("More")))
        .await
        .json();
    assert_eq!(parts(&upstream.last().messages()[0]), expected);
    app.post("/v1/responses", &after(input(&[0]))).await.json();
    let told = upstream.last();
    assert_eq!(parts(told.messages().last().unwrap()), ["a"]);
    let before = [below("a"), hidden("b"), below("c"), "c".to_owned()];
    assert_eq!(parts(&told.messages()[0]), before);
    // A file that is too large for the turn makes room for one that is not.
    let large = uploaded(app.client(), "large", &[7; 8_000]).await;
    let large = json!({"type": "input_file", "file_id": large["id"]});
    let mut asked = input(&[0]);
    asked[0]["content"].as_array_mut().unwrap().push(large);
    let body = json!({"model": "test-model", "input": asked});
    app.post("/v1/responses", &body).await.json();
    let told = parts(&upstream.last().messages()[0]);
    assert!(
        told[0] == "a" && told[1].contains("cannot be shown"),
        "{told:?}"
    );
}

/// Asks about one file a thousand times, and asks about it again. Other memory than that of a turn is refused by the kernel.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_flood_of_named_files_stays_within_the_memory_of_a_turn() {
    const MOST_DATA: u64 = 1_500_000_000;
    const MOST: usize = 150_000_000;
    let upstream = ScriptedUpstream::answering(|_| text("Read."))
        .await
        .lenient();
    let hook = Webhook::start().await.on("t", webhook::text("unused"));
    let builder = TestApp::builder().upstream(&upstream).dispatch(&hook);
    let app = builder.start().await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(app.pid()).unwrap());
    let limit = rustix::process::Rlimit {
        current: Some(MOST_DATA),
        maximum: Some(MOST_DATA),
    };
    rustix::process::prlimit(pid, rustix::process::Resource::Data, limit).unwrap();
    for (bytes, mentions) in [(16 * 1024 * 1024, 60), (31 * 1024 * 1024, 1_000)] {
        let id = uploaded(app.client(), "a", &vec![7; bytes]).await["id"].clone();
        let many = |part: Value| json!([{"role": "user", "content": vec![part; mentions]}]);
        let shown = |request: &Recorded| {
            let sent = parts(&request.messages()[0]);
            assert_eq!(sent.len(), mentions);
            assert_eq!(sent.last().unwrap(), "a");
        };
        let input = many(json!({"type": "input_file", "file_id": id}));
        let body = json!({"model": "test-model", "input": input});
        let counted = app.post("/v1/responses/input_tokens", &body).await;
        assert_eq!(counted.status, 200, "{}", counted.text());
        let of_count = peak(&app);
        assert!(of_count < 100_000_000, "{of_count} bytes to count");
        let first = app.post("/v1/responses", &body).await.json();
        assert_eq!(first["status"], "completed", "{first}");
        shown(&upstream.last());
        let body =
            json!({"model": "test-model", "input": "More", "previous_response_id": first["id"]});
        let next = app.post("/v1/responses", &body).await;
        assert_eq!(next.status, 200, "{}", next.text());
        shown(&upstream.last());
        let mut body = ask_with("Go", ["t"]);
        body["messages"] = many(json!({"type": "file", "file": {"file_id": id}}));
        app.post_chat(body).await.completion();
        shown(&upstream.last());
    }
    let peak = peak(&app);
    assert!(peak < MOST, "{peak} bytes");
}
