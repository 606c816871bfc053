//! Errors of requests that may not be sent.

use http::StatusCode;

use super::{ApiError, RETRY_AFTER_SECONDS};
use agent::metrics::RefusedLabel;

impl ApiError {
    /// Why a request was refused, if it was one that may not be sent.
    pub(super) fn refused(&self) -> Option<RefusedLabel> {
        let code = self.0.code?;
        RefusedLabel::ALL
            .into_iter()
            .find(|label| label.as_str() == code)
    }

    /// 403 for a run that goes on by itself and whose API key does not exist any more.
    pub(in crate::http) fn key_was_removed() -> Self {
        let message =
            "the API key of this run was removed while it waited for a decision; it does not go on";
        Self::new(
            StatusCode::FORBIDDEN,
            "permission_error",
            Some("key_removed"),
            message,
        )
    }

    /// 401 for a missing or wrong API key.
    pub(crate) fn unauthorized() -> Self {
        let message = "the API key is missing or wrong; send it as authorization: Bearer KEY";
        Self::new(
            StatusCode::UNAUTHORIZED,
            "authentication_error",
            Some("invalid_api_key"),
            message,
        )
    }

    /// 401 at the internal address for a request that is not signed with the cluster key.
    pub(in crate::http) fn not_a_replica() -> Self {
        let message =
            "this address is for requests that replicas have signed with the same cluster key";
        Self::new(
            StatusCode::UNAUTHORIZED,
            "authentication_error",
            Some("invalid_cluster_key"),
            message,
        )
    }

    /// 403 for a host name that is not allowed; protects from DNS rebinding.
    pub(crate) fn host_not_allowed() -> Self {
        let message = "the host of this request is not allowed; use a loopback name, add the host to allowed_hosts or configure API keys";
        Self::new(
            StatusCode::FORBIDDEN,
            "permission_error",
            Some("host_not_allowed"),
            message,
        )
    }

    /// 403 for a web page of an origin that is not configured.
    pub(crate) fn origin_not_allowed() -> Self {
        let message =
            "web pages of this origin may not send this request; add the origin to cors_origins";
        Self::new(
            StatusCode::FORBIDDEN,
            "permission_error",
            Some("origin_not_allowed"),
            message,
        )
    }

    /// 403 for a web page of another origin that speaks MCP.
    #[cfg(feature = "mcp")]
    pub(in crate::http) fn page_not_allowed() -> Self {
        let message =
            "web pages of this origin may not call tools here; add the origin to cors_origins";
        let mut error = Self::origin_not_allowed();
        error.0.message = message.to_owned();
        error
    }

    /// 429 for a key that has as many requests in progress as it may have.
    pub(crate) fn too_many_requests() -> Self {
        let mut error = Self::share_is_used(
            "too many requests of this API key are in progress; wait until some of them have ended",
        );
        error.0.body_unread = true;
        error
    }

    /// 429 for a key that has as many turns running as it may have, with or without a client.
    pub(crate) fn too_many_turns() -> Self {
        Self::share_is_used(
            "too many turns and forwarded requests of this API key are running, background ones included; wait until some of them have \
             ended, or cancel some",
        )
    }

    fn share_is_used(message: &str) -> Self {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let code = Some("rate_limit_exceeded");
        let mut error = Self::new(status, "rate_limit_error", code, message);
        error.0.retry_after = Some(RETRY_AFTER_SECONDS);
        error
    }

    /// 403 for a key that may not read the figures of all keys.
    pub(crate) fn not_operator() -> Self {
        let message = "the metrics have the figures of all API keys and this key may not read them; use a key with `operator = true`, or set metrics_listen";
        Self::new(
            StatusCode::FORBIDDEN,
            "permission_error",
            Some("operator_required"),
            message,
        )
    }
}
