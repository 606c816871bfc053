//! Extractors for the path and the query, whose rejections are OpenAI's error envelope instead of axum's plain text.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::ApiError;
use crate::openai::request::RequestError;

/// The variable parts of the path, percent-decoded.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

/// The parameters of the query.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

impl<S, T> FromRequestParts<S> for Path<T>
where
    S: Send + Sync,
    T: DeserializeOwned + Send,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(found)) => Ok(Self(found)),
            Err(_undecodable) => Err(ApiError::not_found(
                "this path cannot be decoded; percent-encode it as UTF-8",
            )),
        }
    }
}

impl<S, T> FromRequestParts<S> for Query<T>
where
    S: Send + Sync,
    T: DeserializeOwned,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(found)) => Ok(Self(found)),
            Err(_unreadable) => {
                let message =
                    "the query string is not valid; send each parameter once, as name=value";
                Err(RequestError::body(message).into())
            }
        }
    }
}

/// The `limit` of a list: `default` when absent, else from 1 to `most`.
pub(super) fn page_limit(
    asked: Option<&str>,
    default: usize,
    most: usize,
) -> Result<usize, ApiError> {
    match asked.map(str::parse::<usize>) {
        None => Ok(default),
        Some(Ok(limit)) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => {
            let message = format!("'limit' must be a whole number from 1 to {most}");
            Err(RequestError::field("limit", message).into())
        }
    }
}
