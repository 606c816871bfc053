//! The rules of a `robots.txt` for one program (RFC 9309).
//!
//! Patterns are matched in linear time, since the file may be hostile.

use std::time::Duration;

use url::{Position, Url};

/// Longest delay between requests that is honoured.
/// Tried by `rules::delays_are_bounded`.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// The rules for one program.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Shortest time between two requests.
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, PartialEq)]
struct Rule {
    pattern: Vec<u8>,
    allows: bool,
}

/// The lines of a group.
#[derive(Debug, Default)]
struct Group {
    rules: Rules,
    is_named: bool,
}

impl Rules {
    /// Reads the rules for the program with this product token, which is in lower case.
    pub(super) fn read(text: &[u8], product: &str) -> Self {
        // All groups that name the program count. Without one, all groups for any program do.
        let (mut named, mut general) = (Group::default(), Group::default());
        let (mut in_named, mut in_general, mut naming) = (false, false, false);
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
            let Some((field, value)) = field(line) else {
                continue;
            };
            if field == "user-agent" {
                if !naming {
                    (in_named, in_general) = (false, false);
                }
                naming = true;
                in_named |= product_token(value) == product;
                in_general |= value == b"*";
                named.is_named |= in_named;
                continue;
            }
            if !matches!(field.as_str(), "allow" | "disallow" | "crawl-delay") {
                continue;
            }
            naming = false;
            for (group, applies) in [(&mut named, in_named), (&mut general, in_general)] {
                if applies {
                    group.rules.add(&field, value);
                }
            }
        }
        match named.is_named {
            true => named.rules,
            false => general.rules,
        }
    }

    fn add(&mut self, field: &str, value: &[u8]) {
        if field == "crawl-delay" {
            let seconds = std::str::from_utf8(value)
                .ok()
                .and_then(|value| value.parse().ok());
            let delay = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            self.delay = delay.unwrap_or_default().min(MAX_DELAY);
        } else if !value.is_empty() {
            // An empty pattern matches nothing.
            self.rules.push(Rule {
                pattern: normalized(value),
                allows: field == "allow",
            });
        }
    }

    /// Whether a page may be read. The longest matching pattern decides; of equally long ones, the one that allows.
    pub(super) fn allow(&self, url: &Url) -> bool {
        let path = normalized(url[Position::BeforePath..Position::AfterQuery].as_bytes());
        let fitting = self.rules.iter().filter(|rule| fits(&rule.pattern, &path));
        let decisive = fitting.max_by_key(|rule| (rule.pattern.len(), rule.allows));
        decisive.is_none_or(|rule| rule.allows)
    }

    /// The approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let rules = self.rules.iter();
        rules
            .map(|rule| rule.pattern.len() + size_of::<Rule>())
            .sum()
    }
}

/// The product token of a user agent, in lower case.
pub(super) fn product_token(agent: &[u8]) -> String {
    let is_of_it = |byte: &&u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_');
    let token = agent.iter().take_while(is_of_it);
    token
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect()
}

/// The field, in lower case, and the value of a line without its comment.
fn field(line: &[u8]) -> Option<(String, &[u8])> {
    let line = line.split(|byte| *byte == b'#').next()?;
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (field, value) = line.split_at_checked(colon)?;
    let field = String::from_utf8_lossy(field.trim_ascii()).to_ascii_lowercase();
    Some((field, value.get(1..)?.trim_ascii()))
}

/// The normal form of a path: unreserved characters decoded, others outside ASCII encoded.
fn normalized(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        rest = after;
        let encoded = (*first == b'%').then(|| after.first_chunk::<2>()).flatten();
        let byte = encoded.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            is_hex.then(|| u8::from_str_radix(digits, 16).ok())?
        });
        match byte {
            Some(byte) => {
                rest = after.get(2..).unwrap_or_default();
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    normal.push(byte);
                } else {
                    encode(byte, &mut normal);
                }
            }
            None if first.is_ascii_graphic() => normal.push(*first),
            None => encode(*first, &mut normal),
        }
    }
    normal
}

fn encode(byte: u8, to: &mut Vec<u8>) {
    let digit = |nibble: u8| b"0123456789ABCDEF".get(usize::from(nibble)).copied();
    to.push(b'%');
    to.extend(digit(byte >> 4));
    to.extend(digit(byte & 0xf));
}

