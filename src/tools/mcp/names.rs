//! Names of the tools of MCP servers for the model: legal and unique.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use crate::tool_name::MAX_NAME_CHARS;
use protocol::ids::hex;

/// Size of the digest that tells names apart that are too long, in characters.
const DIGEST_CHARS: usize = 8;

/// The prefix of a server's tools: its name, in which characters that model servers refuse are replaced, and two
/// underscores.
pub(super) fn default_prefix(server: &str) -> String {
    format!("{}__", legal(server))
}

/// A name that no other tool has.
pub(super) fn unique(prefix: &str, tool: &str, taken: &mut HashSet<String>) -> String {
    let whole = format!("{prefix}{}", legal(tool));
    let base = match whole.len() <= MAX_NAME_CHARS {
        true => whole,
        false => {
            let digest = Sha256::digest(format!("{prefix}{tool}"));
            let digest = hex(&digest);
            let kept = MAX_NAME_CHARS - DIGEST_CHARS - 1;
            let digest = digest.get(..DIGEST_CHARS).unwrap_or_default();
            format!("{}_{digest}", whole.get(..kept).unwrap_or_default())
        }
    };
    let mut name = base.clone();
    let mut number = 2_u32;
    while !taken.insert(name.clone()) {
        let suffix = format!("_{number}");
        let kept = base.len().min(MAX_NAME_CHARS - suffix.len());
        name = format!("{}{suffix}", base.get(..kept).unwrap_or_default());
        number += 1;
    }
    name
}

/// The text with characters that model servers refuse replaced; ASCII.
fn legal(text: &str) -> String {
    let legal = |c: char| match c {
        '_' | '-' => c,
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    text.chars().map(legal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_legal_and_unique() {
        let mut taken = HashSet::from(["web_search".to_owned()]);
        let prefix = default_prefix("My Server.v2");
        assert_eq!(prefix, "My_Server_v2__");
        assert_eq!(
            unique(&prefix, "get/it", &mut taken),
            "My_Server_v2__get_it"
        );
        assert_eq!(
            unique(&prefix, "get it", &mut taken),
            "My_Server_v2__get_it_2"
        );
        assert_eq!(unique("", "web_search", &mut taken), "web_search_2");
        assert_eq!(unique("", "web_search", &mut taken), "web_search_3");
        let long = "t".repeat(100);
        let first = unique("s__", &long, &mut taken);
        let second = unique("s__", &format!("{long}x"), &mut taken);
        let third = unique("s__", &long, &mut taken);
        for name in [&first, &second, &third] {
            assert_eq!(name.len(), 64, "{name}");
        }
        assert_ne!(first, second);
        assert!(third.ends_with("_2"), "{third}");
    }
}
