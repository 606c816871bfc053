//! Extractors for the path and the query, whose rejections are OpenAI's error envelope instead of axum's plain text.

use std::ops::ControlFlow;

use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{ApiError, codes};
use protocol::openai::request::{RequestError, one_of};

/// Default number of entries of a page.
pub(super) const DEFAULT_LIMIT: usize = 20;
/// Largest `limit` of most lists. A larger one is a 400.
/// Tried by `sessions::sessions_are_listed_in_pages_exported_imported_forked_and_deleted`.
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

/// Collects the entries of a page, which are offered in its order.
#[derive(Debug)]
pub(super) struct PageCollector<T> {
    order: Order,
    limit: usize,
    /// The id of the entry before the page, until it was offered.
    after: Option<String>,
    entries: Vec<T>,
    has_more: bool,
}

impl OrderedQuery {
    /// The page that is asked for, without its entries.
    ///
    /// # Errors
    /// When a parameter is not valid.
    pub(super) fn collector<T>(&self, default: Order) -> Result<PageCollector<T>, ApiError> {
        let asked = self.order.as_deref();
        let asked = asked.map(|word| one_of("order", word, &ORDERS));
        Ok(PageCollector {
            order: asked.transpose()?.unwrap_or(default),
            limit: page_limit(self.limit.as_deref(), DEFAULT_LIMIT, MAX_LIMIT)?,
            after: self.after.clone().filter(|after| !after.is_empty()),
            entries: Vec::new(),
            has_more: false,
        })
    }

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
        let mut page = self.collector(default)?;
        if page.order() == Order::Descending {
            entries.reverse();
        }
        for entry in entries {
            if page.offer(entry, &is_entry).is_break() {
                break;
            }
        }
        page.finish()
    }
}

impl<T> PageCollector<T> {
    /// The order in which entries are to be offered.
    pub(super) fn order(&self) -> Order {
        self.order
    }

    /// How many entries the page has so far.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Offers the next entry. Breaks once the page is complete.
    pub(super) fn offer(
        &mut self,
        entry: T,
        is_entry: impl Fn(&T, &str) -> bool,
    ) -> ControlFlow<()> {
        if let Some(after) = &self.after {
            if is_entry(&entry, after) {
                self.after = None;
            }
            return ControlFlow::Continue(());
        }
        if self.entries.len() == self.limit {
            self.has_more = true;
            return ControlFlow::Break(());
        }
        self.entries.push(entry);
        ControlFlow::Continue(())
    }

    /// The entries of the page, and whether more follow it.
    ///
    /// # Errors
    /// When the entry before the page was not offered.
    pub(super) fn finish(self) -> Result<(Vec<T>, bool), ApiError> {
        match self.after {
            Some(_) => Err(RequestError::invalid("after", "names no item of the list").into()),
            None => Ok((self.entries, self.has_more)),
        }
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
            Err(_undecodable) => {
                Err(codes::NOT_FOUND
                    .with("this path cannot be decoded; percent-encode it as UTF-8"))
            }
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