/// Whether a pattern matches the start of a path. `*` matches anything; `$` at the end of the pattern matches the end.
fn fits(pattern: &[u8], path: &[u8]) -> bool {
    let (pattern, to_end) = match pattern.strip_suffix(b"$") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split(|byte| *byte == b'*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return !to_end || rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if to_end && parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match memchr::memmem::find(rest, part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allowed(text: &str, path: &str) -> bool {
        let url = Url::parse("https://example.org")
            .unwrap()
            .join(path)
            .unwrap();
        Rules::read(text.as_bytes(), "loopwright").allow(&url)
    }

    #[test]
    fn the_examples_of_the_standard_hold() {
        // RFC 9309, 5.1.
        let simple = "User-Agent: *\nDisallow: *.gif$\nDisallow: /example/\nAllow: /publications/\n\n\
                      User-Agent: foobot\nDisallow:/\nAllow:/example/page.html\nAllow:/example/allowed.gif\n\n\
                      User-Agent: barbot\nUser-Agent: bazbot\nDisallow: /example/page.html\n\nUser-Agent: quxbot\n";
        for (product, path, expected) in [
            ("other", "/a.gif", false),
            ("other", "/a.gif?b", true),
            ("other", "/example/x", false),
            ("other", "/publications/x", true),
            ("foobot", "/x", false),
            ("foobot", "/example/page.html", true),
            ("bazbot", "/example/page.html", false),
            ("bazbot", "/a.gif", true),
            ("quxbot", "/example/", true),
        ] {
            let url = Url::parse("https://example.org")
                .unwrap()
                .join(path)
                .unwrap();
            let rules = Rules::read(simple.as_bytes(), product);
            assert_eq!(rules.allow(&url), expected, "{product} {path}");
        }
        // 5.2: the longest match.
        let longest =
            "User-Agent: foobot\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif\n";
        let url = Url::parse("https://example.org/example/page/disallowed.gif").unwrap();
        assert!(!Rules::read(longest.as_bytes(), "foobot").allow(&url));
    }

    #[test]
    fn groups_are_merged_and_the_named_ones_win() {
        let text = "user-agent: Loopwright/2.0\ndisallow: /a\n\nUser-agent: *\nDisallow: /\n\nUser-Agent: LOOPWRIGHT # us\nDisallow: /b";
        assert!(!allowed(text, "/a") && !allowed(text, "/b") && allowed(text, "/c"));
        // A group without rules allows everything.
        assert!(allowed(
            "User-agent: *\nDisallow: /\nUser-agent: loopwright\nDisallow:",
            "/a"
        ));
        // Other fields do not end a group's names.
        assert!(!allowed(
            "User-agent: loopwright\nSitemap: /x\nUser-agent: b\nDisallow: /a",
            "/a"
        ));
        assert!(!allowed("\u{feff}User-agent: *\r\nDisallow: /a\r\n", "/a"));
        assert!(allowed("Disallow: /", "/a"));
        assert!(allowed("<html>no such page: 404</html>", "/a"));
    }

    #[test]
    fn patterns_match_as_the_standard_says() {
        for (pattern, path, expected) in [
            ("/fish", "/fish.html", true),
            ("/fish", "/Fish", false),
            ("/fish*", "/fishheads", true),
            ("/*.php", "/a/b.php?c", true),
            ("/*.php$", "/a/b.php", true),
            ("/*.php$", "/a/b.php?c", false),
            ("/fish*.php", "/fishheads/cat.php?c", true),
            ("/a$", "/a", true),
            ("/a$", "/ab", false),
            ("/a*b*c$", "/abcbc", true),
            ("/ä", "/%C3%A4", true),
            ("/%c3%a4", "/ä", true),
            ("/%7Euser", "/~user", true),
            ("/a%2Fb", "/a/b", false),
            ("/a?b", "/a?b=1", true),
            ("*", "/anything", true),
            ("$", "/anything", false),
        ] {
            let text = format!("User-agent: *\nDisallow: {pattern}");
            assert_eq!(!allowed(&text, path), expected, "{pattern} {path}");
        }
        assert!(allowed("User-agent: *\nDisallow: /a\nAllow: /a", "/a"));
    }

    #[test]
    fn delays_are_bounded() {
        let delay = |value: &str| {
            let text = format!("User-agent: *\nCrawl-delay: {value}");
            Rules::read(text.as_bytes(), "loopwright").delay
        };
        assert_eq!(delay("0.5"), Duration::from_millis(500));
        for odd in ["1e300", "99999", "inf"] {
            assert!(delay(odd) <= MAX_DELAY, "{odd}");
        }
        for odd in ["-1", "NaN", "soon", ""] {
            assert_eq!(delay(odd), Duration::ZERO, "{odd}");
        }
    }

    /// A reference implementation.
    fn fits_naively(pattern: &[u8], path: &[u8], to_end: bool) -> bool {
        match pattern {
            [] => !to_end || path.is_empty(),
            [b'*', rest @ ..] => {
                (0..=path.len()).any(|skipped| fits_naively(rest, &path[skipped..], to_end))
            }
            [byte, rest @ ..] => {
                path.first() == Some(byte) && fits_naively(rest, &path[1..], to_end)
            }
        }
    }

    proptest! {
        #[test]
        fn patterns_fit_what_they_should(pattern in "[ab*]{0,8}", path in "[ab]{0,8}", to_end: bool) {
            let written = format!("{pattern}{}", if to_end { "$" } else { "" });
            prop_assert_eq!(
                fits(written.as_bytes(), path.as_bytes()),
                fits_naively(pattern.as_bytes(), path.as_bytes(), to_end)
            );
        }

        #[test]
        fn any_file_can_be_read(text: Vec<u8>, path in "/\\PC*") {
            let url = Url::parse("https://example.org").unwrap().join(&path);
            let rules = Rules::read(&text, "loopwright");
            if let Ok(url) = url {
                let _allowed = rules.allow(&url);
            }
        }
    }
}
