//! Extractors for the path and the query, whose rejections are OpenAI's error envelope instead of axum's plain text.

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::ApiError;
use crate::openai::request::{RequestError, one_of};

/// The number of entries of a page when the request has no `limit`.
pub(super) const DEFAULT_LIMIT: usize = 20;
/// The largest `limit` of most lists.
pub(super) const MAX_LIMIT: usize = 100;
/// The words of `order`.
const ORDERS: [(&str, Order); 2] = [("asc", Order::Ascending), ("desc", Order::Descending)];

/// The variable parts of the path, percent-decoded.
#[derive(Debug)]
pub(super) struct Path<T>(pub(super) T);

/// The parameters of the query.
#[derive(Debug)]
pub(super) struct Query<T>(pub(super) T);

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// The query of a list that can be read in both orders.
#[derive(Debug, Deserialize)]
pub(super) struct OrderedQuery {
    limit: Option<String>,
    order: Option<String>,
    after: Option<String>,
}

impl OrderedQuery {
    /// The entries of the page that is asked for, and whether more follow it. `entries` are in ascending order.
    ///
    /// # Errors
    /// When a parameter is not valid.
    pub(super) fn page<T>(
        &self,
        mut entries: Vec<T>,
        default: Order,
        is_entry: impl Fn(&T, &str) -> bool,
    ) -> Result<(Vec<T>, bool), ApiError> {
        let limit = page_limit(self.limit.as_deref(), DEFAULT_LIMIT, MAX_LIMIT)?;
        let asked = self.order.as_deref();
        let asked = asked.map(|word| one_of("order", word, &ORDERS));
        if asked.transpose()?.unwrap_or(default) == Order::Descending {
            entries.reverse();
        }
        if let Some(after) = self.after.as_deref().filter(|after| !after.is_empty()) {
            let place = entries.iter().position(|entry| is_entry(entry, after));
            let place =
                place.ok_or_else(|| RequestError::invalid("after", "names no item of the list"))?;
            entries.drain(..=place);
        }
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        Ok((entries, has_more))
    }
}

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
