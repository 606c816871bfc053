//! Command lines, and what is said to wrong ones.

use super::*;

fn parse(line: &str) -> Result<ServeFlags, String> {
    let words = std::iter::once("loopwright").chain(line.split_whitespace());
    let words: Vec<String> = words.map(ToOwned::to_owned).collect();
    let refused = |error: clap::Error| {
        assert_eq!(error.exit_code(), 2, "{line}");
        with_switch_hint(error, &words).to_string()
    };
    let matches = command().try_get_matches_from(&words).map_err(refused)?;
    match Cli::from_arg_matches(&matches).unwrap().into_command() {
        Command::Serve(flags) => Ok(flags),
        Command::Demo(_)
        | Command::CheckConfig(_)
        | Command::Openapi
        | Command::Store(_)
        | Command::Approvals(_)
        | Command::Launch(_)
        | Command::Health(_)
        | Command::Manual { .. } => {
            panic!("{line} does not serve")
        }
    }
}

#[test]
fn serving_needs_no_command() {
    for line in ["--upstream http://h/v1", "serve --upstream http://h/v1"] {
        assert_eq!(parse(line).unwrap().upstream.unwrap(), "http://h/v1");
    }
}

#[test]
fn a_switch_may_be_given_bare_or_with_a_value() {
    for (line, expected) in [
        ("serve", None),
        ("serve --insecure-no-auth", Some("true")),
        ("--insecure-no-auth", Some("true")),
        ("serve --insecure-no-auth=false", Some("false")),
    ] {
        let flags = parse(line).unwrap();
        assert_eq!(flags.insecure_no_auth.as_deref(), expected, "{line}");
    }
}

#[test]
fn unknown_arguments_are_refused() {
    for (line, part) in [
        ("serve --mcp-server x", "--mcp-server"),
        ("demo --upstream http://h/v1", "--upstream"),
        ("serve --enable-search true", "write --enable-search=true"),
        ("--insecure-no-auth false", "write --insecure-no-auth=false"),
        ("store true", "true"),
        ("approvals show", "ID"),
        ("approvals approve x --remember all", "same"),
        ("approvals deny x --arguments {}", "--arguments"),
        ("approvals list --api-key k", "--api-key"),
        ("frobnicate", "frobnicate"),
    ] {
        let refused = parse(line).unwrap_err();
        assert!(refused.contains(part), "{line}: {refused}");
    }
}

#[test]
fn errors_repeat_no_url() {
    for line in [
        "postgres://u:s3cret@h/d",
        "serve postgres://u:s3cret@h/d",
        "store copy sqlite:x postgres://h/d postgres://u:s3cret@h/d",
    ] {
        let line = std::iter::once("loopwright").chain(line.split(' '));
        let refused = command().try_get_matches_from(line).unwrap_err();
        assert!(refused.to_string().contains("s3cret"), "{refused}");
        let shown = without_urls(refused).to_string();
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("a URL"), "{shown}");
    }
}
