//! Images of tools in the message itself.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// A picture of this many bytes that begins as a PNG does.
fn png(bytes: usize) -> String {
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.resize(bytes, 7);
    STANDARD.encode(image)
}

/// Two calls of a tool with one image each.
async fn two_calls() -> ScriptedUpstream {
    let call = || calls([("t", json!({}))]);
    ScriptedUpstream::start([call(), call(), text("Here.")]).await
}

fn go(images: Option<&str>) -> Value {
    let body = with(ask("Plot"), "tools", json!([tool("t")]));
    match images {
        Some(images) => with(body, "agent", json!({ "images": images })),
        None => body,
    }
}

/// The parts of `delta.images`, and the places of their chunks between the ends of the calls.
fn streamed(collected: &crate::support::collect::Collected) -> (Vec<Value>, Vec<usize>) {
    let (mut parts, mut places, mut ended) = (Vec::new(), Vec::new(), 0);
    for frame in &collected.frames {
        let chunk: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        ended += usize::from(chunk["phase"] == "complete");
        if let Some(images) = chunk["choices"][0]["delta"]["images"].as_array() {
            parts.extend(images.clone());
            places.push(ended);
        }
    }
    (parts, places)
}

#[tokio::test]
async fn images_come_in_the_message_where_that_is_asked_for() {
    let hook = Webhook::start().await;
    let image = json!({"content": "drawn", "images": [png(3_000)]});
    let hook = hook.on("t", webhook::json(&image));
    let part = json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{}", png(3_000))}});
    for (setting, asked, expected) in [
        ("none", None, 0),
        ("none", Some("inline"), 2),
        ("inline", None, 2),
        ("inline", Some("none"), 0),
    ] {
        let expected = vec![part.clone(); expected];
        let settings = format!("images = \"{setting}\"");
        let upstream = two_calls().await;
        let app = builder(&upstream, &hook).toml(&settings).start().await;
        let answer = app.post_chat(go(asked)).await.completion();
        let images = answer["choices"][0]["message"].get("images");
        let images = images.map_or_else(Vec::new, |list| list.as_array().unwrap().clone());
        assert_eq!(images, expected, "{setting} {asked:?}");
        let kept = &answer["agentic_tool_calls"][1]["result_images_base64"];
        assert_eq!(kept, &json!([png(3_000)]), "the field of the call stays");

        let upstream = two_calls().await;
        let app = builder(&upstream, &hook).toml(&settings).start().await;
        let collected = app.stream_chat(go(asked)).await.collect().await;
        let (images, places) = streamed(&collected);
        assert_eq!(images, expected, "{setting} {asked:?}");
        // Each follows the end of its call.
        assert_eq!(places, (1..=expected.len()).collect::<Vec<_>>());
        assert_eq!(collected.text, "Here.");
    }
}

#[tokio::test]
async fn images_beyond_the_bytes_of_a_turn_are_not_in_the_message() {
    let hook = Webhook::start().await;
    let image = json!({"content": "drawn", "images": [png(3_000)]});
    let hook = hook.on("t", webhook::json(&image));
    for stream in [false, true] {
        let upstream = two_calls().await;
        let builder = builder(&upstream, &hook).toml("max_turn_bytes = 5000");
        let app = builder.start().await;
        let images = if stream {
            let collected = app.stream_chat(go(Some("inline"))).await.collect().await;
            streamed(&collected).0
        } else {
            let answer = app.post_chat(go(Some("inline"))).await.completion();
            let images = &answer["choices"][0]["message"]["images"];
            images.as_array().unwrap().clone()
        };
        assert_eq!(images.len(), 1, "streamed: {stream}");
    }
}
