//! Environment variables that look like settings and are none.

use std::collections::BTreeSet;

use super::hints;
use super::source::PREFIX;

/// Variables of the tests, which run the binary.
const OF_TESTS: [&str; 2] = ["LOOPWRIGHT_TEST_", "LOOPWRIGHT_BIN"];
/// Variables of `approvals`, and of the examples in which the server reads the same key.
const OF_APPROVALS: [&str; 2] = ["LOOPWRIGHT_SERVER", "LOOPWRIGHT_API_KEY"];
/// What the variables hold that Kubernetes sets for a service, besides its address.
const OF_SERVICES: [&str; 3] = ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"];

/// A sentence for each variable with the prefix of settings that no setting reads.
pub(super) fn unknown(variables: &[(String, String)], known: &BTreeSet<String>) -> Vec<String> {
    let unread = variables.iter().filter(|(name, value)| {
        let is_address = value.starts_with("tcp://") || value.starts_with("udp://");
        let of_a_service = OF_SERVICES.iter().any(|part| name.contains(part))
            || (name.ends_with("_PORT") && is_address);
        let of_tests = OF_TESTS.iter().any(|prefix| name.starts_with(prefix));
        let is_other = of_a_service || of_tests || OF_APPROVALS.contains(&name.as_str());
        name.starts_with(PREFIX) && !known.contains(name) && !is_other
    });
    let sentence = |(name, _): &(String, String)| {
        let settings = known.iter().filter_map(|known| known.strip_prefix(PREFIX));
        let own = name.strip_prefix(PREFIX).unwrap_or(name);
        let remedy = match hints::nearest(own, settings) {
            Some(near) => format!("did you mean {PREFIX}{near}?"),
            None => "`loopwright --help` lists the variables".to_owned(),
        };
        format!("no setting reads the environment variable {name}; {remedy}")
    };
    unread.map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_tests_and_of_services_are_no_settings() {
        let known = BTreeSet::from(["LOOPWRIGHT_LISTEN".to_owned(), "TOKEN".to_owned()]);
        let said =
            |name: &str, value: &str| unknown(&[(name.to_owned(), value.to_owned())], &known);
        for (name, value) in [
            ("LOOPWRIGHT_LISTEN", "x"),
            ("LOOPWRIGHT_TEST_STORE", "x"),
            ("LOOPWRIGHT_BIN", "x"),
            ("LOOPWRIGHT_SERVER", "http://h"),
            ("LOOPWRIGHT_API_KEY", "x"),
            ("LOOPWRIGHT_SERVICE_HOST", "10.0.0.1"),
            ("LOOPWRIGHT_SERVICE_PORT_HTTP", "80"),
            ("LOOPWRIGHT_PORT", "tcp://10.0.0.1:80"),
            ("LOOPWRIGHT_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("TOKENS", "x"),
        ] {
            assert_eq!(said(name, value), [""; 0], "{name}");
        }
        for (name, part) in [
            ("LOOPWRIGHT_LISTNE", "did you mean LOOPWRIGHT_LISTEN?"),
            ("LOOPWRIGHT_PORT", "LOOPWRIGHT_PORT"),
            ("LOOPWRIGHT_SERVERS", "--help"),
            ("LOOPWRIGHT_", "--help"),
        ] {
            assert!(said(name, "secret")[0].contains(part), "{name}");
            assert!(!said(name, "secret")[0].contains("secret"), "{name}");
        }
    }
}
