//! The client of the tests, for whole answers and for streams.

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use reqwest::{RequestBuilder, Response};
use serde_json::Value;

use super::described::{self, Asked};
use super::events::EventReader;
use super::{PATIENCE, within};

/// An HTTP client of one server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    origin: String,
    headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: StatusCode,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
}

impl Client {
    /// A client of the server at an origin such as `http://127.0.0.1:8080`.
    pub(crate) fn new(origin: &str) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Self {
            http,
            origin: origin.trim_end_matches('/').to_owned(),
            headers: Vec::new(),
        }
    }

    /// Where the server is.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// The same client with one more header on every request.
    pub(crate) fn header(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        client.headers.push((name.to_owned(), value.to_owned()));
        client
    }

    /// The same client with an API key.
    pub(crate) fn key(&self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    /// A request to a path of the server.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.origin));
        self.headers.iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }

    /// Sends a request with a JSON body and takes the whole answer.
    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        let request = self
            .request(method, path)
            .header("content-type", "application/json")
            .body(body.to_string());
        Answer::of(request).await
    }

    /// `GET`.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    /// `DELETE`.
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::DELETE, path)).await
    }

    /// `POST` with a JSON body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    /// A chat request, as it is given.
    pub(crate) async fn post_chat(&self, body: Value) -> Answer {
        self.post("/v1/chat/completions", &body).await
    }

    /// A streamed chat request; `stream` is set here. Fails the test when the answer is no stream.
    pub(crate) async fn stream_chat(&self, body: Value) -> EventReader {
        match self.try_stream_chat(body).await {
            Ok(reader) => reader,
            Err(answer) => panic!("no stream but {}: {}", answer.status, answer.text()),
        }
    }

    /// A streamed chat request that may be answered with something else.
    pub(crate) async fn try_stream_chat(&self, mut body: Value) -> Result<EventReader, Answer> {
        body["stream"] = true.into();
        let request = self
            .request(Method::POST, "/v1/chat/completions")
            .header("content-type", "application/json")
            .body(body.to_string());
        Self::stream_of(request, EventReader::new).await
    }

    /// The event log of a run from an event on, whether or not it still grows.
    pub(crate) async fn events(&self, run: &str, after: usize) -> Result<EventReader, Answer> {
        let path = format!("/v1/chat/completions/{run}/events?after={after}");
        Self::stream_of(self.request(Method::GET, &path), EventReader::of_log).await
    }

    async fn stream_of(
        request: RequestBuilder,
        reader: impl FnOnce(Response) -> EventReader,
    ) -> Result<EventReader, Answer> {
        let (asked, response) = described::send("the head of a stream", request).await;
        let media = response.headers().get("content-type");
        let streams = media.is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"));
        if response.status() == StatusCode::OK && streams {
            let described = asked.streams(response.status().as_u16(), response.headers());
            Ok(reader(response).described(described))
        } else {
            Err(Answer::read(&asked, response).await)
        }
    }
}

impl Answer {
    /// Sends a request and takes the whole answer.
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let (asked, response) = described::send("the head of an answer", request).await;
        Self::read(&asked, response).await
    }

    async fn read(asked: &Asked, response: Response) -> Self {
        let status = response.status();
        let headers = response.headers().clone();
        let body = within("the body of an answer", response.bytes())
            .await
            .unwrap();
        asked.answered(status.as_u16(), &headers, &body);
        Self {
            status,
            headers,
            body,
        }
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{} with no JSON ({error}): {}", self.status, self.text()),
        }
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body of a successful chat completion, held against what every such body has.
    pub(crate) fn completion(&self) -> Value {
        let body = self.json();
        assert_eq!(self.status, StatusCode::OK, "{body}");
        assert_eq!(body["object"], "chat.completion", "{body}");
        assert!(body["id"].is_string() && body["created"].is_u64(), "{body}");
        assert!(body["model"].is_string(), "{body}");
        assert_eq!(body["choices"].as_array().map(Vec::len), Some(1), "{body}");
        assert_eq!(body["choices"][0]["message"]["role"], "assistant", "{body}");
        assert!(body["choices"][0]["finish_reason"].is_string(), "{body}");
        let usage = &body["usage"];
        assert_eq!(
            usage["total_tokens"].as_u64(),
            usage["prompt_tokens"]
                .as_u64()
                .zip(usage["completion_tokens"].as_u64())
                .map(|(prompt, completion)| prompt + completion),
            "{body}"
        );
        body
    }

    /// The text of a successful chat completion.
    pub(crate) fn content(&self) -> String {
        let body = self.completion();
        let content = body["choices"][0]["message"]["content"].as_str();
        content.unwrap_or_default().to_owned()
    }

    /// Fails unless this is an error of OpenAI's envelope with this status and code; gives its message.
    pub(crate) fn assert_error(&self, status: u16, code: Option<&str>) -> String {
        let body = self.json();
        assert_eq!(self.status.as_u16(), status, "{body}");
        for field in ["message", "type", "param", "code"] {
            assert!(body["error"].get(field).is_some(), "no `{field}` in {body}");
        }
        assert_eq!(body["error"]["code"].as_str(), code, "{body}");
        body["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }
}
