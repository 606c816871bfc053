//! An estimate of the tokens of a model call, for limits where the upstream reports none.

use memchr::{memchr, memmem};

use upstream::Transcript;
use upstream::assemble::ModelReply;

/// Size of a token in characters, on average.
const CHARACTERS_PER_TOKEN: usize = 4;
/// What the content of a data URL begins with. Models do not read it as text.
const DATA_MARK: &[u8] = b";base64,";

/// The estimated tokens that a model call sends.
pub(super) fn estimate_input(transcript: &Transcript, tools: Option<&str>) -> u64 {
    (input_characters(transcript, tools).div_ceil(CHARACTERS_PER_TOKEN)) as u64
}

/// The estimated tokens of a model call, in and out.
pub(super) fn estimate_tokens(
    transcript: &Transcript,
    tools: Option<&str>,
    reply: &ModelReply,
) -> u64 {
    let calls = reply.calls.iter().map(|made| &made.call);
    let calls = calls.flat_map(|call| [&call.name, &call.arguments]);
    let reasoning = reply.reasoning.iter().map(|(text, _)| text);
    let received = calls.chain(reasoning).chain([&reply.text]);
    let received = received.map(String::as_bytes).map(characters);
    let all = input_characters(transcript, tools) + received.sum::<usize>();
    (all.div_ceil(CHARACTERS_PER_TOKEN)) as u64
}

fn input_characters(transcript: &Transcript, tools: Option<&str>) -> usize {
    let sent = transcript.text().texts().map(|json| &json[..]);
    let sent = sent.chain(tools.map(str::as_bytes));
    sent.map(characters).sum()
}

/// The characters of a UTF-8 text, without the contents of data URLs.
fn characters(mut text: &[u8]) -> usize {
    let mut count = 0;
    while let Some(start) = memmem::find(text, DATA_MARK) {
        let (before, data) = text.split_at(start);
        count += count_characters(before);
        let end = memchr(b'"', data).unwrap_or(data.len());
        text = data.get(end..).unwrap_or_default();
    }
    count + count_characters(text)
}

fn count_characters(text: &[u8]) -> usize {
    let is_first_byte = |byte: &&u8| **byte & 0xc0 != 0x80;
    text.iter().filter(is_first_byte).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_count_and_contents_of_images_do_not() {
        for (text, expected) in [
            ("", 0),
            ("abc", 3),
            ("äöü漢🦀", 5),
            (r#"{"url":"data:image/png;base64,AAAAAAAA"},{"a":1}"#, 32),
            ("a;base64,bcd", 1),
            (r#";base64,AA"x;base64,BB"y"#, 4),
        ] {
            assert_eq!(characters(text.as_bytes()), expected, "{text}");
        }
    }
}
