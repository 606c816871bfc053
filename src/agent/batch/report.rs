//! Reports of calls to the client, the log and the metrics, and the images that the model gets.

use std::time::Duration;

use serde_json::json;

use super::super::AgentParts;
use super::super::calls::ResolvedCall;
use super::super::event::Calling;
use super::BatchContext;
use crate::metrics::ToolLabel;
use crate::openai::message::Message;

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
pub(super) fn frames_shown(frames: &[String]) -> Vec<String> {
    let (count, most) = (frames.len(), MAX_FRAMES_SHOWN);
    if count <= most {
        return frames.to_vec();
    }
    let chosen = (0..most).filter_map(|index| frames.get(index * (count - 1) / (most - 1)));
    chosen.cloned().collect()
}

/// A user message with images, each with the name of its tool. Upstreams take no images in tool messages.
pub(super) fn image_message(images: &[(String, String)]) -> Message {
    let mut parts = Vec::new();
    for (tool, image) in images {
        let url = if image.starts_with("data:") {
            image.clone()
        } else {
            format!("data:image/png;base64,{image}")
        };
        parts
            .push(json!({"type": "text", "text": format!("Image returned by the tool '{tool}':")}));
        parts.push(json!({"type": "image_url", "image_url": {"url": url}}));
    }
    Message::user_parts(&serde_json::Value::Array(parts).to_string())
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
        let frames = |count: usize| (0..count).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(frames_shown(&frames(8)), frames(8));
        assert_eq!(
            frames_shown(&frames(71)),
            ["0", "10", "20", "30", "40", "50", "60", "70"]
        );
        assert_eq!(frames_shown(&frames(9)).len(), 8);
    }
}
