//! Embeddings of an upstream with OpenAI's API.

use reqwest::Client;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::settings::EmbeddingSettings;
use crate::{MAX_ANSWER, SetupError};
use net::{BodyError, CappedBody, ClientOptions};

/// Requests embeddings.
#[derive(Debug, Clone)]
pub(super) struct Embeddings {
    client: Client,
    settings: EmbeddingSettings,
}

/// Why there are no embeddings.
#[derive(Debug, thiserror::Error)]
pub(super) enum EmbedError {
    #[error("the upstream could not be asked")]
    Send(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the upstream answered with status {0}")]
    Status(u16),
    #[error("the upstream's answer has another form than OpenAI's, or is too long")]
    Answer,
    #[error("the upstream did not answer in time")]
    TimedOut,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: Vec<&'a str>,
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    index: usize,
    embedding: Vec<f32>,
}

impl Embeddings {
    pub(super) fn new(settings: EmbeddingSettings) -> Result<Self, SetupError> {
        let options = ClientOptions {
            certificates: settings.certificates.clone(),
            ..ClientOptions::default()
        };
        let client = options.build();
        let client = client.map_err(|error| SetupError::client("embeddings", &error))?;
        Ok(Self { client, settings })
    }

    /// The similarity of each text to the query: the cosine of the angle between their embeddings.
    pub(super) async fn similarity(
        &self,
        query: &str,
        texts: &[String],
    ) -> Result<Vec<f32>, EmbedError> {
        let asking = self.vectors(query, texts);
        let vectors = tokio::time::timeout(self.settings.timeout, asking).await;
        let vectors = vectors.map_err(|_| EmbedError::TimedOut)??;
        let (query, texts) = vectors.split_first().ok_or(EmbedError::Answer)?;
        Ok(texts.iter().map(|text| cosine(query, text)).collect())
    }

    async fn vectors(&self, query: &str, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let input: Vec<&str> = std::iter::once(query)
            .chain(texts.iter().map(String::as_str))
            .collect();
        let count = input.len();
        let body = Request {
            model: &self.settings.model,
            input,
            encoding_format: "float",
        };
        let body = serde_json::to_vec(&body).map_err(|_| EmbedError::Answer)?;
        let mut request = self
            .client
            .post(self.settings.url.clone())
            .header("content-type", "application/json")
            .body(body);
        if let Some(key) = &self.settings.api_key {
            request = request.bearer_auth(key.expose_secret());
        }
        let response = request
            .send()
            .await
            .map_err(|error| EmbedError::Send(error.into()))?;
        if !response.status().is_success() {
            return Err(EmbedError::Status(response.status().as_u16()));
        }
        let body = async { CappedBody::new(response, MAX_ANSWER)?.whole().await };
        let answer = body.await.map_err(|error| match error {
            BodyError::TooLarge(_) => EmbedError::Answer,
            BodyError::Broken(error) => EmbedError::Send(error.into()),
        })?;
        let answer: Answer = serde_json::from_slice(&answer).map_err(|_| EmbedError::Answer)?;
        let mut vectors = vec![Vec::new(); count];
        for entry in answer.data {
            let vector = vectors.get_mut(entry.index).ok_or(EmbedError::Answer)?;
            *vector = entry.embedding;
        }
        let size = vectors.first().map_or(0, Vec::len);
        let complete = size > 0 && vectors.iter().all(|vector| vector.len() == size);
        complete.then_some(vectors).ok_or(EmbedError::Answer)
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    let length = |vector: &[f32]| vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    let lengths = length(a) * length(b);
    if lengths > 0.0 { dot / lengths } else { 0.0 }
}
