use proptest::prelude::*;

use super::*;
use crate::fetch::serving::settings;

fn policy() -> UrlPolicy {
    UrlPolicy::new(&settings()).unwrap()
}

fn judged(written: &str) -> Result<Target, FetchError> {
    policy().target(written, &DomainFilter::default())
}

#[test]
fn ordinary_urls_are_permitted_in_the_form_of_the_parser() {
    for (written, read) in [
        ("https://example.org", "https://example.org/"),
        (" https://Example.ORG/a?b=c#d ", "https://example.org/a?b=c"),
        ("http://example.org:80/", "http://example.org/"),
        ("https://example.org/a b", "https://example.org/a%20b"),
        ("https://bücher.de/ä", "https://xn--bcher-kva.de/%C3%A4"),
        ("https:\\\\example.org\\a", "https://example.org/a"),
        ("http://93.184.216.34/", "http://93.184.216.34/"),
        ("http://[2606:4700::1111]/", "http://[2606:4700::1111]/"),
        ("http://1572395042/", "http://93.184.216.34/"),
        ("http://@example.org/", "http://example.org/"),
        ("https://a_b.example.org/", "https://a_b.example.org/"),
    ] {
        assert_eq!(judged(written).unwrap().url.as_str(), read, "{written}");
    }
}

#[test]
fn odd_spellings_of_addresses_are_checked_by_the_address() {
    for written in [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7F.1/",
        "http://017700000001/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://0/",
        "http://0.0.0.0/",
        "http://127.0.0.1./",
        "http://127。0。0。1/",
        "http://①②⑦.⓪.⓪.①/",
        "http://１２７.0.0.1/",
        "http://%31%32%37.0.0.1/",
        "http:127.0.0.1/",
        "http:/127.0.0.1/",
        "http:\\\\127.0.0.1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[64:ff9b::10.0.0.5]/",
        "http://[2002:a00:5::]/",
        "http://[fd00::5]/",
        "http://[fe80::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
    ] {
        let error = judged(written).unwrap_err();
        assert!(
            matches!(error, FetchError::Address { .. }),
            "{written}: {error}"
        );
    }
}

#[test]
fn what_is_no_url_of_a_public_host_is_refused_with_its_reason() {
    for (written, reason) in [
        ("example.org/page", "not a complete URL"),
        ("", "not a complete URL"),
        ("http://", "not a complete URL"),
        ("http://[fe80::1%25eth0]/", "not a complete URL"),
        ("http://[fe80::1%eth0]/", "not a complete URL"),
        ("http://256.256.256.256/", "not a complete URL"),
        ("http://a b.org/", "not a complete URL"),
        ("file:///etc/passwd", "not 'file:'"),
        ("gopher://example.org/_x", "not 'gopher:'"),
        ("javascript:alert(1)", "not 'javascript:'"),
        ("data:text/plain,hi", "not 'data:'"),
        ("jar:http://example.org!/", "not 'jar:'"),
        ("http://user@example.org/", "user name or password"),
        ("http://user:word@example.org/", "user name or password"),
        ("http://:word@example.org/", "user name or password"),
        ("http://example.org@127.0.0.1/", "user name or password"),
        ("http://exa\tmple.org/", "control character"),
        ("http://example.org/\n", "control character"),
        ("http://example.org/\u{85}", "control character"),
        ("http://example.org./", "ends in a dot"),
        ("http://example..org/", "not a valid name"),
        ("http://exa$mple.org/", "not a valid name"),
        ("http://localhost/", "without a domain"),
        ("http://LOCALHOST/", "without a domain"),
        ("http://intranet/", "without a domain"),
        ("http://printer.local/", "private networks"),
        ("http://metadata.google.internal/", "private networks"),
        ("http://a.localhost/", "private networks"),
        ("http://router.home.arpa/", "private networks"),
        ("http://1.0.0.127.in-addr.arpa/", "private networks"),
        ("http://example.org:22/", "port 22"),
        ("http://example.org:8080/", "port 8080"),
        ("http://example.org:0/", "port 0"),
    ] {
        let error = judged(written).unwrap_err().to_string();
        assert!(error.contains(reason), "{written}: {error}");
    }
    let long = format!("https://example.org/{}", "a".repeat(MAX_URL_BYTES));
    assert!(matches!(judged(&long), Err(FetchError::TooLong { .. })));
    // Short as written, long when encoded.
    let long = format!("https://example.org/{}", "ä".repeat(MAX_URL_BYTES / 3));
    assert!(matches!(judged(&long), Err(FetchError::TooLong { .. })));
}

