use tokio::io::AsyncWriteExt;

use super::serving::{ServedReply, Server, answer, head, local_settings, page};
use super::*;
use crate::web::pages::Pages;
use crate::web::settings::SearchSettings;

const TEXT: (&str, &str) = ("content-type", "text/plain");

fn fetcher(settings: &FetchSettings) -> Fetcher {
    Fetcher::new(settings).unwrap()
}

async fn get(server: &Server, path: &str) -> Result<Fetched, FetchError> {
    let open = DomainFilter::default();
    fetcher(&local_settings())
        .get(&server.url(path), &open)
        .await
}

async fn refusal(server: &Server, path: &str) -> String {
    get(server, path).await.unwrap_err().to_string()
}

fn endless(head: Vec<u8>, again: &[u8], every: Duration) -> ServedReply {
    ServedReply::Endless {
        head,
        again: again.to_vec(),
        every,
    }
}

fn search_settings() -> SearchSettings {
    SearchSettings {
        timeout: Duration::from_secs(5),
        max_retries: 0,
        max_results: 5,
        max_pages: 5,
        pages_timeout: Duration::from_secs(5),
        cache_ttl: Duration::from_secs(60),
        cache_bytes: 1 << 20,
    }
}

#[tokio::test]
async fn a_page_is_fetched_with_few_headers() {
    let server = Server::start([("/a?b=c", page("<p>hello"))]).await;
    let fetched = get(&server, "/a?b=c#part").await.unwrap();
    assert_eq!(fetched.url.as_str(), server.url("/a?b=c"));
    assert_eq!(fetched.content_type.as_deref(), Some("text/html"));
    assert_eq!((&fetched.body[..], fetched.cut), (&b"<p>hello"[..], false));
    let request = server.requests().remove(0).to_ascii_lowercase();
    let lines = request
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(':'));
    let mut names: Vec<_> = lines.map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "accept",
            "accept-encoding",
            "accept-language",
            "host",
            "user-agent"
        ]
    );
    assert!(
        request.contains("user-agent: loopwright/0.1 (tests)"),
        "{request}"
    );
}

#[tokio::test]
async fn redirects_are_followed_up_to_a_limit_and_checked() {
    let to = |status, location: &str| answer(status, &[("location", location)], b"");
    let server = Server::start([
        ("/1", to(301, "2?x")),
        ("/2?x", to(307, "//127.0.0.1:1/%2e")),
        ("/a", to(302, "/b")),
        ("/b", to(303, "c")),
        ("/c", to(308, "/d")),
        ("/d", page("there")),
        ("/loop", to(302, "/loop")),
        ("/outside", to(302, "http://127.0.0.2/")),
        ("/nowhere", answer(302, &[], b"")),
        (
            "/refresh",
            answer(
                200,
                &[("refresh", "0;url=/d"), TEXT],
                b"<meta http-equiv=refresh content=0;/d>",
            ),
        ),
    ])
    .await;
    let fetched = get(&server, "/a").await.unwrap();
    assert_eq!(fetched.url.as_str(), server.url("/d"));
    let error = refusal(&server, "/loop").await;
    assert!(error.contains("more than 3 times"), "{error}");
    let error = refusal(&server, "/outside").await;
    assert!(
        error.starts_with("the page redirects to http://127.0.0.2/, which cannot be read:"),
        "{error}"
    );
    let error = refusal(&server, "/nowhere").await;
    assert!(error.contains("answered 302"), "{error}");
    let error = refusal(&server, "/1").await;
    assert!(error.contains("no connection to 127.0.0.1"), "{error}");
    assert_eq!(
        get(&server, "/refresh").await.unwrap().url.as_str(),
        server.url("/refresh")
    );
    // The domains of the request hold for redirects too.
    let there = Server::start([("/", page("there"))]).await;
    let there = there.url("/").replace("127.0.0.1", "localhost");
    let server = Server::start([("/", to(302, &there))]).await;
    let domains = DomainFilter {
        allowed: vec!["127.0.0.1".to_owned()],
        blocked: Vec::new(),
    };
    let fetcher = fetcher(&local_settings());
    assert!(
        fetcher
            .get(&server.url("/"), &DomainFilter::default())
            .await
            .is_ok()
    );
    let error = fetcher.get(&server.url("/"), &domains).await.unwrap_err();
    assert!(
        error.to_string().contains("localhost is not among them"),
        "{error}"
    );
}

