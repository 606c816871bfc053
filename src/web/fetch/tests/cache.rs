//! The cache of pages.

use super::*;
use crate::pages::Pages;
use crate::settings::SearchSettings;

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
