//! The sample pages of the demo, about a fictional town, and a search engine over them with the API of SearXNG.

use axum::extract::{Path, Query};
use axum::http::header::HOST;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

/// Shortest word that is searched, in characters.
const LEAST_CHARS: usize = 4;

/// The pages: name in the URL and HTML.
pub(super) const PAGES: [(&str, &str); 10] = [
    ("events", include_str!("corpus/events.html")),
    ("ferry", include_str!("corpus/ferry.html")),
    ("harbour", include_str!("corpus/harbour.html")),
    ("index", include_str!("corpus/index.html")),
    ("jubilee", include_str!("corpus/jubilee.html")),
    ("lighthouse", include_str!("corpus/lighthouse.html")),
    ("museum", include_str!("corpus/museum.html")),
    ("railway", include_str!("corpus/railway.html")),
    ("walk", include_str!("corpus/walk.html")),
    ("wreck", include_str!("corpus/wreck.html")),
];

/// The parameters of a search.
#[derive(Deserialize)]
struct SearchQuery {
    q: String,
    format: Option<String>,
}

/// Serves the pages and the search engine.
pub(super) fn router() -> Router {
    Router::new()
        .route("/robots.txt", get("User-agent: *\nDisallow: /search\n"))
        .route("/search", get(search))
        .route("/town/{page}", get(show))
}

async fn show(Path(name): Path<String>) -> Response {
    match PAGES.iter().find(|page| page.0 == name) {
        Some((_, html)) => Html(*html).into_response(),
        None => (StatusCode::NOT_FOUND, "There is no such page.").into_response(),
    }
}

/// Answers in SearXNG's JSON format; any other format is refused.
async fn search(Query(query): Query<SearchQuery>, headers: HeaderMap) -> Response {
    if query.format.as_deref() != Some("json") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or("localhost");
    let result = |(name, html): (&str, &str)| {
        json!({
            "url": format!("http://{host}/town/{name}"),
            "title": between(html, "<title>", "</title>"),
            "content": between(html, "name=\"description\" content=\"", "\""),
            "engines": ["demo"],
        })
    };
    let results: Vec<Value> = ranked(&query.q).into_iter().map(result).collect();
    Json(json!({"query": query.q, "results": results, "unresponsive_engines": []})).into_response()
}

/// The pages that contain words of the query, best match first.
fn ranked(query: &str) -> Vec<(&'static str, &'static str)> {
    let query = query.to_lowercase();
    let words = query.split(|character: char| !character.is_alphanumeric());
    let words: Vec<&str> = words
        .filter(|word| word.chars().count() >= LEAST_CHARS)
        .collect();
    let fits = |html: &str| -> usize {
        let title = between(html, "<title>", "</title>").to_lowercase();
        // Without the navigation, which is the same everywhere.
        let text = between(html, "<main>", "</main>").to_lowercase();
        let places = [title, text];
        let holds = |place: &String| words.iter().filter(|word| place.contains(**word)).count();
        places.iter().map(holds).sum()
    };
    let mut found = PAGES.to_vec();
    found.retain(|(_, html)| fits(html) > 0);
    found.sort_by_key(|(_, html)| std::cmp::Reverse(fits(html)));
    found
}

/// The text between two marks; empty if one is missing.
fn between<'a>(html: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = html.split_once(begin).map(|(_, rest)| rest);
    let found = rest.and_then(|rest| rest.split_once(end));
    found.map_or("", |(text, _)| text)
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
        for (name, html) in PAGES {
            for (begin, end) in [
                ("<title>", "</title>"),
                ("name=\"description\" content=\"", "\""),
                ("<main>", "</main>"),
            ] {
                assert_ne!(between(html, begin, end), "", "{begin} in {name}");
            }
        }
    }
}
