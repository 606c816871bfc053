//! The attacks.

use std::net::{IpAddr, SocketAddr};

use web::settings::FetchSettings;

use crate::canary::redirect;
use crate::{Attack, CONTROL, Stage, settings};

fn at(ip: &str, port: u16) -> Option<SocketAddr> {
    let ip: IpAddr = ip.parse().unwrap();
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// Hosts that are addresses, and what they come to.
const ADDRESSES: &[(&str, &str)] = &[
    ("127.0.0.1", "127.0.0.1"),
    ("127.1.2.3", "127.1.2.3"),
    ("2130706433", "127.0.0.1"),
    ("0x7f000001", "127.0.0.1"),
    ("0X7F.1", "127.0.0.1"),
    ("017700000001", "127.0.0.1"),
    ("0177.0.0.1", "127.0.0.1"),
    ("127.1", "127.0.0.1"),
    ("127.0.1", "127.0.0.1"),
    ("0", "127.0.0.1"),
    ("0.0.0.0", "127.0.0.1"),
    ("127.0.0.1.", "127.0.0.1"),
    ("127。0。0。1", "127.0.0.1"),
    ("①②⑦.0.0.①", "127.0.0.1"),
    ("１２７.0.0.1", "127.0.0.1"),
    ("%31%32%37.0.0.1", "127.0.0.1"),
    ("10.0.0.5", "10.0.0.5"),
    ("167772165", "10.0.0.5"),
    ("10.5", "10.0.0.5"),
    ("172.16.0.5", "172.16.0.5"),
    ("192.168.1.5", "192.168.1.5"),
    ("100.64.0.5", "100.64.0.5"),
    ("100.100.100.200", "100.100.100.200"),
    ("169.254.169.254", "169.254.169.254"),
    ("0xa9fea9fe", "169.254.169.254"),
    ("168.63.129.16", "168.63.129.16"),
    ("192.0.0.192", "192.0.0.192"),
    ("192.0.2.5", "192.0.2.5"),
    ("198.18.0.5", "198.18.0.5"),
    ("198.51.100.5", "198.51.100.5"),
    ("203.0.113.5", "203.0.113.5"),
    ("240.0.0.5", "240.0.0.5"),
    ("[::1]", "::1"),
    ("[::]", "::1"),
    ("[0:0:0:0:0:0:0:1]", "::1"),
    ("[::ffff:10.0.0.5]", "10.0.0.5"),
    ("[::ffff:a00:5]", "10.0.0.5"),
    ("[::10.0.0.5]", "::10.0.0.5"),
    ("[::ffff:0:10.0.0.5]", "::ffff:0:a00:5"),
    ("[64:ff9b::10.0.0.5]", "64:ff9b::a00:5"),
    ("[64:ff9b:1::10.0.0.5]", "64:ff9b:1::a00:5"),
    ("[2002:a00:5::1]", "2002:a00:5::1"),
    ("[2001::5]", "2001::5"),
    ("[2001:db8::5]", "2001:db8::5"),
    ("[3fff::5]", "3fff::5"),
    ("[5f00::5]", "5f00::5"),
    ("[fd00::5]", "fd00::5"),
    ("[fd00:ec2::254]", "fd00:ec2::254"),
    ("[fec0::5]", "fec0::5"),
    (
        "[2606:4700::200:5efe:10.0.0.5]",
        "2606:4700::200:5efe:a00:5",
    ),
];

/// 50 spellings of addresses.
pub(crate) fn addresses(stage: &Stage) {
    for (host, ip) in ADDRESSES {
        stage.refuses(&Attack {
            url: format!("http://{host}/"),
            told: "is not on the public internet",
            naively: at(ip, 80),
        });
    }
    // No scope can be given, and without one the kernel connects to none of these.
    for host in ["[fe80::5%25lo]", "[fe80::5%lo]", "[::1%25lo]"] {
        stage.refuses(&Attack {
            url: format!("http://{host}/"),
            told: "not a complete URL",
            naively: None,
        });
    }
    for host in ["[fe80::5]", "[ff02::1]", "224.0.0.5", "255.255.255.255"] {
        stage.refuses(&Attack {
            url: format!("http://{host}/"),
            told: "is not on the public internet",
            naively: None,
        });
    }
}

pub(crate) fn names_of_private_addresses(stage: &Stage) {
    for (host, ip) in [
        ("private.site.com", "10.0.0.5"),
        ("PRIVATE.Site.COM", "10.0.0.5"),
        ("class-b.site.com", "172.16.0.5"),
        ("class-c.site.com", "192.168.1.5"),
        ("carrier.site.com", "100.64.0.5"),
        ("loopback.site.com", "127.0.0.1"),
        ("127.0.0.1.nip.com", "127.0.0.1"),
        ("zero.site.com", "127.0.0.1"),
        ("metadata.site.com", "169.254.169.254"),
        ("alias.site.com", "10.0.0.5"),
        ("mapped.site.com", "10.0.0.5"),
        ("translated.site.com", "64:ff9b::a00:5"),
        ("six-to-four.site.com", "2002:a00:5::1"),
        ("local-six.site.com", "fd00::5"),
        ("loopback-six.site.com", "::1"),
    ] {
        stage.refuses(&Attack {
            url: format!("http://{host}/"),
            told: "is not on the public internet",
            naively: at(ip, 80),
        });
    }
    // With public addresses beside the private one, whichever is tried first.
    for host in ["mixed.site.com", "mixed-six.site.com"] {
        let attack = Attack {
            url: format!("http://{host}/"),
            told: "is not on the public internet",
            naively: None,
        };
        for _ in 0..5 {
            stage.refuses(&attack);
        }
    }
    for (host, told, ip) in [
        ("localhost", "without a domain", Some("::1")),
        ("LocalHost", "without a domain", Some("::1")),
        ("intranet", "without a domain", Some("10.0.0.5")),
        (
            "metadata.google.internal",
            "private networks",
            Some("169.254.169.254"),
        ),
        // Found only with the search domain of this machine.
        ("printer.office", "cannot be found", Some("10.0.0.5")),
        ("private.site.com.", "ends in a dot", Some("10.0.0.5")),
        ("localhost.", "ends in a dot", None),
        ("a.localhost", "private networks", None),
        ("nobody.site.com", "cannot be found", None),
        ("slow.site.com", "", None),
    ] {
        // Both addresses of localhost are its own.
        stage.refuses(&Attack {
            url: format!("http://{host}/"),
            told,
            naively: ip.filter(|ip| *ip != "::1").and_then(|ip| at(ip, 80)),
        });
    }
    let contacts = stage.naively(reqwest::Client::builder().no_proxy(), "http://localhost/");
    assert!(contacts.iter().any(|contact| contact.to.ip().is_loopback()));
    // Names in other scripts that are public stay so.
    let (fetched, _) = stage.fetch(&settings(), "http://Bücher.site.com/");
    assert_eq!(
        fetched.unwrap().url.as_str(),
        "http://xn--bcher-kva.site.com/"
    );
}

/// Public at the first look, private from the second on.
pub(crate) fn names_that_change(stage: &Stage) {
    let asked = || {
        stage
            .asked
            .lock()
            .get("turning.site.com")
            .copied()
            .unwrap_or_default()
    };
    let forget = || stage.asked.lock().clear();
    // Checked and connected to are the same, as there is only one look.
    let (fetched, contacts) = stage.fetch(&settings(), "http://turning.site.com/");
    assert!(
        fetched.is_ok() && contacts.len() == 1 && asked() == 1,
        "{contacts:?}"
    );
    let attack = Attack {
        url: "http://turning.site.com/".to_owned(),
        told: "is not on the public internet",
        naively: "10.0.0.5:80".parse().ok(),
    };
    stage.refuses(&attack);
    // Within one fetch, by way of a redirect to itself.
    forget();
    let url = format!(
        "http://turning.site.com{}",
        redirect(302, "http://turning.site.com/")
    );
    let (fetched, contacts) = stage.fetch(&settings(), &url);
    assert!(
        fetched
            .unwrap_err()
            .contains("is not on the public internet")
    );
    assert_eq!((contacts.len(), asked()), (1, 2));
    forget();
    let contacts = stage.naively(reqwest::Client::builder().no_proxy(), &url);
    assert!(
        contacts
            .iter()
            .any(|contact| Some(contact.to) == at("10.0.0.5", 80))
    );
}

pub(crate) fn redirects(stage: &Stage) {
    let from =
        |status, location: &str| format!("http://public.site.com{}", redirect(status, location));
    for status in [301, 302, 303, 307, 308] {
        stage.refuses(&Attack {
            url: from(status, "http://10.0.0.5/"),
            told: "the page redirects to http://10.0.0.5/, which cannot be read",
            naively: at("10.0.0.5", 80),
        });
    }
    for (host, ip) in ADDRESSES {
        stage.refuses(&Attack {
            url: from(302, &format!("http://{host}/")),
            told: "the page redirects to",
            naively: at(ip, 80),
        });
    }
    for (location, target) in [
        ("//10.0.0.5/", at("10.0.0.5", 80)),
        ("\\\\10.0.0.5\\", at("10.0.0.5", 80)),
        ("/\\10.0.0.5/", at("10.0.0.5", 80)),
        ("http:\\\\10.0.0.5", at("10.0.0.5", 80)),
        ("http:///10.0.0.5/", at("10.0.0.5", 80)),
        ("HTTP://10.0.0.5/", at("10.0.0.5", 80)),
        ("http://public.site.com@10.0.0.5/", at("10.0.0.5", 80)),
        ("http://public.site.com\\@10.0.0.5/..//10.0.0.5", None),
        ("http://private.site.com/", at("10.0.0.5", 80)),
        ("http://alias.site.com/", at("10.0.0.5", 80)),
        ("http://mixed.site.com/", None),
        (
            "http://metadata.google.internal/",
            at("169.254.169.254", 80),
        ),
        ("http://intranet/", at("10.0.0.5", 80)),
        ("http://public.site.com:6379/", at("93.184.216.34", 6379)),
        ("http://public.site.com:22/", at("93.184.216.34", 22)),
        ("https://10.0.0.5/", at("10.0.0.5", 443)),
        ("file:///etc/passwd", None),
        ("gopher://10.0.0.5:70/_x", None),
        ("data:text/plain,hello", None),
        ("javascript:alert(1)", None),
    ] {
        if location.contains("\\@") {
            // A path of the same host, after the parser that everything here goes by.
            let (fetched, _) = stage.fetch(&settings(), &from(302, location));
            assert_eq!(fetched.unwrap().url.host_str(), Some("public.site.com"));
            continue;
        }
        stage.refuses(&Attack {
            url: from(302, location),
            told: "the page redirects to",
            naively: target,
        });
    }
    // Relative to the page, so no address at all; and by way of several hosts.
    let (fetched, _) = stage.fetch(&settings(), &from(302, "http:../../10.0.0.5"));
    assert_eq!(
        fetched.unwrap().url.as_str(),
        "http://public.site.com/10.0.0.5"
    );
    let last = redirect(307, "//10.0.0.5/");
    let second = redirect(301, &format!("http://six.site.com{last}"));
    stage.refuses(&Attack {
        url: format!("http://93.184.216.34{second}"),
        told: "the page redirects to http://10.0.0.5/",
        naively: at("10.0.0.5", 80),
    });
}

const CREDENTIALS: &str = "user name or password";

/// URLs, what the model is told, and where a naive client ends up.
const ODD_URLS: &[(&str, &str, &str)] = &[
    (
        "http://public.site.com@127.0.0.1/",
        CREDENTIALS,
        "127.0.0.1:80",
    ),
    (
        "http://public.site.com:80@127.0.0.1/",
        CREDENTIALS,
        "127.0.0.1:80",
    ),
    ("http://public.site.com#@10.0.0.5@10.0.0.5/", "", ""),
    (
        "http://public.site.com%40@10.0.0.5/",
        CREDENTIALS,
        "10.0.0.5:80",
    ),
    (
        "http://user:word@public.site.com/",
        CREDENTIALS,
        "93.184.216.34:80",
    ),
    ("http://127.0.\t0.1/", "control character", "127.0.0.1:80"),
    ("http://127.0.\n0.1/", "control character", "127.0.0.1:80"),
    ("ht\rtp://127.0.0.1/", "control character", "127.0.0.1:80"),
    (
        "http://public.site.com/\r\nx: y",
        "control character",
        "93.184.216.34:80",
    ),
    ("http:127.0.0.1/", "public internet", "127.0.0.1:80"),
    ("http:/127.0.0.1/", "public internet", "127.0.0.1:80"),
    ("http:\\\\127.0.0.1\\", "public internet", "127.0.0.1:80"),
    ("http:////127.0.0.1/", "public internet", "127.0.0.1:80"),
    (" http://127.0.0.1/ ", "public internet", "127.0.0.1:80"),
    (
        "http://public.site.com:8080/",
        "port 8080",
        "93.184.216.34:8080",
    ),
    ("http://public.site.com:22/", "port 22", "93.184.216.34:22"),
    (
        "http://public.site.com:11211/",
        "port 11211",
        "93.184.216.34:11211",
    ),
    (
        "http://public.site.com:000022/",
        "port 22",
        "93.184.216.34:22",
    ),
    ("http://10.0.0.5:8080/", "public internet", "10.0.0.5:8080"),
    ("//10.0.0.5/", "not a complete URL", ""),
    ("10.0.0.5", "not a complete URL", ""),
    ("http://10.0.0.5:99999/", "not a complete URL", ""),
    ("http://[::ffff:10.0.0.5", "not a complete URL", ""),
];

pub(crate) fn odd_urls(stage: &Stage) {
    for url in [
        "file:///etc/passwd",
        "gopher://10.0.0.5:70/_INFO",
        "ftp://10.0.0.5/",
        "data:text/plain,hello",
        "javascript:alert(1)",
        "dict://10.0.0.5:2628/d:x",
        "ldap://10.0.0.5/",
        "jar:http://10.0.0.5!/",
        "ws://10.0.0.5/",
        "view-source:http://10.0.0.5/",
        "unix:/run/docker.sock",
    ] {
        stage.refuses(&Attack {
            url: url.to_owned(),
            told: "only http and https URLs can be read",
            naively: None,
        });
    }
    for (url, told, target) in ODD_URLS {
        if told.is_empty() {
            // Only a fragment, whatever stands in it.
            let (fetched, _) = stage.fetch(&settings(), url);
            assert_eq!(fetched.unwrap().url.as_str(), CONTROL);
            continue;
        }
        stage.refuses(&Attack {
            url: (*url).to_owned(),
            told,
            naively: target.parse().ok(),
        });
    }
}

pub(crate) fn bodies(stage: &Stage) {
    for path in ["endless", "bomb"] {
        let (fetched, contacts) = stage.fetch(&settings(), &format!("{CONTROL}{path}"));
        let fetched = fetched.unwrap();
        assert!(fetched.cut && contacts.len() == 1, "{path}");
        assert!(fetched.body.len() <= settings().max_bytes, "{path}");
    }
    for (path, told) in [
        ("drip", "within 3 seconds"),
        ("endless-head", "cannot be read"),
    ] {
        stage.refuses(&Attack {
            url: format!("{CONTROL}{path}"),
            told,
            naively: at("93.184.216.34", 80),
        });
    }
}

/// Proxies and credentials that stand around.
pub(crate) fn environment(stage: &Stage) {
    let proxy = at("10.0.0.9", 3128);
    let contacts = stage.naively(reqwest::Client::builder(), CONTROL);
    assert!(
        contacts.iter().any(|contact| Some(contact.to) == proxy),
        "{contacts:?}"
    );
    assert!(
        std::fs::read_to_string("/run/home/.netrc")
            .unwrap()
            .contains("public.site.com")
    );
    let (fetched, contacts) = stage.fetch(&settings(), CONTROL);
    assert!(fetched.is_ok() && contacts.len() == 1);
    let head = contacts[0].head.to_ascii_lowercase();
    assert!(head.starts_with("get / http/1.1\r\n"), "{head}");
    for word in ["canary", "authorization", "cookie", "referer", "proxy"] {
        assert!(!head.contains(word), "{head}");
    }
}

/// The file is redirected to a private address, and so is nobody who asks for it.
pub(crate) fn robots_files(stage: &Stage) {
    let honouring = FetchSettings {
        robots: true,
        ..settings()
    };
    let (fetched, contacts) = stage.fetch(&honouring, CONTROL);
    assert!(fetched.unwrap_err().contains("robots.txt cannot be read"));
    assert!(contacts.len() == 1 && contacts[0].head.starts_with("GET /robots.txt "));
    let robots = format!("{CONTROL}robots.txt");
    let contacts = stage.naively(reqwest::Client::builder().no_proxy(), &robots);
    assert!(
        contacts
            .iter()
            .any(|contact| Some(contact.to) == at("10.0.0.5", 80))
    );
    for host in ["private.site.com", "10.0.0.5", "loopback.site.com"] {
        let (fetched, contacts) = stage.fetch(&honouring, &format!("http://{host}/"));
        assert!(fetched.unwrap_err().contains("public internet") && contacts.is_empty());
    }
}
