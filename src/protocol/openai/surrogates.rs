//! Escapes in JSON texts that encode half a character.

/// The JSON text with every lone surrogate escape replaced by `\\ufffd`.
pub fn replace_lone_surrogates(json: &str) -> String {
    let mut replaced = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((before, escape)) =
        memchr::memchr(b'\\', rest.as_bytes()).and_then(|place| rest.split_at_checked(place))
    {
        replaced.push_str(before);
        let (taken, replacement) = match unit(escape) {
            Some(0xd800..=0xdbff) => match escape.get(6..).and_then(unit) {
                Some(0xdc00..=0xdfff) => (12, None),
                _ => (6, Some("\\ufffd")),
            },
            Some(0xdc00..=0xdfff) => (6, Some("\\ufffd")),
            Some(_) => (6, None),
            None => (second_char_end(escape), None),
        };
        let (escape, after) = escape.split_at_checked(taken).unwrap_or((escape, ""));
        replaced.push_str(replacement.unwrap_or(escape));
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

/// The value of a `\uXXXX` escape at the start of the text.
pub fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

/// The end of the character after a backslash.
fn second_char_end(escape: &str) -> usize {
    1 + escape.chars().nth(1).map_or(0, char::len_utf8)
}
