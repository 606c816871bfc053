//! Slow servers, long headers, waiting for a host, and requests that are dropped.

use super::*;
use crate::acting;
use protocol::ids::Owner;

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
    let fetcher = Fetcher::with(&settings, quick, FairSemaphore::new(1)).unwrap();
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
async fn look_ups_of_one_owner_leave_room_for_others() {
    let server = Server::start([("/", page("hello"))]).await;
    let settings = FetchSettings {
        timeout: Duration::from_millis(500),
        ..local_settings()
    };
    let lookups = FairSemaphore::with_reserve(4);
    let fetcher = Fetcher::with(&settings, MinimumRate::default(), lookups.clone()).unwrap();
    let [greedy, other] = ["greedy", "other"].map(Owner::key);
    // As if names were never answered.
    let hanging: Vec<_> = std::iter::from_fn(|| lookups.try_acquire(&greedy)).collect();
    let (url, open) = (
        server.url("/").replace("127.0.0.1", "localhost"),
        DomainFilter::default(),
    );
    let get = |owner| acting::on_behalf_of(owner, fetcher.get(&url, &open));
    assert!(get(&other).await.is_ok());
    // On a connection of its own: the other's is kept for the next request.
    let fetcher = Fetcher::with(&settings, MinimumRate::default(), lookups).unwrap();
    let get = |owner| acting::on_behalf_of(owner, fetcher.get(&url, &open));
    assert!(matches!(
        get(&greedy).await,
        Err(FetchError::Timeout { .. })
    ));
    drop(hanging);
    assert!(get(&greedy).await.is_ok());
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
