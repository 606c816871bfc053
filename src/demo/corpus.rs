//! A small web for the demo: the pages of a town that does not exist, and a search engine over them that speaks as
//! SearXNG does.

use axum::Json;
use axum::Router;
use axum::extract::{Path, Query};
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use serde_json::{Value, json};

/// A word of the title counts as often as this many in the text.
const TITLE_WEIGHT: usize = 3;
/// A word counts at most this often in one page.
const MOST_OF_A_WORD: usize = 3;
/// Shorter words say nothing about a page.
const LEAST_CHARS: usize = 4;

/// A page by its name in the address.
struct Page {
    name: &'static str,
    html: &'static str,
}

const PAGES: [Page; 10] = [
    page("events", include_str!("corpus/events.html")),
    page("ferry", include_str!("corpus/ferry.html")),
    page("harbour", include_str!("corpus/harbour.html")),
    page("index", include_str!("corpus/index.html")),
    page("jubilee", include_str!("corpus/jubilee.html")),
    page("lighthouse", include_str!("corpus/lighthouse.html")),
    page("museum", include_str!("corpus/museum.html")),
    page("railway", include_str!("corpus/railway.html")),
    page("walk", include_str!("corpus/walk.html")),
    page("wreck", include_str!("corpus/wreck.html")),
];

const fn page(name: &'static str, html: &'static str) -> Page {
    Page { name, html }
}

/// What a search asks for.
#[derive(Deserialize)]
struct Asked {
    q: String,
    format: Option<String>,
}

/// The server of both.
pub(super) fn router() -> Router {
    Router::new()
        .route("/robots.txt", get("User-agent: *\nDisallow: /search\n"))
        .route("/search", get(search))
        .route("/town/{page}", get(show))
}

async fn show(Path(name): Path<String>) -> Response {
    match PAGES.iter().find(|page| page.name == name) {
        Some(page) => Html(page.html).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such page.").into_response(),
    }
}

/// Answers as SearXNG does when JSON is among its `search.formats`; it has no other format.
async fn search(Query(asked): Query<Asked>, headers: HeaderMap) -> Response {
    if asked.format.as_deref() != Some("json") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let base = format!("http://{}/town", host.unwrap_or("localhost"));
    let results: Vec<Value> = ranked(&asked.q)
        .iter()
        .map(|page| {
            json!({
                "url": format!("{base}/{}", page.name),
                "title": page.between("<title>", "</title>"),
                "content": page.between("name=\"description\" content=\"", "\""),
                "publishedDate": null,
                "engine": "demo",
                "engines": ["demo"],
                "category": "general",
            })
        })
        .collect();
    Json(json!({
        "query": asked.q,
        "number_of_results": results.len(),
        "results": results,
        "answers": [],
        "corrections": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": [],
    }))
    .into_response()
}

/// The pages that have words of the query, best first.
fn ranked(query: &str) -> Vec<&'static Page> {
    let query = query.to_lowercase();
    let words: Vec<&str> = query
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| word.chars().count() >= LEAST_CHARS)
        .collect();
    let mut found: Vec<(usize, &Page)> = PAGES
        .iter()
        .map(|page| (page.fits(&words), page))
        .filter(|(fits, _)| *fits > 0)
        .collect();
    found.sort_by_key(|(fits, _)| std::cmp::Reverse(*fits));
    found.into_iter().map(|(_, page)| page).collect()
}

impl Page {
    fn fits(&self, words: &[&str]) -> usize {
        let title = self.between("<title>", "</title>").to_lowercase();
        // Without the navigation, which is the same everywhere.
        let text = self.between("<main>", "</main>").to_lowercase();
        let count = |word: &&str| {
            let in_text = text.matches(*word).count().min(MOST_OF_A_WORD);
            title.matches(*word).count() * TITLE_WEIGHT + in_text
        };
        words.iter().map(count).sum()
    }

    /// What stands between two marks; nothing where they are missing.
    fn between(&self, begin: &str, end: &str) -> &'static str {
        let rest = self.html.split_once(begin).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_once(end))
            .map_or("", |(text, _)| text)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn get(path: &str) -> (StatusCode, String) {
        let request = Request::get(path).header("host", "127.0.0.1:4321");
        let request = request.body(Body::empty()).unwrap();
        let response = router().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_search_leads_to_pages_that_are_there() {
        let (status, found) = get("/search?q=Who+built+the+lighthouse&format=json").await;
        assert_eq!(status, StatusCode::OK);
        let found: Value = serde_json::from_str(&found).unwrap();
        let results = found["results"].as_array().unwrap();
        assert_eq!(
            results[0]["title"],
            "Gannet Head, the lighthouse of Velmouth"
        );
        assert!(results.len() > 3 && results.len() < PAGES.len(), "{found}");
        for result in results {
            let url = result["url"].as_str().unwrap();
            let path = url.strip_prefix("http://127.0.0.1:4321").unwrap();
            let (status, html) = get(path).await;
            assert_eq!(status, StatusCode::OK, "{url}");
            let title = result["title"].as_str().unwrap();
            assert!(html.contains(&format!("<title>{title}</title>")), "{url}");
            assert_ne!(result["content"], "", "{url}");
        }
    }

    #[tokio::test]
    async fn what_is_not_there_is_not_found() {
        let (_, found) = get("/search?q=submarine&format=json").await;
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["results"], json!([]));
        assert_eq!(get("/search?q=town").await.0, StatusCode::FORBIDDEN);
        assert_eq!(get("/town/submarine").await.0, StatusCode::NOT_FOUND);
        assert!(get("/robots.txt").await.1.contains("Disallow: /search"));
    }

    #[test]
    fn every_page_has_what_is_searched() {
        for page in PAGES {
            for (begin, end) in [
                ("<title>", "</title>"),
                ("name=\"description\" content=\"", "\""),
                ("<main>", "</main>"),
            ] {
                assert_ne!(page.between(begin, end), "", "{begin} in {}", page.name);
            }
        }
    }
}
