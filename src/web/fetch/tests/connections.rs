//! Which connections are used.

use super::*;

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
