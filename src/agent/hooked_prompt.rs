//! The messages of a model call as hooks see them, and the way back. A mark replaces each content of a file for the
//! hook, and is replaced by the content afterwards.

use rand::RngExt;
use serde_json::value::RawValue;

use crate::session::repair::repair;
use blobs::segments::{BinaryContent, SegmentedText, TextPart};
use protocol::openai::message::Message;
use upstream::settings::Quirks;
use upstream::{Transcript, messages};

/// The messages of a model call as hooks see them.
#[derive(Debug)]
pub(super) struct HookedPrompt {
    /// The messages, each as its JSON text.
    pub(super) messages: Vec<Box<RawValue>>,
    /// The contents. In the text for hooks, the mark and an index replace each of them.
    contents: Vec<BinaryContent>,
    /// A random text. A hook or model cannot guess it, so that it cannot request a content by writing the mark.
    mark: String,
}

impl HookedPrompt {
    /// The messages of a transcript; `None` if they are not JSON.
    pub(super) fn of(transcript: &Transcript) -> Option<Self> {
        let mark = format!("loopwright-content-{:032x}-", rand::rng().random::<u128>());
        let (mut bytes, mut contents) = (b"[".to_vec(), Vec::new());
        for part in transcript.text().parts() {
            match part {
                TextPart::Text(text) => bytes.extend_from_slice(text),
                TextPart::Content(embedded) => {
                    bytes.extend_from_slice(&embedded.before);
                    bytes.extend_from_slice(format!("{mark}{}.", contents.len()).as_bytes());
                    bytes.extend_from_slice(&embedded.after);
                    contents.push(embedded.content.clone());
                }
            }
        }
        bytes.push(b']');
        Some(Self {
            messages: serde_json::from_slice(&bytes).ok()?,
            contents,
            mark,
        })
    }

    /// The transcript of messages that a hook has changed, in the form that the upstream takes.
    pub(super) fn transcript(&self, changed: &[Box<RawValue>], quirks: &Quirks) -> Transcript {
        let read = changed.iter();
        // They were checked when they came.
        let read = read.filter_map(|message| Message::parse(message.get()).ok());
        // A hook can remove a call and leave its result, or the other way round.
        let written = messages::of_history(repair(read.collect()), quirks);
        let mut transcript = Transcript::default();
        transcript.push(written.iter().map(|message| self.rendered(message)));
        transcript
    }

    fn rendered(&self, message: &Message) -> SegmentedText {
        let mut text = SegmentedText::default();
        let mut rest = message.json_str();
        while let Some((before, after)) = rest.split_once(&self.mark) {
            let (index, after) = after.split_once('.').unwrap_or((after, ""));
            text.push_text(before.to_owned());
            let content = index
                .parse()
                .ok()
                .and_then(|index: usize| self.contents.get(index));
            if let Some(content) = content {
                text.push_base64(content.clone());
            }
            rest = after;
        }
        text.push_text(rest.to_owned());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blobs::segments::EmbeddedContent;

    fn transcript() -> Transcript {
        let mut with_image = SegmentedText::default();
        with_image.push_text(r#"{"role":"user","content":["#);
        with_image.push_embedded(EmbeddedContent {
            before: r#"{"image_url":{"url":"data:image/png;base64,"#.into(),
            content: BinaryContent::Memory("png".into()),
            after: r#""},"type":"image_url"}"#.into(),
            lost: "{}".into(),
        });
        with_image.push_text("]}");
        let mut transcript = Transcript::default();
        let first = r#"{"role":"system","content":"Be brief."}"#;
        transcript.push([SegmentedText::from(first), with_image]);
        transcript
    }

    fn texts(transcript: &Transcript) -> String {
        let texts = transcript.text().texts();
        let texts = texts.map(|text| std::str::from_utf8(text).unwrap());
        texts.collect()
    }

    #[test]
    fn a_content_is_in_its_place_again_after_a_hook() {
        let transcript = transcript();
        let hooked = HookedPrompt::of(&transcript).unwrap();
        assert_eq!(hooked.messages.len(), 2);
        assert!(hooked.messages[1].get().contains(&hooked.mark));
        let mut changed = hooked.messages;
        let hooked = HookedPrompt {
            messages: Vec::new(),
            ..hooked
        };
        let first = r#"{"role":"system","content":"Be polite."}"#;
        changed[0] = RawValue::from_string(first.to_owned()).unwrap();
        let back = hooked.transcript(&changed, &Quirks::default());
        let expected = texts(&transcript).replace("brief", "polite");
        assert_eq!(texts(&back), expected);
        assert_eq!(back.text().length(), transcript.text().length() + 1);
    }
}
