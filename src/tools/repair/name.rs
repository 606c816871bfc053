//! Finds the tool that a misspelt name means.

/// A prefix that some models put before every name.
const PREFIX: &str = "functions.";
/// Longest name that is compared, in bytes; no tool has one this long. A longer one matches none.
const MAX_NAME_BYTES: usize = 256;

/// The one known name that a misspelt name matches.
///
/// Upper and lower case, `-`, `_`, `.` and spaces make no difference, so that `getWeather` is `get_weather`; a leading
/// `functions.` is left out. `None` where no known name matches or several do.
pub fn match_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.trim();
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let bare = name.strip_prefix(PREFIX).unwrap_or(name);
    let wanted = folded(bare);
    if wanted.is_empty() {
        return None;
    }
    let mut found: Option<&'a str> = None;
    let mut ambiguous = false;
    let mut unprefixed = None;
    for candidate in known {
        if candidate == name {
            return Some(candidate);
        }
        if candidate == bare {
            unprefixed = Some(candidate);
        }
        if folded(candidate) == wanted {
            ambiguous |= found.is_some_and(|other| other != candidate);
            found = Some(candidate);
        }
    }
    unprefixed.or_else(|| found.filter(|_| !ambiguous))
}

fn folded(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, '-' | '_' | '.' | ' '))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = [
        "get_weather",
        "read-file",
        "Read_File",
        "web.search",
        "mcp__list",
        "run",
    ];

    #[track_caller]
    fn check(name: &str, expected: Option<&str>) {
        assert_eq!(match_name(name, KNOWN.into_iter()), expected, "{name}");
    }

    #[test]
    fn one_match_is_taken() {
        for name in [
            "get_weather",
            "getWeather",
            "GetWeather",
            "GET-WEATHER",
            "get weather",
            "get.weather",
            "functions.get_weather",
            "functions.getWeather",
            " get_weather ",
        ] {
            check(name, Some("get_weather"));
        }
        check("web_search", Some("web.search"));
        check("mcp_list", Some("mcp__list"));
    }

    #[test]
    fn an_exact_name_wins_over_similar_ones() {
        check("read-file", Some("read-file"));
        check("functions.Read_File", Some("Read_File"));
    }

    #[test]
    fn no_match_or_several_are_refused() {
        for name in [
            "",
            "functions.",
            "_",
            "weather",
            "get_weathers",
            "readFile",
            "functions/run",
        ] {
            check(name, None);
        }
        check(&"x".repeat(10_000), None);
    }

    #[test]
    fn a_name_listed_twice_is_one_name() {
        assert_eq!(match_name("Run", ["run", "run"].into_iter()), Some("run"));
    }
}
