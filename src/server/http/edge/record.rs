//! The `request` record of the log: one for each answer, written when its body has ended.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request};
use http::{Method, StatusCode};

use crate::http::served::Served;
use agent::metrics::RouteLabel;
use agent::traces::{Span, TracedRequest, Traces};
use protocol::ids::{Owner, RequestId, shown};

/// How the body of a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum BodyEnd {
    /// It was written whole.
    Whole,
    /// It broke off by an error of its source.
    Failed,
}

/// The record of a request. Dropping it writes it.
#[derive(Debug)]
pub(in crate::http) struct RequestRecord {
    request_id: RequestId,
    method: Method,
    /// The template of the path.
    matched: Option<MatchedPath>,
    /// The beginning of the path, if no route matches.
    path: String,
    began: Instant,
    pub(super) route: RouteLabel,
    /// The owner of the request, if it is known.
    pub(super) owner: Option<Owner>,
    /// The status of the answer; none if the client left before there was one.
    pub(super) status: Option<StatusCode>,
    /// The cause of an error.
    pub(super) cause: Option<String>,
    /// The request was refused. Such records come at the debug level, as a client can cause many of them.
    pub(super) refused: bool,
    /// The model that was asked.
    pub(super) served: Option<Served>,
    span: Option<Span>,
    end: OnceLock<BodyEnd>,
}

impl RequestRecord {
    pub(super) fn new(
        request: &Request,
        route: RouteLabel,
        request_id: RequestId,
        began: Instant,
    ) -> Self {
        let matched = request.extensions().get::<MatchedPath>().cloned();
        let is_template = |matched: &MatchedPath| !matched.as_str().contains("{*");
        let path = match matched.as_ref().is_some_and(is_template) {
            false if tracing::enabled!(tracing::Level::WARN) => shown(request.uri().path()),
            _ => String::new(),
        };
        Self {
            request_id,
            method: request.method().clone(),
            matched,
            path,
            began,
            route,
            owner: None,
            status: None,
            cause: None,
            refused: false,
            served: None,
            span: None,
            end: OnceLock::new(),
        }
    }

    /// Begins the span of the request, and makes it the parent of the spans that follow from the request. Health checks
    /// have none.
    pub(super) fn begin_span(&mut self, traces: &Traces, request: &mut Request) {
        if self.route == RouteLabel::Operations || !traces.is_on() {
            return;
        }
        let (path, headers) = (shown(request.uri().path()), request.headers());
        let traced = TracedRequest {
            method: &self.method,
            route: self.matched.as_ref().map(MatchedPath::as_str),
            path: &path,
            id: self.request_id.as_str(),
        };
        self.span = traces.request(headers, traced);
        if let Some(span) = &self.span {
            span.put(request.headers_mut());
        }
    }

    /// How long the request has taken so far.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The body of the response has ended.
    pub(in crate::http) fn body_ended(&self, end: BodyEnd) {
        let _only_the_first_counts = self.end.set(end);
    }

    fn path(&self) -> &str {
        match &self.matched {
            Some(matched) if self.path.is_empty() => matched.as_str(),
            _ => &self.path,
        }
    }

    /// What the record says of the end of the body; nothing if it was written whole.
    fn ended(&self) -> Option<&'static str> {
        // The answer to HEAD has no body that could be written.
        match self.end.get() {
            _ if self.method == Method::HEAD && self.status.is_some() => None,
            Some(BodyEnd::Whole) => None,
            Some(BodyEnd::Failed) => Some("failed"),
            // The body was dropped before its end: the client has left, or the server stops.
            None => Some("aborted"),
        }
    }
}

impl Drop for RequestRecord {
    #[expect(
        clippy::cognitive_complexity,
        reason = "a record is written in one place for each level, all by the same macro"
    )]
    fn drop(&mut self) {
        /// The record at a level. A level is a constant of the place that writes it.
        macro_rules! write_at {
            ($level:expr) => {
                if tracing::enabled!($level) {
                    let turn = self.served.as_ref().map(|served| served.turn.figures());
                    let turn = turn.unwrap_or_default();
                    tracing::event!(
                        $level,
                        request_id = %self.request_id,
                        method = self.method.as_str(),
                        path = self.path(),
                        route = self.route.as_str(),
                        status = self.status.map(|status| status.as_u16()),
                        owner = self.owner.as_ref().and_then(Owner::name),
                        model = self.served.as_ref().map(|served| served.model.as_str()),
                        upstream = turn.upstream.as_deref(),
                        input_tokens = turn.input_tokens,
                        output_tokens = turn.output_tokens,
                        rounds = turn.rounds,
                        stop_reason = turn.stop_reason,
                        ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
                        ended = self.ended(),
                        cause = self.cause.as_deref(),
                        "request"
                    );
                }
            };
        }
        if let Some(span) = self.span.take() {
            span.answered(self.status, self.ended());
        }
        if self.cause.is_some() {
            write_at!(tracing::Level::WARN);
        } else if self.refused || self.route == RouteLabel::Operations {
            write_at!(tracing::Level::DEBUG);
        } else {
            write_at!(tracing::Level::INFO);
        }
    }
}
