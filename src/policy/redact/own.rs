//! Finds loopwright's own secrets, as they are and as they stand inside of JSON and of URLs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use aho_corasick::{AhoCorasick, Input, MatchKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::pass::{FindSecret, Finding, FirstBytes, SecretEnd};

/// Shortest own secret that is hidden, in bytes; shorter ones occur by chance.
/// Tried by `redact::short_secrets_are_not_hidden`.
const SHORTEST_SECRET: usize = 8;

/// What RFC 3986 leaves as it is.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');
/// As Python's `quote` leaves paths.
const WITH_SLASHES: &AsciiSet = &UNRESERVED.remove(b'/');
/// As JavaScript's `encodeURIComponent` leaves it.
const COMPONENT: &AsciiSet = &UNRESERVED
    .remove(b'!')
    .remove(b'*')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')');
/// As forms leave it.
const FORM: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'*');

/// The own secrets, in all forms in which they are hidden.
pub(super) struct OwnSecrets {
    /// Sorted, so that those with a common beginning stand together.
    forms: Vec<String>,
    longest: usize,
    first: FirstBytes,
    /// `None` if there is nothing to find.
    search: Option<AhoCorasick>,
}

impl OwnSecrets {
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut forms = BTreeSet::new();
        for secret in secrets.into_iter().map(str::trim) {
            if secret.len() >= SHORTEST_SECRET {
                forms.insert(secret.to_owned());
                add_json_forms(&mut forms, secret);
                add_url_forms(&mut forms, secret);
            }
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&forms)
            .ok()
            .filter(|_| !forms.is_empty());
        Self {
            longest: forms.iter().map(String::len).max().unwrap_or_default(),
            first: FirstBytes::of(forms.iter().map(String::as_str)),
            forms: forms.into_iter().collect(),
            search,
        }
    }

    /// All that is hidden.
    #[cfg(test)]
    pub(super) fn forms(&self) -> &[String] {
        &self.forms
    }

    /// Up to where no secret begins that further text may complete.
    fn settled(&self, text: &[u8], from: usize, whole: bool) -> usize {
        if whole {
            return text.len();
        }
        let longest_begun = self.longest.saturating_sub(1);
        let earliest = from.max(text.len().saturating_sub(longest_begun));
        let begun = (earliest..text.len()).find(|&at| {
            let end = text.get(at..).unwrap_or_default();
            self.first.have(end) && self.begin_with(end)
        });
        begun.unwrap_or(text.len())
    }

    /// Whether a form begins with these bytes and is longer.
    fn begin_with(&self, bytes: &[u8]) -> bool {
        let first = self.forms.partition_point(|form| form.as_bytes() <= bytes);
        let form = self.forms.get(first).map(String::as_bytes);
        form.is_some_and(|form| form.starts_with(bytes))
    }
}

impl FindSecret for OwnSecrets {
    fn next(&self, text: &str, from: usize, whole: bool) -> Finding {
        let search = self.search.as_ref();
        let found = search.and_then(|search| search.find(Input::new(text).range(from..)));
        if let Some(found) = &found
            && found.start() + self.longest <= text.len()
        {
            return Finding::Secret(found.range(), SecretEnd::Here);
        }
        let settled = self.settled(text.as_bytes(), from, whole);
        match found {
            Some(found) if found.start() < settled => {
                Finding::Secret(found.range(), SecretEnd::Here)
            }
            Some(_) | None => Finding::Settled(settled),
        }
    }
}

/// Adds the forms in which Rust, JavaScript, Python, Go and PHP write the secret into a JSON text.
fn add_json_forms(forms: &mut BTreeSet<String>, secret: &str) {
    let quoted = serde_json::Value::from(secret).to_string();
    let inner = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    let plain = inner.unwrap_or(secret);
    let ascii = with_escapes(plain, |c| !c.is_ascii());
    let html = |c| matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}');
    forms.insert(plain.replace('/', "\\/"));
    forms.insert(ascii.replace('/', "\\/"));
    forms.insert(with_escapes(plain, html));
    forms.insert(with_escapes(plain, |c| html(c) || c == '\''));
    forms.insert(ascii);
    forms.insert(plain.to_owned());
}

/// The text with `\u` in place of some characters.
fn with_escapes(text: &str, escaped: impl Fn(char) -> bool) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        if escaped(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(written, "\\u{unit:04x}");
            }
        } else {
            written.push(c);
        }
    }
    written
}

/// Adds the forms of the secret in a URL or in a form, with hexadecimal digits in both cases.
fn add_url_forms(forms: &mut BTreeSet<String>, secret: &str) {
    for kept in [UNRESERVED, WITH_SLASHES, COMPONENT, FORM, NON_ALPHANUMERIC] {
        let parts = || utf8_percent_encode(secret, kept);
        // Each part is either one escape or text that is left as it is.
        let lower = parts().map(|part| match part.strip_prefix('%') {
            Some(_) => part.to_ascii_lowercase(),
            None => part.to_owned(),
        });
        for form in [parts().collect(), lower.collect::<String>()] {
            forms.insert(form.replace("%20", "+"));
            forms.insert(form);
        }
    }
}
