//! Reports of calls to the client, the log and the metrics, and the images that the model gets.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::AgentParts;
use super::super::calls::ResolvedCall;
use super::super::event::Calling;
use super::BatchContext;
use crate::metrics::ToolLabel;
use crate::openai::message::Message;
use crate::openai::raw::quoted;
use crate::tools::ToolImage;

/// The result for the model of a call that was cancelled while it ran.
const CANCELLED: &str = "The call was cancelled while it was running. It may have taken effect or not; find out before you \
                         repeat it.";
/// The same of a call that changes nothing.
const CANCELLED_READ: &str = "The call was cancelled before it had a result.";
/// The same of a call that had not started.
const CANCELLED_BEFORE: &str = "This call was not run: the turn was cancelled before it started.";
/// Most frames of an animation that the model gets.
const MAX_FRAMES_SHOWN: usize = 8;

/// The label of a tool in logs and metrics. Names that come from a request are not used.
pub(super) fn label<'a>(parts: &AgentParts, call: &'a ResolvedCall) -> ToolLabel<'a> {
    if parts.sources.snapshot().has(&call.call.name) {
        ToolLabel::Configured(&call.call.name)
    } else if call.shown() {
        ToolLabel::Dispatch
    } else {
        ToolLabel::Unknown
    }
}

/// Identifies a call, with its arguments.
pub(super) fn calling(context: &BatchContext, call: &ResolvedCall) -> Calling {
    Calling {
        arguments: call.call.arguments.clone(),
        ..calling_without_arguments(context, call)
    }
}

/// Identifies the call that live output belongs to. The arguments are left out because they may be large.
pub(super) fn calling_without_arguments(context: &BatchContext, call: &ResolvedCall) -> Calling {
    Calling {
        round: context.call.round,
        name: call.call.name.clone(),
        tool_call_id: call.call.id.clone(),
        arguments: String::new(),
        kind: call.kind,
    }
}

/// The frames of an animation that the model gets: the first, the last, and others at even distances.
pub(super) fn frames_shown<T: Clone>(frames: &[T]) -> Vec<T> {
    let (count, most) = (frames.len(), MAX_FRAMES_SHOWN);
    if count <= most {
        return frames.to_vec();
    }
    let chosen = (0..most).filter_map(|index| frames.get(index * (count - 1) / (most - 1)));
    chosen.cloned().collect()
}

/// A user message with images, each with the name of its tool. Upstreams take no images in tool messages.
pub(super) fn image_message(images: &[(String, ToolImage)]) -> Message {
    let bytes = images.iter().map(|(_, image)| image.content.len());
    let mut parts =
        String::with_capacity(bytes.sum::<usize>().div_ceil(3) * 4 + images.len() * 256);
    for (tool, image) in images {
        let text = quoted(&format!("Image returned by the tool '{tool}':"));
        let before = if parts.is_empty() { '[' } else { ',' };
        parts.push(before);
        let url = quoted(&format!("data:{};base64,", image.mime_type));
        let url = url.trim_end_matches('"');
        parts.push_str(&format!(
            r#"{{"text":{text},"type":"text"}},{{"image_url":{{"url":{url}"#
        ));
        STANDARD.encode_string(&image.content, &mut parts);
        parts.push_str(r#""},"type":"image_url"}"#);
    }
    parts.push(']');
    Message::user_parts(&parts)
}

/// The note for a model that does not get so many images.
pub(super) fn unseen(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!("[{count} image(s) came with this result; they cannot be shown to this model.]")
    })
}

/// Adds a note to the text of a result.
pub(super) fn add_note(text: &mut String, note: Option<String>) {
    if let Some(note) = note {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&note);
    }
}

/// The result for the model of a call that was cancelled, which had started or not.
pub(super) fn cancelled_text(started: bool, read_only: bool) -> &'static str {
    match (started, read_only) {
        (false, _) => CANCELLED_BEFORE,
        (true, true) => CANCELLED_READ,
        (true, false) => CANCELLED,
    }
}

/// A duration in milliseconds.
pub(in super::super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_sees_a_few_frames_of_an_animation_from_its_beginning_to_its_end() {
        let frames = |count: usize| (0..count).collect::<Vec<_>>();
        assert_eq!(frames_shown(&frames(8)), frames(8));
        assert_eq!(frames_shown(&frames(71)), [0, 10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(frames_shown(&frames(9)).len(), 8);
    }

    #[test]
    fn the_images_of_a_result_are_data_urls_in_a_message_of_the_user() {
        let image = |mime_type: &'static str| ToolImage {
            mime_type: mime_type.into(),
            content: vec![0, 0, 0].into(),
        };
        let images = [
            ("t".to_owned(), image("image/png")),
            ("u".to_owned(), image("image/gif;a=\"b\"")),
        ];
        let message: serde_json::Value =
            serde_json::from_str(image_message(&images).json_str()).unwrap();
        let text = |tool: &str| serde_json::json!({"type": "text", "text": format!("Image returned by the tool '{tool}':")});
        let url = |url: &str| serde_json::json!({"type": "image_url", "image_url": {"url": url}});
        let parts = [
            text("t"),
            url("data:image/png;base64,AAAA"),
            text("u"),
            url("data:image/gif;a=\"b\";base64,AAAA"),
        ];
        assert_eq!(message["content"], serde_json::Value::from(parts.to_vec()));
    }
}
