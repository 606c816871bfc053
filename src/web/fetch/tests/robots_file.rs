//! `robots.txt`.

use super::*;

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
