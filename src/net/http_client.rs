//! The client for model servers and tools.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::header::{ACCEPT, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderValue, Request, Response};
use http_body::Body;

use super::cause::certificate_remedy;
use super::direct::{DirectBody, DirectClient};
use super::request::{ClientError, RequestBody};

/// A client for `http` and `https`; cheap to clone. It follows no redirects.
#[derive(Debug, Clone)]
pub struct HttpClient {
    direct: DirectClient,
    /// For `https`, with HTTP/2 where the server has it.
    secure: Option<reqwest::Client>,
    user_agent: Option<HeaderValue>,
    connect_timeout: Duration,
}

/// The body of a response, as a stream of its chunks.
pub struct ReceivedBody(BodyKind);

enum BodyKind {
    Direct(Box<DirectBody>),
    Secure(reqwest::Body),
}

impl HttpClient {
    pub(super) fn new(
        secure: Option<reqwest::Client>,
        user_agent: Option<HeaderValue>,
        connect_timeout: Duration,
        pool_idle_timeout: Duration,
    ) -> Self {
        Self {
            direct: DirectClient::new(connect_timeout, pool_idle_timeout),
            secure,
            user_agent,
            connect_timeout,
        }
    }

    /// Sends a request with an absolute URI and waits for the head of the response.
    ///
    /// # Errors
    /// When the server cannot be reached or the connection fails.
    ///
    /// # Cancel safety
    /// Dropping the future ends the request.
    pub async fn execute(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ReceivedBody>, ClientError> {
        let headers = request.headers_mut();
        if let Some(user_agent) = &self.user_agent
            && !headers.contains_key(USER_AGENT)
        {
            headers.insert(USER_AGENT, user_agent.clone());
        }
        if !headers.contains_key(ACCEPT) {
            headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        }
        let scheme = request.uri().scheme();
        if scheme == Some(&Scheme::HTTP) {
            let response = self.direct.send(request).await?;
            return Ok(response.map(|body| ReceivedBody(BodyKind::Direct(Box::new(body)))));
        }
        let secure = self
            .secure
            .as_ref()
            .filter(|_| scheme == Some(&Scheme::HTTPS));
        let secure = secure.ok_or(ClientError::Uri)?;
        let request = reqwest::Request::try_from(request).map_err(ClientError::broken)?;
        let response = secure.execute(request).await.map_err(|error| {
            match (error.is_connect(), error.is_timeout()) {
                (true, true) => ClientError::ConnectTimeout(self.connect_timeout),
                (true, false) => match certificate_remedy(&error) {
                    Some(remedy) => ClientError::Certificate(remedy, error.without_url().into()),
                    None => ClientError::unreachable(error.without_url()),
                },
                (false, _) => ClientError::broken(error.without_url()),
            }
        })?;
        let response = Response::<reqwest::Body>::from(response);
        Ok(response.map(|body| ReceivedBody(BodyKind::Secure(body))))
    }
}

impl ReceivedBody {
    /// The bytes that are still to come, if their number was announced.
    pub(crate) fn announced(&self) -> Option<u64> {
        match &self.0 {
            BodyKind::Direct(body) => body.size_hint().exact(),
            BodyKind::Secure(body) => body.size_hint().exact(),
        }
    }
}

impl From<reqwest::Response> for ReceivedBody {
    fn from(response: reqwest::Response) -> Self {
        let response = Response::<reqwest::Body>::from(response);
        Self(BodyKind::Secure(response.into_body()))
    }
}

impl Stream for ReceivedBody {
    type Item = Result<Bytes, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let frame = match &mut self.0 {
                BodyKind::Direct(body) => ready!(Pin::new(body).poll_frame(context))
                    .map(|frame| frame.map_err(ClientError::broken)),
                BodyKind::Secure(body) => ready!(Pin::new(body).poll_frame(context))
                    .map(|frame| frame.map_err(|error| ClientError::broken(error.without_url()))),
            };
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(data))) => return Poll::Ready(Some(Ok(data))),
                // Trailers.
                Some(Ok(Err(_))) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl fmt::Debug for ReceivedBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ReceivedBody")
    }
}