#[test]
fn lists_of_the_operator_and_of_the_request_both_apply() {
    let policy = UrlPolicy::new(&FetchSettings {
        allow: vec!["*.example.org".to_owned(), "93.184.*".to_owned()],
        block: vec!["bad.*".to_owned(), "*.Bücher.example.org".to_owned()],
        ..settings()
    })
    .unwrap();
    let domains = DomainFilter {
        allowed: vec!["www.example.org".to_owned(), "bad.example.org".to_owned()],
        blocked: Vec::new(),
    };
    let open = DomainFilter::default();
    assert!(policy.target("http://WWW.example.org/", &domains).is_ok());
    assert!(policy.target("http://93.184.216.34/", &open).is_ok());
    for (url, domains, filtered) in [
        ("http://bad.example.org/", &domains, false),
        ("http://a.bücher.example.org/", &open, false),
        ("http://example.org/", &open, false),
        ("http://example.com/", &open, false),
        ("http://other.example.org/", &domains, true),
    ] {
        let error = policy.target(url, domains).unwrap_err();
        assert_eq!(
            matches!(error, FetchError::Filtered { .. }),
            filtered,
            "{url}: {error}"
        );
    }
    let broken = FetchSettings {
        block: vec!["[".to_owned()],
        ..settings()
    };
    let error = UrlPolicy::new(&broken).unwrap_err().to_string();
    assert!(error.contains("block") && error.contains("'['"), "{error}");
}

#[test]
fn private_hosts_are_only_those_that_the_operator_permits() {
    let private = [
        "10.0.*",
        "fd00::*",
        "wiki",
        "*.corp.example.org",
        "build-?.lan",
        "*",
    ];
    let policy = UrlPolicy::new(&FetchSettings {
        private: private.map(str::to_owned).into(),
        ..settings()
    })
    .unwrap();
    for host in [
        "10.0.3.4",
        "fd00::5",
        "wiki",
        "a.corp.example.org",
        "a.b.corp.example.org",
        "build-1.lan",
        "other",
    ] {
        assert!(policy.is_private(host), "{host}");
    }
    let named = UrlPolicy::new(&FetchSettings {
        private: private
            .into_iter()
            .filter(|glob| *glob != "*")
            .map(str::to_owned)
            .collect(),
        ..settings()
    })
    .unwrap();
    for host in [
        "10.1.0.1",
        "10.0.evil.com",
        "10.0.com",
        "fd01::5",
        "wiki.evil.com",
        "corp.example.org",
        "a.corp.example.org.evil.com",
        "build-1.lan.evil.com",
        "build-1.evil.lan",
        "127.0.0.1",
    ] {
        assert!(!named.is_private(host), "{host}");
    }
    // Any port, and names without a domain.
    let target = named
        .target("http://wiki:8123/", &DomainFilter::default())
        .unwrap();
    assert!(target.is_private);
}

#[test]
fn redirects_are_checked_like_urls_and_named() {
    let policy = policy();
    let open = DomainFilter::default();
    let from = policy.target("https://example.org/a/b", &open).unwrap();
    let to = |location: &str| policy.redirected(&from, location, &open);
    for (location, read) in [
        ("c", "https://example.org/a/c"),
        ("/c", "https://example.org/c"),
        ("//example.com/c", "https://example.com/c"),
        ("http://example.org/", "http://example.org/"),
        ("?q", "https://example.org/a/b?q"),
    ] {
        assert_eq!(to(location).unwrap().url.as_str(), read, "{location}");
    }
    for location in [
        "http://127.0.0.1/",
        "//127.0.0.1/",
        "\\\\127.0.0.1\\",
        "/\\127.0.0.1/",
        "http:127.0.0.1",
        "http://example.com/",
        "https://user@example.com/",
        "file:///etc/passwd",
        "https://localhost/",
        "https://example.com:22/",
    ] {
        let error = to(location).unwrap_err();
        assert!(
            matches!(error, FetchError::Redirected { .. }),
            "{location}: {error}"
        );
        assert!(
            error.to_string().starts_with("the page redirects to "),
            "{error}"
        );
    }
}

proptest! {
    #[test]
    fn nothing_that_is_permitted_has_a_forbidden_address(bits: u32, form in 0..6_u8) {
        let [a, b, c, d] = bits.to_be_bytes();
        let host = match form {
            0 => format!("{a}.{b}.{c}.{d}"),
            1 => bits.to_string(),
            2 => format!("{bits:#x}"),
            3 => format!("0{a:o}.0x{b:x}.{}", u16::from_be_bytes([c, d])),
            4 => format!("[::ffff:{a}.{b}.{c}.{d}]"),
            _ => format!("{a}.{}", bits & 0xff_ffff),
        };
        let permitted = judged(&format!("http://{host}/")).is_ok();
        let address = std::net::Ipv4Addr::from_bits(bits);
        prop_assert_eq!(permitted, form != 4 && is_public(address.into()), "{}", host);
    }

    #[test]
    fn nothing_makes_it_panic(written: String) {
        let _judged = judged(&written);
        let _judged = judged(&format!("http://{written}"));
    }
}