#[tokio::test]
async fn statuses_are_described() {
    let with = |status, headers: &[(&str, &str)]| answer(status, headers, b"a long story");
    let server = Server::start([
        ("/204", ServedReply::Bytes(head(204, &[]))),
        ("/304", ServedReply::Bytes(head(304, &[]))),
        ("/401", with(401, &[])),
        ("/403", with(403, &[])),
        ("/410", with(410, &[])),
        ("/429", with(429, &[("retry-after", "30")])),
        ("/500", with(500, &[])),
        ("/503", with(503, &[("retry-after", "86400")])),
    ])
    .await;
    for (path, words) in [
        ("/204", "no content"),
        ("/304", "no content"),
        ("/401", "needs a login"),
        ("/403", "may not be read by programs"),
        ("/404", "no such page"),
        ("/410", "was removed"),
        ("/429", "too many requests (it asks to wait 30 seconds)"),
        ("/500", "the server failed"),
        ("/503", "under maintenance; use"),
    ] {
        let error = refusal(&server, path).await;
        assert!(
            error.contains(words) && error.contains(path.trim_start_matches('/')),
            "{error}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_by_name_before_its_body() {
    let fast = Duration::from_millis(1);
    let kind = |kind: &str| endless(head(200, &[("content-type", kind)]), b"\0binary", fast);
    let server = Server::start([
        ("/image", kind("image/png")),
        ("/video", kind("video/mp4")),
        ("/zip", kind("application/zip")),
        ("/odd", kind("application/x-odd")),
        ("/octets", kind("application/octet-stream")),
        ("/none", endless(head(200, &[]), b"\x7fELF\0", fast)),
        ("/text", answer(200, &[], b"just text")),
        (
            "/pdf",
            answer(
                200,
                &[("content-type", "application/octet-stream")],
                b"%PDF-1.7 \0",
            ),
        ),
    ])
    .await;
    for (path, name) in [
        ("/image", "an image"),
        ("/video", "a video"),
        ("/zip", "an archive"),
        ("/odd", "'application/x-odd'"),
        ("/octets", "not text"),
        ("/none", "not text"),
    ] {
        let error = refusal(&server, path).await;
        assert!(error.contains(name), "{error}");
    }
    assert_eq!(&get(&server, "/text").await.unwrap().body[..], b"just text");
    assert_eq!(
        &get(&server, "/pdf").await.unwrap().body[..],
        b"%PDF-1.7 \0"
    );
}

#[tokio::test]
async fn long_text_is_cut_and_long_binary_formats_are_refused() {
    let fast = Duration::ZERO;
    let limit = local_settings().max_bytes;
    let long = vec![b'a'; limit + 1];
    let server = Server::start([
        ("/exact", answer(200, &[TEXT], &long[1..])),
        ("/more", answer(200, &[TEXT], &long)),
        ("/endless", endless(head(200, &[TEXT]), &long, fast)),
        (
            "/pdf",
            answer(200, &[("content-type", "application/pdf")], &long),
        ),
        (
            "/endless.pdf",
            endless(
                head(200, &[("content-type", "application/pdf")]),
                &long,
                fast,
            ),
        ),
    ])
    .await;
    for (path, cut) in [("/exact", false), ("/more", true), ("/endless", true)] {
        let fetched = get(&server, path).await.unwrap();
        assert_eq!((fetched.body.len(), fetched.cut), (limit, cut), "{path}");
    }
    for path in ["/pdf", "/endless.pdf"] {
        let error = refusal(&server, path).await;
        assert!(error.contains("a PDF of more than 100000 bytes"), "{error}");
    }
}

async fn compressed(encoding: &str, body: &[u8]) -> Vec<u8> {
    use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder};
    macro_rules! with {
        ($encoder:ident) => {{
            let mut encoder = $encoder::new(Vec::new());
            encoder.write_all(body).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match encoding {
        "gzip" => with!(GzipEncoder),
        "deflate" => with!(ZlibEncoder),
        "br" => with!(BrotliEncoder),
        "zstd" => with!(ZstdEncoder),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn compressed_pages_are_read_within_the_same_bounds() {
    let limit = local_settings().max_bytes;
    let bomb = vec![0x20; limit * 100];
    for encoding in ["gzip", "deflate", "br", "zstd"] {
        let headers = [TEXT, ("content-encoding", encoding)];
        let hello = compressed(encoding, b"hello").await;
        let small_bomb = compressed(encoding, &bomb).await;
        assert!(small_bomb.len() < limit, "{encoding}");
        let server = Server::start([
            ("/hello", answer(200, &headers, &hello)),
            ("/bomb", answer(200, &headers, &small_bomb)),
            ("/broken", answer(200, &headers, &hello[..hello.len() - 3])),
            (
                "/garbage",
                answer(200, &headers, b"this is not compressed at all"),
            ),
            (
                "/bomb.pdf",
                answer(
                    200,
                    &[("content-type", "application/pdf"), headers[1]],
                    &small_bomb,
                ),
            ),
        ])
        .await;
        assert_eq!(
            &get(&server, "/hello").await.unwrap().body[..],
            b"hello",
            "{encoding}"
        );
        let fetched = get(&server, "/bomb").await.unwrap();
        assert_eq!(
            (fetched.body.len(), fetched.cut),
            (limit, true),
            "{encoding}"
        );
        assert!(
            refusal(&server, "/bomb.pdf").await.contains("too large"),
            "{encoding}"
        );
        for path in ["/broken", "/garbage"] {
            let error = refusal(&server, path).await;
            assert!(
                error.contains("cannot be read or that broke off"),
                "{encoding} {path}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn bytes_as_sent_are_limited_even_without_content() {
    // Empty blocks of a deflate stream, which yield no text.
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\x03";
    let mut start = head(200, &[TEXT, ("content-encoding", "gzip")]);
    start.extend(gzip);
    let empty_blocks = b"\0\0\0\xff\xff".repeat(1000);
    let server = Server::start([("/", endless(start, &empty_blocks, Duration::ZERO))]).await;
    let fetched = get(&server, "/").await.unwrap();
    assert_eq!((fetched.body.len(), fetched.cut), (0, true));
}

#[tokio::test]
async fn odd_encodings_are_refused() {
    let gzip = compressed("gzip", b"hello").await;
    let twice = compressed("gzip", &gzip).await;
    let server = Server::start([
        (
            "/twice",
            answer(200, &[TEXT, ("content-encoding", "gzip, gzip")], &twice),
        ),
        (
            "/lines",
            answer(
                200,
                &[
                    TEXT,
                    ("content-encoding", "gzip"),
                    ("content-encoding", "br"),
                ],
                &twice,
            ),
        ),
        (
            "/odd",
            answer(200, &[TEXT, ("content-encoding", "compress")], &gzip),
        ),
        (
            "/same",
            answer(200, &[TEXT, ("content-encoding", "identity, GZIP")], &gzip),
        ),
    ])
    .await;
    for path in ["/twice", "/lines", "/odd"] {
        let error = refusal(&server, path).await;
        assert!(error.contains("compressed in a way"), "{error}");
    }
    assert_eq!(&get(&server, "/same").await.unwrap().body[..], b"hello");
}

#[tokio::test]
async fn slow_and_silent_servers_time_out() {
    let quick = MinimumRate {
        idle: Duration::from_millis(300),
        grace: Duration::from_millis(100),
        bytes_per_second: 1000.0,
    };
    let server = Server::start([
        (
            "/drip",
            endless(head(200, &[TEXT]), b"a", Duration::from_millis(20)),
        ),
        (
            "/silent",
            endless(head(200, &[TEXT]), b"a", Duration::from_secs(3600)),
        ),
        (
            "/headless",
            endless(Vec::new(), b"", Duration::from_secs(3600)),
        ),
        (
            "/steady",
            endless(head(200, &[TEXT]), &[b'a'; 1000], Duration::from_millis(20)),
        ),
    ])
    .await;
    let open = DomainFilter::default();
    let settings = FetchSettings {
        timeout: Duration::from_secs(1),
        ..local_settings()
    };
    let fetcher = Fetcher::with_rate(&settings, quick).unwrap();
    for path in ["/drip", "/silent"] {
        let error = fetcher.get(&server.url(path), &open).await.unwrap_err();
        assert!(matches!(error, FetchError::Slow { .. }), "{path}: {error}");
    }
    // One body without end, and one without start.
    for path in ["/steady", "/headless"] {
        let error = fetcher.get(&server.url(path), &open).await.unwrap_err();
        assert!(
            error.to_string().contains("within 1 seconds"),
            "{path}: {error}"
        );
    }
}

#[tokio::test]
async fn header_fields_are_bounded() {
    let endless_head = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
    let long = "a".repeat(70_000);
    let many: Vec<(String, &str)> = (0..200)
        .map(|number| (format!("x-{number}"), "y"))
        .collect();
    let many: Vec<(&str, &str)> = many
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    let server = Server::start([
        (
            "/endless",
            endless(endless_head, &[b'a'; 10_000], Duration::ZERO),
        ),
        ("/long", answer(200, &[("x", &long), TEXT], b"hello")),
        ("/many", answer(200, &many, b"hello")),
    ])
    .await;
    for (path, said) in [
        ("/endless", "cannot be read"),
        ("/long", "too long header"),
        ("/many", "cannot be read"),
    ] {
        let error = refusal(&server, path).await;
        assert!(error.contains(said), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_trusted_is_not_used() {
    let server = Server::start([("/", page("hello"))]).await;
    let url = server.url("/").replace("http:", "https:");
    let error = fetcher(&local_settings())
        .get(&url, &DomainFilter::default())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Connect { .. } | FetchError::Certificate { .. }
        ),
        "{error}"
    );
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn loopback_is_refused_unless_the_operator_permits_it() {
    let server = Server::start([("/", page("hello"))]).await;
    let port = server.address.port();
    let fetcher = fetcher(&FetchSettings {
        ports: vec![port],
        ..serving::settings()
    });
    let open = DomainFilter::default();
    for host in [
        "127.0.0.1",
        "localhost",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0",
    ] {
        let url = format!("http://{host}:{port}/");
        assert!(fetcher.get(&url, &open).await.is_err(), "{url}");
    }
    assert_eq!(server.requests(), Vec::<String>::new());
    assert!(get(&server, "/").await.is_ok());
}

#[tokio::test]
async fn robots_files_are_honoured_and_fetched_once() {
    let rules = "User-agent: loopwright\nDisallow: /closed\n\nUser-agent: *\nDisallow: /";
    let server = Server::start([
        ("/robots.txt", answer(200, &[TEXT], rules.as_bytes())),
        ("/open", page("open")),
        ("/closed/a", page("closed")),
        ("/way", answer(302, &[("location", "/closed/a")], b"")),
    ])
    .await;
    let settings = FetchSettings {
        robots: true,
        ..local_settings()
    };
    let fetcher = fetcher(&settings);
    let open = DomainFilter::default();
    let (one, two) = (server.url("/open"), server.url("/open?2"));
    let (one, two) = tokio::join!(fetcher.get(&one, &open), fetcher.get(&two, &open));
    assert!(one.is_ok());
    assert!(matches!(two, Err(FetchError::Status { .. })));
    for path in ["/closed/a", "/way"] {
        let error = fetcher.get(&server.url(path), &open).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains("asks programs not to"), "{path}: {error}");
    }
    let mut paths = server.paths();
    paths.sort_unstable();
    assert_eq!(paths, ["/open", "/open?2", "/robots.txt", "/way"]);
    // The operator can switch this off.
    assert!(get(&server, "/closed/a").await.is_ok());
}

#[tokio::test]
async fn a_missing_robots_file_allows_and_an_unreachable_one_forbids() {
    let settings = FetchSettings {
        robots: true,
        ..local_settings()
    };
    let forbidding = answer(200, &[TEXT], b"User-agent: *\nDisallow: /");
    let around = answer(302, &[("location", "/robots.txt")], b"");
    let elsewhere = answer(301, &[("location", "/elsewhere")], b"");
    let outside = answer(302, &[("location", "http://10.0.0.5/robots.txt")], b"");
    for (robots, elsewhere, expected) in [
        (answer(404, &[], b""), forbidding.clone(), None),
        (answer(403, &[], b""), forbidding.clone(), None),
        (around, forbidding.clone(), None),
        (
            answer(503, &[], b""),
            page(""),
            Some("does not say at the moment"),
        ),
        (
            ServedReply::Bytes(b"nonsense".to_vec()),
            page(""),
            Some("does not say at the moment"),
        ),
        (outside, page(""), Some("does not say at the moment")),
        (elsewhere, forbidding.clone(), Some("asks programs not to")),
    ] {
        let server = Server::start([
            ("/robots.txt", robots.clone()),
            ("/elsewhere", elsewhere),
            ("/page", page("page")),
        ])
        .await;
        let fetched = fetcher(&settings)
            .get(&server.url("/page"), &DomainFilter::default())
            .await;
        match (fetched, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                assert!(error.to_string().contains(expected), "{error}");
            }
            (fetched, _) => panic!("{robots:?}: {fetched:?}"),
        }
    }
    // An endless file is read up to the limit.
    let mut start = head(200, &[TEXT]);
    start.extend(b"User-agent: *\nDisallow: /page\n");
    let endless = endless(start, &b"# nothing to say\n".repeat(1000), Duration::ZERO);
    let server = Server::start([("/robots.txt", endless), ("/page", page("page"))]).await;
    let error = fetcher(&settings)
        .get(&server.url("/page"), &DomainFilter::default())
        .await;
    assert!(matches!(error, Err(FetchError::Robots { .. })), "{error:?}");
}

#[tokio::test]
async fn waiting_for_a_host_ends_with_the_time_for_the_page() {
    let server = Server::start([
        ("/slow", endless(Vec::new(), b"", Duration::from_secs(3600))),
        ("/", page("hello")),
    ])
    .await;
    let settings = FetchSettings {
        per_host: 1,
        timeout: Duration::from_millis(500),
        ..local_settings()
    };
    let fetcher = fetcher(&settings);
    let open = DomainFilter::default();
    let (slow, root) = (server.url("/slow"), server.url("/"));
    let (first, second) = tokio::join!(fetcher.get(&slow, &open), async {
        while server.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(Duration::from_millis(100), fetcher.get(&root, &open)).await
    });
    assert!(matches!(first, Err(FetchError::Timeout { .. })));
    assert!(second.is_err(), "waits for its turn");
    assert_eq!(server.paths(), ["/slow"]);
    assert!(fetcher.get(&root, &open).await.is_ok());
}

#[tokio::test]
async fn pages_are_cached_for_their_scope_and_shared_while_they_arrive() {
    let server = Server::start([
        ("/page", page("page")),
        (
            "/secret",
            answer(
                200,
                &[TEXT, ("cache-control", "private, No-Store")],
                b"secret",
            ),
        ),
    ])
    .await;
    let pages = Pages::new(fetcher(&local_settings()), &search_settings());
    let open = DomainFilter::default();
    let page = server.url("/page");
    let part = server.url("/page#part");
    let (one, two) = tokio::join!(pages.get("a", &page, &open), pages.get("a", &part, &open));
    assert!(one.is_ok() && two.is_ok());
    pages.get("a", &page, &open).await.unwrap();
    assert_eq!(server.paths().len(), 1);
    pages.get("b", &page, &open).await.unwrap();
    assert_eq!(server.paths().len(), 2);
    // Errors and pages that must not be stored.
    for path in ["/missing", "/secret"] {
        let before = server.paths().len();
        for _ in 0..2 {
            let _result = pages.get("a", &server.url(path), &open).await;
        }
        assert_eq!(server.paths().len(), before + 2, "{path}");
    }
    let off = SearchSettings {
        cache_ttl: Duration::ZERO,
        ..search_settings()
    };
    let pages = Pages::new(fetcher(&local_settings()), &off);
    let before = server.paths().len();
    for _ in 0..2 {
        pages.get("a", &page, &open).await.unwrap();
    }
    assert_eq!(server.paths().len(), before + 2);
}

#[tokio::test]
async fn a_dropped_request_ends() {
    let server = Server::start([(
        "/",
        endless(head(200, &[TEXT]), b"a", Duration::from_secs(3600)),
    )])
    .await;
    let settings = FetchSettings {
        per_host: 1,
        ..local_settings()
    };
    let fetcher = fetcher(&settings);
    let open = DomainFilter::default();
    let url = server.url("/");
    for _ in 0..3 {
        // The host permits one request: the next one can begin only after the dropped one ended.
        let before = server.requests().len();
        tokio::select! {
            result = fetcher.get(&url, &open) => panic!("{result:?}"),
            () = async {
                while server.requests().len() == before {
                    tokio::task::yield_now().await;
                }
            } => {}
        }
    }
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn the_address_of_a_connection_is_checked_again() {
    let server = Server::start([("/", page("hello"))]).await;
    let settings = FetchSettings {
        ports: vec![server.address.port()],
        ..serving::settings()
    };
    let url = format!("http://example.org:{}/", server.address.port());
    // A client with an unguarded resolver.
    let client = reqwest::Client::builder()
        .no_proxy()
        .resolve("example.org", server.address)
        .build()
        .unwrap();
    let policy = Arc::new(UrlPolicy::new(&settings).unwrap());
    let fetcher = Fetcher(Arc::new(Inner {
        client,
        policy,
        hosts: Hosts::new(1),
        robots: None,
        settings,
        rate: MinimumRate::default(),
    }));
    let result = fetcher.get(&url, &DomainFilter::default()).await;
    assert!(
        matches!(result, Err(FetchError::Address { .. })),
        "{result:?}"
    );
    assert_eq!(server.paths(), ["/"]);
}
