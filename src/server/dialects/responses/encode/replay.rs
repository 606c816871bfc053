//! A whole response as a stream, for a client that asks again for a response whose events were dropped.

use bytes::BytesMut;
use serde_json::value::RawValue;

use super::DONE;
use super::events::EventWriter;
use protocol::openai::raw::{RawObject, push_entry};

/// Writes a response as its beginning, its items and its end.
pub(crate) fn replay(response: &str, out: &mut BytesMut) {
    if let Ok(object) = RawObject::parse(response) {
        events(response, &object, out);
    }
    out.extend_from_slice(DONE);
}

fn events(whole: &str, response: &RawObject<'_>, out: &mut BytesMut) {
    let mut events = EventWriter::default();
    let mut begun = String::from("{");
    for (key, value) in response.iter() {
        let value = match key {
            "status" => "\"in_progress\"",
            "output" => "[]",
            "completed_at" | "incomplete_details" | "error" | "usage" => "null",
            "agent" | "files" => continue,
            _ => value.get(),
        };
        push_entry(&mut begun, key, value);
    }
    begun.push('}');
    let begun = format!("\"response\":{begun}");
    events.write("response.created", &begun, out);
    events.write("response.in_progress", &begun, out);
    let items = response.get("output");
    let items: Vec<&RawValue> = items
        .and_then(|items| serde_json::from_str(items.get()).ok())
        .unwrap_or_default();
    for (index, item) in items.iter().enumerate() {
        let members = format!("\"output_index\":{index},\"item\":{}", item.get());
        events.write("response.output_item.added", &members, out);
        events.write("response.output_item.done", &members, out);
    }
    let kind = match response.get("status").map(RawValue::get) {
        Some("\"completed\"") => "response.completed",
        Some("\"failed\"") => "response.failed",
        _ => "response.incomplete",
    };
    events.write(kind, &format!("\"response\":{whole}"), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_becomes_events() {
        let response = r#"{"id":"resp_1","status":"completed","completed_at":7,"usage":{},"output":[{"id":"msg_1"}]}"#;
        let mut out = BytesMut::new();
        replay(response, &mut out);
        let text = String::from_utf8(out.to_vec()).unwrap();
        let data: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .collect();
        let begun = r#"{"id":"resp_1","status":"in_progress","completed_at":null,"usage":null,"output":[]}"#;
        assert_eq!(
            data[0],
            format!(r#"{{"type":"response.created","sequence_number":0,"response":{begun}}}"#)
        );
        assert!(data[3].contains(r#""sequence_number":3,"output_index":0,"item":{"id":"msg_1"}"#));
        assert_eq!(
            data[4],
            format!(r#"{{"type":"response.completed","sequence_number":4,"response":{response}}}"#)
        );
        assert_eq!(data[5], "[DONE]");
    }
}
