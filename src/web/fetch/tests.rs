mod bodies;
mod cache;
mod connections;
mod limits;
mod robots_file;

use super::serving::{ServedReply, Server, answer, head, local_settings, page};
use super::*;

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
